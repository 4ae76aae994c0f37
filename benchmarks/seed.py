"""`seed`: state written from rows of a batch job, beside a canonical restore of the same state.

Both end with state stores of the same rows. A seed decodes nothing, but it checks what it is given
and encodes it; what the plan takes, which reads all rows for nulls and doubled keys, has a line of
its own and is part of ours.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import write_deltalake

import savepoints
from benchmarks import state
from benchmarks.result import Result, Sample, Side, in_turns, seconds
from savepoints import App, Output, TableInput
from savepoints.checkpoint.logs.offset_log import PARTITIONS_KEY, PROVIDER_KEY
from savepoints.checkpoint.state.operators import ROCKSDB_PROVIDER
from savepoints.config.settings import QuerySettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query of `state`."""
    from pyspark.sql import functions as F

    sums = (F.count("*").alias("orders"), F.sum("amount").alias("total"))
    return inputs["orders"].groupBy("customer").agg(*sums, F.max("amount").alias("most"))


app = App(
    "totals",
    {
        "orders": TableInput(
            columns="customer string, amount long, at timestamp",
            entity_key="customer",
            event_time="at",
        )
    },
    _build,
    {"totals": Output("upsert", ("customer",))},
)


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Seed a query, and restore a savepoint of it from its rows."""
    spark = state.start()
    spark.conf.set(PARTITIONS_KEY, str(state.PARTITIONS))
    spark.conf.set(PROVIDER_KEY, ROCKSDB_PROVIDER)
    rows = _rows(directory, keys)
    store = _store(directory)
    store.query("totals").seed(str(rows), until="version:0", forms=("canonical",)).execute()
    samples = in_turns(directory, rounds, _seed(rows), _restore(store))
    whole = [
        Sample(plan.seconds + done.seconds, done.bytes, done.objects)
        for plan, done in zip(samples["its plan"], samples["seed"], strict=True)
    ]
    peer = seconds(samples["restore of its rows"])
    alone, both = seconds(samples["seed"]) / peer, seconds(whole) / peer
    note = f"{keys} keys: {alone:.2f} times as long as the restore, {both:.2f} times with the plan"
    return Result(samples, peer / seconds(whole), (note,))


def _rows(directory: Path, keys: int) -> Path:
    """Write what the query would have after it has seen each key once."""
    from pyspark.sql import functions as F

    amount = (F.col("id") * 7919 % 10007).alias("sum")
    customer = F.lpad(F.hex(F.xxhash64("id")), 16, "0").alias("customer")
    found = state.start().range(keys).select(customer, F.lit(1).cast("long").alias("count"), amount)
    place = directory / "rows"
    found.withColumn("max", F.col("sum")).write.parquet(str(place))
    return place


def _store(home: Path) -> savepoints.Store:
    """Return an empty store, and a table that the query reads."""
    (home / "store").mkdir(parents=True)
    at = pa.array([], pa.timestamp("us", "UTC"))
    empty = {"customer": pa.array([], pa.string()), "amount": pa.array([], pa.int64()), "at": at}
    write_deltalake(str(home / "events"), pa.table(empty))
    bound = QuerySettings(
        app="benchmarks.seed:app",
        checkpoints=str(home / "checkpoints"),
        outputs={"totals": str(home / "totals")},
        tables={"orders": str(home / "events")},
    )
    known = state.settings().model_copy(
        update={"store": str(home / "store"), "queries": {"totals": bound}}
    )
    return savepoints.Store.at(str(home / "store"), settings=known).make()


def _seed(rows: Path) -> Side:
    def side(scratch: Path) -> Mapping[str, Sample]:
        store = _store(scratch)
        begun = time.monotonic()
        plan = store.query("totals").seed(str(rows), until="version:0")
        planned = time.monotonic()
        done = plan.execute()
        took = time.monotonic() - planned
        written = Sample(took, done.bytes_written, 0)
        return {"seed": written, "its plan": Sample(planned - begun, 0, 0)}

    return side


def _restore(store: savepoints.Store) -> Side:
    def side(scratch: Path) -> Mapping[str, Sample]:
        begun = time.monotonic()
        handle = store.savepoint("latest")
        done = handle.restore(str(scratch / "restored"), form="canonical").execute()
        took = time.monotonic() - begun
        return {"restore of its rows": Sample(took, done.bytes_written, done.objects)}

    return side
