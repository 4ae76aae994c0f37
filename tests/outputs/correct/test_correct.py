"""Rows of some entities are corrected, in one commit; all others stay as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.errors import (
    IncompatibleError,
    NotAlignedError,
    OutputVersionGoneError,
)
from savepoints.json_values import from_json, to_json
from savepoints.model import OutputVersion, new_id
from savepoints.moments import utc_now
from savepoints.outputs.correct import commit, correct
from savepoints.outputs.correct.correct import Correction
from savepoints.outputs.delta import batch_version, log
from savepoints.outputs.delta.row_selection import EVERYTHING, RowSelection
from savepoints.outputs.delta.write import Mode
from tests import draw
from tests.outputs import tables
from tests.outputs.tables import append, opened, recorded, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.drawn(8)

LIVE, NEXT = "shop/visits/1", "shop/visits/2"
BATCH, MERGE = 1, new_id("op", utc_now())
COLUMNS = "client string, day int, visits bigint, pages map<string, int>"
TEXT: pa.DataType = pa.string()
SCHEMA = pa.schema(
    [
        ("client", TEXT),
        ("day", pa.int32()),
        ("visits", pa.int64()),
        ("pages", pa.map_(pa.string(), pa.int32())),
    ]
)
Row = tuple[str | None, int, int, Mapping[str, int] | None]
FEED = "delta.enableChangeDataFeed"
VECTORS = "delta.enableDeletionVectors"


def batch(*found: Row) -> pa.Table:
    listed = [
        {"client": client, "day": day, "visits": visits, "pages": pages and [*pages.items()]}
        for client, day, visits, pages in found
    ]
    return pa.Table.from_pylist(listed, SCHEMA)


def make(uri: Path, *batches: pa.Table, **properties: str) -> list[OutputVersion]:
    """Write batches as a query does, and return the table's version after each."""
    DeltaTable.create(str(uri), batches[0].schema, configuration=properties)
    found = []
    for number, one in enumerate(batches):
        write_deltalake(str(uri), one, mode="append", commit_properties=recorded(LIVE, number))
        found.append(batch_version.version_of_batch("visits", str(uri), [LIVE], number))
    return found


def planned(
    uri: Path,
    *bases: OutputVersion | None,
    mode: Mode = "append",
    key: tuple[str, ...] = (),
    entity: str | None = "client",
    own_rows: str | None = None,
    selection: RowSelection = EVERYTHING,
) -> Correction:
    return correct.plan(
        "visits",
        str(uri),
        bases,
        mode=mode,
        key=key,
        entity=entity,
        owner="shop/",
        own_ids=(),
        app_id=NEXT,
        batch_id=BATCH,
        merge_id=MERGE,
        own_rows=own_rows,
        selection=selection,
    )


def content(uri: Path) -> list[Row]:
    """Read a table without Spark."""
    found = [
        (one["client"], one["day"], one["visits"], one["pages"] and dict(one["pages"]))
        for one in pa.table(opened(str(uri)).scan()).to_pylist()
    ]
    return sorted(found, key=str)


def corrected(
    spark: SparkSession,
    correction: Correction,
    entities: Mapping[str, int | None],
    replayed: Sequence[tuple[Any, ...]],
    columns: str = COLUMNS,
) -> correct.Corrected:
    known = spark.createDataFrame([*entities.items()], "entity string, version bigint")
    written = spark.createDataFrame([*replayed], f"{columns}, replay_slice int")
    return correct.execute(spark, correction, known, written)


def changes(spark: SparkSession, uri: Path, version: int) -> list[tuple[Any, ...]]:
    feed = spark.read.format("delta").option("readChangeFeed", "true")
    found = feed.option("startingVersion", version).load(str(uri))
    shown = found.select("client", "day", "visits", "_change_type").collect()
    return sorted((tuple(one) for one in shown), key=str)


def test_writes_of_others_are_refused_when_it_is_planned(tmp_path: Path) -> None:
    uri = tmp_path / "visits"
    bases = make(uri, batch(("a", 1, 1, None)), batch(("a", 2, 1, None)))
    append(str(uri), batch(("theirs", 1, 1, None)).to_pydict(), None)

    for base in (bases[0], None):
        with pytest.raises(NotAlignedError, match="other writers"):
            planned(uri, base)


