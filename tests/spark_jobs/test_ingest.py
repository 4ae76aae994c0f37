"""A feed that repeats itself and fails, without Spark and without Kafka: pages, and the memory."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from savepoints.io import Location
from spark_jobs.ingest import feed, load, memory
from spark_jobs.ingest.feed import FeedError
from spark_jobs.ingest.load import LoadError
from spark_jobs.ingest.memory import AHEAD, CHANGED, EXPIRED, UNREADABLE, Memory, Record
from tests import draw
from tests.spark_jobs import feed_model
from tests.spark_jobs.feed_model import BEGIN_MS, DAY_MS, WEEK_MS, Row
from tests.spark_jobs.feed_server import FAULTS, MOST_BAD, Feed, serving


def no_wait(_: float) -> None:
    """Ask again at once."""


@pytest.mark.parametrize("seed", draw.some(3, range(20), "feeds"))
def test_whatever_the_server_does_each_page_is_read_once_and_none_is_skipped(seed: int) -> None:
    pages: list[list[object]] = [[{"event_id": f"e-{n}"}] for n in range(30)]
    with serving(Feed(random.Random(seed), [*pages], 1_000)) as served:
        found, after, more = [], "", True
        while more:
            page = feed.page(served.url, after, wait=no_wait)
            found.append(page.events)
            after, more = page.next, page.more

    assert found == pages
    assert page.answered_ms == 1_000


def test_trap_attempts_are_counted_by_the_page() -> None:
    """A feed that fails now and then must not end a loader that has many pages to read."""
    pages: list[list[object]] = [[number] for number in range(30)]
    served = Feed(random.Random(3), [*pages])
    waits: list[float] = []
    with serving(served):
        after, more = "", True
        while more:
            page = feed.page(served.url, after, attempts=MOST_BAD + 1, wait=waits.append)
            after, more = page.next, page.more

    assert len(waits) > 2 * MOST_BAD
    assert max(waits) <= 0.1 * 2 ** (MOST_BAD - 1), "a page that came resets the pause"


def test_all_faults_are_met() -> None:
    met: set[str] = set()
    for seed in range(20):
        served = Feed(random.Random(seed), [[1]] * 30)
        for number in range(30):
            served.answer(str(number))
        met |= served.met

    assert met == set(FAULTS)


def test_trap_an_answer_to_another_request_is_none() -> None:
    """It has events, a next and a date: who takes it goes on behind pages that were never read."""
    served = Feed(pages=[[1], [2], [3]])
    waits: list[float] = []
    with serving(served):
        served.answer = lambda after: ("good", Feed._page(served, 2 if after else 0))  # type: ignore[method-assign]
        with pytest.raises(FeedError, match="3 attempts: the answer is one to another request"):
            feed.page(served.url, "1", attempts=3, wait=waits.append)

    assert waits == [0.1, 0.2], "and not after the last"


def test_a_feed_that_refuses_is_not_asked_again() -> None:
    asked: list[str] = []
    served = Feed()

    def gone(after: str) -> tuple[str, bytes]:
        asked.append(after)
        return "gone", b""

    served.answer = gone  # type: ignore[method-assign]
    with serving(served), pytest.raises(FeedError, match="answers 410"):
        feed.page(served.url, "7", wait=no_wait)

    assert asked == ["7"]


def records(*events: object, answered_ms: int = BEGIN_MS + 400 * DAY_MS) -> list[Record]:
    return [
        Record(0, number, load.record(one, answered_ms).decode())
        for number, one in enumerate(events)
    ]


def event(name: str, day: float, **more: object) -> dict[str, object]:
    return {"event_id": name, "at_ms": BEGIN_MS + int(day * DAY_MS), **more}


def reasons(*events: object, answered_ms: int = BEGIN_MS + 400 * DAY_MS) -> list[object]:
    """Return what came of each record: `copy`, None for an event, or why it was refused."""
    found: list[object] = []
    known = Memory()
    for one in records(*events, answered_ms=answered_ms):
        known, kept = memory.advance(known, [one])
        found.append(kept[0].reason if kept else "copy")
    return found


def test_a_copy_is_known_for_as_long_as_it_is_remembered() -> None:
    old = event("a", 0)

    assert reasons(old, event("b", 7), old) == [None, None, "copy"]
    assert reasons(old, event("b", 7.001), old) == [None, None, EXPIRED]


def test_trap_an_event_from_behind_the_mark_that_never_came_is_refused_and_not_dropped() -> None:
    assert reasons(event("new", 10), event("late", 0)) == [None, EXPIRED]


def test_another_content_under_one_id_is_refused() -> None:
    assert reasons(event("a", 0, n=1), event("a", 0, n=2)) == [None, CHANGED]
    assert reasons(event("a", 0, n=1), event("a", 1, n=1)) == [None, CHANGED]


def test_trap_one_clock_that_is_ahead_does_not_make_all_others_forgotten() -> None:
    now = BEGIN_MS + DAY_MS

    assert reasons(event("ahead", 99), event("a", 0), answered_ms=now) == [AHEAD, None]


@pytest.mark.parametrize(
    "wrong",
    [None, 7, "text", [["event_id", "a"]], {}, {"event_id": "a"}, event(7, 0),  # type: ignore[arg-type]
     {"event_id": "a", "at_ms": 1.5}, {"event_id": "a", "at_ms": True},
     {"event_id": "a", "at_ms": -1}, {"event_id": "a", "at_ms": 10**15}],
)  # fmt: skip
def test_what_is_no_event_is_refused_with_the_record(wrong: object) -> None:
    _, (kept,) = memory.advance(Memory(), records(wrong))

    assert kept.reason == UNREADABLE
    assert json.loads(kept.value)["event"] == wrong


def test_trap_half_a_character_in_an_id_stops_neither_loader_nor_query() -> None:
    """JSON can have it, a table cannot: what fails for it would fail again at each attempt."""
    wrong = event("\ud800", 0)
    assert load.bucket(wrong) == load.bucket({**wrong, "at_ms": 5})

    _, (kept,) = memory.advance(Memory(), records(wrong))

    assert (kept.reason, kept.event_id) == (UNREADABLE, None)
    assert json.loads(kept.value)["event"] == wrong


def test_trap_a_record_that_kafka_does_not_take_is_named_and_the_position_stays(
    tmp_path: Path,
) -> None:
    page = [event("large", 0, text="x" * 2_000_000)]
    with (
        serving(Feed(pages=[page])) as served,
        pytest.raises(LoadError, match=r"feed does not take .*large.*too large"),
    ):
        load.load(
            served.url,
            bootstrap_servers="127.0.0.1:1",
            topic="feed",
            position=Location.of(str(tmp_path)),
        )

    assert list(tmp_path.iterdir()) == []


def test_a_record_of_somebody_else_is_refused() -> None:
    for value in ("", "{", "[]", '{"event": {}}', "[" * 100_000):
        _, (kept,) = memory.advance(Memory(), [Record(0, 0, value)])
        assert (kept.reason, kept.value) == (UNREADABLE, value)


def test_more_ids_than_are_kept_move_the_mark_and_nothing_is_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "MOST", 3)
    events = [event(f"e-{n}", n / 10) for n in (0, 1, 1, 2, 3)]
    events[2]["event_id"] = "same time"

    assert reasons(*events, events[3], events[4], events[2], events[1], events[0]) == [
        *[None] * 5, "copy", "copy", EXPIRED, EXPIRED, EXPIRED
    ]  # fmt: skip
    known, _ = memory.advance(Memory(), records(*events))
    assert len(json.loads(known.seen)) <= 3


@pytest.mark.parametrize("seed", draw.some(3, range(20), "memories"))
def test_wherever_batches_end_it_comes_to_what_the_model_says(seed: int) -> None:
    """And after going back to an earlier memory, as a rollback and a restart do."""
    chance = random.Random(seed)
    sent = [one for page in feed_model.drawn(chance, 40, 10) for one in page]
    answered = BEGIN_MS + 60 * DAY_MS
    rows = [
        Row(0, number, load.bucket(one), load.record(one, answered).decode())
        for number, one in enumerate(sent)
    ]
    truth = feed_model.expected(rows)
    events: list[tuple[str, int]] = []
    refused, copies, counted = [], 0, 0
    for name in {one.key for one in rows}:
        mine = [Record(one.partition, one.offset, one.value) for one in rows if one.key == name]
        cuts = [(0, Memory(), 0)]
        kept: list[memory.Kept] = []
        while cuts[-1][0] < len(mine):
            if chance.random() < 0.1:
                cuts = cuts[: chance.randrange(len(cuts)) + 1]
                del kept[cuts[-1][2] :]
            at, known, _ = cuts[-1]
            end = at + chance.randrange(1, 20)
            known, found = memory.advance(known, chance.sample(mine[at:end], len(mine[at:end])))
            kept += found
            cuts.append((min(end, len(mine)), known, len(kept)))
        for one in kept:
            if one.reason is None:
                assert one.payload is not None
                events.append((str(one.event_id), json.loads(one.payload)["amount"]))
            else:
                refused.append((one.reason, one.partition, one.offset))
        copies += known.copies
        counted += known.records
        oldest = min((at for at, _ in json.loads(known.seen).values()), default=known.newest_ms)
        assert oldest >= known.newest_ms - WEEK_MS, "what is remembered is bounded"

    assert (sorted(events), sorted(refused), copies) == truth
    assert {why for why, _, _ in refused} == {EXPIRED, CHANGED, AHEAD, UNREADABLE}
    assert counted == len(rows) == len(events) + len(refused) + copies, "each is accounted for"
