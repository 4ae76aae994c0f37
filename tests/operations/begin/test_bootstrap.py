"""A bootstrapped query equals the streamed one: outputs, state and every batch that follows."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable, write_deltalake

from savepoints.checkpoint.state.operators import HDFS_PROVIDER
from savepoints.errors import IncompatibleError, TargetExistsError
from savepoints.handle import Query, Store
from savepoints.local import LocalWorld
from savepoints.operations.begin import batch_size
from savepoints.operations.begin.bootstrap import Bootstrapped
from tests.e2e.desk import PARTITIONS, Desk
from tests.operations.begin.lab import BEGINNING, CLOCK, ONLY_ROCKSDB, After, Lab

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(900),
]

CUT, LAST = 4, 6
MOST = 20
EVENTS = 16
SECONDS = 12
FREE = ("totals", "window", "window_update", "session", "dedupe", "join_inner", "join_left")
OF_FUNCTIONS = ("within", "pandas_event", "transform", "transform_ttl")


@dataclass(frozen=True)
class Pair:
    """A program that is run twice over the same topics."""

    lab: Lab
    desk: Desk
    clock: tuple[str, ...] = ()

    @classmethod
    def open(cls, spark: SparkSession, world: LocalWorld, directory: Path, program: str) -> Pair:
        """Bind the program as the query of its name, and as `boot`."""
        desk = Desk.open(
            world, directory, f"tests.operations.begin.apps:stream_{program}", most=MOST
        )
        (name,) = desk.settings.queries
        bound = desk.settings.queries[name]
        streamed = bound.model_copy(update={"outputs": {"out": str(directory / name)}})
        boot = bound.model_copy(
            update={"outputs": {"out": str(directory / "boot")}, "app_name": name}
        )
        settings = desk.settings.model_copy(update={"queries": {name: streamed, "boot": boot}})
        lab, desk = Lab(spark, directory), replace(desk, settings=settings)
        return cls(lab, desk, CLOCK.get(program, ()))

    @property
    def store(self) -> Store:
        return self.desk.store

    @property
    def streamed(self) -> Query:
        return self.store.query(self.desk.query)

    @property
    def boot(self) -> Query:
        return self.store.query("boot")

    def arrive(self, chunk: int, *, late: int = 0) -> None:
        """Send the events of some seconds, and some that are two minutes older."""
        from confluent_kafka import Producer

        chance = random.Random(chunk)
        producer = Producer({"bootstrap.servers": self.desk.settings.kafka.bootstrap_servers})
        for topic in self.desk.topics.values():
            for number in range(EVENTS):
                second = chunk * SECONDS + chance.randrange(SECONDS)
                if number >= EVENTS - late:
                    second -= 120
                event = {
                    "id": f"{topic}-{chunk}-{number}",
                    "k": f"k{chance.randrange(6)}",
                    "v": chance.randrange(3),
                    "t": (BEGINNING + timedelta(seconds=second)).isoformat(),
                }
                producer.produce(topic, json.dumps(event).encode(), partition=number % PARTITIONS)
        producer.flush()

    def advance(self, query: Query) -> After:
        """Run a query up to what has arrived, and take down what it then has."""
        query.run(until="latest", final_savepoint=False)
        return self.now(query)

    def now(self, query: Query) -> After:
        """Take down what a query has, without the columns that hold the machine's time."""
        return self.lab.now(query, self.clock)

    def bootstrap(self, **options: Any) -> Bootstrapped:
        """Begin the second query with everything that has arrived."""
        return self.boot.bootstrap(until="latest", **options).execute()


def goes_on_exactly(pair: Pair, cut: After) -> None:
    """Compare everything that there is now, and after each of some batches more."""
    assert pair.now(pair.boot) == cut
    for chunk in range(CUT + 1, LAST + 1):
        pair.arrive(chunk)
        assert pair.advance(pair.boot) == pair.advance(pair.streamed)
    assert pair.now(pair.boot).state != cut.state


def large_batches_equal(
    spark: SparkSession, world: LocalWorld, tmp_path: Path, program: str
) -> Pair:
    pair = Pair.open(spark, world, tmp_path, program)
    for chunk in range(CUT + 1):
        pair.arrive(chunk)
        cut = pair.advance(pair.streamed)
    done = pair.bootstrap(batch_records=10_000)
    assert done.batches < CUT
    assert (pair.boot.generation.begun_by, pair.boot.latest.id) == ("bootstrap", done.savepoint_id)
    goes_on_exactly(pair, cut)
    return pair


