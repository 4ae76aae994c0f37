"""Where the sources of a restored query go on: lines of the offset log, and their own files."""

from __future__ import annotations

import pytest

from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.source_positions import SourceMap, checked, going_on, unreplayable
from savepoints.errors import IncompatibleError, UsageError
from tests.samples import files_of

BY_NUMBER = ("0", "1", "2")


def test_lines_are_those_of_the_sources_in_their_new_order() -> None:
    sources = SourceMap(("keep:2", "new", '{"t":{"0":5}}', "keep:0"), BY_NUMBER)

    assert sources.lines(["a", "b", "c"]) == ["c", "-", '{"t":{"0":5}}', "a"]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("sources/0/0", "sources/3/0"),
        ("sources/2/17.compact", "sources/0/17.compact"),
        ("sources/1/4", None),  # Not kept.
        ("offsets/3", "offsets/3"),
        ("state/0/1/2.zip", "state/0/1/2.zip"),
    ],
)
def test_a_source_s_own_files_go_with_it(path: str, place: str | None) -> None:
    sources = SourceMap(("keep:2", "new", '{"t":{"0":5}}', "keep:0"), BY_NUMBER)

    assert sources.place(path) == place


def test_a_new_beginning_has_no_files_of_the_source_before() -> None:
    """Else the file source's log would leave out files of that name, or fail on their path."""
    assert SourceMap(("new",), ("0",)).place("sources/0/0") is None
    assert SourceMap(('{"t":{"0":5}}',), ("0",)).place("sources/0/0") is None


def test_trap_a_query_that_is_reset_keeps_where_it_began() -> None:
    """Without it all earlier records of the topic count as read, and are no late events then."""
    was = ('{"t":{"0":70}}', '{"logOffset":3}', '{"u":{"0":9}}')

    sources = SourceMap(('{"t":{"0":50,"1":4}}', '{"v":{"0":5}}', '{"v":{"0":5}}'), BY_NUMBER, was)
    assert sources.place("sources/0/0") == "sources/0/0"
    # A log of files, and where another topic began.
    assert sources.place("sources/1/0") is None
    assert sources.place("sources/2/0") is None
    moved = SourceMap(('{"v":{"0":5}}', "keep:0"), BY_NUMBER, was)
    assert moved.place("sources/0/0") == "sources/1/0"
    named = SourceMap(('{"t":{"0":50}}', "keep:1"), ("left", "right"), was[:2])
    assert named.place("sources/left/0") == "sources/left/0"


@pytest.mark.parametrize(
    ("starts", "why"),
    [
        (("keep:3",), "--source names source 3, but the savepoint has only 3"),
        (("keep:0", "keep:0"), "name the same source"),
    ],
)
def test_what_the_savepoint_does_not_have_is_refused(starts: tuple[str, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        SourceMap(starts, BY_NUMBER)


@pytest.mark.parametrize("starts", [("keep:1", "keep:0"), ("keep:0",), ("keep:0", "keep:1", "new")])
def test_named_sources_are_not_told_apart_by_their_order(starts: tuple[str, ...]) -> None:
    with pytest.raises(IncompatibleError, match="have names"):
        SourceMap(starts, ("left", "right"))


def test_a_named_source_begins_anew_under_its_name() -> None:
    sources = SourceMap(("new", "keep:1"), ("left", "right"))

    assert sources.place("sources/left/0") is None
    assert sources.place("sources/right/0") == "sources/right/0"


@pytest.mark.parametrize("text", ["", "keep", "keep:x", "newest", "[1]", "{}", "12", "keep:-1"])
def test_a_text_that_says_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a source position"):
        checked(text)


def test_a_position_is_written_as_spark_does() -> None:
    assert checked(' {"orders": {"1": 7}} ') == '{"orders":{"1":7}}'


def test_what_kafka_has_to_have_is_what_is_gone_on_with() -> None:
    at = '{"u":{"0":1}}'

    assert going_on(("keep:1", "new", at), ("a", "b")) == ("b", None, at)
    with pytest.raises(UsageError, match="--source names source 2"):
        going_on(("keep:2",), ("a", "b"))


def test_watermark_times_and_settings_of_a_batch_stay() -> None:
    data = files_of("watermark")["offsets/3"]
    before = offset_log.parse(data, "offsets/3")

    after = offset_log.parse(
        offset_log.with_sources(data, "offsets/3", SourceMap(("new", "keep:0"), ("0",))),
        "offsets/3",
    )

    assert after.sources == (None, before.sources[0])
    assert (after.watermark_ms, after.timestamp_ms, after.conf) == (
        before.watermark_ms,
        before.timestamp_ms,
        before.conf,
    )


def test_trap_a_rate_source_with_a_name_keeps_its_beginning_below_it() -> None:
    """Spark 4.2 can name sources: what they keep is not in directories that have numbers."""
    positions = {
        "clock": "12",
        "lines": "7",
        "2": "3",
        "orders": '{"orders":{"0":1}}',
        "idle": None,
    }

    assert unreplayable(positions, ["sources/clock/0", "offsets/3"]) == (
        "lines",
        "2",
    )
