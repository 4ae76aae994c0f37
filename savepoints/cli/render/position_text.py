"""A source's position as people read it."""

from __future__ import annotations

from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.kafka_position import by_partition, kafka_offsets
from savepoints.cli.output import Terminal

# Enough to tell tables apart.
_OF_ID = 8


def text(position: str | None) -> str:
    """Describe a position: of a Delta source version and table, of others Spark's own words."""
    if position is None:
        return "not started"
    table = table_position.parse(position)
    if table is None:
        return position
    part = "" if table.index < 0 else f", after file {table.index}"
    whole = ", in the initial snapshot" if table.in_snapshot else ""
    return f"version {table.version} of table {table.table_id[:_OF_ID]}{part}{whole}"


def show(output: Terminal, positions: tuple[str | None, ...]) -> None:
    """Print where each source is: topics by partition, other sources on a line each."""
    topics = [(source, kafka_offsets(position)) for source, position in enumerate(positions)]
    others = [(source, text(positions[source])) for source, found in topics if found is None]
    if others:
        output.table(("source", "position"), others)
    rows = [
        (source, topic, partition, offset)
        for source, found in topics
        for topic, partition, offset in by_partition(found or {})
    ]
    if rows:
        output.table(("source", "topic", "partition", "offset"), rows)
