"""An archive of a real topic, compared with what Kafka's own consumer reads."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from deltalake.transaction import RemoveAction
from pyspark.sql import functions as F

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.errors import (
    IncompatibleError,
    NotAlignedError,
    QueryRunningError,
    SourceDataGoneError,
    UsageError,
)
from savepoints.io import Location
from savepoints.jobs import archive as archive_job
from savepoints.sources.archive import archive, check, compact, progress, same_decoding
from savepoints.sources.archive import files as archive_files
from savepoints.sources.archive import table as archive_table
from savepoints.sources.combined import archive_then_kafka, archiving_query, availability
from savepoints.sources.combined.archiving_query import Archiving
from savepoints.sources.events.events import Decoding, events
from savepoints.sources.kafka import topics
from tests import spark_session
from tests.draw import some
from tests.sources import json_input
from tests.sources.broker import Broker
from tests.sources.json_input import DECODING, add_late, archived, consume, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.drawn(4)]
ROOT = Path(__file__).parents[3]


def ends(broker: Broker, topic: str) -> KafkaOffsets:
    return {
        topic: {
            p: one.end for p, one in availability.ranges([topic], broker.settings)[topic].items()
        }
    }


def rows_of(uri: str) -> list[Any]:
    return DeltaTable(uri).to_pyarrow_table().to_pylist()


def archive_now(spark: SparkSession, broker: Broker, topic: str, uri: str) -> None:
    query = archiving_query.start(spark, Archiving(uri, topic, DECODING, broker.settings))
    query.awaitTermination()
    assert query.exception() is None


def settings_file(place: Path, broker: Broker, topic: str, uri: str) -> Path:
    known = spark_session.settings()
    file = place / "savepoints.toml"
    conf = "\n".join(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in known.spark.conf.items())
    file.write_text(
        f"""
