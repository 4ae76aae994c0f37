"""A table that several write: only the rows that are the query's own are taken back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from savepoints.errors import IncompatibleError, NotAlignedError
from savepoints.io import Location, storage_options
from savepoints.outputs.delta import batch_version, log
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.planned_rewind import Rewind
from tests.outputs import tables
from tests.outputs.tables import append, append_as_spark, opened, recorded

pytestmark = pytest.mark.drawn(3)

OWN, NEXT, OTHER = "orders/totals/1", "orders/totals/2", "visits/totals/1"
MINE = "source = 'shop'"


def batch(source: str | None, *numbers: int | None) -> dict[str, list[Any]]:
    return {"n": list(numbers), "source": [source] * len(numbers), "Amount": [1.5] * len(numbers)}


def contents(uri: str) -> list[tuple[str | None, int | None]]:
    return sorted(((row["source"], row["n"]) for row in tables.rows(uri)), key=str)


def shared(place: Location, **options: Any) -> str:
    """Two queries write one table in turn, two batches each, and somebody without an id."""
    uri = str(place / "totals")
    first = batch("shop", 0, 0, None)
    schema = pa.table(first).schema
    access = storage_options(place.uri)
    DeltaTable.create(uri, schema, storage_options=access, **options)
    append(uri, first, OWN, 0)  # version 1
    append(uri, batch("site", 50), OTHER, 7)
    append(uri, batch("shop", 1), OWN, 1)
    append(uri, batch(None, 60), None)
    append(uri, batch("site", 51), OTHER, 8)
    append(uri, batch("shop", 2), OWN, 2)
    return uri


ALL = [("shop", 0), ("shop", 0), ("shop", None), ("shop", 1), ("shop", 2)]
OTHERS = [("site", 50), ("site", 51), (None, 60)]


def planned(uri: str, at: int, predicate: str | None = MINE) -> Rewind:
    output = batch_version.version_of_batch("totals", uri, (OWN,), at)
    return rewind.plan(output, "orders/", NEXT, predicate)


def test_without_a_predicate_it_is_refused_and_the_way_out_is_named(on_local: Location) -> None:
    with pytest.raises(NotAlignedError, match="other writers") as refused:
        planned(shared(on_local), 0, None)

    assert "own_rows" in refused.value.hint


@pytest.mark.parametrize("partitioned", [False, True])
def test_own_rows_and_ids_go_back_in_one_commit_and_those_of_others_stay(
    place: Location, partitioned: bool
) -> None:
    uri = shared(place, partition_by=["source"] if partitioned else None)

    version = rewind.execute(planned(uri, 0), "op-20261121-101530-aaaaaa")

    assert version == opened(uri).version() == 7
    assert contents(uri) == sorted([*ALL[:3], *OTHERS], key=str)
    ids = {app: opened(uri).transaction_version(app) for app in (OWN, NEXT, OTHER)}
    assert ids == {OWN: 0, NEXT: 0, OTHER: 8}
    commit = log.parse_commit(7, log.log_of(uri).get(f"{7:020}.json"))
    assert commit.back_to == 1


def test_trap_a_column_has_a_quote_in_its_name(on_local: Location) -> None:
    """The predicate was said to be wrong, whatever it was."""
    uri = str(on_local / "totals")
    for source in ("shop", "site"):
        rows: dict[str, list[Any]] = {'5" "disk': [1], "source": [source]}
        append(uri, rows, OWN if source == "shop" else OTHER)
    append(uri, {'5" "disk': [2], "source": ["shop"]}, OWN, 1)

    rewind.execute(planned(uri, 0), "op-1")

    assert tables.rows(uri) == [{'5" "disk': 1, "source": one} for one in ("shop", "site")]


def test_a_repetition_does_nothing_and_undo_brings_back(on_local: Location) -> None:
    uri = shared(on_local)
    plan = planned(uri, 0)
    version = rewind.execute(plan, "op-1")
    assert rewind.execute(plan, "op-1") == version
    append(uri, batch("site", 52), OTHER, 9)

    rewind.undo(plan, "op-1")

    assert contents(uri) == sorted([*ALL, *OTHERS, ("site", 52)], key=str)
    assert opened(uri).transaction_version(OWN) == 2
    assert opened(uri).transaction_version(OTHER) == 9
    assert rewind.undo(plan, "op-1") is None


def test_two_queries_in_one_table_go_back_one_after_the_other(on_local: Location) -> None:
    """The commit that takes one back is no commit of the other, and changes none of its rows."""
    uri = shared(on_local)
    rewind.execute(planned(uri, 1), "op-20261121-101530-aaaaaa")
    append(uri, batch("shop", 2), NEXT, 2)

    output = batch_version.version_of_batch("totals", uri, (OTHER,), 7)
    theirs = rewind.plan(output, "visits/", "visits/totals/2", "source = 'site'")
    rewind.execute(theirs, "op-20261121-101531-bbbbbb")

    assert contents(uri) == sorted([*ALL, ("site", 50), (None, 60)], key=str)
    assert opened(uri).transaction_version(NEXT) == 2
    assert opened(uri).transaction_version(OTHER) == 7
    assert planned(uri, 1).transactions == {OWN: 1, NEXT: 1}


def test_where_nothing_changes_only_ids_do(on_local: Location) -> None:
    uri = shared(on_local)
    append(uri, batch("site", 52), OTHER, 9)
    files = sorted(opened(uri).file_uris())

    assert rewind.execute(planned(uri, 2), "op-1") == 8

    assert sorted(opened(uri).file_uris()) == files
    assert opened(uri).transaction_version(NEXT) == 2


def test_back_to_before_the_first_batch_none_is_left(on_local: Location) -> None:
    uri = shared(on_local)
    output = batch_version.version_of_batch("totals", uri, (OWN,), -1)
    assert (output.version, output.app_version) == (0, None)

    rewind.execute(rewind.plan(output, "orders/", NEXT, MINE), "op-1")

    assert contents(uri) == sorted(OTHERS, key=str)
    assert opened(uri).transaction_version(OWN) == -1


@pytest.mark.parametrize("others", [MINE, None])
def test_emptied_and_undone(on_local: Location, others: str | None) -> None:
    uri = shared(on_local)
    if others is None:
        with pytest.raises(NotAlignedError, match="rows from other writers, which would be lost"):
            rewind.plan_empty("totals", uri, "orders/", (), NEXT)
        return
    plan = rewind.plan_empty("totals", uri, "orders/", (), NEXT, own_rows=MINE)

    rewind.execute(plan, "op-1")

    assert contents(uri) == sorted(OTHERS, key=str)
    assert [opened(uri).transaction_version(app) for app in (OWN, NEXT, OTHER)] == [-1, -1, 8]
    rewind.undo(plan, "op-1")
    assert contents(uri) == sorted([*ALL, *OTHERS], key=str)
    assert opened(uri).transaction_version(OWN) == 2


def test_own_rows_that_do_not_match_are_refused(on_local: Location) -> None:
    uri = shared(on_local)
    append(uri, batch("Shop", 3), OWN, 3)

    with pytest.raises(NotAlignedError, match=r"version.* 7 .*the query wrote rows") as refused:
        planned(uri, 0)

    assert refused.value.details["versions"] == [6, 7]


def test_own_rows_without_a_value_to_compare_do_not_match(on_local: Location) -> None:
    uri = shared(on_local)
    append(uri, batch(None, 3), OWN, 3)

    with pytest.raises(NotAlignedError, match="the query wrote rows"):
        planned(uri, 0)


@pytest.mark.parametrize("change", ["append", "delete", "update"])
def test_others_who_change_matching_rows_are_refused(on_local: Location, change: str) -> None:
    uri = shared(on_local)
    if change == "append":
        append(uri, batch("shop", 1), OTHER, 9)
    elif change == "delete":
        opened(uri).delete("n = 1", commit_properties=recorded(OTHER, 9))
    else:
        opened(uri).update(
            {"Amount": "2.5"}, predicate="n = 1", commit_properties=recorded(OTHER, 9)
        )

    with pytest.raises(NotAlignedError, match=r"version 7 .*others changed rows"):
        planned(uri, 0)


def test_others_who_rewrite_files_without_changing_matching_rows_are_not(
    on_local: Location,
) -> None:
    """DELETE copies the rows that stay into a new file, also those of ours."""
    uri = str(on_local / "totals")
    both = {"n": [0, 50], "source": ["shop", "site"], "Amount": [1.0, 1.0]}
    write_deltalake(uri, pa.table(both))
    append(uri, batch("shop", 1), OWN, 1)
    append(uri, batch("shop", 2), OWN, 2)
    opened(uri).delete("n = 50", commit_properties=recorded(OTHER, 9))

    rewind.execute(planned(uri, 1), "op-1")

    assert contents(uri) == [("shop", 0), ("shop", 1)]


def test_what_others_do_after_the_plan_is_checked_too(on_local: Location) -> None:
    uri = shared(on_local)
    plan = planned(uri, 0)
    append(uri, batch("site", 52), OTHER, 9)
    rewind.refuse_changed(plan)
    append(uri, batch("shop", 9), OTHER, 10)

    with pytest.raises(NotAlignedError, match="others changed rows"):
        rewind.refuse_changed(plan)
    with pytest.raises(NotAlignedError, match="others changed rows"):
        rewind.execute(plan, "op-1")


def test_names_are_read_as_they_are_written(on_local: Location) -> None:
    uri = shared(on_local)

    rewind.execute(planned(uri, 0, "Amount > 1 AND source = 'shop'"), "op-1")

    assert contents(uri) == sorted([*ALL[:3], *OTHERS], key=str)


@pytest.mark.parametrize("predicate", ["sauce = 'shop'", "source =", "n"])
def test_a_predicate_that_is_none_is_refused(on_local: Location, predicate: str) -> None:
    uri = shared(on_local)

    for at in (0, 2):  # with commits to check, and without
        with pytest.raises(IncompatibleError, match="cannot be evaluated on"):
            planned(uri, at, predicate)
    with pytest.raises(IncompatibleError, match="cannot be evaluated on"):
        rewind.plan_empty("totals", uri, "orders/", (), NEXT, own_rows=predicate)


def test_columns_that_changed_in_between_are_refused(on_local: Location) -> None:
    uri = shared(on_local)
    opened(uri).alter.add_columns([Field("more", PrimitiveType("long"))])
    append(uri, {**batch("site", 52), "more": [1]}, OTHER, 9)

    with pytest.raises(IncompatibleError, match=r"columns of .* changed"):
        rewind.execute(planned(uri, 0), "op-1")


@pytest.mark.parametrize(
    "name", ["deletion_vectors", "column_mapping", "change_data_feed", "generated", "partitions"]
)
def test_tables_of_spark_have_own_rows_too(on_local: Location, name: str) -> None:
    """Without batch 3 of one part; the row that batch 4 deleted in the other stays deleted."""
    uri = tables.unpack(name, on_local / "totals")
    before = tables.rows(uri)
    output = batch_version.version_of_batch("totals", uri, (OWN,), 4)

    mine = rewind.plan(output, "orders/", NEXT, "part = 'odd' AND n <> 103")
    rewind.execute(mine, "op-1")
    assert tables.rows(uri) == before

    emptied = rewind.plan_empty("totals", uri, "orders/", (), NEXT, own_rows="part = 'odd'")
    rewind.execute(emptied, "op-2")
    assert tables.rows(uri) == [row for row in before if row["part"] == "even"]
    rewind.undo(emptied, "op-2")
    assert tables.rows(uri) == before


# The first and the last that Spark has, and some between.
TIMES = [-62135596800000000, -2208988800000001, -1, None, 1792891800000000, 253402300799999999]


def as_spark_has_them(source: str) -> pa.Table:
    times = pa.array(TIMES, pa.timestamp("us", tz="UTC"))
    within = pa.StructArray.from_arrays(
        [pa.ListArray.from_arrays(list(range(len(TIMES) + 1)), times)], names=["days"]
    )
    return pa.table({"source": [source] * len(TIMES), "until": times, "within": within})


def times(uri: str) -> list[tuple[Any, ...]]:
    """Read a table without deltalake's engine."""
    found: list[tuple[Any, ...]] = []
    for path in opened(uri).get_add_actions().column("path").to_pylist():
        file = pq.ParquetFile(
            pa.BufferReader(Location.of(uri).get(str(path))), coerce_int96_timestamp_unit="us"
        )
        rows = file.read()
        days: Any = pc.struct_field(rows["within"].combine_chunks(), 0)
        found += zip(
            rows["source"].to_pylist(),
            rows["until"].cast(pa.int64()).to_pylist(),
            days.cast(pa.list_(pa.int64())).flatten().to_pylist(),
            strict=True,
        )
    return sorted(found, key=str)


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_trap_deltalake_takes_the_times_of_spark_for_nanoseconds(
    on_local: Location, emptied: bool, nested: bool
) -> None:
    """The year 9999 became 1816, in rows that came back and in those of others that stayed."""
    uri = str(on_local / "totals")
    rows = {one: as_spark_has_them(one) for one in ("shop", "site")}
    if nested:  # Only there are the times that nanoseconds do not have.
        plain = pa.array([0] * len(TIMES), pa.timestamp("us", tz="UTC"))
        rows = {one: table.set_column(1, "until", plain) for one, table in rows.items()}
    both = pa.concat_tables(rows.values())
    DeltaTable.create(uri, both.schema)
    append_as_spark(uri, both, OWN, 0)
    append_as_spark(uri, rows["shop"], OWN, 1)
    append_as_spark(uri, rows["site"], OTHER, 0)
    before = times(uri)
    assert max(at or 0 for row in before for at in row[1:]) == TIMES[-1]
    plan = (
        rewind.plan_empty("totals", uri, "orders/", (OWN,), NEXT, own_rows=MINE)
        if emptied
        else planned(uri, 0)
    )

    rewind.execute(plan, "op-20261121-101530-aaaaaa")

    of_site = [row for row in before if row[0] == "site"]
    of_shop = [row for row in before if row[0] == "shop"]
    left = [] if emptied else of_shop[::2]
    assert times(uri) == sorted([*of_site, *left], key=str)
