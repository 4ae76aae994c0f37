"""The offset log: `offsets/N` says what batch N reads and under which settings.

Source: `org.apache.spark.sql.execution.streaming.runtime.OffsetSeqLog`. Format v1: a line `v1`, a
line of JSON (watermark, batch time, the confs that a restart must keep), then a line per source,
`-` where a source has no position. Format v2 (`OffsetMap`) has `name:position` in each line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from savepoints.checkpoint.logs import versioned
from savepoints.checkpoint.logs.source_positions import SourceMap
from savepoints.errors import IncompatibleError
from savepoints.io import Location

PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
PARTITIONS_KEY = "spark.sql.shuffle.partitions"
CODEC_KEY = "spark.sql.streaming.stateStore.compression.codec"
FORMAT_KEY = "spark.sql.streaming.offsetLog.formatVersion"
JOIN_FORMAT_KEY = "spark.sql.streaming.join.stateFormatVersion"
AGGREGATE_FORMAT_KEY = "spark.sql.streaming.aggregation.stateFormatVersion"
# Not in the log: a session that reads or writes the state must set it.
CHECKPOINT_FORMAT_KEY = "spark.sql.streaming.stateStore.checkpointFormatVersion"

_WHAT = "an offset log file"
_NO_OFFSET = "-"


@dataclass(frozen=True)
class OffsetLogEntry:
    """One file of the offset log.

    Attributes:
        watermark_ms: Watermark by which batch N drops late rows, milliseconds since 1970.
        conf: Spark settings that the batch ran with; they win over the session on a restart.
        sources: End position of each source as JSON, in order, None for none.
        names: Directory below `sources/` of each source: its number, or its name in format v2.
    """

    watermark_ms: int
    timestamp_ms: int
    conf: Mapping[str, str]
    sources: tuple[str | None, ...]
    names: tuple[str, ...]

    @property
    def positions(self) -> dict[str, str | None]:
        """End position of each source, in order, by its directory below `sources/`."""
        return dict(zip(self.names, self.sources, strict=True))

    @property
    def provider(self) -> str:
        """Class name of the state store provider; empty when the log does not name it."""
        return self.conf.get(PROVIDER_KEY, "")

    @property
    def partitions(self) -> int | None:
        """Number of state partitions that the query will look for after a restart.

        None in a stateless query, and in the offsets of the first run with format v2: Spark 4.2
        leaves the setting out there.
        """
        text = self.conf.get(PARTITIONS_KEY)
        return None if text is None else int(text)


def read(checkpoint: Location, batch: int) -> OffsetLogEntry:
    """Read what a checkpoint's offset log has of a batch; FileNotFoundError if Spark removed it."""
    name = f"offsets/{batch}"
    return parse(checkpoint.get(name), name)


def parse(data: bytes, name: str) -> OffsetLogEntry:
    """Read one file of the offset log."""
    version, metadata, lines = _split(data, name)
    try:
        named = [line.partition(":")[::2] for line in lines] if version == "v2" else None
        positions = [position for _, position in named] if named else lines
        return OffsetLogEntry(
            watermark_ms=int(metadata["batchWatermarkMs"]),
            timestamp_ms=int(metadata["batchTimestampMs"]),
            conf={str(k): str(v) for k, v in metadata.get("conf", {}).items()},
            sources=tuple(None if one == _NO_OFFSET else one for one in positions),
            names=tuple(one for one, _ in named)
            if named
            else tuple(str(number) for number in range(len(lines))),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise versioned.damaged(name, _WHAT, error) from None


def new(
    conf: Mapping[str, str],
    *,
    positions: Sequence[str | None],
    watermark_ms: int,
    timestamp_ms: int,
) -> bytes:
    """Return a file of format v1 for a query that runs with these settings."""
    metadata = {
        "batchWatermarkMs": watermark_ms,
        "batchTimestampMs": timestamp_ms,
        "conf": dict(conf),
    }
    lines = [_NO_OFFSET if one is None else one for one in positions]
    return versioned.join("v1", metadata, *lines)


def with_conf(data: bytes, name: str, conf: Mapping[str, str]) -> bytes:
    """Return the file with these settings; everything else in it is unchanged.

    These settings win over those of the session that the query is started in.
    """
    version, metadata, lines = _split(data, name)
    known = metadata.get("conf", {})
    if {**known, **conf} == known:
        return data
    metadata["conf"] = {**known, **conf}
    return versioned.join(version, metadata, *lines)


def with_batch(
    data: bytes,
    name: str,
    *,
    positions: Sequence[str | None],
    watermark_ms: int | None = None,
    timestamp_ms: int | None = None,
) -> bytes:
    """Return the file with new source positions and, if given, new times."""
    version, metadata, lines = _split(data, name)
    if len(positions) != len(lines):
        raise IncompatibleError(
            f"the number of sources in {name} is {len(lines)}, but positions were given for "
            f"{len(positions)}",
            hint="make the program read the same sources as the checkpoint",
            file=name,
        )
    if watermark_ms is not None:
        metadata["batchWatermarkMs"] = watermark_ms
    if timestamp_ms is not None:
        metadata["batchTimestampMs"] = timestamp_ms
    written = [_NO_OFFSET if one is None else one for one in positions]
    if version == "v2":
        named = (line.partition(":")[0] for line in lines)
        written = [f"{source}:{one}" for source, one in zip(named, written, strict=True)]
    return versioned.join(version, metadata, *written)


def with_sources(data: bytes, name: str, sources: SourceMap) -> bytes:
    """Return the file with the sources of another program."""
    version, metadata, lines = _split(data, name)
    if version == "v1":
        return versioned.join(version, metadata, *sources.lines(lines))
    named = [line.partition(":")[::2] for line in lines]
    written = sources.lines([position for _, position in named])
    joined = (f"{known}:{one}" for (known, _), one in zip(named, written, strict=True))
    return versioned.join(version, metadata, *joined)


def _split(data: bytes, name: str) -> tuple[str, dict[str, Any], list[str]]:
    hint = "run the query with spark.sql.streaming.offsetLog.formatVersion=1"
    version, lines = versioned.split(data, name, "offset log", hint)
    metadata = versioned.parse_object(lines[0] if lines else "", name, _WHAT)
    return version, metadata, lines[1:]
