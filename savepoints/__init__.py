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
    from savepoints.checkpoint.evolution.upgrade import Upgrade
    from savepoints.config.settings import Settings
    from savepoints.errors import (
        AmbiguousNameError,
        CheckFailedError,
        CheckpointDamagedError,
        CheckpointNotFoundError,
        CredentialsError,
        EnvironmentUnfitError,
        FileSinkError,
        IncompatibleError,
        LateBatchError,
        LayoutChangedError,
        ListOrderError,
        LockedError,
        MissingExtraError,
        NativeOnlyError,
        NoCommittedBatchError,
        NotAlignedError,
        NotFoundError,
        OutputVersionGoneError,
        PartitionCountError,
        PartlyDoneError,
        PlacementError,
        PrivateApiError,
        ProviderError,
        QueryNotFoundError,
        QueryRunningError,
        RescaleError,
        SavepointNotFoundError,
        SavepointsError,
        SchemaPathError,
        SeveralRowsError,
        SourceDataGoneError,
        SourceLogError,
        StalePlanError,
        StateIdsError,
        StoreNotFoundError,
        TargetExistsError,
        UnfinishedOperationError,
        UnreachableError,
        UnsupportedFormatError,
        UnsupportedProviderError,
        UsageError,
        VerificationError,
    )
    from savepoints.model import Cut, Generation, OutputVersion, Savepoint
    from savepoints.operations.check.check import Health, check
    from savepoints.operations.fork.fork import Forked
    from savepoints.operations.fork.promote import Promoted
    from savepoints.operations.fork.verdict import Comparison
    from savepoints.operations.inspect.diff import Diff, diff
    from savepoints.operations.inspect.drill import Drilled, drill
    from savepoints.operations.inspect.estimate import Estimate, estimate
    from savepoints.operations.inspect.lineage import Lineage, lineage
    from savepoints.operations.inspect.locate import Located, locate
    from savepoints.operations.inspect.read_state import read_state
    from savepoints.operations.inspect.verify import Report, verify, verify_all
    from savepoints.operations.maintain.copy import Copied
    from savepoints.operations.maintain.expire import Expired
    from savepoints.operations.maintain.gc import Collected
    from savepoints.operations.maintain.rebuild_catalog import Rebuilt
    from savepoints.operations.merge.result import Merged
    from savepoints.operations.migrate.upgrade_check import upgrade_check
    from savepoints.operations.rollback.generation_change import Moved
    from savepoints.operations.rollback.rollback import RolledBack
    from savepoints.operations.rollback.target import AtBatch, AtTime, BeforeLast
    from savepoints.operations.run.attach import Attached, attach
    from savepoints.operations.run.pause import PauseState, pause, resume
    from savepoints.operations.run.periodic import Attempt
    from savepoints.operations.run.run import run
    from savepoints.operations.savepoint.restore import Restored
    from savepoints.runtime.app import (
        App,
        Input,
        KeyMigration,
        MergeFunctions,
        Output,
        RowCombination,
    )
    from savepoints.runtime.runner import Ran
    from savepoints.sources.kafka.reset_targets import Target
    from savepoints.state.change.edit import StateEdit
    from savepoints.store.retention_policy import RetentionPolicy
    from savepoints.store.root import Store

