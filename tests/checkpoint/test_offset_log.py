"""The offset log, read from files that Spark wrote."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from savepoints.checkpoint import offset_log
from savepoints.checkpoint.operators import ROCKSDB_PROVIDER
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from tests.samples import unpack


def test_an_entry_has_position_provider_and_partitions(on_local: Location) -> None:
    data = unpack("rocksdb", on_local).get("offsets/3")

    entry = offset_log.parse(data, "offsets/3")

    assert entry.sources == ('{"logOffset":3}',)
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


def test_version_2_is_refused_and_names_the_setting(on_local: Location) -> None:
    data = unpack("offset_log_2", on_local).get("offsets/0")

    with pytest.raises(IncompatibleError, match=r"offsets/0.*'v2'") as refused:
        offset_log.parse(data, "offsets/0")

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