def test_trap_a_table_that_may_not_lose_rows_is_refused_in_the_words_of_a_merge(
    tmp_path: Path,
) -> None:
    """The hint was one of a rollback: `--outputs none`, which a merge does not know."""
    uri = tmp_path / "visits"
    base, _ = make(
        uri, batch(("a", 1, 1, {})), batch(("a", 2, 1, {})), **{"delta.appendOnly": "true"}
    )

    for bases in ((base,), (base, None)):
        with pytest.raises(IncompatibleError, match=r"rows of .* cannot be removed") as refused:
            planned(uri, *bases)
        assert "SET TBLPROPERTIES ('delta.appendOnly' = 'false')" in refused.value.hint
        assert refused.value.hint.endswith("merge with --policy append, which corrects no table")


def test_a_base_that_is_gone_is_told_apart(tmp_path: Path) -> None:
    uri = tmp_path / "visits"
    bases = make(uri, batch(("a", 1, 1, None)), batch(("a", 2, 1, None)))
    (gone,) = opened(str(uri), bases[0].version).file_uris()
    Path(gone).unlink()

    with pytest.raises(OutputVersionGoneError, match=f"version {bases[0].version} of") as refused:
        planned(uri, bases[0])

    assert refused.value.details["version"] == bases[0].version


def test_trap_a_base_that_the_log_has_lost_is_gone_too(tmp_path: Path) -> None:
    uri = tmp_path / "visits"
    bases = make(uri, batch(("a", 1, 1, None)), batch(("a", 2, 1, None)))
    opened(str(uri)).create_checkpoint()
    tables.clean_up(str(uri), opened(str(uri)).version())

    with pytest.raises(OutputVersionGoneError, match=f"version {bases[0].version} of"):
        planned(uri, bases[0])


def test_a_base_of_another_table_is_gone(tmp_path: Path) -> None:
    uri = tmp_path / "visits"
    (base,) = make(uri, batch(("a", 1, 1, None)))
    other = OutputVersion(**{**vars(base), "table_id": "another"})

    with pytest.raises(OutputVersionGoneError, match="a different one"):
        planned(uri, other)


def test_a_table_that_does_not_say_whose_a_row_is_is_refused(tmp_path: Path) -> None:
    uri = tmp_path / "visits"
    (base,) = make(uri, batch(("a", 1, 1, None)))

    with pytest.raises(IncompatibleError, match="no column 'customer'") as refused:
        planned(uri, base, entity="customer")

    assert "entity_key" in refused.value.hint


def test_it_is_read_from_a_journal_as_it_was_written(tmp_path: Path) -> None:
    uri = tmp_path / "visits"
    (base,) = make(uri, batch(("a", 1, 1, None)))
    written = planned(uri, base, None, mode="upsert", key=("client",))

    assert from_json(Correction, to_json(written)) == written


WAYS = {"overwrite": 10_000, "merge": -1}


