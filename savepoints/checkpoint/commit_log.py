"""The commit log: `commits/N` exists when batch N is finished.

Source: `org.apache.spark.sql.execution.streaming.checkpointing.CommitLog`: a line with the
version, then JSON with the watermark that the next batch starts from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from savepoints.errors import IncompatibleError


@dataclass(frozen=True)
class CommitLogEntry:
    """One file of the commit log.

    Attributes:
        next_watermark_ms: Watermark that batch N + 1 evicts and emits by, milliseconds since 1970.
    """

    next_watermark_ms: int


def parse(data: bytes, name: str) -> CommitLogEntry:
    """Read one file of the commit log.

    Raises:
        IncompatibleError: If it is of another version (v2 belongs to state store checkpoint
            format 2, whose file names carry ids), or not a commit log file.
    """
    version, _, body = data.decode("utf-8", errors="replace").partition("\n")
    if version != "v1":
        raise IncompatibleError(
            f"{name}: commit log version {version[:40]!r} is not supported, only 'v1'",
            hint="state store checkpoint format 2 cannot be saved yet; run the query with "
            "spark.sql.streaming.stateStore.checkpointFormatVersion=1",
            file=name,
        )
    try:
        return CommitLogEntry(int(json.loads(body).get("nextBatchWatermarkMs", 0)))
    except (ValueError, TypeError, AttributeError) as error:
        raise IncompatibleError(
            f"{name} is not a commit log file that Spark would write: {error!r}",
            hint="the file is damaged, or was edited: restore from a savepoint",
            file=name,
        ) from None
