"""Make the checkpoints under `older_spark/` with an older PySpark, and unpack them.

See README.md beside this.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from savepoints.io import Location
from tests.samples import write

HERE = Path(__file__).parent / "older_spark"
PROVIDERS = {
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
QUERIES = ("totals", "windows")
# Stands in the file source's log for the directory that the files lay in.
SOURCE = "file:///made/in"
FILES = 3
_ROWS, _KEYS, _STEP = 20, 7, 20


def put(source: Path, files: Iterable[int]) -> None:
    """Let files arrive, each younger than the one before; the last row of each comes twice."""
    source.mkdir(exist_ok=True)
    for file in files:
        rows = [{"k": n % _KEYS, "v": file * 100 + n, "t": file * _STEP + n} for n in range(_ROWS)]
        path = source / f"{file:03d}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[-1]]))
        os.utime(path, (1_700_000_000 + file, 1_700_000_000 + file))


def build(events: DataFrame, query: str) -> tuple[DataFrame, str]:
    """Totals by key; or sums in windows of what is no duplicate, within a watermark."""
    if query == "totals":
        return events.groupBy("k").agg(sql.count("*").alias("n"), sql.sum("v").alias("s")), "update"
    timed = events.withColumn("at", sql.timestamp_seconds("t")).withWatermark("at", "10 seconds")
    unique = timed.dropDuplicates(["k", "v", "at"])
    return unique.groupBy(sql.window("at", "15 seconds"), "k").agg(
        sql.sum("v").alias("s")
    ), "append"


def run(spark: SparkSession, source: Path, checkpoint: str, query: str) -> dict[int, list[str]]:
    """Run to the end of what there is; returns the rows of each batch, sorted."""
    seen: dict[int, list[str]] = {}

    def keep(rows: DataFrame, batch_id: int) -> None:
        seen[batch_id] = sorted(map(str, rows.toJSON().collect()))

    events = spark.readStream.schema("k long, v long, t long").option("maxFilesPerTrigger", 1)
    frame, mode = build(events.json(str(source)), query)
    writer = frame.writeStream.outputMode(mode).foreachBatch(keep)
    started = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    started.awaitTermination()
    return seen


def pack(checkpoint: Path, source: Path, target: Path) -> None:
    """Write the files of a checkpoint into an archive, with another place of the source."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(checkpoint.rglob("*")):
            name = path.relative_to(checkpoint).as_posix()
            if path.is_file() and not path.name.startswith(".") and not _is_old(path):
                data = path.read_bytes()
                if name.startswith("sources/"):
                    data = data.replace(f"file://{source}".encode(), SOURCE.encode())
                archive.writestr(name, data)


def unpack(name: str, checkpoint: Location, source: Path) -> Location:
    """Write such a checkpoint, which reads from another place now."""
    with zipfile.ZipFile(HERE / f"{name}.zip") as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    moved = {
        path: data.replace(SOURCE.encode(), f"file://{source}".encode())
        for path, data in files.items()
    }
    write(checkpoint, moved)
    return checkpoint


def _is_old(path: Path) -> bool:
    """Say whether it is a snapshot of RocksDB that a newer one follows."""
    versions = [int(one.stem) for one in path.parent.glob("*.zip")]
    return path.suffix == ".zip" and int(path.stem) < max(versions)


def main() -> None:
    """Make all of them for the PySpark that is installed."""
    HERE.mkdir(exist_ok=True)
    for provider, provider_class in PROVIDERS.items():
        builder = SparkSession.Builder().master("local[2]").config("spark.ui.enabled", "false")
        spark = (
            builder.config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.streaming.stateStore.providerClass", provider_class)
            .getOrCreate()
        )
        version = ".".join(spark.version.split(".")[:2])
        place = Path(tempfile.mkdtemp()).resolve()
        try:
            put(place / "in", range(FILES))
            for query in QUERIES:
                run(spark, place / "in", str(place / query), query)
                pack(place / query, place / "in", HERE / f"{version}_{provider}_{query}.zip")
        finally:
            spark.stop()
            shutil.rmtree(place)


if __name__ == "__main__":
    main()
