"""The commit log, read from files that Spark wrote."""

from __future__ import annotations

import json

import pytest

from savepoints.checkpoint.logs import commit_log
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from tests.samples import files_of, unpack


def test_the_watermark_of_the_next_batch_is_read(on_local: Location) -> None:
    checkpoint = unpack("watermark", on_local)

    found = [
        commit_log.parse(checkpoint.get(f"commits/{batch}"), "").next_watermark_ms
        for batch in range(7)
    ]

    assert found == [0, 94_000, 94_000, 194_000, 194_000, 294_000, 294_000]


def test_version_1_has_no_ids_of_state_stores() -> None:
    assert commit_log.parse(files_of("rocksdb")["commits/3"], "").state_ids == {}


@pytest.mark.parametrize("batch", range(4))
def test_trap_version_2_names_the_state_that_the_batch_wrote(batch: int) -> None:
    sample = files_of("format_2_changelog")

    entry = commit_log.parse(sample[f"commits/{batch}"], "")

    # The ids stand in the names of the files, too: one attempt a version, so there is no doubt.
    for partition in (0, 1):
        (name,) = {
            path.rpartition(".")[0]
            for path in sample
            if path.startswith(f"state/0/{partition}/{batch + 1}_")
        }
        assert entry.state_ids[0][partition] == (name.rpartition("_")[2],)
    assert entry.state_ids.keys() == {0}
    assert entry.next_watermark_ms == 0


def test_ids_of_written_state_replace_those_of_the_commit_and_the_rest_stays() -> None:
    data = files_of("format_2")["commits/0"].replace(b'Ms":0', b'Ms":94000')
    ids = {0: [["a"], ["b"], ["c"]], 1: [["d", "e"]]}

    changed = commit_log.with_state_ids(data, "commits/0", ids)

    version, body = changed.decode().split("\n")
    assert version == "v2"
    assert json.loads(body) == {
        "nextBatchWatermarkMs": 94_000,
        "stateUniqueIds": {"0": [["a"], ["b"], ["c"]], "1": [["d", "e"]]},
    }


def test_the_same_ids_give_the_bytes_that_spark_wrote() -> None:
    data = files_of("format_2_changelog")["commits/3"]

    ids = commit_log.parse(data, "").state_ids

    assert commit_log.with_state_ids(data, "", ids) == data


def test_trap_version_1_cannot_hold_ids_and_is_refused() -> None:
    data = files_of("rocksdb")["commits/3"]

    with pytest.raises(IncompatibleError, match="commits/3 has version v1") as refused:
        commit_log.with_state_ids(data, "commits/3", {0: [["a"]]})

    assert refused.value.hint == "restore the native form: --format native"
    assert refused.value.details == {"file": "commits/3"}


def test_version_3_is_refused_and_names_the_setting() -> None:
    data = files_of("rocksdb")["commits/3"].replace(b"v1", b"v3", 1)

    with pytest.raises(IncompatibleError, match=r"commits/3.*'v3'") as refused:
        commit_log.parse(data, "commits/3")

    assert "spark.sql.streaming.queryEvolution.enableSinkEvolution" in refused.value.hint
    assert refused.value.details == {"file": "commits/3"}


@pytest.mark.parametrize("data", [b"v1\n{}", b"v1\n{}\n", b"v1\r\n{}\r\n"])
def test_trap_an_editor_ends_the_file_with_a_newline(data: bytes) -> None:
    """As `CommitLog.deserialize` reads them."""
    assert commit_log.parse(data, "commits/0") == commit_log.CommitLogEntry(0)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"v",
        b"v1",
        b"v1\n{",
        b"v1\n[]",
        b'v1\n{"nextBatchWatermarkMs":null}',
        b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":[]',
        b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":["0"]}',
        b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"x":[["a"]]}}',
        b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[null]}}',
        b"\xff\xff",
    ],
)
def test_a_damaged_file_is_refused_and_named(damaged: bytes) -> None:
    with pytest.raises(IncompatibleError, match="commits/7"):
        commit_log.parse(damaged, "commits/7")
