"""Ends and resets of queries that read tables, as versions; the tables are written by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.errors import IncompatibleError, SourceDataGoneError, UsageError
from savepoints.handle import Store
from savepoints.runtime.bounded import table_ends
from savepoints.runtime.bounded.bounded_tables import TableEnd
from savepoints.sources.delta_versions import TableVersions

BEGIN = datetime(2026, 11, 20, tzinfo=UTC)
HOUR = timedelta(hours=1)


def table(name: str, *versions: int) -> TableVersions:
    """Return a table that has these versions, committed an hour each after the other."""
    return TableVersions(f"/lake/{name}", name, {one: BEGIN + one * HOUR for one in versions})


def at(ends: dict[str, TablePosition]) -> dict[str, int]:
    """Return the last version that is read of each table."""
    return {name: one.version - 1 for name, one in ends.items()}


@pytest.mark.parametrize(
    ("until", "read"),
    [
        ("latest", 5),
        ("version:0", 0),
        ("version:3", 3),
        ("2026-11-20T03:00:00Z", 2),
        ("2026-11-20T03:00:00.001Z", 3),
        ("2026-11-25T00:00:00Z", 5),
    ],
)
def test_an_end_is_a_version(local_store: Store, until: str, read: int) -> None:
    ends = table_ends.resolve(local_store, until, query="q", tables=[table("events", *range(6))])

    assert at(ends) == {"events": read}
    assert table_ends.parse(table_ends.to_text(ends)) == ends


def test_several_tables_have_a_time_in_common_and_no_version(local_store: Store) -> None:
    tables = [table("events", *range(6)), table("names", 0, 1)]

    for until, read in {"latest": (5, 1), "2026-11-20T02:30:00Z": (2, 1)}.items():
        ends = table_ends.resolve(local_store, until, query="q", tables=tables)
        assert at(ends) == dict(zip(("events", "names"), read, strict=True))
    with pytest.raises(UsageError, match="q reads 2 tables"):
        table_ends.resolve(local_store, "version:1", query="q", tables=tables)


def test_offsets_of_kafka_are_no_ends_of_tables() -> None:
    assert table_ends.parse('{"orders":{"0":3}}') is None


def position(*versions: int) -> CheckpointPosition:
    """Return where a query is that reads the table of each number."""
    read = (table_position.after("events", one).text for one in versions)
    return CheckpointPosition(
        3, tuple(read), None, (), {}, watermark_moved=False, next_watermark_ms=0
    )


def end(version: int, known: TableVersions) -> TableEnd:
    return TableEnd({"events": table_position.after("events", version)}, [known])


def test_where_the_query_is_there_nothing_is_to_be_done() -> None:
    known = table("events", *range(6))

    assert end(4, known).is_reached(position(4))
    assert not end(5, known).is_reached(position(4))
    with pytest.raises(UsageError, match="beyond version 3: it would read version 5 next"):
        end(3, known).is_reached(position(4))


def test_commits_that_are_gone_are_refused() -> None:
    known = table("events", 3, 4, 5)

    assert not end(5, known).is_reached(position(2))
    with pytest.raises(SourceDataGoneError, match=r"would read version 2 of .* next"):
        end(5, known).is_reached(position(1))
    with pytest.raises(IncompatibleError, match="a table with the id events"):
        end(5, table("another", 0)).is_reached(position(1))
