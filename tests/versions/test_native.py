"""Native savepoints are exact on the Spark that is installed, whichever it is.

The truth is the same query on the same Spark, uninterrupted. No jars are needed. What is left out
because this version does not have it stands in `tests.versions.table`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.handle import Store
from tests.fidelity import harness
from tests.fidelity.harness import PARTITIONS, STORES, Run
from tests.fidelity.queries import QUERIES, write_inputs
from tests.versions import installed, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.versions]

SEED, BATCH = 1, 2


@dataclass(frozen=True)
class Bench:
    """Where the queries of this process run."""

    spark: SparkSession
    home: Path
    inputs: Path

    def run(self, query: str, store: str, checkpoint: Path) -> Run:
        return harness.run_batches(
            self.spark, QUERIES[query], STORES[store], self.inputs, checkpoint
        )


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    home = tmp_path_factory.mktemp("versions")
    write_inputs(home / "inputs", SEED)
    with installed.session() as spark:
        yield Bench(spark, home, home / "inputs")


@pytest.mark.parametrize(("query", "store"), table.cells(installed.VERSION))
def test_a_native_savepoint_goes_on_exactly(query: str, store: str, bench: Bench) -> None:
    place = bench.home / f"{query}-{store}"
    checkpoint = place / "checkpoint"
    whole = bench.run(query, store, checkpoint)
    kept = Store.at(str(place / "store")).make()
    plan = kept.create(checkpoint=str(checkpoint), query=query, batch_id=BATCH, forms=("native",))
    saved = plan.execute()
    checkpoint.rename(place / "ended")  # The restored one must not need it.

    kept.savepoint(saved.id).restore(str(place / "restored")).execute()
    assert kept.savepoint(saved.id).verify(depth="checksums").findings == ()
    again = bench.run(query, store, place / "restored")

    expected = whole.after(BATCH)
    assert expected.batches, "there must be later batches"
    assert again.batches == expected.batches
    assert again.after(BATCH).watermarks == expected.watermarks
    assert saved.cut.partitions == PARTITIONS
    named = {one.name for one in saved.operators}
    assert ("unknown" in named) == (installed.VERSION < (4, 0)), named
