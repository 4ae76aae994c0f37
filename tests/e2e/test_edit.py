"""Repairing one customer's state by hand and going on: every row compared with pandas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from savepoints.cli.main import cli
from savepoints.cli.output import Terminal
from savepoints.handle import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark]

QUERY = "order_totals"
CUSTOMERS = 40
WRONG = "customer-17"
EVERYTHING = ["customer", "amount"]


def orders(file: int) -> pd.DataFrame:
    """Orders of one file; a customer orders several times, not in each file."""
    numbers = range(60 * file, 60 * file + 60)
    return pd.DataFrame(
        {"customer": f"customer-{n * 7 % CUSTOMERS}", "amount": n % 23 + 0.25} for n in numbers
    )


def totals(files: range) -> pd.DataFrame:
    whole = pd.concat([orders(file) for file in files])
    return whole.groupby("customer")["amount"].agg(["sum", "count"])


class Shop:
    """A query over files, which is run batch by batch; each of its results is kept."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.source = spark, place / "orders"
        self.source.mkdir()
        self.seen: dict[int, pd.DataFrame] = {}

    def arrive(self, files: range) -> None:
        for file in files:
            lines = orders(file).to_dict("records")
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (self.source / f"{file:04d}.json").write_text(text)

    def run(self, checkpoint: str) -> pd.DataFrame:
        """Run to the end of what there is; returns the totals after it."""
        from pyspark.sql import functions as F

        def keep(rows: DataFrame, batch_id: int) -> None:
            frame: Any = rows.toPandas()
            self.seen[batch_id] = frame.set_index("customer").sort_index()

        events = self.spark.readStream.schema("customer string, amount double").option(
            "maxFilesPerTrigger", 1
        )
        query = (
            events.json(str(self.source))
            .groupBy("customer")
            .agg(F.sum("amount").alias("sum"), F.count("*").alias("count"))
            .writeStream.outputMode("complete")
            .foreachBatch(keep)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return self.seen[max(self.seen)]


@pytest.mark.nightly
def test_one_customer_is_repaired_and_all_others_go_on_as_uninterrupted(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop, live = Shop(spark, tmp_path), str(tmp_path / "live")
    shop.arrive(range(3))
    shop.run(live)
    (tmp_path / "store").mkdir()
    store = Store.at(str(tmp_path / "store")).make()
    taken = store.create(query=QUERY, checkpoint=live).execute()
    words = [
        "edit", "latest", "--query", QUERY, "--operator", "0", "--where", f"customer = '{WRONG}'",
        "--set", "sum = sum - 100.5", "--set", "count = count - 2", "--reason", "ticket 4711",
        "--store", str(store.root), "-o", "json", "--progress", "none",
    ]  # fmt: skip

    cli.main([*words, "--dry-run"], obj=Terminal(), standalone_mode=False)
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert len(store.catalog.all()) == 1
    cli.main([*words, "--yes"], obj=Terminal(), standalone_mode=False)
    made = json.loads(capsys.readouterr().out)["savepoint"]
    assert made["edit"]["reason"] == "ticket 4711"
    cli.main(
        ["show", made["id"], "--store", str(store.root)], obj=Terminal(), standalone_mode=False
    )
    assert "set sum = sum - 100.5" in " ".join(capsys.readouterr().out.split())

    before = totals(range(3)).loc[WRONG]
    (row,) = plan["sample"]
    assert row["before"] == {"value": {"sum": before["sum"], "count": before["count"]}}
    assert row["after"] == {"value": {"sum": before["sum"] - 100.5, "count": before["count"] - 2}}
    assert store.savepoint(made["id"]).verify(depth="deep").findings == ()
    (changed,) = store.savepoint(taken.id).diff(made["id"]).variables
    assert (changed.rows.added, changed.rows.removed, changed.rows.changed) == (0, 0, 1)

    restored = str(tmp_path / "restored")
    store.savepoint(made["id"]).restore(restored).execute()
    shop.arrive(range(3, 5))
    found = {"repaired": shop.run(restored), "uninterrupted": shop.run(live)}

    expected = totals(range(5))
    pd.testing.assert_frame_equal(found["uninterrupted"], expected, check_dtype=False)
    expected.loc[WRONG, "sum"] -= 100.5
    expected.loc[WRONG, "count"] -= 2
    pd.testing.assert_frame_equal(found["repaired"], expected, check_dtype=False)
