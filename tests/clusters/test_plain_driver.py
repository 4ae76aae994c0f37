"""A driver that a user writes, on a cluster whose executors come and go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pandas as pd
import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.outputs.delta.batch_version import open_table
from savepoints.spark.session import session
from tests import spark_session
from tests.clusters import standalone
from tests.clusters.standalone import Cluster

pytestmark = [
    pytest.mark.e2e, pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(1200),
]  # fmt: skip

# Sums of numbers by their last digit, written as a whole; the bug is a factor.
DRIVER = """
import json, sys
from pyspark.sql import SparkSession, functions as F
import savepoints

conf, root, checkpoint, factor = json.loads(sys.argv[1]), *sys.argv[2:]
builder = SparkSession.builder.appName("numbers")
for key, value in conf.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
numbers = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1).json(f"{root}/in")
sums = numbers.groupBy((F.col("n") % 10).alias("digit")).agg(
    (F.sum("n") * int(factor)).alias("total"))
query = (sums.writeStream.queryName("numbers").outputMode("complete").format("delta")
    .option("checkpointLocation", checkpoint).start(f"{root}/sums"))
attached = savepoints.attach(spark, query, every="1h", store=f"{root}/store")
query.processAllAvailable()
taken = attached.stop()
spark.stop()
print(json.dumps({"id": taken.id, "forms": taken.forms, "why": taken.rows_missing}))
"""


def test_attach_and_rollback_with_dynamic_allocation(
    world: LocalWorld, cluster: Cluster, tmp_path: Path
) -> None:
    """Spark's default state store, whose rows tasks in Python read and write."""
    standalone.end_session()
    bucket = f"plain-{uuid.uuid4().hex[:10]}"
    world.create_bucket(bucket)
    root, place = f"s3a://{bucket}", Location.of(f"s3://{bucket}/in")
    settings = spark_session.settings(store=f"s3://{bucket}/store")
    dynamic = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        ),
    }
    spark = settings.spark.model_copy(
        update={
            "master": cluster.master,
            "conf": {**settings.spark.conf, **cluster.conf, **dynamic},
        }
    )
    settings = settings.model_copy(update={"spark": spark})
    started = session(settings, "numbers")
    conf = dict(started.sparkContext.getConf().getAll())
    own = ("spark.app.id", "spark.app.startTime", "spark.driver.port", "spark.app.submitTime")
    conf = {key: value for key, value in conf.items() if key not in own}
    standalone.end_session()
    numbers: list[int] = []

    def put(file: int) -> None:
        mine = list(range(file * 100, file * 100 + 37))
        lines = "".join(json.dumps({"n": one}) + "\n" for one in mine)
        place.put(f"{file}.json", lines.encode())
        numbers.extend(mine)

    def run(checkpoint: str, factor: int) -> dict[str, object]:
        words = [json.dumps(conf), root, f"{root}/{checkpoint}", str(factor)]
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, *words],
            env={**os.environ, "PYSPARK_DRIVER_PYTHON": sys.executable},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-6000:]
        found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return found

    def wrong() -> int:
        every = pd.Series(numbers)
        truth = every.groupby(every % 10).sum()
        table = open_table(f"s3://{bucket}/sums").to_pandas().set_index("digit")["total"]
        return int((truth != table.reindex(truth.index)).sum())

    for file in range(2):
        put(file)
    taken = run("first", 1)
    assert (taken["forms"], taken["why"]) == (["native", "canonical"], None)
    assert wrong() == 0
    put(2)
    run("first", 3)
    assert wrong() > 0, "the bug must spoil something"

    store = Store.at(settings.store, settings=settings)
    session(settings, "rollback")
    with standalone.losing_an_executor(after_stages=0):
        store.query("numbers").rollback(
            str(taken["id"]), to=f"s3://{bucket}/second", form="canonical", stopped=True
        ).execute()
    standalone.end_session()

    put(3)
    run("second", 1)
    assert wrong() == 0, "lost or doubled after the rollback"
