"""The applications over JSON events and `order_months`, run by Spark over real Kafka.

Compared with pandas over all events. What happens to a key without Spark: `test_settling`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from confluent_kafka import Producer
from pyspark.errors import SparkRuntimeException
from pyspark.sql import functions as F

from savepoints.local import LocalWorld
from savepoints.runtime.app import load
from spark_jobs.orders.cdnow import read_orders
from spark_jobs.orders.codec import encode_order
from spark_jobs.orders.truth import order_months_truth
from tests import draw
from tests.e2e.desk import Desk
from tests.e2e.shop import environment
from tests.spark_jobs import account_tables, samples, truths
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.drawn(2)]

SIZE = 150
CUSTOMERS = 25


@dataclass(frozen=True)
class Case:
    """One application with its events.

    Attributes:
        app: Where it is.
        lateness: How late an event may be.
        events: What happened, with `at` and the record's `key` and `value`.
        truth: What comes of all of them, when the watermark is there.
        rows: What its tables have.
    """

    app: str
    lateness: timedelta
    events: Callable[[], pd.DataFrame]
    truth: Callable[[pd.DataFrame, pd.Timestamp], truths.Rows]
    rows: Callable[[Desk], truths.Rows]


def one_table(desk: Desk) -> truths.Rows:
    """Return the rows of the only output."""
    (output,) = desk.settings.queries[desk.query].outputs
    found = [tuple(_plain(value) for value in row.values()) for row in desk.rows(output)]
    return sorted(found, key=str)


def _plain(value: Any) -> Any:
    return pd.Timestamp(value).tz_convert("UTC") if hasattr(value, "tzinfo") else value


def two_tables(desk: Desk) -> truths.Rows:
    """Return what was decided, accepted or not."""
    return account_tables.decided(*(str(desk.directory / name) for name in ("events", "rejected")))


def in_json(name: str) -> Callable[[], pd.DataFrame]:
    """Return a sample with records; the last event of all is far behind the others."""
    application = load(f"spark_jobs.{name}:app")
    (entity,) = {one.entity_key for one in application.inputs.values()}

    def make() -> pd.DataFrame:
        events = samples.SAMPLES[name](7, SIZE)
        newest = events.loc[[events["at_ms"].idxmax()]]
        ahead = newest.assign(event_id="e-last", at_ms=newest["at_ms"] + 5 * 86_400_000)
        ahead[entity] = "last"
        ahead["at"] = pd.to_datetime(ahead["at_ms"], unit="ms", utc=True)
        return with_records(pd.concat([events, ahead], ignore_index=True), entity)

    return make


def with_records(events: pd.DataFrame, entity: str) -> pd.DataFrame:
    """Add the key and the value that a record of an event has."""
    fields = events.drop(columns="at").astype(object)
    rows = fields.where(fields.notna(), None).to_dict("records")
    return events.assign(
        key=[row[entity].encode() for row in rows],
        value=[json.dumps(row).encode() for row in rows],
    )


def orders() -> pd.DataFrame:
    """Return the real orders of some customers, with records."""
    chosen = [one for one in read_orders() if one.customer_id <= CUSTOMERS]
    frame = pd.DataFrame(
        {
            "event_id": [one.order_id for one in chosen],
            "at": pd.to_datetime([one.ordered_at for one in chosen], utc=True),
            "key": [str(one.customer_id).encode() for one in chosen],
            "value": [encode_order(one) for one in chosen],
        }
    )
    return frame.assign(at_ms=[round(at.timestamp() * 1000) for at in frame["at"]])


def months(_: pd.DataFrame, watermark: pd.Timestamp) -> truths.Rows:
    """Return the windows that are over, from the published file."""
    found = order_months_truth(watermark)
    rows = found[found["customer_id"] <= CUSTOMERS].itertuples(index=False, name=None)
    return sorted(rows, key=str)


SESSIONS = Case(
    "spark_jobs.order_sessions:app",
    timedelta(minutes=10),
    in_json("order_sessions"),
    truths.order_sessions,
    one_table,
)
CASES = {
    "order_sessions": SESSIONS,
    "order_sessions_transform": replace(SESSIONS, app="spark_jobs.order_sessions:app_transform"),
    "login_sessions": Case(
        "spark_jobs.login_sessions:app",
        timedelta(minutes=15),
        in_json("login_sessions"),
        truths.login_sessions,
        one_table,
    ),
    "sort_window": Case(
        "spark_jobs.sort_window:app",
        timedelta(seconds=30),
        in_json("sort_window"),
        truths.sort_window,
        one_table,
    ),
    "accounts": Case(
        "spark_jobs.accounts:app",
        timedelta(seconds=30),
        in_json("accounts"),
        truths.accounts,
        two_tables,
    ),
    "order_months": Case(
        "spark_jobs.order_months:app", timedelta(days=3), orders, months, one_table
    ),
}


CONF = {
    # Arrow cuts the events of one key in many.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5",
    # Each is a Python worker in each batch.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.fixture(scope="module", autouse=True)
def small(spark: SparkSession) -> Iterator[None]:
    """Let batches be cheap, and Arrow's ones small."""
    before = {name: spark.conf.get(name) for name in CONF}
    for name, value in CONF.items():
        spark.conf.set(name, value)
    yield
    for name, found in before.items():
        spark.conf.set(name, str(found))


