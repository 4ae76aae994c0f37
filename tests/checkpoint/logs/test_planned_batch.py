"""Planned batches as files, made from files that Spark wrote."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from savepoints.checkpoint.logs import offset_log, planned_batch
from savepoints.errors import IncompatibleError
from tests.samples import files_of

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NOW_MS = 1_795_305_600_000
AT = '{"orders":{"0":7}}'


def test_a_planned_batch_has_the_settings_of_the_one_before_and_the_watermark_it_reached() -> None:
    files = files_of("watermark")
    data = planned_batch.next_batch(files["offsets/1"], 1, [AT], 94_000, NOW)

    entry, before = offset_log.parse(data, ""), offset_log.parse(files["offsets/1"], "")
    assert (before.watermark_ms, entry.watermark_ms) == (0, 94_000)
    assert (entry.timestamp_ms, entry.sources) == (NOW_MS, (AT,))
    assert entry.conf == before.conf


def test_a_first_batch_has_the_settings_of_a_new_query_and_no_watermark() -> None:
    template = files_of("watermark")["offsets/2"]

    entry = offset_log.parse(planned_batch.first_batch(template, [AT], NOW), "")

    assert (entry.watermark_ms, entry.timestamp_ms, entry.sources) == (0, NOW_MS, (AT,))
    assert entry.conf == offset_log.parse(template, "").conf


def test_a_plan_for_other_sources_is_refused() -> None:
    with pytest.raises(IncompatibleError, match="is 1, but positions were given for 2"):
        planned_batch.first_batch(files_of("rocksdb")["offsets/0"], [AT, AT], NOW)


def test_where_a_source_begins_is_read_as_it_is_written() -> None:
    # The bytes are those of Spark 4.2's Kafka source.
    spark = b'\x00v1\n{"orders":{"0":0,"1":0}}'

    assert planned_batch.parse_initial_position(spark) == '{"orders":{"0":0,"1":0}}'
    assert planned_batch.initial_position('{"orders":{"0":0,"1":0}}') == spark
    assert planned_batch.parse_initial_position(files_of("rocksdb")["sources/0/0"]) is None
