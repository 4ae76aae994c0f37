"""A driver that users write produces into a topic, behind it an App: a bug, and back with both.

The driver knows nothing but `attach`. What the App's table must have is computed by pandas from
what was given to the driver.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from deltalake import DeltaTable

import savepoints
from savepoints.config.settings import QuerySettings
from savepoints.handle import Store
from savepoints.local import LocalWorld
from savepoints.model import Savepoint
from tests import spark_session
from tests.e2e.marks import NIGHTLY
from tests.e2e.shop import called, run_apart
from tests.sources.broker import Broker
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY

Row = tuple[int, int]


@dataclass
class Sales:
    """Files of sales, the driver that puts them into a topic, and the App that adds them up.

    Attributes:
        given: All sales so far.
        checkpoint: Where the driver's checkpoint is now.
    """

    spark: SparkSession
    directory: Path
    servers: str
    topic: str
    checkpoint: str
    given: list[Row] = field(default_factory=list)

    @property
    def store(self) -> Store:
        return Store.at(str(self.directory / "store"), settings=self.settings).make()

    @property
    def settings(self) -> Any:
        chain = QuerySettings(
            app="tests.e2e.chain_app:app",
            checkpoints=str(self.directory / "checkpoints"),
            outputs={"totals": str(self.directory / "totals")},
            topics={"sales": self.topic},
        )
        return spark_session.settings(
            store=str(self.directory / "store"),
            kafka={"bootstrap_servers": self.servers},
            queries={"chain": chain},
        )

    def config(self) -> str:
        """Write the settings into a file, for the command line."""
        conf = "".join(f'"{k}" = "{v}"\n' for k, v in self.settings.spark.conf.items())
        file = self.directory / "savepoints.toml"
        file.write_text(
            f'store = "{self.settings.store}"\n[spark]\nmaster = "local[2]"\n[spark.conf]\n{conf}'
            f'[kafka]\nbootstrap_servers = "{self.servers}"\n[queries.chain]\n'
            f'app = "tests.e2e.chain_app:app"\ncheckpoints = "{self.directory}/checkpoints"\n'
            f'[queries.chain.outputs]\ntotals = "{self.directory}/totals"\n'
            f'[queries.chain.topics]\nsales = "{self.topic}"\n'
        )
        return str(file)

    def give(self, *rows: Row) -> None:
        incoming = self.directory / "in"
        incoming.mkdir(exist_ok=True)
        file = incoming / f"{len(self.given):06}.json"
        text = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in rows]
        written = self.directory / file.name
        written.write_text("\n".join(text) + "\n")
        written.rename(file)
        self.given += rows

    def produce(self, factor: int = 1) -> Savepoint:
        """Let the driver work off what there is, and stop it; return its last savepoint."""
        rows = self.spark.readStream.schema("customer long, amount long")
        files = rows.option("maxFilesPerTrigger", 1).json(str(self.directory / "in"))
        records = files.selectExpr(f"concat(customer, ',', amount * {factor}) AS value")
        query = (
            records.writeStream.format("kafka")
            .option("kafka.bootstrap.servers", self.servers)
            .option("topic", self.topic)
            .option("checkpointLocation", self.checkpoint)
            .start()
        )
        attached = savepoints.attach(
            self.spark, query, every="1h", store=self.store, name="driver",
            output_topics=[self.topic], forms=("native",),
        )  # fmt: skip
        query.processAllAvailable()
        taken = attached.stop()
        assert taken is not None
        return taken

    def add_up(self) -> None:
        self.store.query("chain").run(until="latest", forms=("native",), final_savepoint=False)

    def rows(self) -> list[tuple[int, int, int]]:
        found = DeltaTable(str(self.directory / "totals")).to_pyarrow_table().to_pylist()
        return sorted((one["customer"], one["sales"], one["amount"]) for one in found)

    def truth(self) -> list[tuple[int, int, int]]:
        frame = pd.DataFrame(self.given, columns=["customer", "amount"])
        sums = frame.groupby("customer")["amount"].agg(["size", "sum"])
        return [(int(c), int(n), int(total)) for c, n, total in sums.itertuples()]


@pytest.fixture
def sales(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> Sales:
    """Give sales of which the App has not read all that the driver had written at the group."""
    topic = Broker.of(world).make()
    made = Sales(spark, tmp_path, world.bootstrap_servers, topic, str(tmp_path / "driver-1"))
    made.give((1, 10), (2, 20))
    assert made.produce().output_topics[0].is_exact
    made.add_up()
    made.give((1, 11), (3, 30))
    made.give((2, 21))
    made.produce()
    made.store.query("driver").create_group(name="before").execute()
    made.give((1, 12), (4, 40))
    made.produce(factor=1000)
    return made


def test_back_from_a_bug_of_the_driver(sales: Sales) -> None:
    sales.add_up()
    assert sales.rows() != sales.truth()

    plan = sales.store.query("driver").rollback_pipeline(
        "before", checkpoints=str(sales.directory / "checkpoints"), stopped=True
    )
    done = plan.execute()

    assert f"chain: read driver's topic {sales.topic} up to offsets" in str(plan)
    assert [one.query for one in done.members] == ["driver", "chain"]
    assert sales.rows() == [(1, 2, 21), (2, 2, 41), (3, 1, 30)], "exactly what the driver is at"
    sales.checkpoint = done.members[0].checkpoint
    sales.produce()
    sales.give((5, 50), (1, 13))
    sales.produce()
    sales.add_up()
    assert sales.rows() == sales.truth()


def test_back_while_the_app_runs_which_is_paused_for_it(sales: Sales) -> None:
    config = sales.config()
    wrong = (4, 1, 40_000)
    with run_apart(sales.directory, sales.store.root, "chain") as lives:

        def seen() -> bool:
            lives()
            return wrong in sales.rows()

        wait_until(seen, "the App has read what the bug wrote")

        code, out, err = called(
            "pipeline", "rollback", "driver", "before", "--yes", "--stopped", "-o", "json",
            "--checkpoints", str(sales.directory / "checkpoints"), "--config", config,
        )  # fmt: skip

        assert code == 0, err
        (driver, _) = json.loads(out)["pipeline_rolled_back"]["members"]
        sales.checkpoint = driver["checkpoint"]
        sales.produce()

        def is_right() -> bool:
            lives()
            return sales.rows() == sales.truth()

        wait_until(is_right, "the App is right again")
