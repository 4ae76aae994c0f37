"""Which files of a checkpoint make a cut, on checkpoints that Spark wrote."""

from __future__ import annotations

import json

import pytest

from savepoints.checkpoint import layout
from savepoints.checkpoint.layout import read_cut
from savepoints.checkpoint.operators import Operator
from savepoints.errors import (
    CheckpointNotFoundError,
    IncompatibleError,
    NoCommittedBatchError,
    NotAlignedError,
    UnsupportedProviderError,
)
from savepoints.io import Location
from tests.samples import unpack


def test_a_cut_is_made_of_exactly_its_files(place: Location) -> None:
    checkpoint = unpack("rocksdb", place)

    files = read_cut(checkpoint, 2)

    assert [info.path for info in files.small] == [
        "metadata",
        "offsets/1",
        "offsets/2",
        "commits/2",
        "state/0/0/_metadata/schema",
        "state/0/_metadata/metadata",
        "sources/0/0",
        "sources/0/1",
        "sources/0/2",
    ]
    assert [info.path for info in files.state] == ["state/0/0/3.zip", "state/0/1/3.zip"]
    assert len(files.ssts) == 6
    assert len({info.path for info in files.all}) == len(files.all) == 17
    assert files.query_id == json.loads(checkpoint.get("metadata"))["id"]
    assert files.operators == (Operator(0, "stateStoreSave", ("default",)),)
    assert files.partitions == {0: 2}
    assert (files.cut.batch_id, files.cut.partitions) == (2, 2)
    assert files.cut.offsets == ('{"logOffset":2}',)
    assert files.cut.committed_at == checkpoint.head("commits/2").last_modified


def test_the_newest_committed_batch_is_the_default(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local)
    checkpoint.delete(["commits/3"])

    assert read_cut(checkpoint).cut.batch_id == 2


def test_the_first_batch_has_no_offsets_before_it(on_local: Location) -> None:
    files = read_cut(unpack("rocksdb", on_local), 0)

    assert [info.path for info in files.small if info.path.startswith("offsets")] == ["offsets/0"]


def test_batches_are_ordered_as_numbers(on_local: Location) -> None:
    for batch in (2, 9, 10, 11):
        on_local.put(f"offsets/{batch}", b"x")
        if batch != 11:
            on_local.put(f"commits/{batch}", b"x")

    assert layout.committed_batches(on_local.list()) == [2, 9, 10]


def test_a_version_of_changelogs_alone_needs_no_snapshot(on_local: Location) -> None:
    files = read_cut(unpack("changelog", on_local), 0)

    assert [info.path for info in files.state] == [
        "state/0/0/1.changelog",
        "state/0/1/1.changelog",
    ]
    assert files.ssts == ()


def test_snapshot_and_changelogs_on_top_of_it_belong_to_the_cut(on_local: Location) -> None:
    files = read_cut(unpack("changelog", on_local), 3)

    assert {info.path for info in files.state} == {
        "state/0/0/4.zip",
        "state/0/1/2.zip",
        "state/0/1/3.changelog",
        "state/0/1/4.changelog",
    }
    assert {info.path.rpartition("/")[0] for info in files.ssts} == {
        "state/0/0/SSTs",
        "state/0/1/SSTs",
    }


def test_a_query_without_keys_has_one_partition(on_local: Location) -> None:
    files = read_cut(unpack("grand_total", on_local))

    assert files.cut.partitions == 2
    assert files.partitions == {0: 1}


def test_a_query_without_state_has_logs_only(on_local: Location) -> None:
    files = read_cut(unpack("two_sources", on_local))

    assert files.operators == ()
    assert files.state == files.ssts == ()


def test_the_watermark_of_the_cut_is_that_of_the_next_batch(on_local: Location) -> None:
    checkpoint = unpack("watermark", on_local)

    found = [read_cut(checkpoint, batch).cut.watermark_ms for batch in range(7)]

    assert found == [0, 94_000, 94_000, 194_000, 194_000, 294_000, 294_000]


@pytest.mark.parametrize(("batch", "entries"), [(0, 1), (1, 2), (2, 2), (3, 3), (4, 3), (6, 4)])
def test_trap_sources_log_is_cut_at_log_offset(
    batch: int, entries: int, on_local: Location
) -> None:
    checkpoint = unpack("watermark", on_local)

    small = {info.path for info in read_cut(checkpoint, batch).small}

    assert {path for path in small if path.startswith("sources")} == {
        f"sources/0/{number}" for number in range(entries)
    }


