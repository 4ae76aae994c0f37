"""Where a merge works: on the local disk if the store is elsewhere and Spark is here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.store import scratch
from savepoints.store.locks import readers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.s3
def test_beside_a_store_on_s3_a_merge_works_on_the_local_disk(
    spark: SparkSession, on_s3: Location
) -> None:
    store = Store.at(str(on_s3)).make()
    place, work = scratch.place_of(store, "op-1"), scratch.work_of(store, "op-1", spark)
    spark.range(3).write.parquet((work / "made").uri.hadoop)
    spark.range(2).write.parquet((work / "not needed later").uri.hadoop)

    first = scratch.share(work, place, ["made", "nothing"])
    (Path(str(work)) / "made" / "more").write_bytes(b"more")
    kept = place.get(min(first))
    assert kept == Path(str(work), min(first)).read_bytes()
    Path(str(work), min(first)).write_bytes(b"changed, which nothing does")
    second = scratch.share(work, place, ["made"], shared=first)

    assert work.uri.scheme == "file"
    there = [one.path for one in place.list()]
    assert there == sorted(second) == sorted([*first, "made/more"])
    assert not [one for one in there if one.endswith(".crc")]
    assert place.get(min(first)) == kept

    scratch.discard(store, "op-1", work)

    assert not place.list()
    assert not Path(str(work)).exists()


def test_in_a_local_store_it_works_where_it_is_looked_for(
    spark: SparkSession, local_store: Store
) -> None:
    place, work = scratch.place_of(local_store, "op-1"), scratch.work_of(local_store, "op-1", spark)
    spark.range(3).write.parquet((work / "made").uri.hadoop)
    before = [one.path for one in place.list()]

    assert work == place
    assert scratch.share(work, place, ["made"]) == set()
    assert before
    assert [one.path for one in place.list()] == before

    scratch.discard(local_store, "op-1", work)

    assert not place.list()


def test_trap_a_plan_that_nobody_carried_out_left_tracebacks_and_a_sign(local_store: Store) -> None:
    program = (
        "import sys; from savepoints.handle import Store; from savepoints.store import scratch; "
        "scratch.claim(Store.at(sys.argv[1]), 'op-1')"
    )
    root = str(local_store.root)
    ended = subprocess.run(
        [sys.executable, "-c", program, root], capture_output=True, text=True, check=True
    )

    assert ended.stderr == ""
    assert readers.holders(local_store.root) == {}
