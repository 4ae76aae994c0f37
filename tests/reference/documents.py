"""The JSON document of each command: what scripts may rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from savepoints.checkpoint.evolution.upgrade import Upgrade
from savepoints.config.effective import Effective
from savepoints.model import Savepoint
from savepoints.operations.begin.bootstrap import Bootstrapped, BootstrapPlan
from savepoints.operations.begin.seed import Seeded
from savepoints.operations.begin.seed_plan import SeedPlan
from savepoints.operations.cascade.cascade import Cascaded
from savepoints.operations.cascade.cascade_plan import CascadePlan
from savepoints.operations.check.check import Health
from savepoints.operations.fork.compare import ComparePlan
from savepoints.operations.fork.fork import Forked
from savepoints.operations.fork.fork_plan import ForkPlan, ForksPlan
from savepoints.operations.fork.promote import Promoted
from savepoints.operations.fork.promote_plan import PromotePlan
from savepoints.operations.fork.promote_steps import PromotionPlan
from savepoints.operations.fork.verdict import Comparison
from savepoints.operations.inspect.availability import Availability
from savepoints.operations.inspect.diff import Diff
from savepoints.operations.inspect.drill import Drilled
from savepoints.operations.inspect.estimate import Estimate
from savepoints.operations.inspect.lineage import Lineage
from savepoints.operations.inspect.locate import Located
from savepoints.operations.inspect.topology import Topology
from savepoints.operations.inspect.verify import Report, Reports
from savepoints.operations.maintain.copy import Copied, CopyPlan
from savepoints.operations.maintain.expire import Expired, ExpirePlan
from savepoints.operations.maintain.gc import Collected, GcPlan
from savepoints.operations.maintain.init import CheckpointFacts
from savepoints.operations.maintain.rebuild_catalog import RebuildPlan, Rebuilt
from savepoints.operations.maintain.rename import RenamePlan
from savepoints.operations.maintain.tag import TagPlan
from savepoints.operations.merge.append import Appended
from savepoints.operations.merge.late import LateEvents
from savepoints.operations.merge.plan import AppendingPlan, MergePlan, MergingPlan
from savepoints.operations.merge.result import Merged
from savepoints.operations.migrate.edit import EditPlan
from savepoints.operations.migrate.migrate import MigrationPlan
from savepoints.operations.pipeline.end import EndPlan
from savepoints.operations.pipeline.group_savepoint import Group, GroupPlan
from savepoints.operations.pipeline.groups import GroupCopyPlan
from savepoints.operations.pipeline.pipeline_graph import Pipeline
from savepoints.operations.pipeline_fork.pipeline_compare import (
    PipelineComparePlan,
    PipelineComparison,
)
from savepoints.operations.pipeline_fork.pipeline_fork import PipelineForked
from savepoints.operations.pipeline_fork.pipeline_fork_plan import PipelineForkPlan
from savepoints.operations.pipeline_fork.pipeline_promote import (
    PipelinePromoted,
    PipelinePromotePlan,
)
from savepoints.operations.pipeline_fork.pipeline_promotion import PipelinePromotionPlan
from savepoints.operations.pipeline_rollback.pipeline_rollback import PipelineRolledBack
from savepoints.operations.pipeline_rollback.rollback_plan import PipelineRollbackPlan
from savepoints.operations.rollback.generation_change import Moved
from savepoints.operations.rollback.reset import ResetPlan
from savepoints.operations.rollback.restore_point import PointPlan
from savepoints.operations.rollback.rollback import RollbackPlan, RolledBack
from savepoints.operations.run.pause import PauseState
from savepoints.operations.savepoint.create import CreatePlan
from savepoints.operations.savepoint.export import ExportPlan
from savepoints.operations.savepoint.restore import Restored, RestorePlan
from savepoints.plan import Plan
from savepoints.runtime.runner import Ran
from savepoints.state.typed.typed import Variable
from savepoints.store.locks.journal import Operation
from savepoints.store.tables.events import Event
from tests.reference.kinds import Fields, fields_of


@dataclass(frozen=True)
class Document:
    """One JSON document that a command prints.

    Attributes:
        fields: Type and meaning of each, besides `schema_version`.
        when: In which case it is this one.
    """

    fields: Fields
    when: str = ""


def planned(plan: type, when: str = "When nothing was done") -> Document:
    """Describe what `--dry-run` prints."""
    fields = {"dry_run": (bool, "`true`"), "plan": (plan, "What would be done.")}
    return Document(fields, when)


_LISTED = {
    "savepoints": (list[Savepoint], "The newest first."),
    "rolled_back": (
        list[str],
        "Ids of savepoints that `latest` and times skip.",
    ),
}
_GROUP = Document({"group": (Group, "The savepoints and how they fit together.")})
_SAVEPOINT = Document({"savepoint": (Savepoint, "The savepoint.")})
_PAUSE = Document({"pause": (PauseState, "How it is now.")})
_OPERATION = Document({"operation": (Operation, "The operation, as in the journal.")})
_STATE = {
    "savepoint": (str, "Id of the savepoint."),
    "query": (str, "Name of its query."),
    "batch_id": (int, "Its batch."),
    "variable": (Variable, "What was read."),
}

# By the words of the command; several where it depends.
DOCUMENTS: dict[str, tuple[Document, ...]] = {
    "run": (
        Document(
            {
                "run": (Ran, "What was run."),
                "savepoint": (Savepoint | None, "The one taken at the end."),
            }
        ),
    ),
    "pause": (_PAUSE,),
    "resume": (_PAUSE,),
    "create": (_SAVEPOINT, planned(CreatePlan)),
    "export": (_SAVEPOINT, planned(ExportPlan)),
    "list": (
        Document(_LISTED),
        Document(
            {
                **_LISTED,
                "availability": (
                    list[Availability],
                    "Whether each is restorable, in the same order; `until` is not determined.",
                ),
            },
            "With `--check-sources`",
        ),
    ),
    "show": (
        Document(
            {
                "savepoint": (Savepoint, "The savepoint."),
                "availability": (
                    Availability | None,
                    "Whether it is restorable; null when Kafka was not asked.",
                ),
                "clone_of": (
                    dict[str, Any],
                    "By output that is a shallow clone, `uri` and `version` of what it reads.",
                ),
            }
        ),
    ),
    "estimate": (Document({"estimate": (Estimate, "The figures, and what they are based on.")}),),
    "page": (Document({"path": (str, "As it was given."), "bytes": (int, "Of the file.")}),),
    "ui": (Document({"url": (str, "Where it is served.")}, "Once it listens"),),
    "lineage": (Document({"lineage": (Lineage, "Generations and savepoints.")}),),
    "pipeline show": (Document({"pipeline": (Pipeline, "Who reads whom.")}),),
    "pipeline create": (_GROUP, planned(GroupPlan)),
    "pipeline verify": (_GROUP,),
    "pipeline list": (Document({"groups": (list[Group], "The newest first.")}),),
    "pipeline copy": (
        Document({"copied": (list[Copied], "What was copied, by savepoint.")}),
        planned(GroupCopyPlan),
    ),
    "pipeline rollback": (
        Document({"pipeline_rolled_back": (PipelineRolledBack, "What was done.")}),
        planned(PipelineRollbackPlan),
    ),
    "pipeline fork": (
        Document({"pipeline_forked": (PipelineForked, "What was made.")}),
        planned(PipelineForkPlan),
    ),
    "pipeline compare": (
        Document(
            {"pipeline_comparison": (PipelineComparison, "What was found; numbers are exact.")}
        ),
        planned(PipelineComparePlan),
    ),
    "pipeline promote": (
        Document({"pipeline_promoted": (PipelinePromoted, "What was done.")}),
        planned(PipelinePromotePlan),
    ),
    "state": (
        Document(
            {
                **_STATE,
                "columns": (list[str], "Columns of the rows; structs spread out."),
                "more": (bool, "Whether there are more rows than these."),
                "rows": (list[dict[str, Any]], "The rows."),
            }
        ),
        Document({**_STATE, "written": (dict[str, Any], "`uri` and `rows`.")}, "With `--to`"),
    ),
    "diff": (
        Document(
            {"equal": (bool, "Whether nothing differs."), **fields_of(Diff)},
        ),
    ),
    "verify": (
        Document({"report": (Report, "What was found.")}),
        Document(fields_of(Reports), "With `--all`"),
    ),
    "events": (Document({"events": (list[Event], "The newest first.")}),),
    "restore": (
        Document({"restored": (Restored, "What was written.")}),
        planned(RestorePlan),
        planned(MigrationPlan, "With `--migrate`, when nothing was done"),
        planned(PointPlan, "With `--at-batch`, or `--at` and `--exact`, when nothing was done"),
    ),
    "upgrade check": (Document({"upgrade": (Upgrade, "What was found.")}),),
    "rollback": (
        Document({"rolled_back": (RolledBack, "What was done.")}),
        planned(RollbackPlan),
    ),
    "fork": (
        Document({"forked": (list[Forked], "What was made, in the order of the names.")}),
        planned(ForksPlan),
    ),
    "bootstrap": (
        Document({"bootstrapped": (Bootstrapped, "What was done.")}),
        planned(BootstrapPlan),
    ),
    "seed": (
        Document({"seeded": (Seeded, "What was done.")}),
        planned(SeedPlan),
    ),
    "compare": (
        Document({"comparison": (Comparison, "What was found; numbers are exact.")}),
        planned(ComparePlan),
    ),
    "promote": (
        Document({"promoted": (Promoted, "What was done.")}),
        planned(PromotePlan),
        Document({"rolled_back": (RolledBack, "What was done.")}, "With `--undo`"),
    ),
    "merge": (
        Document(
            {
                "merged": (Merged | None, "What was done; null with `--downstream plan`."),
                "downstream": (list[Cascaded], "What changes, or has changed, in each reader."),
            }
        ),
        planned(MergePlan),
        Document({"rolled_back": (RolledBack, "What was done.")}, "With `--undo`"),
    ),
    "late": (Document({"late": (LateEvents, "What was dropped.")}),),
    "locate": (Document({"located": (Located, "Where they are.")}),),
    "topology": (Document({"topology": (Topology, "Where everything is.")}),),
    "reset": (
        Document({"reset": (Moved, "What was done.")}, "When it was done"),
        planned(ResetPlan),
        Document({"offsets": (dict[str, Any], "By topic and partition.")}, "With `--export`"),
    ),
    "undo": (
        Document({"rolled_back": (RolledBack, "What was done.")}),
        Document(_OPERATION.fields, "When the operation was interrupted"),
        Document(
            {"pipeline_rolled_back": (PipelineRolledBack, "What was done.")},
            "When it was one on several queries",
        ),
        planned(RollbackPlan),
        planned(PipelineRollbackPlan, "When nothing was done to one on several queries"),
        planned(Plan, "When nothing was done to an interrupted operation"),
    ),
    "edit": (_SAVEPOINT, planned(EditPlan)),
    "operations list": (Document({"operations": (list[Operation], "The newest first.")}),),
    "operations show": (_OPERATION,),
    "operations resume": (
        Document({"rolled_back": (RolledBack, "What was done.")}, "For a rollback"),
        Document({"reset": (Moved, "What was done.")}, "For a reset"),
        Document(
            {"pipeline_rolled_back": (PipelineRolledBack, "What was done.")},
            "For a pipeline's rollback",
        ),
        Document({"pipeline_forked": (PipelineForked, "What was made.")}, "For a pipeline's fork"),
        Document(
            {"pipeline_promoted": (PipelinePromoted, "What was done.")},
            "For a pipeline's promotion",
        ),
        Document({"forked": (Forked, "What was made.")}, "For a fork"),
        Document({"bootstrapped": (Bootstrapped, "What was done.")}, "For a bootstrap"),
        Document({"seeded": (Seeded, "What was done.")}, "For a seed"),
        Document({"promoted": (Moved, "What was done.")}, "For a promotion"),
        Document({"merged": (Moved, "What was done.")}, "For a merge"),
        Document({"cascaded": (Moved, "What was done.")}, "For a reader's part of a merge"),
        Document({"appended": (Appended, "What was done.")}, "For a merge with `append`"),
        planned(RollbackPlan, "For a rollback, when nothing was done"),
        planned(ResetPlan, "For a reset, when nothing was done"),
        planned(PromotionPlan, "For a promotion, when nothing was done"),
        planned(MergingPlan, "For a merge, when nothing was done"),
        planned(CascadePlan, "For a reader's part of a merge, when nothing was done"),
        planned(PipelineRollbackPlan, "For a pipeline's rollback, when nothing was done"),
        planned(PipelineForkPlan, "For a pipeline's fork, when nothing was done"),
        planned(PipelinePromotionPlan, "For a pipeline's promotion, when nothing was done"),
        planned(ForkPlan, "For a fork, when nothing was done"),
        planned(AppendingPlan, "For a merge with `append`, when nothing was done"),
        planned(BootstrapPlan, "For a bootstrap, when nothing was done"),
        planned(SeedPlan, "For a seed, when nothing was done"),
    ),
    "operations undo": (_OPERATION, planned(Plan)),
    "rename": (
        Document({"query": (str, "Its name now."), "savepoints": (int, "How many have it.")}),
        planned(RenamePlan),
    ),
    "end": (Document({"ended": (EndPlan, "What was done.")}), planned(EndPlan)),
    "tag": (_SAVEPOINT, planned(TagPlan)),
    "expire": (Document({"expired": (Expired, "What was done.")}), planned(ExpirePlan)),
    "gc": (Document({"collected": (Collected, "What was done.")}), planned(GcPlan)),
    "copy": (Document({"copied": (Copied, "What was done.")}), planned(CopyPlan)),
    "check": (
        Document(fields_of(Health)),
        Document({"rebuilt": (Rebuilt, "What was done.")}, "With `--rebuild-catalog`"),
        planned(RebuildPlan),
    ),
    "drill": (Document({"drill": (Drilled, "What was measured and found.")}),),
    "init": (
        Document(
            {
                "file": (str, "The file that was written."),
                "to_fill_in": (int, "Places in it that are marked."),
                "found": (CheckpointFacts, "What the checkpoint shows."),
            }
        ),
        Document(
            {
                "store": (str, "The store's URI."),
                "made": (bool, "Whether the store was created; false if it existed."),
            }
        ),
    ),
    "config": (Document({"settings": (list[Effective], "Those in force.")}),),
    "metrics": (
        Document(
            {
                "metrics": (
                    list[dict[str, Any]],
                    "`name`, `kind`, `labels` and `value` of each; see [metrics](metrics.md).",
                )
            }
        ),
    ),
    "completion": (
        Document({"shell": (str, "As it was given."), "script": (str, "For that shell.")}),
    ),
    "version": (
        Document({"versions": (dict[str, str | None], "By package; null if not installed.")}),
    ),
}