def test_trap_sources_log_is_empty_where_the_source_had_no_position(on_local: Location) -> None:
    checkpoint = unpack("two_sources", on_local)

    small = {info.path for info in read_cut(checkpoint, 0).small}

    assert {path for path in small if path.startswith("sources")} == {"sources/0/0"}


def test_a_compacted_source_log_is_kept(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local)
    checkpoint.put("sources/0/1.compact", checkpoint.get("sources/0/1"))
    checkpoint.put("sources/0/3.compact", checkpoint.get("sources/0/3"))

    small = {info.path for info in read_cut(checkpoint, 2).small}

    assert "sources/0/1.compact" in small
    assert "sources/0/3.compact" not in small


def test_trap_partitions_on_disk_must_match_offset_log(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local)
    offsets = checkpoint.get("offsets/3")
    checkpoint.put("offsets/3", offsets.replace(b'partitions":"2"', b'partitions":"3"'))

    with pytest.raises(NotAlignedError, match=r"offsets/3 says 3 partitions") as refused:
        read_cut(checkpoint)

    assert refused.value.details["operator_id"] == 0


@pytest.mark.parametrize(
    "gone",
    [
        0,
        1,
    ],
)
def test_trap_a_lost_state_partition_is_noticed(gone: int, on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local)
    checkpoint.delete([info.path for info in checkpoint.list(f"state/0/{gone}")])

    with pytest.raises(NotAlignedError):
        read_cut(checkpoint)


def test_trap_hdfs_provider_is_refused_and_names_the_setting(on_local: Location) -> None:
    checkpoint = unpack("hdfs", on_local)

    with pytest.raises(UnsupportedProviderError, match="HDFSBackedStateStoreProvider") as refused:
        read_cut(checkpoint)

    assert "spark.sql.streaming.stateStore.providerClass=" in refused.value.hint
    assert "RocksDBStateStoreProvider" in refused.value.hint


@pytest.mark.parametrize("sample", ["rocksdb", "hdfs"])
def test_trap_state_without_operator_metadata_is_refused(sample: str, on_local: Location) -> None:
    checkpoint = unpack(sample, on_local)
    checkpoint.delete(["state/0/_metadata/metadata"])

    with pytest.raises((IncompatibleError, NotAlignedError)):
        read_cut(checkpoint)


def test_trap_checkpoint_without_committed_batch(on_local: Location) -> None:
    checkpoint = unpack("uncommitted", on_local)

    with pytest.raises(NoCommittedBatchError, match="no committed batch yet"):
        read_cut(checkpoint)


@pytest.mark.parametrize("batch", [-1, 4, 99])
def test_a_batch_that_is_not_there_is_refused_with_those_that_are(
    batch: int, on_local: Location
) -> None:
    checkpoint = unpack("rocksdb", on_local)

    with pytest.raises(NoCommittedBatchError, match="0 to 3") as refused:
        read_cut(checkpoint, batch)

    assert refused.value.details == {"batch_id": batch, "first": 0, "last": 3}
    assert "--at-batch 3" in refused.value.hint


def test_a_batch_whose_files_were_purged_is_refused(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local)
    checkpoint.delete(["offsets/0"])

    with pytest.raises(NoCommittedBatchError, match=r"offsets/0 is missing"):
        read_cut(checkpoint, 1)


def test_a_batch_whose_state_was_purged_is_refused(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local)
    checkpoint.delete(["state/0/1/2.zip"])

    with pytest.raises(NoCommittedBatchError, match=r"state/0/1: version 2"):
        read_cut(checkpoint, 1)


def test_a_listed_sst_that_is_gone_is_a_file_not_found(place: Location) -> None:
    checkpoint = unpack("rocksdb", place)
    sst = read_cut(checkpoint).ssts[0].path
    checkpoint.delete([sst])

    with pytest.raises(FileNotFoundError, match=sst):
        read_cut(checkpoint)


def test_a_directory_without_metadata_is_no_checkpoint(place: Location) -> None:
    with pytest.raises(CheckpointNotFoundError, match="no file 'metadata'"):
        read_cut(place)

    checkpoint = unpack("rocksdb", place)
    checkpoint.delete(["metadata"])
    with pytest.raises(CheckpointNotFoundError, match="no file 'metadata'"):
        read_cut(checkpoint)


@pytest.mark.parametrize("sample", ["format_2", "offset_log_2", "join"])
def test_what_cannot_be_saved_yet_is_refused(sample: str, on_local: Location) -> None:
    with pytest.raises(IncompatibleError):
        read_cut(unpack(sample, on_local))
