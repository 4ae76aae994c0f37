"""The offset log: `offsets/N` says what batch N reads and under which settings.

Source: `org.apache.spark.sql.execution.streaming.runtime.OffsetSeqLog`, format v1: a line `v1`, a
line of JSON (watermark, batch time, the confs that a restart must keep), then a line per source,
`-` where a source has no position.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from savepoints.errors import IncompatibleError

PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
PARTITIONS_KEY = "spark.sql.shuffle.partitions"
CHECKPOINT_FORMAT_KEY = "spark.sql.streaming.stateStore.checkpointFormatVersion"

_NO_OFFSET = "-"


@dataclass(frozen=True)
class OffsetLogEntry:
    """One file of the offset log.

    Attributes:
        watermark_ms: Watermark by which batch N drops late rows, milliseconds since 1970.
        timestamp_ms: Processing time of the batch.
        conf: Spark settings that the batch ran with; they win over the session on a restart.
        sources: End position of each source as JSON, in order, None for none.
    """

    watermark_ms: int
    timestamp_ms: int
    conf: Mapping[str, str]
    sources: tuple[str | None, ...]

    @property
    def provider(self) -> str:
        """Class name of the state store provider; empty when the log does not say."""
        return self.conf.get(PROVIDER_KEY, "")

    @property
    def partitions(self) -> int | None:
        """Number of state partitions that the query will look for after a restart."""
        text = self.conf.get(PARTITIONS_KEY)
        return None if text is None else int(text)


def parse(data: bytes, name: str) -> OffsetLogEntry:
    """Read one file of the offset log.

    Args:
        data: Its bytes.
        name: How to call it in an error.

    Raises:
        IncompatibleError: If it is of another version, or not an offset log file.
    """
    lines = data.decode("utf-8", errors="replace").split("\n")
    if lines[0] != "v1":
        raise IncompatibleError(
            f"{name}: offset log version {lines[0][:40]!r} is not supported, only 'v1'",
            hint="run the query without spark.sql.streaming.offsetLog.formatVersion=2",
            file=name,
        )
    try:
        metadata: dict[str, Any] = json.loads(lines[1])
        return OffsetLogEntry(
            watermark_ms=int(metadata["batchWatermarkMs"]),
            timestamp_ms=int(metadata["batchTimestampMs"]),
            conf={str(k): str(v) for k, v in metadata.get("conf", {}).items()},
            sources=tuple(None if line == _NO_OFFSET else line for line in lines[2:]),
        )
    except (IndexError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise IncompatibleError(
            f"{name} is not an offset log file that Spark would write: {error!r}",
            hint="the file is damaged, or was edited: restore from a savepoint",
            file=name,
        ) from None
