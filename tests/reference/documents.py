"""The JSON document of each command: what scripts may rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from savepoints.model import Savepoint
from savepoints.operations.check import Health
from savepoints.operations.copy import Copied, CopyPlan
from savepoints.operations.create import CreatePlan
from savepoints.operations.diff import Diff
from savepoints.operations.drill import Drilled
from savepoints.operations.expire import Expired, ExpirePlan
from savepoints.operations.export import ExportPlan
from savepoints.operations.gc import Collected, GcPlan
from savepoints.operations.init import Found
from savepoints.operations.lineage import Lineage
from savepoints.operations.rebuild import RebuildPlan, Rebuilt
from savepoints.operations.restore import Restored, RestorePlan
from savepoints.operations.rollback import RollbackPlan, RolledBack
from savepoints.operations.tag import TagPlan
from savepoints.operations.verify import Report, Reports
from savepoints.origins import Effective
from savepoints.runner import Ran
from savepoints.state.typed import Variable
from savepoints.store.events import Event
from savepoints.store.journal import Operation
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


def planned(plan: type) -> Document:
    """Describe what `--dry-run` prints, or a command that wants `--execute` without it."""
    fields = {"dry_run": (bool, "`true`"), "plan": (plan, "What would be done.")}
    return Document(fields, "When nothing was done")


_SAVEPOINT = Document({"savepoint": (Savepoint, "As it is now.")})
_OPERATION = Document({"operation": (Operation, "As the journal has it.")})
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
    "create": (_SAVEPOINT, planned(CreatePlan)),
    "export": (_SAVEPOINT, planned(ExportPlan)),
    "list": (Document({"savepoints": (list[Savepoint], "The newest first.")}),),
    "show": (_SAVEPOINT,),
    "lineage": (Document({"lineage": (Lineage, "Generations and savepoints.")}),),
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
    ),
    "rollback": (
        Document({"rolled_back": (RolledBack, "What was done.")}),
        planned(RollbackPlan),
    ),
    "operations list": (Document({"operations": (list[Operation], "The newest first.")}),),
    "operations show": (_OPERATION,),
    "operations resume": (
        Document({"rolled_back": (RolledBack, "What was done.")}),
        planned(RollbackPlan),
    ),
    "operations undo": (_OPERATION, planned(RollbackPlan)),
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
                "found": (Found, "What the checkpoint says."),
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
