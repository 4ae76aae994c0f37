"""Where a checkpoint stands, read from logs that Spark wrote."""

from __future__ import annotations

import pytest

from savepoints.checkpoint import damage_patterns
from savepoints.checkpoint import position as checkpoint_position
from savepoints.checkpoint.logs import offset_log, planned_batch
from savepoints.errors import NoCommittedBatchError, NotAlignedError
from savepoints.io import Location, ObjectInfo
from tests.samples import files_of, unpack, write


def test_a_checkpoint_that_does_not_exist_has_run_nothing(place: Location) -> None:
    now = checkpoint_position.read(place / "nowhere")

    assert (now.committed, now.begun, now.next_batch, now.offsets) == (None, None, 0, {})


def test_the_newest_committed_batch_and_its_positions(place: Location) -> None:
    now = checkpoint_position.read(unpack("rocksdb", place))

    assert (now.committed, now.begun, now.next_batch) == (3, None, 4)
    assert now.positions == ('{"logOffset":3}',)
    assert now.offsets == {}, "a source of files"


def test_a_batch_that_was_begun_is_seen(place: Location) -> None:
    files = files_of("rocksdb")
    now = checkpoint_position.read(unpack("rocksdb", place))
    write(place, {"offsets/4": files["offsets/3"].replace(b'"logOffset":3', b'"logOffset":4')})

    later = checkpoint_position.read(place)

    assert (later.committed, later.begun, later.begun_positions) == (3, 4, ('{"logOffset":4}',))
    assert later.positions == now.positions


def test_a_source_without_position_is_where_it_begins(place: Location) -> None:
    files = files_of("two_sources")
    begins = '{"b":{"0":5}}'
    write(
        place,
        {
            "offsets/0": files["offsets/0"],
            "commits/0": files["commits/0"],
            "sources/1/0": planned_batch.initial_position(begins),
        },
    )

    now = checkpoint_position.read(place)

    assert now.positions == ('{"logOffset":0}', begins)
    assert now.offsets == {"b": {0: 5}}


def test_trap_a_named_source_without_position_begins_nowhere(place: Location) -> None:
    """Spark 4.2 keeps the beginning of a source with a name in a directory of that name."""
    files, begins = files_of("two_sources"), '{"b":{"0":5}}'
    version, metadata, first, second = files["offsets/0"].decode().split("\n")
    named = "\n".join(["v2", metadata, f"z:{first}", f"a:{second}"])
    assert (version, second) == ("v1", "-")
    begun = {"offsets/0": named.encode(), "sources/a/0": planned_batch.initial_position(begins)}
    write(place, begun)

    before = checkpoint_position.read(place)
    write(place, {"commits/0": files["commits/0"]})
    now = checkpoint_position.read(place)

    assert before.begun_positions == now.positions == ('{"logOffset":0}', begins)
    assert before.offsets == now.offsets == {"b": {0: 5}}


def test_of_two_sources_of_one_topic_the_one_behind_counts(place: Location) -> None:
    for number, offset in enumerate((9, 4)):
        position = f'{{"t":{{"0":{offset},"1":1}}}}'
        write(place, {f"sources/{number}/0": planned_batch.initial_position(position)})

    assert checkpoint_position.read(place).offsets == {"t": {0: 4, 1: 1}}


@pytest.mark.parametrize(("batch", "moved"), [(1, True), (2, False), (3, True)])
def test_a_watermark_that_moved_is_seen(place: Location, batch: int, moved: bool) -> None:
    files = files_of("watermark")
    write(place, {path: files[path] for path in (f"offsets/{batch}", f"commits/{batch}")})

    now = checkpoint_position.read(place)

    assert now.watermark_moved is moved
    # As Spark went on.
    assert now.next_watermark_ms == offset_log.parse(files[f"offsets/{batch + 1}"], "").watermark_ms


def test_trap_several_planned_batches_lose_the_rows_of_all_but_the_last(place: Location) -> None:
    offsets = files_of("rocksdb")["offsets/3"]
    unpack("rocksdb", place)
    write(place, {"offsets/4": offsets, "offsets/5": offsets})

    with pytest.raises(
        NotAlignedError, match=r"offsets for batches 4, 5, but batch 3 is the newest"
    ):
        checkpoint_position.read(place)


def test_offsets_that_are_missing_are_named(place: Location) -> None:
    unpack("rocksdb", place).delete(["offsets/3"])

    with pytest.raises(NoCommittedBatchError, match="offsets/3 is missing"):
        checkpoint_position.read(place)


@pytest.mark.parametrize(
    ("report", "damaged"),
    [
        ("[CANNOT_LOAD_STATE_STORE.CANNOT_READ_CHECKPOINT] Cannot read RocksDB checkpoint", True),
        ("org.rocksdb.RocksDBException: Corruption: block checksum mismatch", True),
        ("IllegalStateException: Incomplete log file in the offset commit log", True),
        # What a program reads beside its inputs was written by another query's file sink.
        ("Failed to read log file s3a://b/t/_spark_metadata/7. Incomplete log file", False),
        ("[MALFORMED_LOG_FILE] Log file was malformed: failed to read correct log version", True),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] AmazonS3: Status Code: 503, SlowDown", False),
        ("[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema", False),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE", False),
        ("ZeroDivisionError: division by zero", False),
    ],
)
def test_damage_is_told_from_a_changed_program_and_a_busy_network(
    report: str,
    damaged: bool,
) -> None:
    assert damage_patterns.is_in(report) is damaged


def test_trap_a_query_that_commits_while_its_logs_are_listed(on_local: Location) -> None:
    """Its offsets are listed before the batch begins, its commits after that is committed."""

    class Committing(Location):
        """A checkpoint whose query runs a batch after its offsets were listed once."""

        def list(self, prefix: str = "", *, after: str = "") -> list[ObjectInfo]:
            found = super().list(prefix, after=after)
            if prefix == "offsets" and not self.exists("commits/4"):
                for log in ("offsets", "commits"):
                    self.put(f"{log}/4", self.get(f"{log}/3"))
            return found

    now = checkpoint_position.read(Committing(unpack("rocksdb", on_local).uri))

    assert (now.committed, now.begun) == (4, None)
