"""What of a checkpoint's small files changes at a new place, and what must not."""

from __future__ import annotations

import json
import re

import pytest

from savepoints.checkpoint.small_files import Skeleton, may_change
from savepoints.checkpoint.state.operators import HDFS_PROVIDER
from savepoints.uri import Uri
from tests.samples import CHECKPOINTS, files_of

SAMPLES = sorted(path.stem for path in CHECKPOINTS.glob("*.zip"))
HERE = Uri.parse("s3://bucket/next")
PARTITIONS, PROVIDER = (
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.stateStore.providerClass",
)
# As Spark writes it: an absolute path for each schema file of an operator.
SCHEMA_PATH = re.compile(rb'"file:/[^"]*/(state/\d+/_stateSchema/[^"]+)"')


def changed(sample: str, skeleton: Skeleton) -> dict[str, tuple[bytes, bytes]]:
    """Return the files that are not as they were, before and after."""
    return {
        path: (data, new)
        for path, data in files_of(sample).items()
        if (new := skeleton.changed(path, data)) != data
    }


@pytest.mark.parametrize("sample", SAMPLES)
def test_at_a_new_place_only_what_must_change_does(sample: str) -> None:
    found = changed(sample, Skeleton(HERE, 2, {}))

    expected = {}
    for path, data in files_of(sample).items():
        if SCHEMA_PATH.search(data):
            expected[path] = SCHEMA_PATH.sub(rb'"s3a://bucket/next/\1"', data)
        elif path.startswith("offsets/") and PARTITIONS.encode() not in data:
            # The first run with offset log 2; its last setting is followed by what is known of
            # the sources.
            end = b'},"sourceMetadataInfo"'
            expected[path] = data.replace(end, f',"{PARTITIONS}":"2"'.encode() + end)
    assert {path: new for path, (_, new) in found.items()} == expected
    with_paths = {"transform_with_state", "join_3", "join_4"}
    assert bool(expected) == (sample in {*with_paths, "offset_log_2", "offset_log_2_restarted"})


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_changes_is_never_copied_unseen(sample: str) -> None:
    found = changed(sample, Skeleton(HERE, 7, {PROVIDER: "another", "of.a.later.version": "x"}))

    assert found
    assert all(may_change(path) for path in found)
    assert not any(may_change(path) for path in files_of(sample) if path.startswith("commits"))


@pytest.mark.parametrize("sample", SAMPLES)
def test_another_number_of_partitions_stands_in_logs_and_metadata(sample: str) -> None:
    found = changed(sample, Skeleton(HERE, 7, {}))

    for path, (before, after) in found.items():
        lines, new = before.split(b"\n"), after.split(b"\n")
        content = json.loads(lines[1])
        if path.startswith("offsets/"):
            content["conf"][PARTITIONS] = "7"
        else:
            for store in content["stateStoreInfo"]:
                store["numPartitions"] = 7
                if "stateSchemaFilePaths" in store:
                    store["stateSchemaFilePaths"] = [
                        re.sub(r"^.*/state/", "s3a://bucket/next/state/", file)
                        for file in store["stateSchemaFilePaths"]
                    ]
        assert json.loads(new[1]) == content
        assert [new[0], *new[2:]] == [lines[0], *lines[2:]]
    files = files_of(sample)
    assert found.keys() == {
        path for path in files if path.startswith("offsets/") or re.search("_metadata/(m|v2)", path)
    }


def test_the_provider_is_named_where_the_offset_log_left_it_to_the_session() -> None:
    data = files_of("hdfs")["offsets/3"]
    unnamed = data.replace(f'"{PROVIDER}":"{HDFS_PROVIDER}",'.encode(), b"")
    assert unnamed != data

    restored = Skeleton(HERE, 2, {PROVIDER: HDFS_PROVIDER}).changed("offsets/3", unnamed)

    assert json.loads(restored.split(b"\n")[1]) == json.loads(data.split(b"\n")[1])


def test_a_query_without_number_of_partitions_keeps_its_offset_log() -> None:
    for path, data in files_of("offset_log_2").items():
        assert Skeleton(HERE, None, {PROVIDER: "another"}).changed(path, data) == data


@pytest.mark.parametrize("path", ["offsets/x", "sources/0/offsets/3", "my/offsets/3", "commits/3"])
def test_other_files_are_left_alone(path: str) -> None:
    assert Skeleton(HERE, 7, {}).changed(path, b"anything") == b"anything"
    assert not may_change(path)
