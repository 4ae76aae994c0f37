"""Ids, names, times, offsets, and the JSON of a savepoint."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.errors import UsageError
from savepoints.json_values import from_json
from savepoints.model import (
    Cost,
    Cut,
    OperatorState,
    OutputVersion,
    Savepoint,
    checked_name,
    is_id,
    new_id,
)
from savepoints.moments import parse_rfc3339, rfc3339, utc_now
from tests.samples import savepoint
from tests.shown import HOSTILE, assert_only_a_table, read

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_ids_say_what_and_when_they_are() -> None:
    plus_two = timezone(timedelta(hours=2))

    assert new_id("sp", NOON).startswith("sp-20261121-120000-")
    assert new_id("op", NOON.astimezone(plus_two)).startswith("op-20261121-120000-")


def test_ids_are_ids_and_differ() -> None:
    made = {new_id("sp", NOON) for _ in range(200)}

    assert len(made) == 200
    assert all(is_id(one) and checked_name(one, "id") == one for one in made)


def test_ids_sort_by_time() -> None:
    moments = [NOON + timedelta(seconds=step) for step in range(0, 100_000, 997)]

    ids = [new_id("sp", moment) for moment in moments]

    assert ids == sorted(ids)


@pytest.mark.parametrize(
    "text",
    ["", "sp", "sp-20261121-120000", "xx-20261121-120000-k3f9ab", "sp-20261121-120000-K3F9AB"],
)
def test_other_text_is_no_id(text: str) -> None:
    assert not is_id(text)


@pytest.mark.parametrize("name", ["a", "orders", "Orders_2.1-x", "9lives", "a..b", "x" * 100])
def test_names_are_kept_as_they_are(name: str) -> None:
    assert checked_name(name, "query") == name


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "a/b", "/a", "a\\b", ".hidden", "-a", "_a", "a b", "ä", "a\0"),
        "x" * 101,
        "a\n",
    ],
)
def test_names_that_could_leave_their_directory_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="query"):
        checked_name(name, "query")


@given(st.text(max_size=12))
def test_a_name_is_always_one_part_of_a_path(text: str) -> None:
    try:
        name = checked_name(text, "query")
    except UsageError:
        return
    assert "/" not in name
    assert name not in {"", ".", ".."}
    assert name.isascii()


MOMENTS = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.timedeltas(timedelta(hours=-14), timedelta(hours=14)).map(
        lambda offset: timezone(timedelta(minutes=offset // timedelta(minutes=1)))
    ),
).map(lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000))


@given(MOMENTS)
def test_a_time_is_read_as_it_was_written(moment: datetime) -> None:
    text = rfc3339(moment)

    assert text.endswith("Z")
    assert len(text) == len("2026-11-21T10:15:30.000Z")
    assert parse_rfc3339(text) == moment
    assert parse_rfc3339(text).utcoffset() == timedelta(0)


@given(MOMENTS)
def test_any_offset_is_read(moment: datetime) -> None:
    assert parse_rfc3339(moment.isoformat()) == moment


@pytest.mark.parametrize(
    "text", ["2026-11-21T10:15:30Z", "2026-11-21T10:15Z", "2026-11-21T12:15:30+02:00"]
)
def test_forms_that_people_write_are_read(text: str) -> None:
    assert parse_rfc3339(text) == datetime(
        2026, 11, 21, 10, 15, 30 if ":30" in text else 0, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("2026-11-21T10:15:30", "2026-11-21T10:15:30Z"),
        ("2026-11-21", "2026-11-21T00:00:00Z"),
        ("2026-11-21 10:15", "2026-11-21T10:15:00Z"),
    ],
)
def test_a_time_without_zone_is_refused_with_a_hint_that_can_be_typed(
    text: str, whole: str
) -> None:
    with pytest.raises(UsageError, match="no time zone") as refused:
        parse_rfc3339(text)

    assert f" {whole} " in refused.value.hint
    assert parse_rfc3339(whole).tzinfo == UTC


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "21.11.2026", "2026-13-01T00:00:00Z", "Z", "12:00Z"),
        *("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"),
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not an RFC 3339 time"):
        parse_rfc3339(text)


def test_now_has_a_zone_and_whole_milliseconds() -> None:
    now = utc_now()

    assert now.utcoffset() == timedelta(0)
    assert parse_rfc3339(rfc3339(now)) == now


@pytest.mark.parametrize(
    ("position", "offsets"),
    [
        ('{"orders":{"0":12,"10":7}}', {"orders": {0: 12, 10: 7}}),
        ('{"a":{"0":1},"b":{"0":-2}}', {"a": {0: 1}, "b": {0: -2}}),
        ('{"orders":{"0":9007199254740993}}', {"orders": {0: 9007199254740993}}),
    ],
)
def test_kafkas_offsets_are_known_by_their_form(
    position: str, offsets: dict[str, dict[int, int]]
) -> None:
    assert kafka_offsets(position) == offsets


@pytest.mark.parametrize(
    "position",
    [
        None,
        '{"logOffset":3}',  # file source
        "17",  # rate source
        '{"reservoirVersion":3,"index":-1,"reservoirId":"x","isStartingVersion":false}',  # Delta
        '{"orders":{}}',
        "{}",
        "[]",
        "null",
        '"text"',
        "not JSON",
        '{"orders":{"0":true}}',
        '{"orders":{"0":1.5}}',
        '{"orders":{"zero":1}}',
        '{"shard":{"0":{"sequence":1}}}',  # Kinesis
    ],
)
def test_positions_of_other_sources_are_not_kafkas(position: str | None) -> None:
    assert kafka_offsets(position) is None


TEXT = st.text(max_size=8)
SECONDS = st.floats(0, 1e6).map(lambda value: round(value, 3))
COUNT = st.integers(0, 2**53)
CUTS = st.builds(
    Cut,
    batch_id=COUNT,
    committed_at=MOMENTS,
    watermark_ms=COUNT,
    offsets=st.lists(st.none() | TEXT, max_size=3).map(tuple),
    provider=TEXT,
    partitions=st.none() | COUNT,
    checkpoint_format=st.sampled_from([1, 2]),
)
SAVEPOINTS = st.builds(
    Savepoint,
    id=TEXT,
    query=TEXT,
    query_id=TEXT,
    generation=COUNT,
    cut=CUTS,
    created_at=MOMENTS,
    forms=st.sampled_from([("native",), ("canonical",), ("native", "canonical")]),
    operators=st.lists(
        st.builds(
            OperatorState,
            stores=st.lists(TEXT, max_size=2).map(tuple),
            partitions=COUNT,
            native_only=st.none() | TEXT,
            keyless=st.booleans(),
            column_families=st.booleans(),
        ),
        max_size=2,
    ).map(tuple),
    outputs=st.lists(st.builds(OutputVersion, app_version=st.none() | COUNT), max_size=2).map(
        tuple
    ),
    cost=st.builds(Cost, pin_seconds=SECONDS, checksum_seconds=SECONDS, export_seconds=SECONDS),
    parent=st.none() | TEXT,
    settings=st.dictionaries(TEXT, TEXT, max_size=2),
    tags=st.lists(TEXT, max_size=2).map(tuple),
    description=TEXT,
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"later": 1}, "later: Unexpected keyword argument"),
        ({"cut": {"batch_id": 1}}, "cut.committed_at: "),
        ({"generation": "first"}, "generation: Input should be a valid integer"),
        ({"kind": "by hand"}, "kind: Input should be 'manual'"),
    ],
    ids=["unknown", "missing", "of another type", "no such word"],
)
@given(savepoint=SAVEPOINTS)
def test_what_is_not_as_it_was_written_is_refused_by_its_field(
    savepoint: Savepoint, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        from_json(Savepoint, {**savepoint.to_json(), **change})


@given(SAVEPOINTS)
def test_a_savepoint_is_read_from_json_as_it_was_written(savepoint: Savepoint) -> None:
    text = json.dumps(savepoint.to_json())

    assert from_json(Savepoint, json.loads(text)) == savepoint


@given(SAVEPOINTS)
def test_the_json_of_a_savepoint_has_only_json_values(savepoint: Savepoint) -> None:
    data = savepoint.to_json()

    assert json.loads(json.dumps(data)) == data
    assert data["created_at"].endswith("Z")


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cost().attempts = 2  # type: ignore[misc]


def test_the_cost_is_the_sum_of_its_parts() -> None:
    assert Cost(pin_seconds=1.0, checksum_seconds=2.0, export_seconds=4.0).seconds == 7.0


def test_a_notebook_shows_what_one_looks_for_first() -> None:
    made = dataclasses.replace(
        savepoint(4, query="clicks", tags=("first", "before-release")),
        operators=(OperatorState(0, "stateStoreSave", ("default",), 2, rows=1200),),
        outputs=(OutputVersion("totals", "s3://lake/totals", "id", 7, "app", 4),),
        description="before the release",
    )

    assert read(made._repr_html_()).texts == [
        f"savepoint {made.id}",
        "query", "clicks, generation 1",
        "batch", "4, committed 2026-11-20T13:59:00.000Z",
        "taken", "2026-11-20T14:00:00.000Z, manual",
        "forms", "native",
        "operators", "stateStoreSave",
        "rows", "1,200",
        "output totals", "version 7 of s3://lake/totals",
        "tags", "first, before-release",
        "status", "complete",
        "before the release",
    ]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_a_notebook_shows_what_others_wrote_as_text(text: str) -> None:
    made = dataclasses.replace(
        savepoint(4, id=text, query=text, tags=(text,), state=text),
        operators=(OperatorState(0, text, (), 2),),
        outputs=(OutputVersion(text, text, "id", 7, "app", 4),),
        description=text,
        state_reason=text,
    )
    page = made._repr_html_()

    assert_only_a_table(page)
    shown = read(page).texts
    assert [shown[0], *shown[-2:]] == [f"savepoint {text}", f"{text}: {text}", text]
    assert sum(text in one for one in shown) == 8
