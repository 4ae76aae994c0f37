"""Tables that only Spark can write, taken back by Delta's own engine; Spark reads them.

The tables are those of data/make_tables.py, as Spark wrote them: batch 4 deleted a row of batch 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from savepoints.config.settings import Settings
from savepoints.errors import IncompatibleError, NotAlignedError
from savepoints.io import Location
from savepoints.json_values import from_json, to_json
from savepoints.local import LocalWorld
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta import log as delta_log
from savepoints.outputs.rewind import plan_text, rewind
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.spark import delta_transaction
from tests import draw
from tests.outputs import tables
from tests.outputs.features import BY_SPARK
from tests.outputs.spark_table import NEXT, OWN, SparkTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATION = "op-20261121-101530-aaaaaa"


def executed(spark: SparkSession, plan: Rewind, operation: str = OPERATION) -> int:
    assert rewind.session_for([plan], Settings()) is not None
    # As it stands in the journal, between two processes.
    return rewind.execute(from_json(Rewind, to_json(plan)), operation, spark)


def keys(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows without what is given out again when they are written again."""
    return [row[:2] for row in rows]


@pytest.mark.spark
@draw.taking_turns("rewind by Spark", "copied table", "dropped rows")
@pytest.mark.parametrize(
    "name",
    [BY_SPARK[0], *(pytest.param(one, marks=pytest.mark.nightly) for one in BY_SPARK[1:])],
)
def test_rows_and_ids_go_back_in_one_commit_and_batches_go_on(
    spark: SparkSession, on_local: Location, name: str
) -> None:
    table = SparkTable(spark, name, on_local)
    plan = table.plan(2)
    assert (plan.engine, plan.newest) == ("spark", 5)
    assert any("Spark" in note for note in plan_text.notes(plan))

    assert executed(spark, plan) == executed(spark, plan) == 6

    assert table.rows() == table.rows(3)
    actions = table.commit(6)
    ids = {one["txn"]["appId"]: one["txn"]["version"] for one in actions if "txn" in one}
    assert ids == {OWN: 2, NEXT: 2, OPERATION: 1}
    assert delta_log.parse_commit(6, delta_log.log_of(table.uri).get(f"{6:020}.json")).back_to == 3
    # Batch 3 is neither dropped nor doubled, whichever id it is written under.
    table.write(2, NEXT)
    table.write(3, NEXT)
    table.write(3, NEXT)
    assert keys(table.rows()) == keys(table.rows(4))
    assert table.at(3).version == 7


@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["row_tracking", "in_commit_timestamps"])
def test_tables_on_s3_go_back_and_forth_and_on(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], name: str
) -> None:
    """Spark's file system commits there, and deltalake reads what it committed."""
    del world_environment
    bucket = f"tables-{name.replace('_', '-')}"
    world.create_bucket(bucket)
    table = SparkTable(spark, name, Location.of(f"s3://{bucket}/outputs"))
    plan = table.plan(2)

    assert executed(spark, plan) == executed(spark, plan) == 6
    assert table.rows() == table.rows(3)
    assert rewind.undo(plan, OPERATION, spark) == 7
    assert table.rows() == table.rows(5)
    third = "orders/totals/3"
    again = rewind.plan(plan.output, "orders/", third)
    assert executed(spark, again, "op-20261121-101531-aaaaaa") == 8
    for batch in (2, 3, 3):
        table.write(batch, third)
    assert keys(table.rows()) == keys(table.rows(4))
    assert [tables.opened(table.uri).transaction_version(one) for one in (OWN, third)] == [2, 3]


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("name", BY_SPARK)
def test_a_rewind_is_undone(spark: SparkSession, on_local: Location, name: str) -> None:
    table = SparkTable(spark, name, on_local)
    plan = table.plan(2)
    executed(spark, plan)

    assert rewind.undo(plan, OPERATION, spark) == 7
    assert rewind.undo(plan, OPERATION, spark) is None

    assert table.rows() == table.rows(5)
    assert tables.opened(table.uri).transaction_version(OWN) == 4
    table.write(4, OWN)
    assert table.rows() == table.rows(5), "batch 4 is there again"


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("name", BY_SPARK)
def test_a_table_is_emptied_and_filled_again(
    spark: SparkSession, on_local: Location, name: str
) -> None:
    table = SparkTable(spark, name, on_local)
    plan = rewind.plan_empty("totals", table.uri, "orders/", (), NEXT)

    executed(spark, plan)
    assert table.rows() == []
    for batch in range(4):
        table.write(batch, NEXT)
    assert keys(table.rows()) == keys(table.rows(4))


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("name", BY_SPARK)
def test_ids_alone_are_committed_where_no_row_changes(
    spark: SparkSession, on_local: Location, name: str
) -> None:
    """What a reset that keeps the outputs does, and a promotion that points to a fork's table."""
    table = SparkTable(spark, name, on_local)
    there = batch_version.present("totals", table.uri, OWN)

    executed(spark, rewind.plan(there, "orders/", NEXT))

    assert table.rows() == table.rows(5)
    assert tables.opened(table.uri).transaction_version(NEXT) == 4
    assert not any("add" in one or "remove" in one for one in table.commit(6))


