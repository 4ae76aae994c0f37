"""`restore-migrated`: a savepoint restored for a changed program, beside the plain restore of it.

Both write the same rows from the canonical form through Spark's state store writer. The migration
also runs the program on empty inputs, decodes, changes and encodes each row, and counts them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import savepoints
from benchmarks import state
from benchmarks.result import Result, Sample, Side, in_turns, seconds
from savepoints.runtime.app import App, Input, Output

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLAIN, _MIGRATED = "plain restore", "migrated"


def _decode(raw: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    order = F.from_json(F.col("value").cast("string"), "customer string, amount long")
    return raw.select(order.alias("order")).select("order.*")


def _build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Compute what `benchmarks.state` does in another order, and the smallest amount."""
    from pyspark.sql import functions as F

    return (
        inputs["orders"]
        .groupBy("customer")
        .agg(
            F.max("amount").alias("most"),
            F.min("amount").alias("least"),
            F.sum("amount").alias("total"),
            F.count("*").alias("orders"),
        )
    )


app = App(
    name="totals",
    inputs={"orders": Input("orders", _decode, entity_key="customer", event_time="timestamp")},
    build=_build,
    outputs={"totals": Output("upsert", key=("customer",))},
)


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Restore a savepoint for its own program and for the changed one, in turns."""
    checkpoint = state.built(directory, keys)
    root = directory / "store"
    root.mkdir()
    store = savepoints.Store.at(str(root)).make()
    store.with_settings(state.settings()).create(
        query="totals", checkpoint=str(checkpoint)
    ).execute()
    samples = in_turns(directory, rounds, _plain(store), _migrated(store))
    plain, migrated = seconds(samples[_PLAIN]), seconds(samples[_MIGRATED])
    rate = f"{keys / migrated / 1e6:.2f} million rows a second, each decoded, changed and encoded"
    return Result(samples, plain / migrated, (rate,))


def _plain(store: savepoints.Store) -> Side:
    def side(scratch: Path) -> Mapping[str, Sample]:
        begun = time.monotonic()
        done = store.savepoint("latest").restore(str(scratch / "plain"), form="canonical").execute()
        return {_PLAIN: Sample(time.monotonic() - begun, done.bytes_written, done.objects)}

    return side


def _migrated(store: savepoints.Store) -> Side:
    def side(scratch: Path) -> Mapping[str, Sample]:
        begun = time.monotonic()
        done = (
            store.with_settings(state.settings())
            .savepoint("latest")
            .migrate(str(scratch / "migrated"), app=f"{__name__}:app")
            .execute()
        )
        return {_MIGRATED: Sample(time.monotonic() - begun, done.bytes_written, done.objects)}

    return side