store = "{place}/store"
jars = "{known.jars}"
[kafka]
bootstrap_servers = "{broker.settings.bootstrap_servers}"
[spark]
master = "{known.spark.master}"
[spark.conf]
{conf}
[queries.counts]
app = "tests.sources.json_input:app"
checkpoints = "{place}/checkpoints"
[queries.counts.topics]
orders = "{topic}"
[queries.counts.archives]
orders = "{uri}"
"""
    )
    return file


@pytest.mark.nightly
def test_killed_between_its_two_commits_the_archive_still_has_each_record_once(
    spark: SparkSession, broker: Broker, tmp_path: Path, world_environment: dict[str, str]
) -> None:
    topic, uri = broker.make(partitions=3), str(tmp_path / "archive")
    file = settings_file(tmp_path, broker, topic, uri)
    produce(broker, topic, 2, 60, seed=1)  # The third partition stays empty.
    words = ["counts", "orders", "--until", "latest", "--most", "25", "--config", str(file)]

    killed = subprocess.run(
        [sys.executable, "-m", "savepoints.jobs.archive", *words],
        cwd=ROOT,
        env={**os.environ, "SAVEPOINTS_CRASH_AT": "archive.events_committed"},
        stdout=subprocess.DEVNULL,
        check=False,
        timeout=300,
    )

    assert killed.returncode == -signal.SIGKILL
    first = rows_of(uri)
    assert 0 < len(first) < 60
    assert archive.end(uri) == {}  # What arrived was not yet written down.
    produce(broker, topic, 2, 30, seed=2)
    out = io.StringIO()
    assert archive_job.main([*words, "--check"], out) == 0
    end = ends(broker, topic)
    truth = consume(broker, {}, end)
    assert archived(rows_of(uri)) == truth
    assert len(truth) == 90
    assert archive.end(uri) == end
    done, checked = (json.loads(line) for line in out.getvalue().splitlines())
    assert done["rows"] == 90
    assert checked["problems"] == []
    assert sum(one["compared"] for one in checked["partitions"]) == 90

    # Without anything new nothing is written; without its checkpoint it goes on all the same.
    version = DeltaTable(uri).version()
    archive_now(spark, broker, topic, uri)
    assert DeltaTable(uri).version() == version
    shutil.rmtree(Path(uri) / archive.CHECKPOINT)
    produce(broker, topic, 3, 20, seed=3)
    archive_now(spark, broker, topic, uri)
    assert archived(rows_of(uri)) == consume(broker, {}, ends(broker, topic))

    # Compacted it has the same rows, in one run; and it still goes on.
    out = io.StringIO()
    assert archive_job.main([*words, "--compact"], out) == 0
    assert json.loads(out.getvalue().splitlines()[-1])["files_after"] == 1
    produce(broker, topic, 3, 5, seed=4)
    archive_now(spark, broker, topic, uri)
    assert archived(rows_of(uri)) == consume(broker, {}, ends(broker, topic))

    # A check that finds nothing would be worth nothing.
    table = DeltaTable(uri)
    lost = archive_table.files(table)[-1]
    table.create_write_transaction(
        [RemoveAction(lost.path, True, 0, lost.size, {})], mode="append", schema=table.schema()
    )
    found = check.check(spark, uri, broker.settings)
    assert sum(one.missing for one in found.partitions) == lost.rows
    assert any("the archive lacks" in one for one in found.problems)
    assert archive_job.main(["counts", "orders", "--check", "--config", str(file)]) == 13


def test_the_seam_loses_and_doubles_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic, uri = broker.make(partitions=2), str(tmp_path / "archive")
    produce(broker, topic, 2, 40, seed=1)
    archive_now(spark, broker, topic, uri)
    seam = archive.end(uri)
    produce(broker, topic, 2, 40, seed=2)
    until = ends(broker, topic)
    truth = consume(broker, {}, until)
    # What is archived is gone from Kafka, up to the very seam.
    for part, offset in seam[topic].items():
        broker.forget(topic, part, offset)

    def read(since: KafkaOffsets | None, until: KafkaOffsets, who: list[str] | None) -> DataFrame:
        return archive_then_kafka.rows(
            spark,
            DECODING,
            topic=topic,
            archive=uri,
            kafka=broker.settings,
            since=since,
            until=until,
            entities=who,
            merges=[],
        )

    assert archived(read(None, until, None).collect()) == truth
    since = {topic: {0: 3, 1: seam[topic][1] + 2}}
    stop = {topic: {0: seam[topic][0] - 2, 1: until[topic][1] - 1}}
    assert archived(read(since, stop, ["c1", "c4"]).collect()) == [
        one
        for one in truth
        if one.entity in {"c1", "c4"}
        and since[topic][one.partition] <= one.offset < stop[topic][one.partition]
    ]
    # Beyond the seam Kafka is the only one to have it.
    broker.forget(topic, 0, seam[topic][0] + 1)
    with pytest.raises(SourceDataGoneError, match=f"wanted {seam[topic][0]} to"):
        read(None, until, None)
    # And the archive can no longer go on.
    with pytest.raises(SourceDataGoneError):
        archive_now(spark, broker, topic, uri)


def test_trap_merges_into_another_input_need_no_archive_of_this_one(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """All that Kafka has was never archived, and the settings name where it would be."""
    topic = broker.make(partitions=2)
    produce(broker, topic, 2, 10, seed=1)
    until = ends(broker, topic)

    def read(uri: str) -> list[Any]:
        found = archive_then_kafka.rows(
            spark, DECODING, topic=topic, archive=uri, kafka=broker.settings, since=None,
            until=until, entities=None, merges=["op-1"],
        )  # fmt: skip
        return archived(found.collect())

    assert read(str(tmp_path / "none")) == consume(broker, {}, until)
    # Where there is one, it has what was merged, though nothing that arrived.
    uri = str(tmp_path / "archive")
    add_late(spark, uri, events(raw(spark, 0, 4, partition=-1), DECODING), "op-1")
    assert len(read(uri)) == len(read(str(tmp_path / "none"))) + 4


def raw(spark: SparkSession, first: int, last: int, partition: int = 0) -> DataFrame:
    """Make records of orders 100 * partition + offset, with offsets from `first` to `last`."""
    data = [
        (None, json_input.order(100 * partition + n, n % 5, 1000 - n), "t", partition, n)
        for n in range(first, last)
    ]
    made = spark.createDataFrame(
        data, "key binary, value binary, topic string, partition int, offset long"
    )
    return made.selectExpr(
        "*",
        "timestamp_seconds(0) timestamp",
        "0 timestampType",
        "cast(null as array<struct<key: string, value: binary>>) headers",
    )


def test_late_events_and_removals_of_merges_in_effect(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "archive")
    archive.make(spark, uri)
    for first, last in [(0, 30), (30, 60)]:
        batch = events(raw(spark, first, last), DECODING)
        archive.append(uri, batch, begin={"t": {0: first}}, end={"t": {0: last}})
    late = events(raw(spark, 0, 4, partition=-1), DECODING)
    assert add_late(spark, uri, late, "op-1") == 4
    assert add_late(spark, uri, late, "op-1") == 0
    # The second merge takes away order 7, which arrived, and -99, which the first brought.
    gone = events(raw(spark, 0, 60), DECODING).where("event_id in ('o-7', 'o-8')")
    removals = gone.unionByName(late.where("event_id = 'o--99'")).selectExpr(
        "key", "value", "topic", "-1 partition", "offset", "timestamp", "timestampType", "headers",
        "entity", "event_time", "event_id", "if(event_id = 'o-8', 'insert', 'remove') op",
    )  # fmt: skip
    assert add_late(spark, uri, removals, "op-2") == 3

    def ids(merges: list[str], who: list[str] | None = None) -> list[str]:
        rows = archive.read(
            spark,
            uri,
            entities=who,
            since={"t": {0: 5}},
            until={"t": {0: 50}},
            merges=merges,
        )
        return sorted(row.event_id for row in archive.corrected(rows, merges).collect())

    arrived = [f"o-{n}" for n in range(5, 50)]
    assert ids([]) == sorted(arrived)
    assert ids(["op-1"]) == sorted([*arrived, "o--100", "o--99", "o--98", "o--97"])
    second = [one for one in arrived if one != "o-7"] + ["o-8"]
    assert ids(["op-2"]) == sorted(second)
    assert ids(["op-1", "op-2"]) == sorted([*second, "o--100", "o--98", "o--97"])
    # Undone and done again in another order: what the first brings stays.
    assert ids(["op-2", "op-1"]) == sorted([*second, "o--100", "o--99", "o--98", "o--97"])
    assert ids(["op-1"], ["c1"]) == sorted(["o--99", *(f"o-{n}" for n in range(6, 50, 5))])
    many = [f"x{n}" for n in range(1000)]
    assert ids([], ["c1", *many]) == sorted(f"o-{n}" for n in range(6, 50, 5))
    with pytest.raises(NotAlignedError, match="wanted up to 61, archived up to 60"):
        archive.read(spark, uri, entities=None, since=None, until={"t": {0: 61}}, merges=[])

    # Each merge counts its events from 0, which in one run are no doubles.
    assert compact.compact(spark, uri).files_after == 1
    assert ids(["op-1", "op-2"]) == sorted([*second, "o--100", "o--98", "o--97"])
    assert ids(["op-1"], ["c1"]) == sorted(["o--99", *(f"o-{n}" for n in range(6, 50, 5))])


def test_what_would_break_the_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "archive")
    archive.make(spark, uri)
    records = raw(spark, 0, 10)
    archive.append(uri, events(records, DECODING), begin={"t": {0: 0}}, end={"t": {0: 10}})

    with pytest.raises(NotAlignedError, match="another process has written to it"):
        archive.append(uri, events(records, DECODING), begin={"t": {0: 5}}, end={"t": {0: 15}})
    twice = Decoding(
        lambda r: json_input.decode(r).unionAll(json_input.decode(r)), "customer", "at", ("id",)
    )
    more = events(raw(spark, 10, 20), twice)
    with pytest.raises(IncompatibleError, match="the same topic, partition and offset: 10 events"):
        archive.append(uri, more, begin={"t": {0: 10}}, end={"t": {0: 20}})
    bare = Decoding(lambda r: json_input.decode(r).drop("offset"), "customer", "at", ("id",))
    with pytest.raises(UsageError, match="decode drops offset"):
        events(records, bare)
    with pytest.raises(UsageError, match="does not declare which columns identify"):
        events(records, Decoding(json_input.decode, "customer", "at", ()))
    assert progress.load(uri).end == {"t": {0: 10}}
    assert len(rows_of(uri)) == 10


def test_trap_a_new_partition_that_begins_above_zero_is_archived(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Kafka has removed its first records; what its offsets add up to says nothing."""
    uri = str(tmp_path / "archive")
    archive.make(spark, uri)

    def add(begin: dict[int, int], end: dict[int, int]) -> None:
        batch = raw(spark, begin[0], end[0])
        if 1 in begin:
            batch = batch.unionByName(raw(spark, begin[1], end[1], partition=1))
        archive.append(uri, events(batch, DECODING), begin={"t": begin}, end={"t": end})

    add({0: 0}, {0: 10})
    for _ in range(2):  # Spark runs a batch again that it has not committed.
        add({0: 10, 1: 37}, {0: 12, 1: 40})
    add({0: 12, 1: 40}, {0: 13, 1: 41})

    # As many offsets as the archive has, in other partitions.
    with pytest.raises(NotAlignedError, match="another process has written to it"):
        add({0: 14, 1: 40}, {0: 15, 1: 41})
    assert progress.load(uri).begin == {"t": {0: 0, 1: 37}}
    assert progress.load(uri).end == {"t": {0: 13, 1: 41}}
    assert sorted((row["partition"], row["offset"]) for row in rows_of(uri)) == [
        *((0, offset) for offset in range(13)),
        *((1, offset) for offset in range(37, 41)),
    ]