_NAMES = {
    "savepoints.api": (
        "compare",
        "copy",
        "create",
        "edit",
        "expire",
        "export",
        "fork",
        "gc",
        "merge",
        "promote",
        "rebuild_catalog",
        "rename",
        "reset",
        "restore",
        "restore_migrated",
        "restore_point",
        "rollback",
        "tag",
    ),
    "savepoints.checkpoint.evolution.upgrade": ("Upgrade",),
    "savepoints.config.settings": ("Settings",),
    "savepoints.errors": (
        "AmbiguousNameError",
        "CheckFailedError",
        "CheckpointDamagedError",
        "CheckpointNotFoundError",
        "CredentialsError",
        "EnvironmentUnfitError",
        "FileSinkError",
        "IncompatibleError",
        "LateBatchError",
        "LayoutChangedError",
        "ListOrderError",
        "LockedError",
        "MissingExtraError",
        "NativeOnlyError",
        "NoCommittedBatchError",
        "NotAlignedError",
        "NotFoundError",
        "OutputVersionGoneError",
        "PartitionCountError",
        "PartlyDoneError",
        "PlacementError",
        "PrivateApiError",
        "ProviderError",
        "QueryNotFoundError",
        "QueryRunningError",
        "RescaleError",
        "SavepointNotFoundError",
        "SavepointsError",
        "SchemaPathError",
        "SeveralRowsError",
        "SourceDataGoneError",
        "SourceLogError",
        "StalePlanError",
        "StateIdsError",
        "StoreNotFoundError",
        "TargetExistsError",
        "UnfinishedOperationError",
        "UnreachableError",
        "UnsupportedFormatError",
        "UnsupportedProviderError",
        "UsageError",
        "VerificationError",
    ),
    "savepoints.model": ("Cut", "Generation", "OutputVersion", "Savepoint"),
    "savepoints.operations.check.check": ("Health", "check"),
    "savepoints.operations.fork.fork": ("Forked",),
    "savepoints.operations.fork.promote": ("Promoted",),
    "savepoints.operations.fork.verdict": ("Comparison",),
    "savepoints.operations.inspect.diff": ("Diff", "diff"),
    "savepoints.operations.inspect.drill": ("Drilled", "drill"),
    "savepoints.operations.inspect.estimate": ("Estimate", "estimate"),
    "savepoints.operations.inspect.lineage": ("Lineage", "lineage"),
    "savepoints.operations.inspect.locate": ("Located", "locate"),
    "savepoints.operations.inspect.read_state": ("read_state",),
    "savepoints.operations.inspect.verify": ("Report", "verify", "verify_all"),
    "savepoints.operations.maintain.copy": ("Copied",),
    "savepoints.operations.maintain.expire": ("Expired",),
    "savepoints.operations.maintain.gc": ("Collected",),
    "savepoints.operations.maintain.rebuild_catalog": ("Rebuilt",),
    "savepoints.operations.merge.result": ("Merged",),
    "savepoints.operations.migrate.upgrade_check": ("upgrade_check",),
    "savepoints.operations.rollback.generation_change": ("Moved",),
    "savepoints.operations.rollback.rollback": ("RolledBack",),
    "savepoints.operations.rollback.target": ("AtBatch", "AtTime", "BeforeLast"),
    "savepoints.operations.run.attach": ("Attached", "attach"),
    "savepoints.operations.run.pause": ("PauseState", "pause", "resume"),
    "savepoints.operations.run.periodic": ("Attempt",),
    "savepoints.operations.run.run": ("run",),
    "savepoints.operations.savepoint.restore": ("Restored",),
    "savepoints.runtime.app": (
        "App",
        "Input",
        "KeyMigration",
        "MergeFunctions",
        "Output",
        "RowCombination",
    ),
    "savepoints.runtime.runner": ("Ran",),
    "savepoints.sources.kafka.reset_targets": ("Target",),
    "savepoints.state.change.edit": ("StateEdit",),
    "savepoints.store.retention_policy": ("RetentionPolicy",),
    "savepoints.store.root": ("Store",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "AmbiguousNameError",
    "App",
    "AtBatch",
    "AtTime",
    "Attached",
    "Attempt",
    "BeforeLast",
    "CheckFailedError",
    "CheckpointDamagedError",
    "CheckpointNotFoundError",
    "Collected",
    "Comparison",
    "Copied",
    "CredentialsError",
    "Cut",
    "Diff",
    "Drilled",
    "EnvironmentUnfitError",
    "Estimate",
    "Expired",
    "FileSinkError",
    "Forked",
    "Generation",
    "Health",
    "IncompatibleError",
    "Input",
    "KeyMigration",
    "LateBatchError",
    "LayoutChangedError",
    "Lineage",
    "ListOrderError",
    "Located",
    "LockedError",
    "MergeFunctions",
    "Merged",
    "MissingExtraError",
    "Moved",
    "NativeOnlyError",
    "NoCommittedBatchError",
    "NotAlignedError",
    "NotFoundError",
    "Output",
    "OutputVersion",
    "OutputVersionGoneError",
    "PartitionCountError",
    "PartlyDoneError",
    "PauseState",
    "PlacementError",
    "PrivateApiError",
    "Promoted",
    "ProviderError",
    "QueryNotFoundError",
    "QueryRunningError",
    "Ran",
    "Rebuilt",
    "Report",
    "RescaleError",
    "Restored",
    "RetentionPolicy",
    "RolledBack",
    "RowCombination",
    "Savepoint",
    "SavepointNotFoundError",
    "SavepointsError",
    "SchemaPathError",
    "Settings",
    "SeveralRowsError",
    "SourceDataGoneError",
    "SourceLogError",
    "StalePlanError",
    "StateEdit",
    "StateIdsError",
    "Store",
    "StoreNotFoundError",
    "Target",
    "TargetExistsError",
    "UnfinishedOperationError",
    "UnreachableError",
    "UnsupportedFormatError",
    "UnsupportedProviderError",
    "Upgrade",
    "UsageError",
    "VerificationError",
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
