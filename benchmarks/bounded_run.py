"""`bounded-run`: a run from a cold process to its exit, on so few records that they cost nothing.

Ours is `savepoints run order_totals --until latest`: lease, offsets from Kafka, one planned batch,
a native savepoint. The peer is the same processing as a plain Spark job with `availableNow`,
without any of that. Both write Delta by MERGE, with checkpoint and table on the local disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from benchmarks import state
from benchmarks.result import Result, Sample, in_turns, seconds, timed
from savepoints.config.settings import QuerySettings
from savepoints.local import LocalWorld
from spark_jobs.orders.cdnow import orders_between, read_orders
from spark_jobs.orders.producer import produce

TOPIC = "orders"
# Lines of progress on stderr: the seconds since the command began, and what is done from then on.
_LINE = re.compile(r"^ *(\d+\.\d)s (.+)$", re.MULTILINE)
_PARTS = {
    "ours: until Spark is started": "starting Spark",
    "ours: starting Spark": "running ",
    "ours: the first batch": "batch 0: ",
    "ours: the savepoint": "took the savepoint sp-",
}


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Run both in turns, each time as a process of its own on a query that has run nothing yet.

    Args:
        directory: Where everything lies.
        keys: Most orders to process.
        rounds: Samples of each side.
    """
    orders = orders_between(read_orders(), from_date=date(1997, 1, 1), until_date=date(1997, 1, 2))
    orders = orders[:keys]
    with LocalWorld.start() as world:
        produce(orders, bootstrap_servers=world.bootstrap_servers, topic=TOPIC)
        environment = {**os.environ, **world.environment}
        samples = in_turns(
            directory,
            rounds,
            lambda scratch: _ours(scratch, environment),
            lambda scratch: _peer(scratch, environment),
        )
    ours, peer = seconds(samples["ours"]), seconds(samples["peer"])
    notes = (
        f"{len(orders)} orders; a bounded run takes {ours - peer:.1f} s more than the plain job",
    )
    return Result(samples, peer / ours, notes)


def _ours(scratch: Path, environment: Mapping[str, str]) -> Mapping[str, Sample]:
    (scratch / "store").mkdir()
    known = state.settings()
    conf = {**known.spark.conf, "spark.sql.shuffle.partitions": str(state.PARTITIONS)}
    query = QuerySettings(
        app="spark_jobs.order_totals:app",
        checkpoints=f"{scratch}/live",
        outputs={"totals": f"{scratch}/totals"},
    )
    spark = known.spark.model_copy(update={"conf": conf})
    changes = {"store": f"{scratch}/store", "spark": spark, "queries": {"order_totals": query}}
    settings = scratch / "savepoints.toml"
    state.write(known.model_copy(update=changes), settings)
    words = ("run", "order_totals", "--until", "latest", "--format", "native")
    took, said = timed(
        ["-m", "savepoints", *words, "--progress", "plain", "--config", str(settings)], environment
    )
    samples = {"ours": Sample(took, 0, 0)}
    before = 0.0
    for part, line in _PARTS.items():
        at = next(float(second) for second, text in _LINE.findall(said) if text.startswith(line))
        samples[part] = Sample(at - before, 0, 0)
        before = at
    return {**samples, "ours: the exit, and Python's start": Sample(took - before, 0, 0)}


def _peer(scratch: Path, environment: Mapping[str, str]) -> Mapping[str, Sample]:
    took, _ = timed(["-m", "benchmarks.plain_run", TOPIC, str(scratch)], environment)
    return {"peer": Sample(took, 0, 0)}
