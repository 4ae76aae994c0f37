"""Who can take over corrections of a table, and who is refused by name before anything is done."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from savepoints.config.settings import QuerySettings
from savepoints.errors import IncompatibleError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.moments import rfc3339, utc_now
from savepoints.operations.cascade import readers
from savepoints.store.locks.journal import Journal, Operation
from tests.pipelines import Queries, next_version

OUTPUTS = {"bronze": "orders", "silver": "lines", "gold": "days"}
INPUTS = {"silver": ("orders", "bronze"), "gold": ("lines", "silver")}


@pytest.fixture
def queries(local_store: Store, on_local: Location) -> Queries:
    """Bronze, silver and gold of the medallion, at positions that the test writes."""
    found = Queries(local_store, on_local)
    ids = {level: found.append(level, 3) for level in OUTPUTS}
    found.add("bronze", ['{"orders":{"0":10}}'], writes=("bronze",))
    for level, (_, above) in INPUTS.items():
        found.add(level, [next_version(ids[above], 2)], writes=(level,))
    for level in OUTPUTS:
        bind(found, level)
    return found


def bind(
    queries: Queries, level: str, *, app: str = "", tables: Mapping[str, str] | None = None
) -> None:
    """Name the program of a query, and the table that it reads."""
    name, above = INPUTS.get(level, ("", ""))
    queries.configured[level] = QuerySettings(
        app=app or f"spark_jobs.medallion.{level}:app",
        app_name=level,
        checkpoints=str(queries.place / "checkpoints"),
        outputs={OUTPUTS[level]: queries.uri(level)},
        tables=dict(tables) if tables else {name: queries.uri(above)} if name else {},
    )


def refusal(queries: Queries, query: str = "bronze") -> str:
    with pytest.raises(IncompatibleError) as raised:
        readers.find(queries.configured_store, query)
    assert "nothing was changed" in raised.value.message
    return raised.value.message


def test_all_that_the_rows_reach_writers_before_readers(queries: Queries) -> None:
    found = readers.find(queries.configured_store, "bronze")
    assert [(one.query, one.writer, one.input) for one in found] == [
        ("silver", "bronze", "orders"),
        ("gold", "silver", "lines"),
    ]
    assert [one.table for one in found] == [queries.uri("bronze"), queries.uri("silver")]
    assert [one.query for one in readers.find(queries.configured_store, "silver")] == ["gold"]
    assert readers.find(queries.configured_store, "gold") == ()
    assert readers.names(queries.configured_store, "bronze") == ("silver", "gold")


def test_a_query_whose_program_is_not_known(queries: Queries) -> None:
    del queries.configured["gold"]
    assert "gold: " in refusal(queries)


def test_a_reader_of_two_tables(queries: Queries) -> None:
    position = next_version(queries.append("silver"), 2)
    queries.move("gold", [position, next_version(queries.append("bronze"), 2)])
    assert "gold: it has 2 sources, and only one table can be replayed" in refusal(queries)


def test_a_program_that_reads_a_topic(queries: Queries) -> None:
    bind(queries, "silver", app="spark_jobs.medallion.bronze:app")
    assert "silver: " in refusal(queries)


def test_a_change_data_feed(queries: Queries) -> None:
    bind(queries, "gold", app="tests.operations.cascade.feed_app:app")
    assert "gold: its input lines is the change data feed of a table" in refusal(queries)


def test_settings_that_name_another_table(queries: Queries) -> None:
    bind(queries, "gold", tables={"lines": "s3://lake/other"})
    assert "gold: its settings name s3://lake/other, but it has read " in refusal(queries)


def test_a_snapshot_that_is_not_read_to_its_end(queries: Queries) -> None:
    queries.move("gold", [next_version(queries.append("silver"), 0, index=1, snapshot=True)])
    assert "gold: it has not yet read everything" in refusal(queries)


def test_a_table_that_is_upserted(queries: Queries) -> None:
    bind(queries, "silver", app="tests.operations.cascade.feed_app:upserts")
    text = refusal(queries)
    assert f"silver writes {queries.uri('silver')} in mode upsert" in text


def test_trap_a_table_that_others_write_too(queries: Queries) -> None:
    """Their rows between the plan and the correction would be skipped with it."""
    own = {"own_rows": {"lines": "source = 'shop'"}}
    queries.configured["silver"] = queries.configured["silver"].model_copy(update=own)
    assert f"silver is not the only writer of {queries.uri('silver')}" in refusal(queries)


def test_queries_that_read_each_other_in_a_cycle(queries: Queries) -> None:
    queries.move("bronze", [next_version(queries.append("gold"), 2)])
    assert "read each other in a cycle" in refusal(queries)


def test_several_are_all_named(queries: Queries) -> None:
    bind(queries, "silver", app="spark_jobs.medallion.bronze:app")
    del queries.configured["gold"]
    text = refusal(queries)
    assert "silver: spark_jobs.medallion.bronze:app is the application 'bronze'" in text
    assert "gold: the query gold is not in the settings" in text


def test_trap_a_batch_merged_alone_was_merged_again_through_all_without_a_word(
    queries: Queries,
) -> None:
    """`--downstream merge` found nothing to merge, and the readers stayed as they were."""
    store, merge = queries.configured_store, "op-20261125-101500-aaaaaa"

    def operation(number: int, follows: str) -> Journal:
        plan = {"follows": {"operation_id": follows}}
        name = f"op-20261125-101500-{number:06d}"
        return Journal.begin(
            store.root, Operation(name, "cascade", "silver", plan, "savepoints", rfc3339(utc_now()))
        )

    operation(1, "op-20261125-101500-bbbbbb").finish()
    operation(2, merge).finish(undone=True)
    assert readers.left_behind(store, "bronze", merge) == ("silver", "gold")
    assert readers.left_behind(store, "gold", merge) == ()

    operation(3, merge).finish()
    assert readers.left_behind(store, "bronze", merge) == ()
