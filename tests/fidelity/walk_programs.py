"""What each application of a walk computes, batch by batch, in plain Python."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from savepoints.store.tables.merge_ledger import MergePolicy
from tests.e2e.late_apps import ANSWER_S, SESSION_S, VISIT_S, WINDOW_S, chained
from tests.e2e.late_desk import Event
from tests.fidelity.walk_model import Batch, Program, State, Table

# From batches to the state that they leave, and to the rows that they write.
Counted = Callable[[Sequence[Batch]], tuple[State, Table]]


def _with_marks(batches: Sequence[Batch]) -> Iterator[tuple[Batch, int]]:
    """Give each batch with the watermark below which it drops: that of the one before."""
    before = 0
    for batch in batches:
        yield batch, before
        before = batch.watermark_ms


def _ms(event: Event) -> int:
    return round(event.s * 1000)


def _totals(batches: Sequence[Batch]) -> tuple[State, Table]:
    found: dict[str, tuple[int, int, float]] = {}
    written: dict[str, tuple[Any, ...]] = {}
    for batch in batches:
        for one in batch.events:
            count, total, newest = found.get(one.k, (0, 0, one.s))
            found[one.k] = count + 1, total + one.n, max(newest, one.s)
            written[one.k] = found[one.k]
        if batch.edit:
            key, more = batch.edit
            count, total, newest = found[key]
            found[key] = count, total + more, newest
    state = Counter((k, *values) for k, values in found.items())
    return {"": state}, Counter((k, *values) for k, values in written.items())


def _windows(batches: Sequence[Batch]) -> tuple[State, Table]:
    sums: Counter[Any] = Counter()
    written: Table = Counter()
    for batch, before in _with_marks(batches):
        for one in batch.events:
            start = int(one.s // WINDOW_S) * WINDOW_S * 1000
            if start + WINDOW_S * 1000 > before:
                sums[start, one.k] += one.n
        for key in [key for key in sums if key[0] + WINDOW_S * 1000 <= batch.watermark_ms]:
            row = (*key, sums.pop(key))
            written[row] += 1
    return {"": Counter((*key, total) for key, total in sums.items())}, written


def _sessions(batches: Sequence[Batch]) -> tuple[State, Table]:
    """Sessions of a key are apart: what comes between two of them makes them one."""
    gap = int(SESSION_S * 1000)
    # By key: begin, end, sum.
    open_: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    written: Table = Counter()
    for batch, before in _with_marks(batches):
        for one in batch.events:
            if _ms(one) + gap > before:
                open_[one.k].append((_ms(one), _ms(one) + gap, one.n))
        for k, found in open_.items():
            joined: list[tuple[int, int, int]] = []
            for begin, end, n in sorted(found):
                if joined and begin <= joined[-1][1]:
                    first, last, total = joined[-1]
                    joined[-1] = first, max(last, end), total + n
                else:
                    joined.append((begin, end, n))
            over = [one for one in joined if one[1] <= batch.watermark_ms]
            written.update((begin, end, k, n) for begin, end, n in over)
            open_[k] = [one for one in joined if one not in over]
    state = Counter((*one[:2], k, one[2]) for k, found in open_.items() for one in found)
    return {"": state}, written


def _answers(batches: Sequence[Batch]) -> tuple[State, Table]:
    """A question is kept until no answer can come, an answer until no question can."""
    wait = ANSWER_S * 1000
    # A question has with it whether it has had an answer.
    asked: dict[Event, bool] = {}
    answers: list[Event] = []
    written: Table = Counter()
    for batch, before in _with_marks(batches):
        come = [one for one in batch.events if _ms(one) > before]
        new = [one for one in come if one.n % 2]
        asked |= {one: False for one in come if not one.n % 2}
        for one in asked:
            for other in answers + new if one in come else new:
                if one.k == other.k and 0 <= _ms(other) - _ms(one) <= wait:
                    written[one.k, one.id, other.id] += 1
                    asked[one] = True
        answers += new
        over = [one for one in asked if _ms(one) + wait <= batch.watermark_ms]
        written.update((one.k, one.id, None) for one in over if not asked.pop(one))
        answers = [one for one in answers if _ms(one) > batch.watermark_ms]
    left = Counter((one.k, one.id) for one in asked)
    return {"left": left, "right": Counter((one.k, one.id) for one in answers)}, written


def _visits(batches: Sequence[Batch]) -> tuple[State, Table]:
    """A number that the order of events goes into, and timers that let them be forgotten."""
    wait = int(VISIT_S * 1000)
    chains: dict[str, int] = {}
    recent: dict[str, list[tuple[int, int]]] = defaultdict(list)
    timers: dict[str, set[int]] = defaultdict(set)
    written: Table = Counter()
    for batch, before in _with_marks(batches):
        for one in sorted(batch.events, key=lambda one: (_ms(one), one.id)):
            if _ms(one) > before:
                chains[one.k] = chained(chains.get(one.k, 0), one.n)
                recent[one.k].append((one.n, _ms(one)))
                timers[one.k].add(_ms(one) + wait)
                written[one.k, "chain", _ms(one), chains[one.k]] += 1
        for k, of in timers.items():
            for fired in sorted(one for one in of if one <= batch.watermark_ms):
                gone = [one for one in recent[k] if one[1] + wait <= fired]
                recent[k] = [one for one in recent[k] if one not in gone]
                written[k, "gone", fired, sum(n for n, _ in gone)] += 1
                of.remove(fired)
    lists = Counter((k, *one) for k, found in recent.items() for one in found)
    return {"chain": Counter(chains.items()), "recent": lists}, written


def _ticks(batches: Sequence[Batch]) -> tuple[State, Table]:
    """What comes in batches that follow each other counts, until one has nothing of the key."""
    counts: Counter[str] = Counter()
    written: Table = Counter()
    for batch in batches:
        come = Counter(one.k for one in batch.events)
        for k in [one for one in counts if one not in come]:
            written[k, counts.pop(k)] += 1
        counts += come
    return {"": Counter(counts.items())}, written


def _appended(count: Counted) -> Callable[[Table, Sequence[Batch]], Table]:
    return lambda before, batches: before + count(batches)[1]


def _upserted(before: Table, batches: Sequence[Batch]) -> Table:
    written = _totals(batches)[1]
    keys = {row[0] for row in written}
    return Counter([*written.elements(), *(row for row in before if row[0] not in keys)])


def _appending(
    app: str,
    count: Counted,
    columns: tuple[str, ...],
    read: dict[str, tuple[str, ...]],
    jitter: float = 0,
    policy: MergePolicy = "exact",
) -> Program:
    return Program(
        app=app,
        state=lambda batches: count(batches)[0],
        rows=_appended(count),
        columns=columns,
        read=read,
        jitter=jitter,
        policy=policy,
    )


TOTALS = Program(
    app="running",
    state=lambda batches: _totals(batches)[0],
    rows=_upserted,
    columns=("k", "count", "total", "newest"),
    read={"": ("key.k", "value.*")},
    jitter=0,
    policy="replay-all",
)
WINDOWS = _appending(
    "windowed",
    _windows,
    ("start_ms", "k", "total"),
    {"": ("unix_millis(key.window.start)", "key.k", "value.*")},
    30,
    "merge-function",
)
SESSIONS = _appending(
    "in_sessions",
    _sessions,
    ("start_ms", "end_ms", "k", "total"),
    {
        "": (
            "unix_millis(value.session_window.start)",
            "unix_millis(value.session_window.end)",
            "key.k",
            "value.sum",
        )
    },
    30,
)
ANSWERS = _appending(
    "answering",
    _answers,
    ("k", "id", "answer"),
    {"left": ("key.field0", "value.id"), "right": ("key.field0", "value.answer")},
    30,
)
ANSWERS_APART = dataclasses.replace(ANSWERS, app="answering_apart")
VISITS = _appending(
    "visiting",
    _visits,
    ("k", "what", "at_ms", "n"),
    {"chain": ("key.k", "value.value"), "recent": ("key.k", "value.*")},
)
TICKS = _appending("ticking", _ticks, ("k", "count"), {"": ("key.k", "value.groupState.count")})