@pytest.mark.spark
@pytest.mark.parametrize("way", draw.some(1, WAYS, "corrections"))
def test_appended_rows_of_the_entities_alone_are_replaced_in_one_commit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The truth is written out by hand; a killed process that is run again doubles nothing."""
    monkeypatch.setattr(commit, "NAMED_GROUPS", WAYS[way])
    uri = tmp_path / "visits"
    early = batch(("a'\\", 1, 1, {"x": 1}), ("b", 1, 1, None), (None, 1, 5, None))
    late = batch(*[("a'\\", 9, 2, None)] * 3, ("a'\\", 2, 2, None), ("b", 9, 2, None))
    bases = make(uri, early, batch(("c", 1, 1, None)), late, **{FEED: "true"})
    untouched = set(opened(str(uri), bases[1].version).file_uris()) - set(
        opened(str(uri), bases[0].version).file_uris()
    )
    before = content(uri)
    doing = planned(uri, bases[0], None)
    # What it emits now: one row twice instead of three times, one changed, and one for a new client
    # to whom nothing is known at the base; those of the control b are none of its business.
    replayed = [
        ("a'\\", 9, 2, None, 0),
        ("a'\\", 9, 2, None, 1),
        ("a'\\", 2, 3, {"y": 1}, 0),
        ("new", 1, 1, None, 1),
        ("b", 9, 99, None, 1),
    ]
    entities = {"a'\\": bases[0].version, "new": None}

    done = [corrected(spark, doing, entities, replayed) for _ in range(2)]

    assert done[0] == done[1] == correct.Corrected(bases[-1].version + 1, 2, 2, 2)
    assert opened(str(uri)).version() == bases[-1].version + 1, "one commit"
    assert content(uri) == sorted(
        [
            ("a'\\", 1, 1, {"x": 1}),
            ("a'\\", 9, 2, None),
            ("a'\\", 9, 2, None),
            ("a'\\", 2, 3, {"y": 1}),
            ("new", 1, 1, None),
            ("b", 1, 1, None),
            ("b", 9, 2, None),
            ("c", 1, 1, None),
            (None, 1, 5, None),
        ],
        key=str,
    )
    assert untouched <= set(opened(str(uri)).file_uris())
    pinned = batch_version.version_of_batch("visits", str(uri), [NEXT], BATCH)
    assert pinned.version == done[0].version, "a savepoint of the next generation finds it"
    assert ("a'\\", 1, 1, "delete") not in changes(spark, uri, done[0].version)
    (newest,) = DeltaTable(str(uri)).history(1)
    mark = commit.mark(newest["userMetadata"])
    assert mark is not None
    assert (mark.merge_id, mark.rows_added) == (MERGE, 2)

    for _ in range(2):
        correct.undo(doing, new_id("op", utc_now()))

    assert content(uri) == before
    assert opened(str(uri)).transaction_version(NEXT) == -1
    again = planned(uri, bases[0], None)
    assert corrected(spark, again, entities, replayed).rows_added == 2, "and it can be done again"


@pytest.mark.spark
def test_upserted_rows_become_the_last_write_of_each_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A row that only the live query wrote disappears: its session is joined with another one."""
    uri = tmp_path / "visits"
    first = batch(("a", 1, 1, None), ("b", 1, 1, None))
    bases = make(uri, first, batch(("a", 5, 1, {"x": 1}), ("a", 7, 1, None)), **{FEED: "true"})
    doing = planned(uri, bases[0], mode="upsert", key=("client", "day"))
    replayed = [("a", 5, 2, None, 0), ("a", 5, 3, {"x": 2}, 1), ("a", 6, 1, None, 0)]

    done = corrected(spark, doing, {"a": bases[0].version}, replayed)

    assert content(uri) == [
        ("a", 1, 1, None), ("a", 5, 3, {"x": 2}), ("a", 6, 1, None), ("b", 1, 1, None)]  # fmt: skip
    assert changes(spark, uri, done.version) == [
        ("a", 5, 1, "update_preimage"),
        ("a", 5, 3, "update_postimage"),
        ("a", 6, 1, "insert"),
        ("a", 7, 1, "delete"),
    ]


