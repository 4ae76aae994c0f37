"""The commit log: `commits/N` exists when batch N is finished.

Source: `org.apache.spark.sql.execution.streaming.checkpointing.CommitLog`: a line with the
version, then JSON with the watermark that the next batch starts from. Version 2 belongs to state
store checkpoint format 2 and adds the unique id of each state store that the batch wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from savepoints.checkpoint.logs import versioned
from savepoints.errors import IncompatibleError
from savepoints.io import Location

_WHAT = "a commit log file"

# By operator: by state partition: the ids of its stores.
StateIds = Mapping[int, Sequence[Sequence[str]]]


@dataclass(frozen=True)
class CommitLogEntry:
    """One file of the commit log.

    Attributes:
        next_watermark_ms: Watermark that batch N + 1 evicts and emits by, milliseconds since 1970.
        state_ids: Ids of the state stores of version N + 1, empty with checkpoint format 1.
    """

    next_watermark_ms: int
    state_ids: StateIds = field(default_factory=dict)


def read(checkpoint: Location, batch: int) -> CommitLogEntry:
    """Read what a checkpoint's commit log has of a batch; FileNotFoundError if Spark removed it."""
    name = f"commits/{batch}"
    return parse(checkpoint.get(name), name)


def parse(data: bytes, name: str) -> CommitLogEntry:
    """Read one file of the commit log."""
    version, content = _content(data, name)
    try:
        ids = (content.get("stateUniqueIds") or {}) if version == "v2" else {}
        return CommitLogEntry(
            int(content.get("nextBatchWatermarkMs", 0)),
            {
                int(operator): tuple(tuple(str(one) for one in stores) for stores in partitions)
                for operator, partitions in ids.items()
            },
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise versioned.damaged(name, _WHAT, error) from None


def new(next_watermark_ms: int) -> bytes:
    """Return a file of version 1."""
    return versioned.join("v1", {"nextBatchWatermarkMs": next_watermark_ms})


def with_watermark(data: bytes, name: str, next_watermark_ms: int) -> bytes:
    """Return the file with another watermark for the next batch; the rest is unchanged."""
    version, content = _content(data, name)
    return versioned.join(version, {**content, "nextBatchWatermarkMs": next_watermark_ms})


def with_state_ids(data: bytes, name: str, ids: StateIds) -> bytes:
    """Return the file with the ids of rewritten state stores; the rest is unchanged.

    Otherwise a query with checkpoint format 2 looks for files that do not exist.
    """
    version, content = _content(data, name)
    if version != "v2":
        raise IncompatibleError(
            f"the commit log file {name} has version {version}, which cannot record the state "
            "store ids that this state needs",
            hint="restore the native form: --format native",
            file=name,
        )
    content["stateUniqueIds"] = {
        str(operator): [list(stores) for stores in partitions]
        for operator, partitions in ids.items()
    }
    return versioned.join(version, content)


def _content(data: bytes, name: str) -> tuple[str, dict[str, Any]]:
    hint = "run the query without spark.sql.streaming.queryEvolution.enableSinkEvolution"
    version, lines = versioned.split(data, name, "commit log", hint)
    return version, versioned.parse_object(lines[0] if lines else "", name, _WHAT)