@pytest.mark.spark
@pytest.mark.nightly
def test_trap_identity_values_are_never_given_out_twice(
    spark: SparkSession, on_local: Location
) -> None:
    """Somebody may have seen those of rows that were taken back."""
    table = SparkTable(spark, "identity", on_local)
    seen = {row[2] for version in (4, 5) for row in table.rows(version)}

    executed(spark, table.plan(1))
    table.write(2, NEXT)

    new = {row[2] for row in table.rows() if row[0] in {2, 102}}
    assert len(new) == 2
    assert not new & seen


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("name", ["row_tracking", "in_commit_timestamps"])
def test_a_rewind_over_the_rows_of_optimize_and_update(
    spark: SparkSession, on_local: Location, name: str
) -> None:
    """Files that both versions have, files written anew, and row ids kept within those."""
    table = SparkTable(spark, name, on_local)
    for setting in ("txnAppId", "txnVersion"):
        value = OWN if setting == "txnAppId" else "5"
        spark.conf.set(f"spark.databricks.delta.write.{setting}", value)
    table.sql("UPDATE {} SET part = 'none' WHERE n > 101")
    spark.conf.unset("spark.databricks.delta.write.txnAppId")
    spark.conf.unset("spark.databricks.delta.write.txnVersion")
    table.sql("OPTIMIZE {}")
    before = table.rows()

    plan = table.plan(3)
    executed(spark, plan)
    assert table.rows() == table.rows(4)
    rewind.undo(plan, OPERATION, spark)
    assert table.rows() == before
    executed(spark, table.plan(5), "op-20261121-101531-aaaaaa")
    assert table.rows() == before


@pytest.mark.spark
@pytest.mark.nightly
def test_trap_who_writes_between_reading_and_committing_is_noticed(
    spark: SparkSession, on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta would rebase a blind append on top of the rewind, and keep its rows beside it."""
    table = SparkTable(spark, "row_tracking", on_local)
    plan, build = table.plan(2), delta_transaction._actions

    def overtaken(*given: Any) -> Any:
        table.write(7, "others")
        return build(*given)

    monkeypatch.setattr(delta_transaction, "_actions", overtaken)
    with pytest.raises(NotAlignedError, match="Delta could not rewind"):
        executed(spark, plan)
    monkeypatch.undo()

    assert tables.opened(table.uri).version() == 6
    assert table.rows() == table.rows(6)
    with pytest.raises(
        NotAlignedError, match=r"other writers made 1 commit to .* their rows would be lost"
    ):
        executed(spark, plan)


@pytest.mark.spark
@pytest.mark.nightly
def test_a_table_that_has_moved_on_is_left_alone(spark: SparkSession, on_local: Location) -> None:
    table = SparkTable(spark, "clustering", on_local)

    with pytest.raises(NotAlignedError, match="was at version 4 but is now at 5"):
        delta_transaction.commit(
            spark, table.uri, 4, adds=[], removes=[], transactions=[], back_to=4, tags={}
        )

    assert tables.opened(table.uri).version() == 5


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "statement", "changed"),
    [
        ("row_tracking", "ALTER TABLE {} ADD COLUMNS (more INT)", ["columns"]),
        (
            "in_commit_timestamps",
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 9 days')",
            ["property delta.logRetentionDuration"],
        ),
        ("clustering", "ALTER TABLE {} CLUSTER BY (part)", ["domain delta.clustering"]),
    ],
)
def test_a_change_that_files_do_not_bring_back_is_refused_by_name(
    spark: SparkSession, on_local: Location, name: str, statement: str, changed: list[str]
) -> None:
    table = SparkTable(spark, name, on_local)
    table.sql(statement)

    with pytest.raises(IncompatibleError, match="something else has changed") as refused:
        table.plan(2)

    assert refused.value.details["changed"] == changed
    assert tables.opened(table.uri).version() == 6
    # Columns cannot be taken away again.
    assert ("ALTER TABLE" in refused.value.hint) == (changed != ["columns"])


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (
            "in_commit_timestamps",
            [
                "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
                r"ALTER TABLE {} SET TBLPROPERTIES ('whose' = 'a shop\'s \\ b')",
                "COMMENT ON TABLE {} IS 'this one stays'",
            ],
        ),
        ("clustering", ["ALTER TABLE {} CLUSTER BY (part)"]),
        ("clustering", ["ALTER TABLE {} CLUSTER BY NONE"]),
    ],
)
def test_the_hint_takes_such_a_change_back(
    spark: SparkSession, on_local: Location, name: str, changes: list[str]
) -> None:
    table = SparkTable(spark, name, on_local)
    there = table.rows(table.at(2).version)
    for one in changes:
        table.sql(one)
    with pytest.raises(IncompatibleError, match="something else has changed") as refused:
        table.plan(2)

    said, _, _ = refused.value.hint.partition("; then run the command again")
    for statement in said.partition("Spark SQL: ")[2].split("; "):
        spark.sql(statement)

    executed(spark, table.plan(2))
    assert table.rows() == there
