"""The arithmetic of Kafka positions, against sums that are counted record by record."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.errors import SourceDataGoneError, UsageError
from savepoints.sources.kafka.offsets import (
    Range,
    count,
    group_csv,
    parse_group_csv,
    parse_offsets,
    require_new_partitions,
    require_reachable,
    step,
    with_new_partitions,
)

TOPICS = st.text("abcXYZ09._-", min_size=1, max_size=12)
OFFSETS = st.integers(0, 2**62)
POSITIONS = st.dictionaries(
    TOPICS, st.dictionaries(st.integers(0, 200), OFFSETS, min_size=1, max_size=6), min_size=1,
    max_size=3,
)  # fmt: skip


@st.composite
def ways(draw: st.DrawFn, largest: int = 2**61) -> tuple[KafkaOffsets, KafkaOffsets]:
    """Draw a beginning and an end that is nowhere before it."""
    begin = draw(POSITIONS)
    end = {
        topic: {part: offset + draw(st.integers(0, largest)) for part, offset in parts.items()}
        for topic, parts in begin.items()
    }
    return begin, end


def flat(offsets: KafkaOffsets) -> dict[tuple[str, int], int]:
    return {(topic, part): at for topic, parts in offsets.items() for part, at in parts.items()}


def left(begin: KafkaOffsets, end: KafkaOffsets) -> dict[tuple[str, int], int]:
    return {key: at - flat(begin)[key] for key, at in flat(end).items()}


@given(ways(), st.integers(1, 2**62))
def test_a_step_has_exactly_so_many_records_in_fair_shares(
    way: tuple[KafkaOffsets, KafkaOffsets], most: int
) -> None:
    begin, end = way
    whole = left(begin, end)

    there = step(begin, end, most)

    took = left(begin, there)
    total = sum(whole.values())
    assert took.keys() == whole.keys()
    assert sum(took.values()) == min(most, total) == count(begin, there)
    assert all(0 <= took[key] <= whole[key] for key in whole)
    if total:
        # Within one record of the exact proportion, in whole numbers.
        assert all(
            abs(took[key] * total - min(most, total) * size) < total for key, size in whole.items()
        )
    assert step(begin, end, most) == there


@given(ways())
def test_a_step_does_not_depend_on_the_order_of_partitions(
    way: tuple[KafkaOffsets, KafkaOffsets],
) -> None:
    begin, end = way

    def reversed_order(offsets: KafkaOffsets) -> KafkaOffsets:
        return {
            topic: dict(reversed(list(parts.items())))
            for topic, parts in reversed(list(offsets.items()))
        }

    assert step(begin, end, 7) == step(reversed_order(begin), reversed_order(end), 7)


@given(ways(largest=40), st.integers(1, 9))
def test_steps_get_to_the_end_and_read_every_record_once(
    way: tuple[KafkaOffsets, KafkaOffsets], most: int
) -> None:
    begin, end = way
    seen = []
    at = begin
    steps = 0
    while at != end:
        there = step(at, end, most)
        seen += [(*key, o) for key, o in flat(at).items() for o in range(o, flat(there)[key])]
        at, steps = there, steps + 1

    wanted = [(*key, o) for key, o in flat(begin).items() for o in range(o, flat(end)[key])]
    assert sorted(seen) == sorted(wanted)
    assert steps == -(-len(wanted) // most)


@given(ways())
def test_without_a_limit_a_step_is_the_whole_way(way: tuple[KafkaOffsets, KafkaOffsets]) -> None:
    begin, end = way

    assert step(begin, end, None) == end
    assert step(end, end, 1) == end


def test_small_partitions_are_not_starved_by_a_large_one() -> None:
    begin, end = {"t": {0: 0, 1: 100}}, {"t": {0: 1_000_000, 1: 110}}

    there = step(begin, end, 100_000)

    assert there == {"t": {0: 99_999, 1: 101}}


@pytest.mark.parametrize("most", [0, -1])
def test_a_step_of_no_records_is_refused(most: int) -> None:
    with pytest.raises(UsageError, match=f"limit of {most} records per batch"):
        step({"t": {0: 0}}, {"t": {0: 5}}, most)


def one_record(begin: KafkaOffsets, end: KafkaOffsets) -> KafkaOffsets:
    return step(begin, end, 1)


@pytest.mark.parametrize("function", [count, one_record])
def test_positions_of_different_partitions_are_never_compared(
    function: Callable[[KafkaOffsets, KafkaOffsets], object],
) -> None:
    with pytest.raises(ValueError, match="only one of two positions has t partition 1"):
        function({"t": {0: 0}}, {"t": {0: 5, 1: 0}})
    with pytest.raises(
        ValueError, match="t partition 0 ends at offset 4, which is before its start offset 5"
    ):
        function({"t": {0: 5}}, {"t": {0: 4}})


def kafka(*ranges: tuple[str, int, int, int]) -> dict[str, dict[int, Range]]:
    found: dict[str, dict[int, Range]] = {}
    for topic, part, earliest, end in ranges:
        found.setdefault(topic, {})[part] = Range(topic, part, earliest, end)
    return found


def test_newly_discovered_kafka_partitions_start_at_earliest_after_a_restore_at_x() -> None:
    has = kafka(("t", 0, 5, 90), ("t", 1, 7, 20), ("u", 0, 3, 9))

    assert with_new_partitions({"t": {0: 50}}, has) == {"t": {0: 50, 1: 7}, "u": {0: 3}}
    assert with_new_partitions({"t": {0: 50}, "gone": {0: 1}}, kafka(("t", 0, 5, 90))) == {
        "t": {0: 50},
        "gone": {0: 1},
    }


def test_trap_a_partition_that_was_added_has_lost_its_first_records() -> None:
    """A query that has a position would have read them from 0; a new one begins where it can."""
    has = kafka(("t", 0, 5, 90), ("t", 1, 7, 20))

    with pytest.raises(SourceDataGoneError, match="t partition 1: wanted 0, available 7 to 20"):
        require_new_partitions({"t": {0: 50}}, has)
    some: tuple[KafkaOffsets, ...] = ({}, {"t": {}}, {"t": {0: 50, 1: 9}}, {"u": {0: 1}})
    for begin in some:
        require_new_partitions(begin, has)
    require_new_partitions({"t": {0: 50}}, kafka(("t", 0, 5, 90), ("t", 1, 0, 20)))


HAS = kafka(("t", 0, 10, 90), ("t", 1, 0, 20))
START: KafkaOffsets = {"t": {0: 10, 1: 20}}


@pytest.mark.parametrize("end", [{"t": {0: 10, 1: 20}}, {"t": {0: 90, 1: 20}}])
def test_what_kafka_has_can_be_reached(end: KafkaOffsets) -> None:
    require_reachable(START, end, HAS)


@pytest.mark.parametrize(
    ("end", "says"),
    [
        (
            {"t": {0: 91, 1: 20}},
            "t partition 0: wanted offset 91, available 10 to 90 (beyond Kafka's end)",
        ),
        (
            {"t": {0: 10, 1: 19}},
            "t partition 1: wanted offset 19, available 0 to 20 (before the start at 20)",
        ),
        (
            {"t": {0: 10}},
            "t partition 1: wanted no offset, available 0 to 20 (not given in the end offsets)",
        ),
        (
            {"t": {0: 10, 1: 20, 2: 0}},
            "t partition 2: wanted offset 0, available nothing (Kafka does not have it)",
        ),
        (
            {**START, "u": {0: 4}},
            "u partition 0: wanted offset 4, available nothing (Kafka does not have it)",
        ),
    ],
)
def test_an_end_that_does_not_fit_is_refused_and_never_clamped(
    end: KafkaOffsets, says: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(says)) as refused:
        require_reachable(START, end, HAS)

    listed: Any = refused.value.details["partitions"]
    (named,) = listed
    assert named.keys() == {"topic", "partition", "wanted", "earliest", "end", "reason"}


def test_a_plan_file_with_a_missing_or_extra_partition_is_refused_before_anything_is_done() -> None:
    for text, named in (("t,0,10\n", "partition 1"), ("t,0,10\nt,1,20\nt,2,0\n", "partition 2")):
        with pytest.raises(UsageError, match=f"cannot stop at these offsets: t {named}"):
            require_reachable(START, parse_group_csv(text), HAS)


def test_every_partition_that_does_not_fit_is_named() -> None:
    with pytest.raises(UsageError) as refused:
        require_reachable(START, {"t": {0: 91, 1: 21}}, HAS)

    found: Any = refused.value.details["partitions"]
    assert [(one["partition"], one["wanted"]) for one in found] == [(0, 91), (1, 21)]


def test_a_start_without_a_partition_that_kafka_got_since_is_refused() -> None:
    with pytest.raises(UsageError, match=r"partition 1: .*not given in the start offsets"):
        require_reachable({"t": {0: 10}}, {"t": {0: 90, 1: 20}}, HAS)


@pytest.mark.parametrize(
    ("begin", "says"),
    [
        ({"t": {0: 9, 1: 20}}, "t partition 0: wanted offset 9, available 10 to 90"),
        ({"t": {0: 10, 1: 21}}, "t partition 1: wanted offset 21, available 0 to 20"),
        ({"t": {0: 10, 1: 20, 2: 3}}, "t partition 2: wanted offset 3, available nothing"),
        ({**START, "u": {0: 0}}, "u partition 0: wanted offset 0, available nothing"),
    ],
)
def test_a_start_that_kafka_no_longer_has_is_data_gone(begin: KafkaOffsets, says: str) -> None:
    with pytest.raises(SourceDataGoneError, match=re.escape(says)):
        require_reachable(begin, {"t": {0: 90, 1: 20}}, HAS)


@given(POSITIONS)
def test_offsets_are_read_as_they_are_written(offsets: KafkaOffsets) -> None:
    assert parse_offsets(json.dumps(offsets)) == offsets
    assert parse_group_csv(group_csv(offsets)) == offsets
    assert parse_group_csv(group_csv(offsets).replace("\n", "\r\n"), "any") == offsets


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not valid JSON"),
        ("{}", "contain no topic"),
        ("[]", "contain no topic"),
        ("null", "contain no topic"),
        ('{"t": {}}', "'t' contain no partitions"),
        ('{"t": 5}', "'t' contain no partitions"),
        ('{"t": {"0": "5"}}', "'5' is not a valid offset"),
        ('{"t": {"0": 5.0}}', "5.0 is not a valid offset"),
        ('{"t": {"0": true}}', "True is not a valid offset"),
        ('{"t": {"0": 9223372036854775808}}', "is not a valid offset"),
        ('{"t": {"x": 5}}', "'x' is not a partition number"),
        ('{"t": {"01": 5}}', "'01' is not a partition number"),
        ('{"t": {"-1": 5}}', "'-1' is not a partition number"),
        ('{"t t": {"0": 5}}', "'t t' is not a valid Kafka topic"),
        ('{"t": {"0": 5}, "t": {"0": 6}}', "'t' is given twice"),
        ('{"t": {"0": 5, "0": 6}}', "'0' is given twice"),
    ],
)
def test_what_is_no_offsets_file_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)) as refused:
        parse_offsets(text)

    assert refused.value.hint


@pytest.mark.parametrize(("offset", "flag"), [(-1, "--to-latest"), (-2, "--to-earliest")])
def test_sparks_names_for_latest_and_earliest_are_refused_with_the_way_out(
    offset: int, flag: str
) -> None:
    with pytest.raises(UsageError, match="does not identify a record") as refused:
        parse_offsets(f'{{"t": {{"0": {offset}}}}}')
    assert flag in (refused.value.hint or "")

    with pytest.raises(UsageError, match="does not identify a record") as refused:
        parse_group_csv(f"t,0,{offset}\n")
    assert flag in (refused.value.hint or "")


def test_the_lines_of_one_group_are_taken_from_a_file_of_several() -> None:
    text = "a,t,0,5\nb,t,0,6\na,t,1,7\n"

    assert parse_group_csv(text, "a") == {"t": {0: 5, 1: 7}}
    assert parse_group_csv(text, "b") == {"t": {0: 6}}
    with pytest.raises(UsageError, match="line 1 names the consumer group 'a'"):
        parse_group_csv(text)
    with pytest.raises(UsageError, match="no offsets for the group 'c'"):
        parse_group_csv(text, "c")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no offsets"),
        ("\n\n", "no offsets"),
        ("TOPIC,PARTITION,NEW-OFFSET\nt,0,5\n", "line 1: 'PARTITION' is not a partition number"),
        ("t,0,5\nt,1\n", "line 2 has 2 fields"),
        ("t,0,5\n\nt,1,2,3,4\n", "line 3 has 5 fields"),
        ("t,0,5\ng,t,1,5\n", "line 2 has 4 fields"),
        ("t,0,5\nt,0,6\n", "line 2 repeats t partition 0 from line 1"),
        ("t,0,five\n", "line 1: 'five' is not a valid offset"),
        ("t,0,5\nt,1,-7\n", "line 2: -7 does not identify a record"),
        ('t,0,"5\n', "is not valid CSV"),
        ("t u,0,5\n", "line 1: 't u' is not a valid Kafka topic"),
    ],
)
def test_a_csv_that_is_none_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)) as refused:
        parse_group_csv(text)

    assert refused.value.hint