def send(desk: Desk, events: pd.DataFrame) -> None:
    """Send records into one partition, so that they arrive in this order."""
    producer = Producer({"bootstrap.servers": desk.settings.kafka.bootstrap_servers})
    (topic,) = desk.topics.values()
    for key, value in zip(events["key"], events["value"], strict=True):
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


def as_killed_before_the_commit(desk: Desk) -> None:
    """Take back the commit of the last batch, whose rows and state are written."""
    committed = {info.path for info in desk.checkpoint.list("commits")}
    last = max(int(path.split("/")[1]) for path in committed if not path.endswith(".crc"))
    desk.checkpoint.delete(committed & {f"commits/{last}", f"commits/.{last}.crc"})


@draw.taking_turns("applications", "savepoints in a row")
@pytest.mark.parametrize("name", draw.some(1, CASES, "applications"))
def test_killed_in_mid_window_and_rolled_back_it_comes_to_what_pandas_computes(
    name: str, spark: SparkSession, world: LocalWorld, tmp_path: Path
) -> None:
    case = CASES[name]
    desk = Desk.open(world, tmp_path, case.app, most=SIZE // 2)
    events = case.events()
    arrived = samples.arriving(events, case.lateness, 7)
    half = len(arrived) * 2 // 3
    truth = case.truth(events, events["at"].max() - case.lateness)

    send(desk, arrived.iloc[:half])
    _, saved = desk.run(until="latest")
    written = case.rows(desk)
    as_killed_before_the_commit(desk)
    send(desk, arrived.iloc[half:])
    desk.run(until="latest", final_savepoint=False)

    assert 0 < len(written) < len(truth)
    assert case.rows(desk) == truth

    assert saved is not None
    desk.store.savepoint(saved.id).rollback().execute()
    assert case.rows(desk) == written
    desk.run(until="latest", final_savepoint=False)
    assert case.rows(desk) == truth


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_decoded_events_become_records_that_are_decoded_as_before(
    name: str, spark: SparkSession
) -> None:
    application = load(f"spark_jobs.{name}:app")
    (source,) = map(application.kafka_input, application.inputs)
    assert source.encode is not None
    sent = in_json(name)()[["key", "value", "at_ms"]].head(20)
    raw = spark.createDataFrame(
        [(bytes(key), bytes(value), at) for key, value, at in sent.itertuples(index=False)],
        "key binary, value binary, at_ms long",
    ).selectExpr("key", "value", "'t' AS topic", "0 AS partition", "at_ms AS offset")

    decoded = source.decode(raw)
    records = source.encode(decoded).collect()

    assert {bytes(one["key"]) for one in records} == set(sent["key"])
    assert [_fields(one["value"]) for one in records] == [_fields(one) for one in sent["value"]]
    assert {"topic", "partition", "offset", source.event_time} <= set(decoded.columns)
    halves = decoded.withColumn(source.event_time, F.timestamp_micros(F.lit(1_500)))
    with pytest.raises(SparkRuntimeException, match="no whole millisecond"):
        source.encode(halves).collect()


def _fields(value: bytes) -> dict[str, Any]:
    return {name: one for name, one in json.loads(value).items() if one is not None}


@pytest.mark.nightly
def test_sort_window_killed_in_mid_window_goes_on(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    case = CASES["sort_window"]
    desk = Desk.open(world, tmp_path, case.app, most=SIZE // 5)
    events = case.events()
    send(desk, samples.arriving(events, case.lateness, 8))
    desk.write_settings()
    log = tmp_path / "sorted" / "_delta_log"

    process = subprocess.Popen(
        [sys.executable, "-m", "savepoints", "run", desk.query, "--until", "latest"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        # Version 0 makes the table; each batch is one more.
        wait_until(
            lambda: process.poll() is not None or len(list(log.glob("*.json"))) > 3,
            "there are rows of three batches",
        )
    finally:
        process.kill()
        process.wait()
    truth = case.truth(events, events["at"].max() - case.lateness)
    assert process.returncode == -signal.SIGKILL
    assert 0 < len(case.rows(desk)) < len(truth)

    desk.run(until="latest", final_savepoint=False)

    assert case.rows(desk) == truth
