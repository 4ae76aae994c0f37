"""`export`: writing the canonical rows, beside Spark's own reading and writing of the same.

The peer's cost is that of Spark's raw reader into a sink that keeps nothing, and that of writing
the canonical rows, which are in memory then, as plain Parquet. A third figure is what Spark needs
to write the raw reader's columns in one job: no placement, order, hashes or transaction log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import savepoints
from benchmarks import state
from benchmarks.result import Result, Sample, copied, in_turns, seconds
from savepoints.checkpoint.cut import read_cut
from savepoints.io import Location
from savepoints.state.storage import read as storage_read


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Export a state, and let Spark read it and write it."""
    checkpoint = state.built(directory, keys)
    samples = in_turns(
        directory,
        rounds,
        lambda scratch: _export(checkpoint, scratch),
        lambda scratch: _read_and_write(checkpoint, scratch),
    )
    ours, read, write, one_job = (
        seconds(samples[what])
        for what in ("export", "Spark: read", "Spark: write", "Spark: raw columns in one job")
    )
    times = (
        f"the export takes {ours / (read + write):.2f} times Spark's read and write, "
        f"{ours / one_job:.2f} times its raw columns in one job"
    )
    rate = f"{keys / ours / 1e6:.2f} million rows a second"
    return Result(samples, (read + write) / ours, (rate, times))


def _export(checkpoint: Path, scratch: Path) -> Mapping[str, Sample]:
    store = savepoints.Store.at(str(scratch)).make()
    taken = (
        store.with_settings(state.settings())
        .create(query="totals", checkpoint=str(checkpoint))
        .execute()
    )
    files = len(store.manifest(taken.id).canonical)
    return {"export": Sample(taken.cost.export_seconds, taken.cost.export_bytes, files)}


def _read_and_write(checkpoint: Path, scratch: Path) -> Mapping[str, Sample]:
    location = Location.of(str(checkpoint))
    files = read_cut(location)
    spark = storage_read.reading_session(state.start(), files.cut.checkpoint_format)
    rows = storage_read.load(spark, location.uri, files.cut.batch_id, 0, "default")
    begun = time.monotonic()
    rows.write.format("noop").mode("overwrite").save()
    read = time.monotonic() - begun

    in_memory = storage_read.read_operator(spark, location, files, files.operators[0]).persist()
    in_memory.write.format("noop").mode("overwrite").save()
    begun = time.monotonic()
    in_memory.write.parquet(str(scratch / "rows"))
    write = time.monotonic() - begun
    in_memory.unpersist(blocking=True)

    begun = time.monotonic()
    rows.write.parquet(str(scratch / "one"))
    one_job = time.monotonic() - begun
    return {
        "Spark: read": Sample(read, 0, 0),
        "Spark: write": Sample(write, *copied(scratch / "rows")),
        "Spark: raw columns in one job": Sample(one_job, *copied(scratch / "one")),
    }
