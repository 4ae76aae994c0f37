"""Targets of a reset: Kafka's words, without what Kafka's tools get wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.errors import SourceDataGoneError, UsageError
from savepoints.sources.kafka.offsets import Range, Ranges
from savepoints.sources.kafka.reset_targets import (
    Move,
    Passed,
    Target,
    parse_scope,
    resolve,
    skipped,
)

CURRENT: KafkaOffsets = {"orders": {0: 40, 1: 70}}


def has(*parts: tuple[int, int], topic: str = "orders") -> Ranges:
    """Say what Kafka has: earliest and end of each partition."""
    found = {number: Range(topic, number, *one) for number, one in enumerate(parts)}
    return {topic: found}


KAFKA = has((0, 100), (0, 90))


def offsets(moves: tuple[Move, ...]) -> dict[int, int]:
    return {one.partition: one.to for one in moves}


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        (Target("earliest"), {0: 0, 1: 0}),
        (Target("latest"), {0: 100, 1: 90}),
        (Target("current"), {0: 40, 1: 70}),
        (Target("offset", 33), {0: 33, 1: 33}),
        (Target("shift", -40), {0: 0, 1: 30}),
        (Target("shift", 20), {0: 60, 1: 90}),
        (Target("time", offsets={"orders": {0: 12, 1: 90}}), {0: 12, 1: 90}),
        (Target("file", offsets={"orders": {0: 7, 1: 9}}), {0: 7, 1: 9}),
    ],
    ids=lambda one: one.kind if isinstance(one, Target) else "",
)
def test_each_word_means_what_it_means_to_kafka(target: Target, wanted: dict[int, int]) -> None:
    moves = resolve(target, CURRENT, KAFKA)
    assert offsets(moves) == wanted
    assert [one.records for one in moves] == [40 - wanted[0], 70 - wanted[1]]


@pytest.mark.parametrize(
    ("target", "partition", "wanted"),
    [
        (Target("offset", 95), 1, 95),
        (Target("offset", -1), 0, -1),
        (Target("shift", 21), 1, 91),
        (Target("shift", -41), 0, -1),
        (Target("file", offsets={"orders": {0: 101, 1: 0}}), 0, 101),
    ],
)
def test_out_of_range_offsets_silently_clamped(target: Target, partition: int, wanted: int) -> None:
    """Kafka's tool moves them to the nearest end, and says so in a line that nobody reads."""
    with pytest.raises(UsageError, match=rf"offset {wanted} of orders partition {partition} is"):
        resolve(target, CURRENT, KAFKA)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        resolve(Target("offset", 1000), CURRENT, KAFKA)
    assert "partition 0" in caught.value.message
    assert "available 0 to 90" in caught.value.message


def test_plan_file_with_a_missing_partition() -> None:
    """Kafka's tool dereferences null."""
    with pytest.raises(UsageError, match="no offset for orders partition 1"):
        resolve(Target("file", offsets={"orders": {0: 7}}), CURRENT, KAFKA)


def test_plan_file_with_an_extra_partition() -> None:
    """Kafka's tool dereferences null."""
    extra = Target("file", offsets={"orders": {0: 7, 1: 9, 2: 3}})
    with pytest.raises(UsageError, match="the file includes orders partition 2"):
        resolve(extra, CURRENT, KAFKA)
    with pytest.raises(UsageError, match="the file includes returns partition 0"):
        resolve(Target("file", offsets={"orders": {0: 7, 1: 9}, "returns": {0: 1}}), CURRENT, KAFKA)


def test_partial_reset_when_a_topic_is_missing() -> None:
    """Kafka's tool resets the other topics and exits with 1."""
    both: KafkaOffsets = {**CURRENT, "returns": {0: 5}}
    with pytest.raises(SourceDataGoneError, match="returns partition 0, which was deleted"):
        resolve(Target("earliest"), both, KAFKA)
    assert resolve(Target("earliest"), both, KAFKA, allow_data_loss=True) == resolve(
        Target("earliest"), CURRENT, KAFKA
    )


def test_a_new_partition_begins_where_spark_would_begin_it() -> None:
    moves = resolve(Target("current"), {"orders": {0: 40}}, has((0, 100), (3, 90)))
    assert offsets(moves) == {0: 40, 1: 3}
    assert moves[1].current is None
    assert moves[1].records == 0


