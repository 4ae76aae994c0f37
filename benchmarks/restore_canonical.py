"""`restore-canonical`: state stores from rows, beside Spark's reading, shuffling and writing them.

The peer writes Parquet, which is less work than a state store: no keys to look up, no sorting.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import savepoints
from benchmarks import state
from benchmarks.result import Result, Sample, Side, copied, in_turns, seconds
from savepoints.store.savepoint import canonical

# The smaller state, restored first: memory that depends on the state's size would grow after it.
_SMALLER = 10


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Restore a savepoint from its rows, and let Spark write the same rows as Parquet."""
    small = _store(directory, keys // _SMALLER)
    in_turns(directory, 1, _restore(small))
    peak_before = _peak_memory()
    store = _store(directory, keys)
    samples = in_turns(directory, rounds, _restore(store), _read_and_write(store))
    ours = seconds(samples["restore"])
    rate = f"{keys / ours / 1e6:.2f} million rows a second"
    memory = (
        f"peak memory of the Python driver: {peak_before / 1e6:.0f} MB after {keys // _SMALLER} "
        f"rows, {_peak_memory() / 1e6:.0f} MB after {keys}; of the JVM, with its tasks, at most "
        f"{state.DRIVER_MEMORY} (-Xmx)"
    )
    peer = seconds(samples["Spark: read, shuffle, write"])
    return Result(samples, peer / ours, (rate, memory))


def _store(directory: Path, keys: int) -> savepoints.Store:
    """Return a store with one savepoint, in both forms."""
    checkpoint = state.built(directory, keys)
    root = directory / f"store-{keys}"
    root.mkdir()
    store = savepoints.Store.at(str(root)).make()
    store.with_settings(state.settings()).create(
        query="totals", checkpoint=str(checkpoint)
    ).execute()
    return store


def _restore(store: savepoints.Store) -> Side:
    def side(scratch: Path) -> Mapping[str, Sample]:
        begun = time.monotonic()
        done = (
            store.savepoint("latest").restore(str(scratch / "restored"), form="canonical").execute()
        )
        return {"restore": Sample(time.monotonic() - begun, done.bytes_written, done.objects)}

    return side


def _read_and_write(store: savepoints.Store) -> Side:
    from pyspark.sql import functions as F

    table = canonical.table(store.root, store.catalog.find("latest").id)

    def side(scratch: Path) -> Mapping[str, Sample]:
        begun = time.monotonic()
        rows = state.start().read.format("delta").load(table.uri.hadoop)
        home = F.pmod("key_hash", F.lit(state.PARTITIONS)).cast("int")
        placed = rows.repartitionById(state.PARTITIONS, home)
        columns = ("key_bytes", "value_bytes", "column_family")
        placed.select(*columns).write.parquet(str(scratch / "rows"))
        took = time.monotonic() - begun
        return {"Spark: read, shuffle, write": Sample(took, *copied(scratch))}

    return side


def _peak_memory() -> int:
    """Return the most memory that this process ever had, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
