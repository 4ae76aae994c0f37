"""A live table gets the content of another one: rows and transaction id in one commit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.errors import IncompatibleError, NotAlignedError
from savepoints.io import Location
from savepoints.json_values import from_json
from savepoints.model import OutputVersion, new_id
from savepoints.moments import utc_now
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.write import write_batch
from savepoints.outputs.fork import isolated_copy, replace_content
from savepoints.outputs.fork.replace_content import Takeover
from savepoints.uri import Uri
from tests.outputs import tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.drawn(4)

LIVE, FORK, NEXT = "shop/totals/1", "trial/totals/1", "shop/totals/2"
BATCH = 7
OPERATION = new_id("op", utc_now())


@pytest.fixture
def no_spark() -> SparkSession:
    """Be where nothing is written through Spark: what is asked of it fails."""
    return cast("SparkSession", None)


def table(*rows: tuple[str, int], **more: Sequence[object]) -> pa.Table:
    keys, totals = zip(*rows, strict=True) if rows else ((), ())
    return pa.table(
        {"k": pa.array(keys, pa.string()), "total": pa.array(totals, pa.int64()), **more}
    )


def write(
    uri: Path, rows: pa.Table, app: str, batch: int, partition_by: list[str] | None = None
) -> None:
    transaction = [Transaction(app, batch, 0)] if app else None
    write_deltalake(
        str(uri),
        rows,
        mode="append",
        commit_properties=CommitProperties(app_transactions=transaction),
        partition_by=partition_by,
    )


def planned(directory: Path, own_rows: str | None = None) -> Takeover:
    source = batch_version.present("totals", str(directory / "fork"), FORK)
    return replace_content.plan(
        "totals",
        str(directory / "live"),
        source,
        owner="shop/",
        own_ids=(),
        app_id=NEXT,
        batch_id=BATCH,
        own_rows=own_rows,
    )


def content(directory: Path) -> list[dict[str, object]]:
    found = DeltaTable(str(directory / "live")).to_pyarrow_table().to_pylist()
    return sorted(found, key=str)


def test_others_rows_are_never_replaced(tmp_path: Path) -> None:
    write(tmp_path / "live", table(("a", 1)), LIVE, 3)
    write(tmp_path / "live", table(("theirs", 5)), "", 0)
    write(tmp_path / "fork", table(("a", 2)), FORK, BATCH)

    with pytest.raises(NotAlignedError, match="other writers"):
        planned(tmp_path)


def test_the_step_names_columns_that_come_and_go_and_change(tmp_path: Path) -> None:
    write(tmp_path / "live", table(("a", 1), old=["x"], level=[1]), LIVE, 3)
    write(tmp_path / "fork", table(("a", 2), tier=["gold"], level=["1"]), FORK, BATCH)

    said = replace_content.what(planned(tmp_path))

    assert said.endswith(
        ", in one commit; columns added: tier; columns removed: old; columns with another type: "
        "level"
    )


def test_a_shared_table_keeps_its_columns(tmp_path: Path) -> None:
    write(tmp_path / "live", table(("a", 1)), LIVE, 3)
    write(tmp_path / "fork", table(("a", 2), tier=["gold"]), FORK, BATCH)

    with pytest.raises(IncompatibleError, match="their columns differ"):
        planned(tmp_path, own_rows="k = 'a'")


def test_trap_generated_columns_become_plain_ones_when_the_fork_has_other_columns(
    on_local: Location,
) -> None:
    """Seen with Spark: the batches after the promotion had null in them."""
    uri = tables.unpack("generated", on_local / "live")
    saved = batch_version.present("totals", uri, tables.APP)

    def fork(name: str, *columns: str) -> OutputVersion:
        wanted = json.dumps({"fields": [{"name": one, "type": "long"} for one in columns]})
        there = str(on_local / name)
        copy = isolated_copy.plan(saved, there, "copy", FORK, BATCH, wanted)
        isolated_copy.execute(copy, OPERATION)
        return batch_version.present("totals", there, FORK)

    def plan(source: OutputVersion) -> Takeover:
        return replace_content.plan(
            "totals", uri, source,
            owner="orders/", own_ids=(), app_id="orders/totals/2", batch_id=BATCH, own_rows=None,
        )  # fmt: skip

    assert plan(fork("same")).added == ()
    with pytest.raises(IncompatibleError, match="of the generated ones: twice") as refused:
        plan(fork("more", "extra"))
    assert f"ALTER TABLE delta.`{uri}` ADD COLUMNS" in refused.value.hint


def test_trap_a_table_that_may_not_lose_rows_is_refused_in_the_words_of_a_promotion(
    tmp_path: Path,
) -> None:
    write(tmp_path / "live", table(("a", 1)), LIVE, 3)
    write(tmp_path / "fork", table(("a", 2)), FORK, BATCH)
    DeltaTable(str(tmp_path / "live")).alter.set_table_properties({"delta.appendOnly": "true"})

    with pytest.raises(IncompatibleError, match=r"rows of .* cannot be removed") as refused:
        planned(tmp_path)
    assert refused.value.hint.endswith("; or promote with --outputs point")


def test_trap_columns_lose_not_null_when_the_fork_has_other_columns(tmp_path: Path) -> None:
    """Seen with Spark: `overwriteSchema` makes every column nullable."""
    key = pa.field("k", pa.string(), nullable=False)
    inner = pa.struct([pa.field("n", pa.int64(), nullable=False)])
    schema = pa.schema([key, pa.field("s", inner), pa.field("old", pa.int64(), nullable=False)])
    DeltaTable.create(str(tmp_path / "live"), schema)
    write(tmp_path / "live", pa.Table.from_pylist([{"k": "a", "s": {"n": 1}, "old": 1}], schema),
          LIVE, 3)  # fmt: skip
    same = pa.Table.from_pylist([{"k": "b", "s": {"n": 2}, "old": 1}], schema)
    write(tmp_path / "fork", same, FORK, BATCH)

    assert planned(tmp_path).added == ()

    shutil.rmtree(tmp_path / "fork")
    other = pa.Table.from_pylist([{"k": "b", "s": {"n": 2}, "new": 1}])
    write(tmp_path / "fork", other, FORK, BATCH)
    with pytest.raises(IncompatibleError, match=r"drop NOT NULL from: k, s\.n\n"):
        planned(tmp_path)


def taken_over(directory: Path, **settings: str) -> Takeover:
    """Return the plan of what was done since, by a commit as Spark makes it."""
    live = str(directory / "live")
    DeltaTable.create(live, table().schema, configuration=settings)
    write(directory / "live", table(("a", 1)), LIVE, 3)
    write(directory / "fork", table(("a", 2)), FORK, BATCH)
    doing = planned(directory)
    done = CommitProperties(app_transactions=[Transaction(NEXT, BATCH, 0)])
    write_deltalake(live, table(("a", 2)), mode="overwrite", commit_properties=done)
    return doing


def test_trap_a_repetition_names_the_commit_that_was_made_and_not_one_after_it(
    tmp_path: Path, no_spark: SparkSession
) -> None:
    """Readers of the live table are set behind that commit, and would miss what came after it."""
    doing = taken_over(tmp_path)
    write(tmp_path / "live", table(("theirs", 5)), "", 0)

    assert replace_content.execute(no_spark, doing) == 2


def test_trap_a_table_that_forgets_transaction_ids_still_knows_whose_content_it_has(
    tmp_path: Path, no_spark: SparkSession
) -> None:
    doing = taken_over(tmp_path, **{"delta.setTransactionRetentionDuration": "interval 0 seconds"})

    assert DeltaTable(str(tmp_path / "live")).transaction_version(NEXT) is None
    assert replace_content.execute(no_spark, doing) == 2
    replace_content.undo(doing, OPERATION)
    assert content(tmp_path) == [{"k": "a", "total": 1}]
    assert not replace_content.is_done(doing)


@pytest.mark.spark
def test_rows_and_transaction_id_come_in_one_commit_and_go_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "live", table(("a", 1), ("b", 2)), LIVE, 3)
    write(tmp_path / "fork", table(("a", 10), ("c", 30)), FORK, BATCH)
    doing = planned(tmp_path)
    # What the fork writes later is not taken over.
    write(tmp_path / "fork", table(("late", 99)), FORK, BATCH + 1)

    versions = [replace_content.execute(spark, doing) for _ in range(2)]

    assert versions == [1, 1], "the second time it is done already"
    assert content(tmp_path) == [{"k": "a", "total": 10}, {"k": "c", "total": 30}]
    live = DeltaTable(str(tmp_path / "live"))
    assert live.transaction_version(NEXT) == BATCH
    pinned = batch_version.version_of_batch("totals", str(tmp_path / "live"), [NEXT], BATCH)
    assert pinned.version == 1, "a savepoint before the first new batch finds its version"

    replace_content.undo(doing, OPERATION)
    replace_content.undo(doing, OPERATION)

    assert content(tmp_path) == [{"k": "a", "total": 1}, {"k": "b", "total": 2}]
    assert replace_content.execute(spark, planned(tmp_path)) > 1, "and it can be done again"
    assert content(tmp_path) == [{"k": "a", "total": 10}, {"k": "c", "total": 30},
                                 {"k": "late", "total": 99}]  # fmt: skip


@pytest.mark.spark
def test_others_that_write_in_between_keep_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "live", table(("a", 1)), LIVE, 3)
    write(tmp_path / "fork", table(("a", 2)), FORK, BATCH)
    doing = planned(tmp_path)
    write(tmp_path / "live", table(("theirs", 5)), "", 0)

    with pytest.raises(NotAlignedError, match="other writers"):
        replace_content.execute(spark, doing)

    assert content(tmp_path) == [{"k": "a", "total": 1}, {"k": "theirs", "total": 5}]


@pytest.mark.spark
def test_only_the_query_s_rows_of_a_shared_table_are_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "live", table(("a", 1), ("b", 2)), LIVE, 3)
    write(tmp_path / "live", table(("theirs", 5)), "", 0)
    write(tmp_path / "fork", table(("a", 10)), FORK, BATCH)

    replace_content.execute(spark, planned(tmp_path, own_rows="k <> 'theirs'"))

    assert content(tmp_path) == [{"k": "a", "total": 10}, {"k": "theirs", "total": 5}]


@pytest.mark.spark
def test_with_other_columns_the_partitioning_stays(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "live", table(("a", 1)), LIVE, 3, partition_by=["k"])
    write(tmp_path / "fork", table(("a", 10), tier=["gold"]), FORK, BATCH)

    replace_content.execute(spark, planned(tmp_path))

    assert content(tmp_path) == [{"k": "a", "total": 10, "tier": "gold"}]
    assert DeltaTable(str(tmp_path / "live")).metadata().partition_columns == ["k"]


@pytest.mark.spark
def test_trap_rows_are_replaced_in_all_partitions_whatever_the_user_has_set(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "live", table(("a", 1), ("b", 2)), LIVE, 3, partition_by=["k"])
    write(tmp_path / "fork", table(("b", 20)), FORK, BATCH)
    dynamic = spark.newSession()
    dynamic.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")

    replace_content.execute(dynamic, planned(tmp_path))

    assert content(tmp_path) == [{"k": "b", "total": 20}]


@pytest.mark.spark
def test_trap_a_complete_output_loses_the_partitions_that_it_has_no_rows_of(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "live", table(("a", 1), ("b", 2)), LIVE, 3, partition_by=["k"])
    dynamic = spark.newSession()
    dynamic.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    rows = dynamic.createDataFrame([("b", 20)], "k string, total long")

    uri = Uri.parse(str(tmp_path / "live"))
    write_batch(rows, uri, mode="complete", key=(), app=LIVE, batch_id=4)

    assert content(tmp_path) == [{"k": "b", "total": 20}]


def test_it_is_read_from_a_journal_as_it_was_written() -> None:
    from savepoints.json_values import to_json
    from savepoints.outputs.rewind.planned_rewind import Rewind

    source = OutputVersion("totals", "/fork", "id", 4, FORK, BATCH)
    live = Rewind(OutputVersion("totals", "/live", "id2", 9, NEXT, None), 9, {NEXT: -1}, "shop/")
    written = Takeover(live, source, NEXT, BATCH)

    assert from_json(Takeover, to_json(written)) == written
