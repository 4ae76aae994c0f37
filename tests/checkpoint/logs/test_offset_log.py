"""The offset log, read from files that Spark wrote."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.state.operators import HDFS_PROVIDER, ROCKSDB_PROVIDER
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from tests.samples import files_of, unpack


def test_an_entry_has_position_provider_and_partitions(on_local: Location) -> None:
    data = unpack("rocksdb", on_local).get("offsets/3")

    entry = offset_log.parse(data, "offsets/3")

    assert entry.sources == ('{"logOffset":3}',)
    assert entry.names == ("0",)
    assert entry.provider == ROCKSDB_PROVIDER
    assert entry.partitions == 2
    assert entry.watermark_ms == 0
    assert entry.timestamp_ms > 1_700_000_000_000


def test_the_watermark_is_read(on_local: Location) -> None:
    checkpoint = unpack("watermark", on_local)

    found = [
        offset_log.parse(checkpoint.get(f"offsets/{batch}"), "").watermark_ms for batch in range(7)
    ]

    # Ten seconds behind the newest of the events, which are at 4, 104, 204 and 304 seconds.
    assert found == [0, 0, 94_000, 94_000, 194_000, 194_000, 294_000]


def test_a_source_without_position_is_none(on_local: Location) -> None:
    checkpoint = unpack("two_sources", on_local)

    first = offset_log.parse(checkpoint.get("offsets/0"), "offsets/0")
    second = offset_log.parse(checkpoint.get("offsets/1"), "offsets/1")

    assert first.sources == ('{"logOffset":0}', None)
    assert second.sources == ('{"logOffset":1}', '{"logOffset":0}')
    assert first.names == second.names == ("0", "1")


def test_version_2_names_its_sources() -> None:
    entry = offset_log.parse(files_of("offset_log_2_restarted")["offsets/1"], "offsets/1")

    assert (entry.names, entry.sources) == (("0",), ('{"logOffset":1}',))
    assert (entry.provider, entry.partitions) == (ROCKSDB_PROVIDER, 2)


def test_version_2_may_have_named_sources_and_such_without_position() -> None:
    data = files_of("offset_log_2")["offsets/0"].rpartition(b"\n")[0]
    lines = [b'clicks:{"orders":{"0":7}}', b"late:-"]

    entry = offset_log.parse(b"\n".join([data, *lines]), "")

    assert entry.names == ("clicks", "late")
    assert entry.sources == ('{"orders":{"0":7}}', None)


def test_trap_the_first_run_of_version_2_does_not_say_how_many_partitions() -> None:
    first = offset_log.parse(files_of("offset_log_2_restarted")["offsets/0"], "")
    restarted = offset_log.parse(files_of("offset_log_2_restarted")["offsets/1"], "")

    assert (first.partitions, restarted.partitions) == (None, 2)


def test_trap_without_a_provider_the_log_says_nothing_of_it() -> None:
    data = files_of("hdfs")["offsets/3"]
    key = f'"{offset_log.PROVIDER_KEY}":"{HDFS_PROVIDER}",'.encode()
    assert key in data

    assert offset_log.parse(data, "").provider == HDFS_PROVIDER
    assert offset_log.parse(data.replace(key, b""), "").provider == ""


@pytest.mark.parametrize("sample", ["rocksdb", "two_sources", "offset_log_2"])
@pytest.mark.parametrize("edited", [lambda data: data + b"\n", lambda data: data + b"\r\n",
                                    lambda data: data.replace(b"\n", b"\r\n")])  # fmt: skip
def test_trap_an_editor_ends_the_file_with_a_newline(
    sample: str, edited: Callable[[bytes], bytes]
) -> None:
    """Spark reads lines, so the end of the last one begins no source without a position."""
    data = files_of(sample)["offsets/0"]

    assert offset_log.parse(edited(data), "offsets/0") == offset_log.parse(data, "offsets/0")
    conf = {"spark.sql.shuffle.partitions": "7"}
    assert offset_log.with_conf(edited(data), "", conf) == offset_log.with_conf(data, "", conf)


@pytest.mark.parametrize(
    ("sample", "file"),
    [("two_sources", "offsets/0"), ("watermark", "offsets/6"), ("offset_log_2", "offsets/0")],
)
def test_settings_are_changed_and_nothing_else(sample: str, file: str) -> None:
    data = files_of(sample)[file]
    new = {offset_log.PARTITIONS_KEY: "7", "of.a.later.version": "x"}

    changed = offset_log.with_conf(data, file, new).split(b"\n")

    before = data.split(b"\n")
    assert [changed[0], *changed[2:]] == [before[0], *before[2:]]
    expected = json.loads(before[1])
    expected["conf"].update(new)
    assert json.loads(changed[1]) == expected
    # In the order in which Spark had them, so that a person can compare the files.
    assert list(json.loads(changed[1])) == list(json.loads(before[1]))


@pytest.mark.parametrize("sample", ["rocksdb", "hdfs", "two_sources", "offset_log_2_restarted"])
def test_settings_that_are_there_already_leave_the_bytes_alone(sample: str) -> None:
    data = files_of(sample)["offsets/1"]
    # However the JSON is written.
    other = data.replace(b'"conf":{', '"conf": {"spark.note":"größer", '.encode())

    for one in (data, other):
        assert offset_log.with_conf(one, "", {offset_log.PARTITIONS_KEY: "2"}) == one


def test_version_3_is_refused_and_names_the_setting() -> None:
    data = files_of("offset_log_2")["offsets/0"].replace(b"v2", b"v3", 1)

    uses: list[Callable[[], object]] = [
        lambda: offset_log.parse(data, "offsets/0"),
        lambda: offset_log.with_conf(data, "offsets/0", {}),
    ]
    for use in uses:
        with pytest.raises(IncompatibleError, match=r"offsets/0.*'v3'") as refused:
            use()

        assert "spark.sql.streaming.offsetLog.formatVersion" in refused.value.hint
        assert refused.value.details == {"file": "offsets/0"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda _data: b"",
        lambda data: data[:1],
        lambda data: data[:3],
        lambda data: data[:40],
        lambda data: data.replace(b'"batchWatermarkMs"', b'"batchWatermarkMz"'),
        lambda data: data.replace(b'"batchWatermarkMs":0', b'"batchWatermarkMs":"x"'),
        lambda data: data.replace(b"v1\n{", b"v1\n["),
        lambda _data: b"v1\n[1]\n-",
        lambda _data: b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":[]}\n-',
        lambda data: b"\xff\xfe" + data,
    ],
)
def test_a_damaged_file_is_refused_and_named(
    damage: Callable[[bytes], bytes], on_local: Location
) -> None:
    data = unpack("rocksdb", on_local).get("offsets/3")

    with pytest.raises(IncompatibleError, match="offsets/3"):
        offset_log.parse(damage(data), "offsets/3")
