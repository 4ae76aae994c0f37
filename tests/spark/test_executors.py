"""Executors whose Python lacks this package and what it needs: nothing but Spark's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark import bare_python

# Other executors than those that all other tests run on take a minute.
pytestmark = [pytest.mark.spark, pytest.mark.nightly]

# Events by file, each a batch: a key and a number.
FILES = [[(key % 7, key) for key in range(first, first + 40)] for first in range(0, 160, 40)]
SAVED = 3

# What a user's own driver does: no App, Spark's default state store, and nothing of this package in
# the settings of Spark.
DRIVER = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession, functions as F
import savepoints
from savepoints.config.settings import Settings
from savepoints.local.jars import resolve_jars

place, files, saved = Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3])
jars = ",".join(map(str, resolve_jars().spark))
spark = (
    SparkSession.builder.master("local[2]").appName("bare")
    .config("spark.jars", jars).config("spark.ui.enabled", "false")
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.shuffle.partitions", "2").getOrCreate()
)

def installed(_):
    import importlib.util
    names = ("savepoints", "obstore", "xxhash", "deltalake", "pydantic")
    return [name for name in names if importlib.util.find_spec(name)]

there = spark.sparkContext.parallelize([0], 1).flatMap(installed).collect()
assert there == [], f"not bare: {there}"

def put(number):
    (place / "in").mkdir(exist_ok=True)
    lines = "".join(json.dumps({"k": k, "v": v}) + "\\n" for k, v in files[number])
    (place / "in" / f"{number}.json").write_text(lines)

def run(checkpoint):
    found = {}
    def keep(rows, _batch):
        found.update({row["k"]: (row["n"], row["total"]) for row in rows.collect()})
    events = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1)
    totals = events.json(str(place / "in")).groupBy("k").agg(
        F.count("v").alias("n"), F.sum("v").alias("total"))
    query = (totals.writeStream.outputMode("update").foreachBatch(keep)
        .option("checkpointLocation", str(place / checkpoint)).trigger(availableNow=True).start())
    query.awaitTermination()
    return found

for number in range(saved):
    put(number)
run("live")
(place / "store").mkdir()
store = savepoints.Store.at(str(place / "store"), settings=Settings()).make()
taken = store.create(query="totals", checkpoint=str(place / "live"), outputs={}).execute()
store.savepoint(taken.id).restore(
    str(place / "next"), form="canonical", partitions=3, check_outputs=False).execute()
for number in range(saved, len(files)):
    put(number)
found = run("next")
print(json.dumps({"forms": taken.forms, "why": taken.rows_missing,
    "rows": [one.rows for one in taken.operators], "found": sorted(found.items())}))
"""


def test_trap_executors_without_this_package_export_and_restore_rows(tmp_path: Path) -> None:
    """The rows are read and written on them; what the query then gives is counted in Python."""
    # Executors have the driver's environment: where Python finds packages is told the driver alone.
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PYSPARK_PYTHON": str(bare_python.make(tmp_path / "python")),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    driver = f"import sys; sys.path[:] = {sys.path!r}\n{DRIVER}"
    command = [sys.executable, "-c", driver, str(tmp_path), json.dumps(FILES), str(SAVED)]

    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr[-6000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert (told["forms"], told["why"]) == (["native", "canonical"], None)
    assert told["rows"] == [7]
    seen: dict[int, tuple[int, int]] = {}
    for key, value in (event for file in FILES for event in file):
        count, total = seen.get(key, (0, 0))
        seen[key] = (count + 1, total + value)
    late = {key for file in FILES[SAVED:] for key, _ in file}
    assert {key: tuple(value) for key, value in told["found"]} == {
        key: value for key, value in seen.items() if key in late
    }
