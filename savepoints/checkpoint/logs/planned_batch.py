"""Planned batches: what a query reads next, written into its checkpoint before it runs.

A batch whose offsets are in the log and whose commit is not is run with exactly these offsets, and
with the trigger `once` nothing after it. Only one batch may be planned at a time: of several,
Spark runs the last and loses the rows of the others (`MicroBatchExecution.populateStartOffsets`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from savepoints.checkpoint.logs import offset_log
from savepoints.moments import epoch_ms

# Kafka's source keeps where it began in `sources/<number>/0`, behind a zero byte that Spark 2.1
# and older needed. Source: `KafkaSourceInitialOffsetWriter`.
_INITIAL = b"\0v1\n"


def next_batch(
    offsets: bytes,
    batch_id: int,
    positions: Sequence[str | None],
    watermark_ms: int,
    now: datetime,
) -> bytes:
    """Return `offsets/N+1` for a batch that ends at these positions.

    Args:
        offsets: `offsets/N`, whose settings are kept.
        positions: Where each source is to end, in order, as Spark's JSON.
        watermark_ms: What batch N has moved the watermark to; with that of batch N itself,
            eviction would lag one batch behind.
    """
    return offset_log.with_batch(
        offsets,
        f"offsets/{batch_id}",
        positions=positions,
        watermark_ms=watermark_ms,
        timestamp_ms=epoch_ms(now),
    )


def first_batch(offsets: bytes, positions: Sequence[str | None], now: datetime) -> bytes:
    """Return `offsets/0` for a first batch that ends at these positions.

    Args:
        offsets: An `offsets/0` that Spark wrote for the same program: its settings are kept.
        positions: Where each source is to end, in order, as Spark's JSON.
    """
    return offset_log.with_batch(
        offsets, "offsets/0", positions=positions, watermark_ms=0, timestamp_ms=epoch_ms(now)
    )


def initial_position(position: str) -> bytes:
    """Return `sources/<number>/0`, from which a Kafka source that has read nothing begins."""
    return _INITIAL + position.encode()


def parse_initial_position(data: bytes) -> str | None:
    """Read `sources/<number>/0`; None when another kind of source wrote it."""
    return data.removeprefix(_INITIAL).decode().strip() if data.startswith(_INITIAL) else None
