"""The commit log, read from files that Spark wrote."""

from __future__ import annotations

import pytest

from savepoints.checkpoint import commit_log
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from tests.samples import unpack


def test_the_watermark_of_the_next_batch_is_read(on_local: Location) -> None:
    checkpoint = unpack("watermark", on_local)

    found = [
        commit_log.parse(checkpoint.get(f"commits/{batch}"), "").next_watermark_ms
        for batch in range(7)
    ]

    assert found == [0, 94_000, 94_000, 194_000, 194_000, 294_000, 294_000]


def test_version_2_is_refused_and_names_the_setting(on_local: Location) -> None:
    data = unpack("format_2", on_local).get("commits/0")

    with pytest.raises(IncompatibleError, match=r"commits/0.*'v2'") as refused:
        commit_log.parse(data, "commits/0")

    assert "spark.sql.streaming.stateStore.checkpointFormatVersion=1" in refused.value.hint
    assert refused.value.details == {"file": "commits/0"}


@pytest.mark.parametrize(
    "damaged",
    [b"", b"v", b"v1", b"v1\n{", b"v1\n[]", b'v1\n{"nextBatchWatermarkMs":null}', b"\xff\xff"],
)
def test_a_damaged_file_is_refused_and_named(damaged: bytes) -> None:
    with pytest.raises(IncompatibleError, match="commits/7"):
        commit_log.parse(damaged, "commits/7")
