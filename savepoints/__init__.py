"""Savepoints for PySpark Structured Streaming: state, offsets and outputs in one piece.

```python
import savepoints

store = savepoints.Store.at("s3://bucket/savepoints").make()
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
        rename,
        reset,
        restore,
        restore_migrated,
        restore_point,
        rollback,
        tag,
    )
    from savepoints.config.settings import Settings
    from savepoints.errors import SavepointsError
    from savepoints.model import Cut, Generation, OutputVersion, Savepoint
    from savepoints.operations.check.check import check
    from savepoints.operations.inspect.diff import diff
    from savepoints.operations.inspect.drill import drill
    from savepoints.operations.inspect.estimate import estimate
    from savepoints.operations.inspect.lineage import lineage
    from savepoints.operations.inspect.locate import locate
    from savepoints.operations.inspect.read_state import read_state
    from savepoints.operations.inspect.verify import verify, verify_all
    from savepoints.operations.migrate.upgrade_check import upgrade_check
    from savepoints.operations.rollback.target import AtBatch, AtTime, BeforeLast
    from savepoints.operations.run.attach import attach
    from savepoints.operations.run.pause import pause, resume
    from savepoints.operations.run.run import run
    from savepoints.runtime.app import (
        App,
        Input,
        KeyMigration,
        MergeFunctions,
        Output,
        RowCombination,
    )
    from savepoints.sources.kafka.reset_targets import Target
    from savepoints.state.change.edit import StateEdit
    from savepoints.store.retention_policy import RetentionPolicy
    from savepoints.store.root import Store

_HOMES = {
    "App": "savepoints.runtime.app",
    "AtBatch": "savepoints.operations.rollback.target",
    "AtTime": "savepoints.operations.rollback.target",
    "BeforeLast": "savepoints.operations.rollback.target",
    "StateEdit": "savepoints.state.change.edit",
    "Cut": "savepoints.model",
    "Generation": "savepoints.model",
    "Input": "savepoints.runtime.app",
    "KeyMigration": "savepoints.runtime.app",
    "MergeFunctions": "savepoints.runtime.app",
    "Output": "savepoints.runtime.app",
    "OutputVersion": "savepoints.model",
    "RetentionPolicy": "savepoints.store.retention_policy",
    "RowCombination": "savepoints.runtime.app",
    "Savepoint": "savepoints.model",
    "SavepointsError": "savepoints.errors",
    "Settings": "savepoints.config.settings",
    "Store": "savepoints.store.root",
    "Target": "savepoints.sources.kafka.reset_targets",
    "attach": "savepoints.operations.run.attach",
    "check": "savepoints.operations.check.check",
    "compare": "savepoints.api",
    "copy": "savepoints.api",
    "create": "savepoints.api",
    "diff": "savepoints.operations.inspect.diff",
    "drill": "savepoints.operations.inspect.drill",
    "edit": "savepoints.api",
    "estimate": "savepoints.operations.inspect.estimate",
    "expire": "savepoints.api",
    "export": "savepoints.api",
    "fork": "savepoints.api",
    "gc": "savepoints.api",
    "lineage": "savepoints.operations.inspect.lineage",
    "locate": "savepoints.operations.inspect.locate",
    "pause": "savepoints.operations.run.pause",
    "merge": "savepoints.api",
    "promote": "savepoints.api",
    "read_state": "savepoints.operations.inspect.read_state",
    "rebuild_catalog": "savepoints.api",
    "rename": "savepoints.api",
    "reset": "savepoints.api",
    "restore": "savepoints.api",
    "restore_migrated": "savepoints.api",
    "restore_point": "savepoints.api",
    "resume": "savepoints.operations.run.pause",
    "rollback": "savepoints.api",
    "run": "savepoints.operations.run.run",
    "tag": "savepoints.api",
    "upgrade_check": "savepoints.operations.migrate.upgrade_check",
    "verify": "savepoints.operations.inspect.verify",
    "verify_all": "savepoints.operations.inspect.verify",
}

__all__ = [
    "App",
    "AtBatch",
    "AtTime",
    "BeforeLast",
    "Cut",
    "Generation",
    "Input",
    "KeyMigration",
    "MergeFunctions",
    "Output",
    "OutputVersion",
    "RetentionPolicy",
    "RowCombination",
    "Savepoint",
    "SavepointsError",
    "Settings",
    "StateEdit",
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
    "rename",
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
