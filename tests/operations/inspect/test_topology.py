"""`topology`, against what stands in the files of sample checkpoints, in tables and in Kafka."""

from __future__ import annotations

import dataclasses
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from savepoints.checkpoint.logs.kafka_position import kafka_position
from savepoints.config.settings import KafkaSettings, QuerySettings, Settings
from savepoints.errors import (
    CheckpointNotFoundError,
    NoCommittedBatchError,
    QueryNotFoundError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.model import Savepoint
from savepoints.operations.inspect import topology
from savepoints.operations.inspect.operator_places import CountedRows, OperatorPlace
from savepoints.operations.inspect.source_places import PartitionPlace
from savepoints.operations.rollback import rollback
from savepoints.store import bindings
from savepoints.store.bindings import CloneOf
from tests.faults.test_rollback_killed import write_output
from tests.samples import contents, query_id, savepoint, take, unpack
from tests.sources.broker import HOUR, Broker
from tests.sources.reading import BATCH, checkpoint_at

LONG_K = (("k", "long"),)
TOTALS = {"default": (LONG_K, (("count", "long"), ("sum", "long")))}
BY_NUMBER = (("field0", "long"),)
BY_INDEX = (("field0", "long"), ("index", "long"))
COUNT = (("value", "long"),)
LEFT = (("k", "long"), ("v", "long"))
MATCHED = ("matched", "boolean")
WINDOW = ("window", "struct<start:timestamp,end:timestamp>")
DELTA = {"sourceVersion": 1, "reservoirVersion": 4, "index": -1, "isStartingVersion": False}

# By sample: name, state files and columns of each store of each operator. A pattern names the
# files that make the newest committed version: see the names of the files of the sample.
STATE: dict[str, list[tuple[str, dict[str, tuple[list[str], Any]]]]] = {
    "rocksdb": [
        ("stateStoreSave", {"default": (["state/0/?/4.zip", "state/0/?/SSTs/000012-*"], TOTALS)})
    ],
    "hdfs": [("stateStoreSave", {"default": (["state/0/?/[1-4].delta"], TOTALS)})],
    "format_2_changelog": [
        (
            "stateStoreSave",
            {
                "default": (
                    ["state/0/?/2_*.zip", "state/0/?/[34]_*.changelog", "state/0/?/SSTs/*"],
                    TOTALS,
                )
            },
        )
    ],
    "join": [
        (
            "symmetricHashJoin",
            {
                f"{side}-{store}": (
                    [f"state/0/?/{side}-{store}/1.zip", f"state/0/?/{side}-{store}/SSTs/*"],
                    {"default": columns},
                )
                for side, named in (("left", "v"), ("right", "w"))
                for store, columns in (
                    ("keyToNumValues", (BY_NUMBER, COUNT)),
                    ("keyWithIndexToValue", (BY_INDEX, (*LONG_K, (named, "long"), MATCHED))),
                )
            },
        )
    ],
    "join_3": [
        (
            "symmetricHashJoin",
            {
                "default": (
                    ["state/0/?/3.zip", "state/0/?/SSTs/*"],
                    {
                        "left-keyToNumValues": (BY_NUMBER, COUNT),
                        "left-keyWithIndexToValue": (
                            BY_INDEX,
                            (*LEFT, ("at", "timestamp"), MATCHED),
                        ),
                        "right-keyToNumValues": (BY_NUMBER, COUNT),
                        "right-keyWithIndexToValue": (
                            BY_INDEX,
                            (("k2", "long"), ("at2", "timestamp"), MATCHED),
                        ),
                    },
                )
            },
        )
    ],
    "transform_with_state": [
        (
            "transformWithStateInPySparkExec",
            {
                "default": (
                    ["state/0/?/3.zip", "state/0/?/SSTs/*"],
                    {
                        "$eventTimers_keyToTimestamp": (
                            (("key", "struct<k:long>"), ("expiryTimestampMs", "long")),
                            (),
                        ),
                        "$eventTimers_timestampToKey": (
                            (("expiryTimestampMs", "long"), ("key", "struct<k:long>")),
                            (),
                        ),
                        "$rowCounter_seen": (LONG_K, (("count", "long"),)),
                        "counts": (
                            (("key", "struct<k:long>"), ("userKey", "struct<digit:long>")),
                            (("n", "long"),),
                        ),
                        "seen": (LONG_K, (("v", "long"),)),
                        "total": (LONG_K, (("s", "long"),)),
                    },
                )
            },
        )
    ],
    "two_sources": [],
    "3.5_hdfs_windows": [
        (
            "unknown",
            {
                "default": (
                    ["state/0/?/[1-4].delta"],
                    {"default": ((WINDOW, *LONG_K), (("sum", "long"),))},
                )
            },
        ),
        (
            "unknown",
            {
                "default": (
                    ["state/1/?/[1-4].delta"],
                    {"default": ((*LEFT, ("at", "timestamp")), ())},
                )
            },
        ),
    ],
    "3.5_rocksdb_totals": [
        ("unknown", {"default": (["state/0/?/3.zip", "state/0/?/SSTs/*"], TOTALS)})
    ],
}


def columns(one: OperatorPlace) -> dict[str, dict[str, Any]]:
    """Return name and type of the columns of each store and column family."""
    return {
        store.name: {
            family.name: tuple(
                tuple((column.name, column.type) for column in part)
                for part in (family.key, family.value)
            )
            for family in store.families
        }
        for store in one.stores
    }


@pytest.mark.parametrize("sample", STATE)
def test_of_a_checkpoint_alone_it_says_what_its_files_say(sample: str, on_local: Location) -> None:
    directory = Path(str(unpack(sample, on_local / sample)))
    newest = max(int(path.name) for path in directory.glob("commits/*"))
    _, metadata, *positions = (directory / f"offsets/{newest}").read_text().splitlines()
    commit = directory / f"commits/{newest}"
    before = contents(on_local)

    found = topology.of_checkpoint(str(directory), Settings())

    assert (found.query_id, found.checkpoint) == (query_id(sample), str(directory))
    assert (found.query, found.generation, found.application) == (None, None, None)
    assert (found.batch_id, found.outputs, found.savepoint_id) == (newest, (), None)
    assert found.findings[0].startswith("no store was given")
    written = datetime.fromtimestamp(commit.stat().st_mtime, UTC)
    assert abs((found.committed_at - written).total_seconds()) < 0.001
    watermark = json.loads(commit.read_text().splitlines()[1])["nextBatchWatermarkMs"]
    assert found.watermark_ms == (watermark or None)
    conf = json.loads(metadata)["conf"]
    assert found.partitions == int(conf["spark.sql.shuffle.partitions"])
    assert found.provider == conf["spark.sql.streaming.stateStore.providerClass"]
    assert found.checkpoint_format == (2 if sample.startswith("format_2") else 1)
    assert [one.position for one in found.sources] == positions
    assert {(one.kind, one.lag, one.problem) for one in found.sources} == {("files", None, "")}

    assert [one.operator_id for one in found.operators] == list(range(len(STATE[sample])))
    for one, (name, stores) in zip(found.operators, STATE[sample], strict=True):
        sizes = {
            store: [path.stat().st_size for at in patterns for path in directory.glob(at)]
            for store, (patterns, _) in stores.items()
        }
        assert (one.name, one.partitions, one.rows) == (name, 2, None)
        assert {at.name: (at.files, at.bytes) for at in one.stores} == {
            store: (len(of), sum(of)) for store, of in sizes.items()
        }
        assert (one.files, one.bytes) == (
            sum(map(len, sizes.values())),
            sum(map(sum, sizes.values())),
        )
        assert columns(one) == {store: said for store, (_, said) in stores.items()}
        assert not any(store.problem for store in one.stores)
    assert contents(on_local) == before


def test_a_state_without_key_columns_and_one_of_a_single_partition(on_local: Location) -> None:
    (total,) = topology.of_checkpoint(
        str(unpack("grand_total", on_local / "total")), Settings()
    ).operators
    limit, dedupe = topology.of_checkpoint(
        str(unpack("limit", on_local / "limit")), Settings()
    ).operators

    assert (total.partitions, columns(total)) == (
        1,
        {"default": {"default": ((), (("count", "long"),))}},
    )
    assert (limit.name, limit.partitions, dedupe.partitions) == ("globalLimit", 1, 2)
    # Spark keeps a NULL in place of a key there, and in place of a value here.
    assert columns(limit) == {"default": {"default": ((), (("value", "long"),))}}
    assert columns(dedupe) == {"default": {"default": (LEFT, ())}}


def test_columns_that_cannot_be_read_are_unknown_and_the_rest_is_told(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local / "newer")
    path = "state/0/0/_metadata/schema"
    checkpoint.put(path, checkpoint.get(path).replace(b"\x00\x02v2", b"\x00\x02v9"))
    without = unpack("rocksdb", on_local / "without")
    without.delete([path])

    (newer,) = topology.of_checkpoint(str(checkpoint), Settings()).operators
    (bare,) = topology.of_checkpoint(str(without), Settings()).operators

    assert (newer.files, bare.files) == (4, 4)
    assert (newer.stores[0].families, bare.stores[0].families) == ((), ())
    assert "version 'v9' is not supported" in newer.stores[0].problem
    assert bare.stores[0].problem == "it has no state schema file"


def test_a_source_that_has_not_begun_has_no_position(on_local: Location) -> None:
    checkpoint = unpack("two_sources", on_local / "two")
    checkpoint.delete([f"{log}/{batch}" for log in ("offsets", "commits") for batch in (1, 2)])

    first, second = topology.of_checkpoint(str(checkpoint), Settings()).sources

    assert (first.position, first.kind) == ('{"logOffset":0}', "files")
    assert (second.position, second.kind) == (None, "unknown")


@pytest.fixture
def saved(local_store: Store, on_local: Location) -> tuple[Savepoint, Savepoint]:
    """Give savepoints of batches 1 and 3 of a query with an output."""
    live, table = unpack("rocksdb", on_local / "live"), str(on_local / "totals")
    write_output(table, query_id("rocksdb"))
    first, last = (
        take(local_store, live, batch_id=batch, outputs={"totals": table}) for batch in (1, 3)
    )
    return first, last


def counted(store: Store, one: Savepoint, rows: int) -> None:
    """Let a savepoint have counted rows, as one with an exported state has."""
    operators = tuple(dataclasses.replace(operator, rows=rows) for operator in one.operators)
    store.catalog.put([dataclasses.replace(one, operators=operators)])


def test_of_a_query_it_says_what_the_store_and_the_tables_know(
    local_store: Store, on_local: Location, saved: tuple[Savepoint, Savepoint]
) -> None:
    first, last = saved
    table = str(on_local / "totals")
    counted(local_store, first, 4711)
    history = DeltaTable(table).history()

    found = local_store.query("totals").topology()

    assert (found.query, found.generation, found.generation_status) == ("totals", 1, "current")
    assert (found.savepoint_id, found.batch_id) == (last.id, 3)
    assert found.findings == ()
    (operator,) = found.operators
    assert operator.rows == CountedRows(4711, first.id, 1)
    (output,) = found.outputs
    assert (output.name, output.uri, output.kind) == ("totals", table, "delta")
    assert output.table_id == str(DeltaTable(table).metadata().id)
    assert (output.version, output.batch_id) == (max(one["version"] for one in history), 3)
    assert output.basis == "the table's log, for batch 3"
    assert (output.clone_of, output.readers) == (None, ())

    counted(local_store, last, 4712)
    (operator,) = local_store.topology(checkpoint=str(on_local / "live")).operators
    assert operator.rows == CountedRows(4712, last.id, 3)


def test_the_version_of_an_output_is_that_of_the_batch_and_not_the_newest(
    local_store: Store, on_local: Location, saved: tuple[Savepoint, Savepoint]
) -> None:
    live = on_local / "live"
    live.delete(["commits/3", "offsets/3"])

    (output,) = local_store.query("totals").topology().outputs

    assert DeltaTable(output.uri).version() == 3
    assert (output.version, output.batch_id) == (2, 2)


def test_where_a_table_does_not_tell_the_newest_savepoint_does(
    local_store: Store, on_local: Location, saved: tuple[Savepoint, Savepoint]
) -> None:
    elsewhere = str(on_local / "elsewhere")
    bound = QuerySettings(app="totals:app", checkpoints="/x", outputs={"more": elsewhere})
    store = local_store.with_settings(Settings(queries={"totals": bound}))
    shutil.rmtree(str(on_local / "totals"))

    found = store.query("totals").topology()

    assert found.application == "totals:app"
    known, unknown = found.outputs
    assert (known.version, known.batch_id, known.kind) == (3, 3, "delta")
    assert f"savepoint {saved[1].id}" in known.basis
    assert "there is no Delta table at" in known.basis
    assert (unknown.name, unknown.uri) == ("more", elsewhere)
    assert (unknown.version, unknown.table_id, unknown.kind) == (None, None, None)
    assert unknown.basis.startswith("unknown: there is no Delta table at")


def test_other_queries_that_read_an_output_are_named(
    local_store: Store, on_local: Location, saved: tuple[Savepoint, Savepoint]
) -> None:
    here = DeltaTable(str(on_local / "totals")).metadata().id

    def reading(number: int, query: str, table_id: str) -> Savepoint:
        position = json.dumps({**DELTA, "reservoirId": table_id})
        return savepoint(number, query=query, offsets=(position,))

    for one in (
        reading(1, "former", str(here)),
        reading(2, "former", "another"),
        reading(3, "reader", str(here)),
        reading(4, "elsewhere", "another"),
    ):
        local_store.catalog.add(one)
    # The newest of this query, though of an older batch: whoever writes a table is no reader of it.
    later = saved[1].created_at + timedelta(hours=1)
    own = dataclasses.replace(reading(0, "totals", str(here)), created_at=later)
    local_store.catalog.add(own)

    (output,) = local_store.query("totals").topology().outputs

    assert output.readers == ("reader",)


def test_a_delta_source_has_the_id_of_its_table(on_local: Location) -> None:
    position = json.dumps({**DELTA, "reservoirId": "5c4a"}, separators=(",", ":"))
    checkpoint = unpack("hdfs", on_local / "delta")
    path = f"offsets/{BATCH}"
    checkpoint.put(path, checkpoint.get(path).replace(b'{"logOffset":3}', position.encode()))

    (source,) = topology.of_checkpoint(str(checkpoint), Settings()).sources

    assert (source.kind, source.table_id, source.position) == ("delta", "5c4a", position)


def test_after_a_rollback_each_generation_is_told_of_its_own(
    local_store: Store, on_local: Location, saved: tuple[Savepoint, Savepoint]
) -> None:
    first, last = saved
    counted(local_store, first, 10)
    counted(local_store, last, 20)
    plan = rollback.plan(local_store, first.id, to=str(on_local / "next"))
    rollback.execute(plan, local_store)
    bound = QuerySettings(app="fixed:app", checkpoints="/x")
    clone_of = {"totals": CloneOf("s3://lake/totals", 7)}
    made = bindings.fresh("totals", 2, bound, clone_of)
    bindings.write(local_store.root, "totals", 2, made)

    now = local_store.query("totals").topology()
    before = local_store.topology(checkpoint=str(on_local / "live"))

    assert (now.generation, now.generation_status, now.batch_id) == (2, "current", 1)
    assert (now.savepoint_id, now.application) == (first.id, "fixed:app")
    # Not when the files of the restored checkpoint were written.
    assert now.committed_at == first.cut.committed_at
    assert now.operators[0].rows == CountedRows(10, first.id, 1)
    # The rewind is a version of its own, with the rows of batch 1.
    assert (now.outputs[0].batch_id, now.outputs[0].version) == (1, 4)
    assert now.outputs[0].clone_of == CloneOf("s3://lake/totals", 7)
    assert (before.query, before.generation, before.generation_status) == ("totals", 1, "ended")
    assert (before.batch_id, before.application) == (3, None)
    assert before.operators[0].rows is not None
    assert before.operators[0].rows.batch_id == 3
    assert before.outputs[0].clone_of is None


def test_what_is_not_there_is_refused(local_store: Store, on_local: Location) -> None:
    for query, checkpoint in ((None, None), ("totals", str(on_local))):
        with pytest.raises(UsageError, match="either a query or a checkpoint"):
            topology.topology(local_store, query, checkpoint)
    with pytest.raises(QueryNotFoundError):
        topology.topology(local_store, "nobody")
    with pytest.raises(CheckpointNotFoundError):
        topology.topology(local_store, checkpoint=str(on_local / "none"))
    with pytest.raises(NoCommittedBatchError):
        topology.topology(local_store, checkpoint=str(unpack("uncommitted", on_local / "begun")))
    local_store.generations.begin("totals", 1, on_local / "lost", by="run")
    with pytest.raises(CheckpointNotFoundError) as lost:
        topology.topology(local_store, "totals")
    assert "savepoints run totals --recover" in str(lost.value.hint)


def test_a_store_that_is_not_there_yet_knows_nothing(on_local: Location) -> None:
    store = Store.at(str(on_local / "store"))

    found = store.topology(checkpoint=str(unpack("rocksdb", on_local / "live")))

    assert (found.query, found.batch_id) == (None, 3)


@pytest.mark.parametrize(
    ("kafka", "reason"),
    [
        (KafkaSettings(), "no broker is configured"),
        (KafkaSettings(bootstrap_servers="localhost:1"), "localhost:1"),
    ],
)
def test_without_an_answer_of_kafka_lag_is_unknown_and_says_why(
    kafka: KafkaSettings, reason: str, on_local: Location
) -> None:
    checkpoint = checkpoint_at({"orders": {0: 12, 1: 7}}, on_local / "checkpoint")

    (source,) = topology.of_checkpoint(str(checkpoint), Settings(kafka=kafka)).sources

    assert (source.kind, source.lag) == ("kafka", None)
    assert reason in source.problem
    assert source.partitions == (PartitionPlace("orders", 0, 12), PartitionPlace("orders", 1, 7))


@pytest.mark.kafka
def test_kafka_says_how_far_behind_it_is_and_what_retention_has_left(
    world: LocalWorld, on_local: Location
) -> None:
    broker = Broker.of(world)
    behind, recreated = broker.make(), broker.make(partitions=1)
    broker.put(behind, 0, *[HOUR] * 9)
    broker.put(behind, 1, *[HOUR] * 6)
    broker.forget(behind, 0, 2)
    broker.forget(behind, 1, 4)
    broker.grow(behind, 3)
    broker.put(behind, 2, *[HOUR] * 3)
    broker.put(recreated, 0, HOUR)
    offsets = {behind: {0: 5, 1: 1}, recreated: {0: 8}, "no-such-topic": {0: 0}}
    settings = Settings(kafka=broker.settings)

    def sources(*topics: str) -> Any:
        position = {topic: offsets[topic] for topic in topics}
        checkpoint = checkpoint_at(position, on_local / "-".join(topics))
        return topology.of_checkpoint(str(checkpoint), settings)

    found = sources(behind)
    (source,) = found.sources
    assert source.position == kafka_position({behind: offsets[behind]})
    assert source.partitions == (
        PartitionPlace(behind, 0, 5, 2, 9, lag=4, kept=3, lost=0),
        PartitionPlace(behind, 1, 1, 4, 6, lag=5, kept=0, lost=3),
        PartitionPlace(behind, 2, None, 0, 3, lag=3, kept=0, lost=0),
    )
    assert (source.lag, source.problem) == (12, "")
    assert (
        f"{behind} partition 1: Kafka no longer has the next 3 records, starting at offset 1"
        in found.findings
    )

    (source,) = sources(recreated, "no-such-topic").sources
    there, missing = sorted(source.partitions, key=lambda one: one.topic != recreated)
    assert (there.earliest, there.end, there.lag, there.lost) == (0, 1, None, None)
    assert "beyond Kafka's end" in there.problem
    assert (missing.lag, missing.problem) == (None, "Kafka has no topic no-such-topic")
    assert (source.lag, source.problem) == (None, "")


@pytest.mark.kafka
def test_trap_nothing_is_counted_in_a_topic_that_is_another_one(
    world: LocalWorld, on_local: Location, local_store: Store
) -> None:
    """The new one has a record at the offset that was reached in the old one."""
    broker = Broker.of(world)
    topic = broker.make(partitions=1)
    broker.put(topic, 0, *[HOUR] * 3)
    store = local_store.with_settings(Settings(kafka=broker.settings))
    checkpoint = checkpoint_at({topic: {0: 2}}, on_local / "checkpoint")
    assert take(store, checkpoint, query="clicks").topics
    assert [one.lag for one in topology.topology(store, "clicks").sources] == [1]
    broker.remove(topic)
    broker.make(partitions=1, name=topic)
    broker.put(topic, 0, *[HOUR] * 9)

    (source,) = topology.topology(store, "clicks").sources

    (place,) = source.partitions
    assert (source.lag, place.lag, place.lost, place.end) == (None, None, None, 9)
    assert "deleted and recreated" in place.problem