@pytest.mark.spark
def test_of_a_complete_output_the_last_result_counts(spark: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "visits"
    bases = make(uri, batch(("a", 1, 1, None), ("a", 2, 1, None), ("b", 1, 1, None)),
                 **{VECTORS: "true"})  # fmt: skip
    replayed = [("a", 1, 5, None, 0), ("a", 2, 5, None, 0), ("a", 1, 6, None, 1)]

    corrected(spark, planned(uri, bases[0], mode="complete"), {"a": bases[0].version}, replayed)

    assert content(uri) == [("a", 1, 6, None), ("b", 1, 1, None)]


@pytest.mark.spark
def test_where_no_row_differs_the_batch_is_recorded_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = tmp_path / "visits"
    bases = make(uri, batch(("a", 1, 1, None)), batch(("a", 2, 1, None)))
    files = opened(str(uri)).file_uris()

    done = corrected(spark, planned(uri, bases[0]), {"a": bases[0].version}, [("a", 2, 1, None, 0)])

    assert (done.rows_removed, done.rows_added) == (0, 0)
    assert opened(str(uri)).transaction_version(NEXT) == BATCH
    assert opened(str(uri)).file_uris() == files


def test_what_the_next_generation_wrote_is_not_taken_back(tmp_path: Path) -> None:
    uri = tmp_path / "visits"
    bases = make(uri, batch(("a", 1, 1, None)))
    doing = planned(uri, bases[0])
    correct.undo(doing, new_id("op", utc_now()))
    append(str(uri), batch(("a", 2, 1, None)).to_pydict(), NEXT, BATCH + 1)

    with pytest.raises(NotAlignedError, match=f"has batch {BATCH + 1} of the generation"):
        correct.undo(doing, new_id("op", utc_now()))

    assert len(content(uri)) == 2


def test_trap_a_table_that_forgets_transaction_ids_still_knows_its_correction(
    tmp_path: Path,
) -> None:
    """Else the undo of a merge would find nothing to undo, and leave the corrected rows."""
    uri = tmp_path / "visits"
    forgets = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    bases = make(uri, batch(("a", 1, 1, None)), **forgets)
    doing = planned(uri, bases[0])
    done = CommitProperties(app_transactions=[Transaction(NEXT, BATCH, 0)])
    write_deltalake(str(uri), batch(("a", 1, 9, None)), mode="overwrite", commit_properties=done)

    assert opened(str(uri)).transaction_version(NEXT) is None
    correct.undo(doing, new_id("op", utc_now()))
    assert content(uri) == [("a", 1, 1, None)]


@pytest.mark.spark
def test_what_others_write_after_the_plan_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "visits"
    bases = make(uri, batch(("a", 1, 1, None)))
    doing = planned(uri, bases[0])
    append(str(uri), batch(("theirs", 5, 1, None)).to_pydict(), None)
    with pytest.raises(NotAlignedError, match="other writers"):
        corrected(spark, doing, {"a": bases[0].version}, [("a", 2, 1, None, 0)])

    stopped = tmp_path / "stopped"
    bases = make(stopped, batch(("a", 1, 1, None)))
    doing = planned(stopped, bases[0])
    append(str(stopped), batch(("a", 3, 1, None)).to_pydict(), LIVE, 1)
    with pytest.raises(NotAlignedError, match="was written to during the merge: version"):
        corrected(spark, doing, {"a": bases[0].version}, [("a", 2, 1, None, 0)])

    assert [len(content(one)) for one in (uri, stopped)] == [2, 2]


@pytest.mark.spark
def test_of_a_shared_table_only_the_query_s_rows_are_corrected(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Somebody else has a row of the same client, equal to one that goes but for whose it is."""
    uri = tmp_path / "visits"
    bases = make(uri, batch(("a", 1, 1, None)), batch(("a", 2, 1, None)))
    append(str(uri), batch(("a", 2, -1, None)).to_pydict(), None)
    doing = planned(uri, bases[0], own_rows="visits > 0")

    done = corrected(spark, doing, {"a": bases[0].version}, [("a", 3, 1, None, 0)])

    assert (done.rows_removed, done.rows_added) == (1, 1)
    assert content(uri) == [("a", 1, 1, None), ("a", 2, -1, None), ("a", 3, 1, None)]


@pytest.mark.spark
def test_rows_that_cannot_be_applied_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "visits"
    bases = make(uri, batch(("a", 1, 1, None), ("b", 2, 1, None)))
    entities = {"a": bases[0].version}
    by_day = planned(uri, bases[0], mode="upsert", key=("day",))

    with pytest.raises(IncompatibleError, match="without a value in client"):
        corrected(spark, by_day, entities, [(None, 1, 1, None, 0)])
    with pytest.raises(IncompatibleError, match="several rows"):
        corrected(spark, by_day, entities, [("a", 3, 1, None, 0), ("a", 3, 2, None, 0)])
    with pytest.raises(IncompatibleError, match="a row for another client already has"):
        corrected(spark, by_day, entities, [("a", 2, 1, None, 0)])
    with pytest.raises(IncompatibleError, match="does not write"):
        corrected(spark, by_day, entities, [("a", 2, 0)], "client string, day int")

    assert len(content(uri)) == 2
    assert log.transactions(str(uri), 1) == {LIVE: 0}


@pytest.mark.spark
def test_entities_may_be_of_other_types_than_text(spark: SparkSession, tmp_path: Path) -> None:
    """Numbers are looked for as numbers, days as text."""
    for kind, mine, other in (("bigint", 7, 70), ("string", "7", "70")):
        uri = tmp_path / kind
        arrow = pa.int64() if kind == "bigint" else pa.string()
        made = pa.table({"client": pa.array([mine, other], arrow), "n": pa.array([1, 1])})
        bases = make(uri, made)

        corrected(spark, planned(uri, None), {"7": None}, [(mine, 2, 0)],
                  f"client {kind}, n bigint")  # fmt: skip

        assert rows(str(uri)) == [{"client": mine, "n": 2}, {"client": other, "n": 1}]
        assert bases[0].version < opened(str(uri)).version()


@pytest.mark.spark
def test_trap_small_numbers_as_entities_where_a_cast_writes_exponents(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Without ANSI the entity would be 1E-7 in the table and 0.0000001 among the events."""
    cluster = spark.sparkContext._jsc.sc().conf()
    cluster.set("spark.sql.ansi.enabled", "false")
    try:
        mine, other = Decimal("0.0000001"), Decimal("0.0000002")
        kind = pa.decimal128(8, 7)
        made = pa.table({"client": pa.array([mine, other], kind), "n": pa.array([1, 1])})
        make(tmp_path, made)

        corrected(spark, planned(tmp_path, None), {"0.0000001": None}, [(mine, 2, 0)],
                  "client decimal(8, 7), n bigint")  # fmt: skip
    finally:
        cluster.remove("spark.sql.ansi.enabled")

    assert rows(str(tmp_path)) == [{"client": mine, "n": 2}, {"client": other, "n": 1}]
