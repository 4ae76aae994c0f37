"""Savepoints for PySpark Structured Streaming: state, offsets and outputs in one piece.

```python
import savepoints

store = savepoints.Store.open("s3://bucket/savepoints")
taken = savepoints.create(store, checkpoint="s3a://bucket/checkpoints/clicks")
savepoints.restore(store, "latest", "s3a://bucket/checkpoints/clicks-2")
```

Names are imported when they are first used, so that `import savepoints` costs nothing and needs no
Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from savepoints.api import (
        compare,
        copy,
        create,
        edit,
        expire,
        export,
        fork,
        gc,
        merge,
        promote,
        rebuild_catalog,
        reset,
        restore,
        restore_migrated,
        restore_point,
        rollback,
        tag,
    )
    from savepoints.app import App, Input, KeyMigration, MergeFunctions, Output, RowCombination
    from savepoints.config import Settings
    from savepoints.errors import SavepointsError
    from savepoints.model import Cut, Generation, OutputVersion, Savepoint
    from savepoints.operations.attach import attach
    from savepoints.operations.check import check
    from savepoints.operations.diff import diff
    from savepoints.operations.drill import drill
    from savepoints.operations.estimate import estimate
    from savepoints.operations.goal import AtBatch, AtTime, BeforeLast
    from savepoints.operations.lineage import lineage
    from savepoints.operations.locate import locate
    from savepoints.operations.pause import pause, resume
    from savepoints.operations.run import run
    from savepoints.operations.state import read_state
    from savepoints.operations.upgrade import upgrade_check
    from savepoints.operations.verify import verify, verify_all
    from savepoints.sources.targets import Target
    from savepoints.state.edit import Change
    from savepoints.store.retention import Policy
    from savepoints.store.root import Store

_HOMES = {
    "App": "savepoints.app",
    "AtBatch": "savepoints.operations.goal",
    "AtTime": "savepoints.operations.goal",
    "BeforeLast": "savepoints.operations.goal",
    "Change": "savepoints.state.edit",
    "Cut": "savepoints.model",
    "Generation": "savepoints.model",
    "Input": "savepoints.app",
    "KeyMigration": "savepoints.app",
    "MergeFunctions": "savepoints.app",
    "Output": "savepoints.app",
    "OutputVersion": "savepoints.model",
    "Policy": "savepoints.store.retention",
    "RowCombination": "savepoints.app",
    "Savepoint": "savepoints.model",
    "SavepointsError": "savepoints.errors",
    "Settings": "savepoints.config",
    "Store": "savepoints.store.root",
    "Target": "savepoints.sources.targets",
    "attach": "savepoints.operations.attach",
    "check": "savepoints.operations.check",
    "compare": "savepoints.api",
    "copy": "savepoints.api",
    "create": "savepoints.api",
    "diff": "savepoints.operations.diff",
    "drill": "savepoints.operations.drill",
    "edit": "savepoints.api",
    "estimate": "savepoints.operations.estimate",
    "expire": "savepoints.api",
    "export": "savepoints.api",
    "fork": "savepoints.api",
    "gc": "savepoints.api",
    "lineage": "savepoints.operations.lineage",
    "locate": "savepoints.operations.locate",
    "pause": "savepoints.operations.pause",
    "merge": "savepoints.api",
    "promote": "savepoints.api",
    "read_state": "savepoints.operations.state",
    "rebuild_catalog": "savepoints.api",
    "reset": "savepoints.api",
    "restore": "savepoints.api",
    "restore_migrated": "savepoints.api",
    "restore_point": "savepoints.api",
    "resume": "savepoints.operations.pause",
    "rollback": "savepoints.api",
    "run": "savepoints.operations.run",
    "tag": "savepoints.api",
    "upgrade_check": "savepoints.operations.upgrade",
    "verify": "savepoints.operations.verify",
    "verify_all": "savepoints.operations.verify",
}

__all__ = [
    "App",
    "AtBatch",
    "AtTime",
    "BeforeLast",
    "Change",
    "Cut",
    "Generation",
    "Input",
    "KeyMigration",
    "MergeFunctions",
    "Output",
    "OutputVersion",
    "Policy",
    "RowCombination",
    "Savepoint",
    "SavepointsError",
    "Settings",
    "Store",
    "Target",
    "attach",
    "check",
    "compare",
    "copy",
    "create",
    "diff",
    "drill",
    "edit",
    "estimate",
    "expire",
    "export",
    "fork",
    "gc",
    "lineage",
    "locate",
    "merge",
    "pause",
    "promote",
    "read_state",
    "rebuild_catalog",
    "reset",
    "restore",
    "restore_migrated",
    "restore_point",
    "resume",
    "rollback",
    "run",
    "tag",
    "upgrade_check",
    "verify",
    "verify_all",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  (whatever the name stands for)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'savepoints' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return __all__
