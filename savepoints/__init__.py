"""Savepoints for PySpark Structured Streaming: state, offsets and outputs in one piece.

```python
import savepoints

store = savepoints.Store.open("s3://bucket/savepoints")
clicks = store.query("clicks")
clicks.create(tags=["before-release"]).execute()
plan = clicks.rollback("before-release")
print(plan)
plan.execute(progress=print)
```

Names are imported when they are first used, so that `import savepoints` costs nothing and needs no
Spark.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from savepoints.bound_plan import BoundPlan
    from savepoints.checkpoint.evolution.upgrade import Upgrade
    from savepoints.config.settings import QuerySettings, Settings
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
        SeedRowsError,
        SeveralRowsError,
        SourceDataGoneError,
        SourceLogError,
        StalePlanError,
        StateIdsError,
        StateUnwrittenError,
        StoppedError,
        StoreNotFoundError,
        TargetExistsError,
        UnfinishedOperationError,
        UnreachableError,
        UnsupportedFormatError,
        UnsupportedProviderError,
        UsageError,
        VerificationError,
    )
    from savepoints.handle import Query, SavepointHandle, Store
    from savepoints.model import Cut, Generation, OutputVersion, Savepoint
    from savepoints.operations.begin.bootstrap import Bootstrapped
    from savepoints.operations.begin.seed import Seeded
    from savepoints.operations.cascade.cascade import Cascaded, MergedThrough
    from savepoints.operations.check.check import Health
    from savepoints.operations.fork.fork import Forked
    from savepoints.operations.fork.promote import Promoted
    from savepoints.operations.fork.verdict import Comparison
    from savepoints.operations.inspect.diff import Diff
    from savepoints.operations.inspect.drill import Drilled
    from savepoints.operations.inspect.estimate import Estimate
    from savepoints.operations.inspect.lineage import Lineage
    from savepoints.operations.inspect.locate import Located
    from savepoints.operations.inspect.topology import Topology
    from savepoints.operations.inspect.verify import Report, Reports
    from savepoints.operations.maintain.copy import Copied
    from savepoints.operations.maintain.expire import Expired
    from savepoints.operations.maintain.gc import Collected
    from savepoints.operations.maintain.rebuild_catalog import Rebuilt
    from savepoints.operations.merge.result import Merged
    from savepoints.operations.migrate.migrate import MigrationOptions
    from savepoints.operations.pipeline.group_savepoint import Group
    from savepoints.operations.pipeline.pipeline_graph import Pipeline
    from savepoints.operations.rollback.generation_change import Moved
    from savepoints.operations.rollback.rollback import RolledBack
    from savepoints.operations.rollback.target import AtBatch, AtTime, BeforeLast
    from savepoints.operations.run.attach import Attached, attach
    from savepoints.operations.run.pause import PauseState
    from savepoints.operations.run.periodic import Attempt
    from savepoints.operations.savepoint.restore import Restored
    from savepoints.runtime.app import (
        App,
        Input,
        KeyMigration,
        MergeFunctions,
        Output,
        RowCombination,
        TableInput,
    )
    from savepoints.runtime.runner import Ran
    from savepoints.sources.kafka.reset_targets import Target
    from savepoints.state.change.edit import StateEdit
    from savepoints.store.retention_policy import RetentionPolicy

_NAMES = {
    "savepoints.checkpoint.evolution.upgrade": ("Upgrade",),
    "savepoints.config.settings": ("QuerySettings", "Settings"),
    "savepoints.bound_plan": ("BoundPlan",),
    "savepoints.handle": ("Query", "SavepointHandle", "Store"),
    "savepoints.model": ("Cut", "Generation", "OutputVersion", "Savepoint"),
    "savepoints.operations.begin.bootstrap": ("Bootstrapped",),
    "savepoints.operations.begin.seed": ("Seeded",),
    "savepoints.operations.cascade.cascade": ("Cascaded", "MergedThrough"),
    "savepoints.operations.check.check": ("Health",),
    "savepoints.operations.fork.fork": ("Forked",),
    "savepoints.operations.fork.promote": ("Promoted",),
    "savepoints.operations.fork.verdict": ("Comparison",),
    "savepoints.operations.inspect.diff": ("Diff",),
    "savepoints.operations.inspect.drill": ("Drilled",),
    "savepoints.operations.inspect.estimate": ("Estimate",),
    "savepoints.operations.inspect.lineage": ("Lineage",),
    "savepoints.operations.inspect.locate": ("Located",),
    "savepoints.operations.pipeline.pipeline_graph": ("Pipeline",),
    "savepoints.operations.inspect.topology": ("Topology",),
    "savepoints.operations.inspect.verify": ("Report", "Reports"),
    "savepoints.operations.maintain.copy": ("Copied",),
    "savepoints.operations.maintain.expire": ("Expired",),
    "savepoints.operations.maintain.gc": ("Collected",),
    "savepoints.operations.maintain.rebuild_catalog": ("Rebuilt",),
    "savepoints.operations.merge.result": ("Merged",),
    "savepoints.operations.migrate.migrate": ("MigrationOptions",),
    "savepoints.operations.pipeline.group_savepoint": ("Group",),
    "savepoints.operations.rollback.generation_change": ("Moved",),
    "savepoints.operations.rollback.rollback": ("RolledBack",),
    "savepoints.operations.rollback.target": ("AtBatch", "AtTime", "BeforeLast"),
    "savepoints.operations.run.attach": ("Attached", "attach"),
    "savepoints.operations.run.pause": ("PauseState",),
    "savepoints.operations.run.periodic": ("Attempt",),
    "savepoints.operations.savepoint.restore": ("Restored",),
    "savepoints.runtime.app": (
        "App",
        "Input",
        "KeyMigration",
        "MergeFunctions",
        "Output",
        "RowCombination",
        "TableInput",
    ),
    "savepoints.runtime.runner": ("Ran",),
    "savepoints.sources.kafka.reset_targets": ("Target",),
    "savepoints.state.change.edit": ("StateEdit",),
    "savepoints.store.retention_policy": ("RetentionPolicy",),
}
__all__ = [
    "AmbiguousNameError",
    "App",
    "AtBatch",
    "AtTime",
    "Attached",
    "Attempt",
    "BeforeLast",
    "Bootstrapped",
    "BoundPlan",
    "Cascaded",
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
    "Group",
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
    "MergedThrough",
    "MigrationOptions",
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
    "Pipeline",
    "PlacementError",
    "PrivateApiError",
    "Promoted",
    "ProviderError",
    "Query",
    "QueryNotFoundError",
    "QueryRunningError",
    "QuerySettings",
    "Ran",
    "Rebuilt",
    "Report",
    "Reports",
    "RescaleError",
    "Restored",
    "RetentionPolicy",
    "RolledBack",
    "RowCombination",
    "Savepoint",
    "SavepointHandle",
    "SavepointNotFoundError",
    "SavepointsError",
    "SchemaPathError",
    "SeedRowsError",
    "Seeded",
    "Settings",
    "SeveralRowsError",
    "SourceDataGoneError",
    "SourceLogError",
    "StalePlanError",
    "StateEdit",
    "StateIdsError",
    "StateUnwrittenError",
    "StoppedError",
    "Store",
    "StoreNotFoundError",
    "TableInput",
    "Target",
    "TargetExistsError",
    "Topology",
    "UnfinishedOperationError",
    "UnreachableError",
    "UnsupportedFormatError",
    "UnsupportedProviderError",
    "Upgrade",
    "UsageError",
    "VerificationError",
    "attach",
]
_HOMES = {name: module for module, names in _NAMES.items() for name in names} | {
    name: "savepoints.errors" for name in __all__ if name.endswith("Error")
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (whatever the name stands for)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'savepoints' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return __all__