def test_earliest_is_not_the_first_record_when_that_is_gone() -> None:
    kafka = has((0, 100), (30, 90))
    with pytest.raises(
        SourceDataGoneError, match="partition 1 starting at the target: available 30"
    ):
        resolve(Target("earliest"), CURRENT, kafka)
    moves = resolve(Target("earliest"), CURRENT, kafka, allow_data_loss=True)
    assert offsets(moves) == {0: 0, 1: 30}


def test_a_target_before_what_kafka_has_is_refused_or_begins_there_when_allowed() -> None:
    kafka = has((50, 100), (0, 90))
    with pytest.raises(
        SourceDataGoneError, match="partition 0 starting at offset 33: available 50"
    ):
        resolve(Target("offset", 33), {"orders": {0: 60, 1: 70}}, kafka)
    moves = resolve(Target("offset", 33), {"orders": {0: 60, 1: 70}}, kafka, allow_data_loss=True)
    assert offsets(moves) == {0: 50, 1: 33}


def test_only_the_chosen_partitions_move() -> None:
    moves = resolve(Target("earliest"), CURRENT, KAFKA, scope=parse_scope(["orders:1"]))
    assert offsets(moves) == {0: 40, 1: 0}
    assert [one.why for one in moves] == ["stays", ""]


def test_a_topic_between_two_queries_is_skipped_to_its_end() -> None:
    current: KafkaOffsets = {**CURRENT, "totals": {0: 5}}
    kafka = {**KAFKA, **has((0, 12), topic="totals")}
    moves = resolve(Target("earliest"), current, kafka, skipped=["totals"])
    assert {(one.topic, one.partition): one.to for one in moves} == {
        ("orders", 0): 0,
        ("orders", 1): 0,
        ("totals", 0): 12,
    }


@pytest.mark.parametrize("texts", [["clicks"], ["orders:7"], ["orders:0,x"]])
def test_a_topic_or_partition_that_the_query_does_not_read_is_refused(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        resolve(Target("earliest"), CURRENT, KAFKA, scope=parse_scope(texts))


def test_topics_are_written_as_for_kafka() -> None:
    assert parse_scope(["a", "b:0,2", "b:1"]) == {"a": None, "b": frozenset({0, 1, 2})}
    assert parse_scope(["a:1", "a"]) == {"a": None}


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50)),
        min_size=1,
        max_size=4,
    ),
    st.integers(-60, 160),
    st.sampled_from(["offset", "shift"]),
)
def test_what_is_not_refused_is_within_what_kafka_has(
    parts: list[tuple[int, int, int]], number: int, kind: str
) -> None:
    """A plain loop over the partitions says the same."""
    kafka = has(*((low, low + size) for low, size, _ in parts))
    current = {"orders": {n: low + min(at, size) for n, (low, size, at) in enumerate(parts)}}
    wanted = {n: number + (at if kind == "shift" else 0) for n, at in current["orders"].items()}
    fits = all(
        kafka["orders"][n].earliest <= to <= kafka["orders"][n].end for n, to in wanted.items()
    )
    try:
        moves = resolve(Target(kind, number), current, kafka)  # type: ignore[arg-type]
    except (UsageError, SourceDataGoneError):
        assert not fits
    else:
        assert fits
        assert offsets(moves) == wanted


def test_what_resets_with_kept_state_skipped_is_what_none_of_them_read_later() -> None:
    def reset(current: int | None, to: int, part: int = 0) -> Passed:
        return Move("orders", part, current, to, earliest=5, end=100).passed

    assert skipped([]) == {}
    assert skipped([reset(40, 30)]) == {}
    assert skipped([reset(40, 60), reset(None, 7, part=1)]) == {
        ("orders", 0): ((40, 60),),
        ("orders", 1): ((5, 7),),
    }
    assert skipped([reset(40, 60), reset(70, 80)]) == {("orders", 0): ((40, 60), (70, 80))}
    assert skipped([reset(40, 60), reset(70, 50)]) == {("orders", 0): ((40, 50),)}
    assert skipped([reset(40, 60), reset(70, 20), reset(90, 99)]) == {("orders", 0): ((90, 99),)}
