"""Until when a pinned version of an output can be read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from savepoints.errors import NotAlignedError, NotFoundError
from savepoints.io import Location, storage_options
from savepoints.model import OutputVersion
from savepoints.outputs.delta import retention

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 1 week", timedelta(weeks=1)),
        ("interval 30 days", timedelta(days=30)),
        ("INTERVAL 7 Days", timedelta(days=7)),
        ("2 weeks", timedelta(weeks=2)),
        ("interval 1 day 12 hours", timedelta(hours=36)),
        ("interval  168   hours", timedelta(days=7)),
        ("90 minutes 30 seconds", timedelta(minutes=90, seconds=30)),
        ("interval 1.5 seconds", timedelta(seconds=1.5)),
        ("interval 0 hours", timedelta()),
        ("1 week -1 day", timedelta(days=6)),
        ("250 milliseconds", timedelta(milliseconds=250)),
    ],
)
def test_intervals_are_read_as_delta_reads_them(text: str, expected: timedelta) -> None:
    assert retention.parse_interval(text) == expected


@pytest.mark.parametrize(
    "text", ["", "interval", "week", "1 month", "1 year", "7d", "1 day x", "1"]
)
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an interval"):
        retention.parse_interval(text)


def table(place: Location, versions: int, properties: dict[str, str] | None = None) -> str:
    uri = str(place / "output")
    for number in range(versions):
        write_deltalake(
            uri,
            pa.table({"v": [number]}),
            mode="append",
            configuration=dict(properties or {}),
            storage_options=storage_options(place.uri),
        )
    return uri


def pinned(uri: str, version: int) -> OutputVersion:
    return OutputVersion("totals", uri, "id", version, "q", version)


def test_the_newest_version_never_expires(on_local: Location) -> None:
    uri = table(on_local, 2)

    found = retention.of_output(pinned(uri, 1))

    assert (found.newest, found.files_until, found.log_until, found.until) == (1, None, None, None)
    assert found.problem(datetime.now(UTC) + 1000 * DAY) is None


def test_files_live_from_the_next_commit_and_the_log_from_its_own(place: Location) -> None:
    properties = {
        retention.FILES_PROPERTY: "interval 3 days",
        retention.LOG_PROPERTY: "interval 10 days",
    }
    uri = table(place, 3, properties)

    found = retention.of_output(pinned(uri, 0))

    log = Location.of(uri) / "_delta_log"
    own, following = (log.head(f"{version:020}.json").last_modified for version in (0, 1))
    assert (found.files_until, found.log_until) == (following + 3 * DAY, own + 10 * DAY)
    assert found.until == found.files_until


def test_a_warning_names_the_date_and_the_property_a_day_before(on_local: Location) -> None:
    uri = table(on_local, 2)
    found = retention.of_output(pinned(uri, 0))
    until = found.files_until
    assert until is not None

    assert found.problem(until - 2 * DAY) is None
    soon = found.problem(until - DAY / 2) or ""
    gone = found.problem(until + DAY) or ""

    moment = until.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert f"may be removed after {moment} (delta.deletedFileRetentionDuration)" in soon
    assert f"may have been removed since {moment}" in gone
    assert "version 0" in soon
    assert uri in soon


def test_times_in_commits_win_over_those_of_files(on_local: Location) -> None:
    uri = table(on_local, 2)
    path = Location.of(uri) / "_delta_log"
    name = f"{1:020}.json"
    lines = [json.loads(line) for line in path.get(name).decode().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["inCommitTimestamp"] = 1_700_000_000_000
    path.put(name, "\n".join(json.dumps(line) for line in lines).encode())

    found = retention.of_output(pinned(uri, 0))

    moment = datetime.fromtimestamp(1_700_000_000, UTC)
    assert found.files_until == moment + 7 * DAY


def test_a_log_that_was_cleaned_up_gives_times_that_are_over(on_local: Location) -> None:
    uri = table(on_local, 4)
    opened = DeltaTable(uri)
    opened.create_checkpoint()
    (Location.of(uri) / "_delta_log").delete([f"{version:020}.json" for version in (0, 1, 2)])

    found = retention.of_output(pinned(uri, 0))

    left = (Location.of(uri) / "_delta_log").head(f"{3:020}.json").last_modified
    assert found.files_until == left + 7 * DAY


def test_a_property_that_is_no_interval_is_an_error_that_names_it(on_local: Location) -> None:
    with pytest.raises(
        NotAlignedError, match=r"delta\.logRetentionDuration has the value '2 moons'"
    ):
        retention.retention({retention.LOG_PROPERTY: "2 moons"}, retention.LOG_PROPERTY)


def test_a_table_that_is_gone_is_an_error(on_local: Location) -> None:
    with pytest.raises(NotFoundError):
        retention.of_output(OutputVersion("t", str(on_local / "none"), "x", 0, "q", 0))