def own_batches_equal(spark: SparkSession, world: LocalWorld, tmp_path: Path, program: str) -> Pair:
    pair = Pair.open(spark, world, tmp_path, program)
    for chunk in range(CUT + 1):
        pair.arrive(chunk, late=chunk)
    cut = pair.advance(pair.streamed)
    done = pair.bootstrap()
    assert done.batches >= CUT
    goes_on_exactly(pair, cut)
    return pair


@pytest.mark.parametrize("program", FREE)
def test_in_large_batches_it_equals_the_query_that_read_as_events_came(
    spark: SparkSession, world: LocalWorld, tmp_path: Path, program: str
) -> None:
    large_batches_equal(spark, world, tmp_path, program)


@pytest.mark.parametrize("program", [*OF_FUNCTIONS, "window"])
def test_in_its_own_batches_it_equals_a_run_whatever_is_late(
    spark: SparkSession, world: LocalWorld, tmp_path: Path, program: str
) -> None:
    own_batches_equal(spark, world, tmp_path, program)


@pytest.mark.usefixtures("hdfs")
@pytest.mark.parametrize(
    "program", [one for one in (*FREE, *OF_FUNCTIONS) if one not in ONLY_ROCKSDB]
)
def test_it_equals_the_streamed_query_on_the_default_store(
    spark: SparkSession, world: LocalWorld, tmp_path: Path, program: str
) -> None:
    compared = large_batches_equal if program in FREE else own_batches_equal
    pair = compared(spark, world, tmp_path, program)
    assert pair.boot.latest.cut.provider == HDFS_PROVIDER


@pytest.mark.parametrize("program", OF_FUNCTIONS)
def test_functions_keep_their_batches(
    spark: SparkSession, world: LocalWorld, tmp_path: Path, program: str
) -> None:
    pair = Pair.open(spark, world, tmp_path, program)
    pair.arrive(0)
    with pytest.raises(IncompatibleError, match="depend on where batches end"):
        pair.boot.bootstrap(until="latest", batch_records=10_000)


def test_trap_late_events_would_count_in_larger_batches(
    spark: SparkSession, world: LocalWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: with the check left out, the two differ."""
    pair = Pair.open(spark, world, tmp_path, "window")
    for chunk in range(CUT + 1):
        pair.arrive(chunk, late=1 if chunk == CUT else 0)
        cut = pair.advance(pair.streamed)
    with pytest.raises(
        IncompatibleError, match="they would count 1 late event that streaming, in batches"
    ):
        pair.boot.bootstrap(until="latest", batch_records=10_000)
    # With more batches than slices, an event may be late within one.
    monkeypatch.setattr(batch_size, "_MOST_SLICES", 1)
    with pytest.raises(IncompatibleError, match=r"they would count .* may have dropped"):
        pair.boot.bootstrap(until="latest", batch_records=10_000)
    bound = pair.desk.settings.queries["boot"]
    queries = {"boot": bound.model_copy(update={"max_offsets_per_trigger": 10_000})}
    settings = pair.desk.settings.model_copy(update={"queries": queries})
    unchecked = Store.at(settings.store, settings=settings).query("boot")
    unchecked.bootstrap(until="latest").execute()
    assert pair.now(unchecked).rows != cut.rows


def test_outputs_with_rows_are_left_alone(
    spark: SparkSession, world: LocalWorld, tmp_path: Path
) -> None:
    pair = Pair.open(spark, world, tmp_path, "window")
    for chunk in range(CUT + 1):
        pair.arrive(chunk)
        cut = pair.advance(pair.streamed)
    filled = DeltaTable(str(tmp_path / pair.desk.query)).to_pyarrow_table()
    write_deltalake(str(tmp_path / "boot"), filled)
    with pytest.raises(TargetExistsError, match="already has rows"):
        pair.boot.bootstrap(until="latest")
    pair.bootstrap(outputs="none")
    (output,) = pair.boot.latest.outputs
    assert (output.version, output.app_version) == (1, pair.boot.latest.cut.batch_id)
    goes_on_exactly(pair, cut)


def test_a_query_that_has_run_is_refused(
    spark: SparkSession, world: LocalWorld, tmp_path: Path
) -> None:
    pair = Pair.open(spark, world, tmp_path, "totals")
    pair.arrive(0)
    pair.advance(pair.boot)
    with pytest.raises(TargetExistsError, match="already has generation 1") as refused:
        pair.boot.bootstrap(until="latest")
    assert "savepoints fork" in str(refused.value.hint)
    assert "savepoints reset" in str(refused.value.hint)