@pytest.mark.nightly
def test_trap_a_new_partition_without_its_first_records_has_a_way_out(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Spark fails at it, each time, and went on failing without its checkpoint."""
    topic, uri = broker.make(partitions=1), str(tmp_path / "archive")
    produce(broker, topic, 1, 10, seed=1)
    archive_now(spark, broker, topic, uri)
    broker.grow(topic, 2)
    produce(broker, topic, 2, 40, seed=2)
    broker.forget(topic, 1, 5)

    with pytest.raises(SourceDataGoneError, match=f"{topic} partition 1: 0 to 5") as refused:
        archive_now(spark, broker, topic, uri)
    assert str(Location.of(uri) / archive.CHECKPOINT) in refused.value.hint
    shutil.rmtree(Path(uri) / archive.CHECKPOINT)
    archive_now(spark, broker, topic, uri)

    assert archived(rows_of(uri)) == consume(broker, {topic: {0: 0, 1: 5}}, ends(broker, topic))
    assert progress.load(uri).begin == {topic: {0: 0, 1: 5}}


def test_trap_of_two_batches_that_are_added_at_once_the_second_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both carry the same number: the second was taken for done, and its records were left out."""
    uri = str(tmp_path / "archive")
    archive.make(spark, uri)
    written = archive_files.write

    def append(part: int) -> None:
        batch = events(raw(spark, 0, 10, partition=part), DECODING)
        archive.append(uri, batch, begin={"t": {0: 0, 1: 0}}, end={"t": {0: 0, 1: 0, part: 10}})

    def slow(*given: Any) -> archive_files.WrittenFiles:
        found = written(*given)
        monkeypatch.setattr(archive_files, "write", written)
        append(0)
        return found

    monkeypatch.setattr(archive_files, "write", slow)
    with pytest.raises(QueryRunningError, match="at the same time"):
        append(1)

    assert progress.load(uri).end == {"t": {0: 10, 1: 0}}
    assert len(rows_of(uri)) == 10


def test_trap_what_two_jobs_read_at_the_same_time_is_not_archived_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The second has seen an archive that ends where its batch begins, and commits later."""
    uri = str(tmp_path / "archive")
    archive.make(spark, uri)
    archive.append(
        uri, events(raw(spark, 0, 10), DECODING), begin={"t": {0: 0}}, end={"t": {0: 10}}
    )
    location = Location.of(uri)
    (file,) = archive_table.files(archive_table.require(location))

    with pytest.raises(QueryRunningError, match=r"up to transaction version 1 since .* began at 0"):
        archive_table.append_files(location, [file], archive._ARRIVED, 2, {}, after=0)

    assert len(rows_of(uri)) == 10


def test_trap_a_slow_driver_does_not_write_down_the_range_of_another_batch(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """The records of its own batch would be there twice, and those of the other one never."""
    topic, uri = broker.make(partitions=1), str(tmp_path / "archive")
    produce(broker, topic, 1, 5, seed=1)
    archive_now(spark, broker, topic, uri)
    what = Archiving(uri, topic, DECODING, broker.settings)

    for batch in (0, 2):
        with pytest.raises(QueryRunningError, match=f"writes batch {batch}, but batch 1 is the"):
            archiving_query.append(what, {}, raw(spark, 0, 5), batch)

    assert len(rows_of(uri)) == 5


@pytest.mark.parametrize(("first", "last"), [(0, 5), (4, 8), (6, 11)])
def test_trap_records_that_are_not_of_the_batch_are_not_archived(
    spark: SparkSession, tmp_path: Path, first: int, last: int
) -> None:
    uri = str(tmp_path / "archive")
    archive.make(spark, uri)
    batch = events(raw(spark, first, last), DECODING)

    said = rf"offsets {first} to {last - 1} of topic t partition 0, .* from 5 up to 10"
    with pytest.raises(NotAlignedError, match=said):
        archive.append(uri, batch, begin={"t": {0: 5}}, end={"t": {0: 10}})

    assert rows_of(uri) == []


@pytest.mark.nightly
def test_trap_a_topic_that_is_made_again_while_it_is_archived(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Its offsets go on, as it looks, where those of the old one ended."""
    topic, uri = broker.make(partitions=1), str(tmp_path / "archive")
    produce(broker, topic, 1, 5, seed=1)
    archive_now(spark, broker, topic, uri)
    what = Archiving(uri, topic, DECODING, broker.settings)
    ids = topics.ids([topic], broker.settings)
    broker.remove(topic)
    broker.make(partitions=1, name=topic)
    produce(broker, topic, 1, 9, seed=2)
    checkpoint = Location.of(uri) / archive.CHECKPOINT
    begun = checkpoint.get("offsets/0").replace(b'"0":5', b'"0":9')
    checkpoint.put("offsets/1", begun)

    with pytest.raises(SourceDataGoneError, match=f"{topic} has been deleted and recreated"):
        archiving_query.append(what, ids, raw(spark, 5, 9).withColumn("topic", F.lit(topic)), 1)

    assert len(rows_of(uri)) == 5


def test_trap_a_compaction_that_lost_events_is_not_committed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files before are removed after a week, and Kafka does not have their events any more."""
    uri = str(tmp_path / "archive")
    archive.make(spark, uri)
    for first in (0, 10):
        archive.append(
            uri,
            events(raw(spark, first, first + 10), DECODING),
            begin={"t": {0: first}},
            end={"t": {0: first + 10}},
        )
    monkeypatch.setattr(archive_files, "ordered", lambda rows, _count: rows.limit(7))

    with pytest.raises(
        NotAlignedError, match="read 20 events and wrote 7, 0 of them twice; nothing"
    ):
        compact.compact(spark, uri)

    assert len(rows_of(uri)) == 20


def test_trap_a_session_whose_timestamps_have_no_time_zone_archives_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")

    def archive_by(session: SparkSession) -> str:
        uri = str(tmp_path / f"archive-{session is theirs}")
        archive.make(session, uri)
        moment = "timestamp_seconds(offset * 60) as at"
        decode = Decoding(
            lambda r: r.selectExpr("*", "'c' as customer", "offset as id", moment),
            "customer",
            "at",
            ("id",),
        )
        batch = events(raw(session, 0, 5), decode)
        archive.append(uri, batch, begin={"t": {0: 0}}, end={"t": {0: 5}})
        same_decoding.require(session, uri, decode)
        return uri

    ours, others = archive_by(spark), archive_by(theirs)

    assert DeltaTable(others).schema().to_json() == DeltaTable(ours).schema().to_json()
    assert rows_of(others) == rows_of(ours)
    assert [one["event_time"].timestamp() for one in rows_of(others)] == [0, 60, 120, 180, 240]


@pytest.mark.parametrize(
    ("changed", "said"),
    some(
        2,
        [
            ({"event_id": ("customer", "id")}, r"event id (o-.) in the archive and {.*:.\1.} now"),
            ({"entity_key": "id"}, r"entity c(.) in the archive and o-\1 now"),
            ({"event_time": "other_time"}, "event time 20.* in the archive and 20"),
            (
                {"decode": lambda records: json_input.decode(records).where("id <> 'o-3'")},
                "and None now",
            ),
        ],
        "decoded differently",
    ),
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_trap_an_archive_of_events_that_the_program_decodes_differently_now(
    spark: SparkSession, tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    """Late events would not be known again by their new ids, and be merged twice."""
    uri = str(tmp_path / "archive")

    def decode(records: DataFrame) -> DataFrame:
        return json_input.decode(records).selectExpr("*", "at + INTERVAL 1 HOUR AS other_time")

    decoding = dataclasses.replace(DECODING, decode=decode)
    same_decoding.require(spark, uri, decoding)
    archive.make(spark, uri)
    same_decoding.require(spark, uri, decoding)
    for first in (2, 3):
        archive.append(
            uri,
            events(raw(spark, first, first + 1), decoding),
            begin={"t": {0: first}},
            end={"t": {0: first + 1}},
        )
    late = events(raw(spark, 9, 10, partition=-1), DECODING)
    assert add_late(spark, uri, late, "op-1") == 1
    same_decoding.require(spark, uri, decoding)

    with pytest.raises(IncompatibleError, match=said) as refused:
        same_decoding.require(spark, uri, dataclasses.replace(decoding, **changed))

    assert "t partition 0 offset" in refused.value.message
    assert "archive the topic again at another URI" in refused.value.hint


def test_several_columns_can_identify_an_event(spark: SparkSession) -> None:
    decoding = Decoding(json_input.decode, "customer", "at", ("customer", "id"))

    row = events(raw(spark, 3, 4), decoding).first()

    assert row is not None
    assert json.loads(row.event_id) == {"customer": "c3", "id": "o-3"}
