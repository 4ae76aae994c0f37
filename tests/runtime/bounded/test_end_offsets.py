"""What `--until` means, as far as no broker is needed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from savepoints.checkpoint import position as checkpoint_position
from savepoints.checkpoint.logs import offset_log, planned_batch
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.config.settings import KafkaSettings
from savepoints.errors import SavepointNotFoundError, SourceDataGoneError, UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.runtime.bounded import end_offsets
from savepoints.runtime.bounded.bounded_run import KafkaEnd
from savepoints.sources.kafka.offsets import Range
from tests.samples import files_of, savepoint, write

RANGES = {"orders": {0: Range("orders", 0, 10, 50), 1: Range("orders", 1, 0, 30)}}


def resolve(store: Store, until: str) -> KafkaOffsets:
    return end_offsets.resolve(
        store, until, query="orders", ranges=RANGES, settings=KafkaSettings()
    )


def test_latest_is_what_kafka_has_now(local_store: Store) -> None:
    assert resolve(local_store, "latest") == {"orders": {0: 50, 1: 30}}


def test_a_file_of_offsets_is_in_spark_s_form(local_store: Store, tmp_path: Path) -> None:
    path = tmp_path / "ends.json"
    path.write_text('\ufeff{"orders": {"0": 20, "1": 30}}', "utf-8")  # As Windows' editors do.

    assert resolve(local_store, str(path)) == {"orders": {0: 20, 1: 30}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"orders": {"0": 20}}', r"has no offset for orders partition 1 \(Kafka has 0 to 30\)"),
        ('{"orders": {"0": 20, "1": 30}, "x": {"0": 1}}', "names x, which the query does not read"),
        ('{"orders": {"0": -1, "1": 30}}', "latest"),
        ("offsets", "not valid JSON"),
    ],
)
def test_trap_a_plan_file_with_a_missing_or_extra_partition_is_refused(
    local_store: Store, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "ends.json"
    path.write_text(text)

    with pytest.raises(UsageError, match=message):
        resolve(local_store, str(path))


def test_a_file_that_is_not_there_is_named(local_store: Store) -> None:
    with pytest.raises(UsageError, match=re.escape("no/ends.json cannot be read")):
        resolve(local_store, "no/ends.json")


def test_a_time_without_a_zone_and_one_in_the_future_are_refused(local_store: Store) -> None:
    with pytest.raises(UsageError, match="no time zone"):
        resolve(local_store, "2026-11-20T10:00:00")
    with pytest.raises(UsageError, match="is in the future"):
        resolve(local_store, f"{datetime.now(UTC).year + 1}-01-01T00:00:00Z")


def test_a_savepoint_is_where_its_cut_was(local_store: Store) -> None:
    saved = savepoint(3, offsets=('{"orders":{"0":12,"1":7}}',), tags=("friday",))
    local_store.catalog.add(saved)

    assert resolve(local_store, "friday") == {"orders": {0: 12, 1: 7}}
    assert resolve(local_store, saved.id) == {"orders": {0: 12, 1: 7}}
    with pytest.raises(SavepointNotFoundError):
        resolve(local_store, "monday")


def test_a_savepoint_of_other_topics_is_refused(local_store: Store) -> None:
    local_store.catalog.add(savepoint(3, offsets=('{"visits":{"0":12}}',), tags=("friday",)))

    with pytest.raises(UsageError, match="has offsets for visits, but the query reads orders"):
        resolve(local_store, "friday")


def at(place: Location, position: str) -> checkpoint_position.CheckpointPosition:
    """Return where a query stands that was reset to a position and has run nothing."""
    write(place, {"sources/0/0": planned_batch.initial_position(position)})
    return checkpoint_position.read(place)


def test_a_query_begins_where_it_was_reset_to_else_at_the_earliest(on_local: Location) -> None:
    end = {"orders": {0: 50, 1: 30}}
    fresh = checkpoint_position.read(on_local / "nowhere")
    reset = at(on_local, '{"orders":{"0":44,"1":3}}')

    assert KafkaEnd(end, RANGES).reached(fresh) == {"orders": {0: 10, 1: 0}}
    assert KafkaEnd(end, RANGES).reached(reset) == {"orders": {0: 44, 1: 3}}
    assert not KafkaEnd(end, RANGES).is_reached(reset)
    assert KafkaEnd({"orders": {0: 44, 1: 3}}, RANGES).is_reached(reset)


def test_trap_out_of_range_offsets_are_refused_and_never_clamped(on_local: Location) -> None:
    now = at(on_local, '{"orders":{"0":44,"1":3}}')
    for end, message in (
        ({"orders": {0: 43, 1: 3}}, "wanted offset 43, available 10 to 50 .before the start at 44"),
        ({"orders": {0: 51, 1: 3}}, "wanted offset 51, available 10 to 50 .beyond Kafka's end"),
        ({"orders": {0: 50}}, "partition 1: wanted no offset, available"),
    ):
        with pytest.raises(UsageError, match=message):
            KafkaEnd(end, RANGES).is_reached(now)
    gone = at(on_local, '{"orders":{"0":9,"1":3}}')
    with pytest.raises(SourceDataGoneError, match="partition 0: wanted offset 9, available 10"):
        KafkaEnd({"orders": {0: 50, 1: 30}}, RANGES).is_reached(gone)


def test_new_partitions_that_the_end_does_not_name_are_left_for_later(on_local: Location) -> None:
    now = at(on_local, '{"orders":{"0":44}}')

    assert KafkaEnd({"orders": {0: 44}}, RANGES).is_reached(now)
    assert KafkaEnd({"orders": {0: 50, 1: 30}}, RANGES).reached(now) == {"orders": {0: 44, 1: 0}}


def test_two_sources_of_one_topic_cannot_end_between_their_offsets(on_local: Location) -> None:
    files = files_of("two_sources")
    positions = ['{"orders":{"0":20,"1":3}}', '{"orders":{"0":44,"1":3}}']
    offsets = offset_log.with_batch(files["offsets/0"], "", positions=positions)
    write(on_local, {"offsets/0": offsets, "commits/0": files["commits/0"]})
    now = checkpoint_position.read(on_local)

    with pytest.raises(
        UsageError, match=r"orders partition 0, .* 20 .* 44, .* end at 30"
    ) as refused:
        KafkaEnd({"orders": {0: 30, 1: 3}}, RANGES).is_reached(now)

    assert refused.value.details["partition"] == 0
    assert KafkaEnd({"orders": {0: 20, 1: 3}}, RANGES).is_reached(now), (
        "where it is, as far as read"
    )
    assert not KafkaEnd({"orders": {0: 44, 1: 3}}, RANGES).is_reached(now)
