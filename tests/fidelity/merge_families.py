"""Families of entities with late events, drawn by hypothesis; each is a seed of its own.

Families do not touch each other, and one that keeps the time decides what the clock of each batch
is. So a run of a query over many families is as many trials, at the price of about one, and what is
wrong in a family is wrong in it alone too.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

from tests.fidelity.merge_events import Event

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

FILES = 8
SECONDS = 20
# Events so far apart are of one session no more; two with this one between them are of one.
GAP, APART = 6, 10
_TIMEKEEPER = "timekeeper"
_DRAW = """
import pickle, sys
from tests.fidelity.merge_families import Cut, _drawn
sys.stdout.buffer.write(pickle.dumps({call}))
"""
_TAG = re.compile(r"\bf(\d+)-\w+")


@dataclass(frozen=True)
class Cut:
    """When a late batch is merged, by number of the file that the query has read last.

    Attributes:
        planned: When it is replayed and compared.
        spliced: When it goes into the state; what came in between is replayed batch by batch.
    """

    planned: int
    spliced: int

    @property
    def newest(self) -> int:
        """The time of the newest event of the query at the plan."""
        return (self.planned + 1) * SECONDS - 1


# One late batch, or two, one after the other.
ONCE = (Cut(4, 5),)
TWICE = (Cut(2, 3), Cut(5, 6))


@dataclass(frozen=True)
class Drawn:
    """An event of a family.

    Attributes:
        number: Which event of the family it is; one that comes again has the same.
        who: Whose it is: `a`, `b` which begins later, `pair` of two sessions, `new` which no batch
            before the merge has, or `calm` which no late event touches.
        source: The input.
        v: Some number.
        t: When it happened, in seconds.
        merge: Number of the late batch that brings it; 0 for what comes in time.
        delay: By how many batches it comes later than it might.
        gone: It takes away the event with this number, which has come before.
    """

    number: int
    who: str
    source: int
    v: int
    t: int
    merge: int = 0
    delay: int = 0
    gone: bool = False

    @property
    def batch(self) -> int:
        return min(self.t // SECONDS + self.delay, FILES - 1)


Family = tuple[Drawn, ...]


@st.composite
def families(
    draw: DrawFn, cuts: Sequence[Cut] = ONCE, sources: int = 1, *, disorder: bool = False
) -> Family:
    """Draw a family, with a few late events in each late batch."""
    found: list[Drawn] = []
    source, number = st.integers(0, sources - 1), st.integers(0, 3)
    delay = st.sampled_from([0, 0, 0, 1, 3]) if disorder else st.just(0)

    def add(who: str, t: int, v: int | None = None, *, merge: int = 0) -> None:
        v, late = draw(number) if v is None else v, 0 if merge else draw(delay)
        found.append(Drawn(len(found), who, draw(source), v, t, merge, late))

    def in_time(who: str, first: int, last: int, least: int, most: int) -> None:
        for t in draw(st.lists(st.integers(first, last), min_size=least, max_size=most)):
            add(who, t)

    newest = cuts[0].newest
    in_time("a", 0, newest, 2, 4)
    in_time("b", 2 * SECONDS, newest, 1, 3)
    in_time("calm", 0, newest, 1, 3)
    begin = draw(st.integers(0, newest - APART))
    in_time("pair", begin, begin, 1, 1)
    in_time("pair", begin + APART, begin + APART, 1, 1)
    for who in ("a", "b", "new", "calm"):
        in_time(who, newest + 1, FILES * SECONDS - 1, 0, 3)
    for merge, cut in enumerate(cuts, 1):
        gone = {one.number for one in found if one.gone}
        known = [one for one in found if not one.merge and one.batch <= cut.planned]
        touched = [one for one in known if one.who != "calm" and one.number not in gone]
        removable = touched + [one for one in found if 0 < one.merge < merge and not one.gone]
        repeated: set[int] = set()
        for kind in draw(st.lists(st.sampled_from(sorted(_LATE)), min_size=3, max_size=8)):
            if kind in {"again", "removed"}:
                one = draw(st.sampled_from(touched if kind == "again" else removable))
                if one.number not in repeated | gone:
                    found.append(replace(one, merge=merge, delay=0, gone=kind == "removed"))
                repeated.add(one.number)
            else:
                add(*_LATE[kind](draw, touched, cut.newest), merge=merge)
    return tuple(found)


def _anywhere(draw: DrawFn, known: Sequence[Drawn], newest: int) -> tuple[str, int]:
    return draw(st.sampled_from(["a", "b"])), draw(st.integers(0, newest))


def _recently(draw: DrawFn, known: Sequence[Drawn], newest: int) -> tuple[str, int]:
    return draw(st.sampled_from(["a", "b", "new"])), draw(
        st.integers(newest - SECONDS // 2, newest)
    )


def _first(draw: DrawFn, known: Sequence[Drawn], newest: int) -> tuple[str, int]:
    first = min((one.t for one in known if one.who == "b"), default=newest)
    return "b", draw(st.integers(0, first - 1))


def _new(draw: DrawFn, known: Sequence[Drawn], newest: int) -> tuple[str, int]:
    return "new", draw(st.integers(0, newest))


def _between(draw: DrawFn, known: Sequence[Drawn], newest: int) -> tuple[str, int]:
    begin = min((one.t for one in known if one.who == "pair"), default=0)
    return "pair", begin + APART // 2


def _same_time(draw: DrawFn, known: Sequence[Drawn], newest: int) -> tuple[str, int, int | None]:
    one = draw(st.sampled_from([one for one in known if one.t <= newest]))
    return one.who, one.t, one.v if draw(st.booleans()) else None


# How late events are drawn: of which entity, and when they happened; maybe with which number.
# Events that are known already come `again`, or are `removed`.
_LATE: dict[str, Any] = {
    "anywhere": _anywhere,
    "recently": _recently,
    "first": _first,
    "new": _new,
    "between": _between,
    "same_time": _same_time,
    "again": None,
    "removed": None,
}


def drawn(
    count: int, cuts: Sequence[Cut] = ONCE, sources: int = 1, *, disorder: bool = False, seed: int
) -> list[Family]:
    """Draw families that differ; the same ones each time.

    In a process of its own: hypothesis mixes in numbers that stand in the modules that are loaded.
    """
    call = f"_drawn({count}, {cuts!r}, {sources}, {disorder}, {seed})"
    done = subprocess.run(
        [sys.executable, "-c", _DRAW.format(call=call)],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        check=True,
    )
    families: list[Family] = pickle.loads(done.stdout)
    return families


def _drawn(
    count: int, cuts: Sequence[Cut], sources: int, disorder: bool, seed: int
) -> list[Family]:
    found: list[Family] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        phases=(Phase.generate,),
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(families(cuts, sources, disorder=disorder))
    def draw(family: Family) -> None:
        found.append(family)

    draw()
    return found


def placed(found: Sequence[Family], sources: int, scale: int = 1) -> list[Event]:
    """Return the events of families, at their places in the inputs, and of who keeps the time.

    What comes in time has its place by its batch and its time. An event that comes again has the
    identity of the one that is known.

    Args:
        found: The families.
        sources: How many inputs there are.
        scale: How many seconds a second of theirs is.
    """
    rows = [(at, one) for at, family in enumerate(found) for one in family]
    last = [SECONDS * (file + 1) - 1 for file in range(FILES)]
    rows += [
        (-1, Drawn(FILES * source + file, _TIMEKEEPER, source, 0, t))
        for source in range(sources)
        for file, t in enumerate(last)
    ]
    rows.sort(key=lambda row: (row[1].merge, row[1].batch, row[1].t, row[0], row[1].number))
    ends = Counter[tuple[int, bool]]()
    events = []
    for at, one in rows:
        place = ends[one.source, one.merge > 0]
        ends[one.source, one.merge > 0] += 1
        k = _TIMEKEEPER if at < 0 else f"f{at}-{one.who}"
        offset = -1 - place if one.merge else place
        of = f"{k}-{one.number}"
        row = Event(one.source, one.batch, offset, k, one.v, one.t * scale, one.merge, of, one.gone)
        events.append(row)
    return events


def families_in(rows: Iterable[str]) -> set[int]:
    """Return the numbers of the families that rows are about."""
    return {int(number) for row in rows for number in _TAG.findall(row)}


def situations(
    events: Sequence[Event], cuts: Sequence[Cut], watermarks_ms: Sequence[int], scale: int = 1
) -> Counter[str]:
    """Count the late events in each situation that a merge must be right in.

    Args:
        events: Of all families.
        cuts: When late batches are merged.
        watermarks_ms: Of the query at each of them, as far as it has a watermark.
        scale: How many seconds a second of the families is.
    """
    in_time: dict[str, list[Event]] = {}
    for one in events:
        if not one.merge:
            in_time.setdefault(one.k, []).append(one)
    known = {one.id for one in events if not one.merge}
    found = Counter[str]()
    for one in events:
        if not one.merge:
            continue
        cut = cuts[one.merge - 1]
        if one.gone:
            found["removed"] += 1
            continue
        if one.id in known:
            found["known already"] += 1
            continue
        seen = [each for each in in_time.get(one.k, []) if each.batch <= cut.planned]
        times = sorted(each.t for each in seen)
        met = [each.batch for each in in_time.get(one.k, []) if each.batch > cut.planned]
        watermark = watermarks_ms[one.merge - 1]
        open_ = one.time.timestamp() * 1000 > watermark
        after = [t for t in times if t > one.t]
        before = [t for t in times if t < one.t]
        found["of a new entity"] += not seen
        found["before the first event"] += bool(seen) and one.t < times[0]
        found["at the time of another"] += one.t in times
        found["after the watermark"] += bool(watermark) and open_
        found["before the watermark"] += bool(watermark) and not open_
        found["more comes during the merge"] += any(batch <= cut.spliced for batch in met)
        found["more comes after the merge"] += any(batch > cut.spliced for batch in met)
        found["new, and comes during the merge"] += not seen and any(
            batch <= cut.spliced for batch in met
        )
        found["moves a timer"] += bool(
            open_
            and before
            and one.t - before[-1] < GAP * scale
            and not (after and after[0] - one.t < GAP * scale)
        )
        found["joins two sessions"] += bool(
            before
            and after
            and after[0] - before[-1] > GAP * scale
            and after[0] - one.t < GAP * scale
            and one.t - before[-1] < GAP * scale
        )
    return found


def smallest(
    family: Family, wrong: Callable[[Sequence[Family]], Collection[int]], *, rounds: int = 6
) -> Family:
    """Return what is left of a family that is wrong without events that do not matter for that.

    All families with some events less are tried in one run, and the smallest that is wrong still is
    made smaller in turn.

    Args:
        family: Which is wrong.
        wrong: Runs families, and returns the numbers of those that are wrong.
        rounds: How often it is run at most.
    """
    for _ in range(rounds):
        size = len(family)
        pieces = {max(1, size // parts) for parts in (2, 4, size)}
        less = [
            family[:at] + family[at + length :]
            for length in sorted(pieces)
            for at in range(0, size, length)
        ]
        tried = [one for one in less if any(each.merge for each in one)]
        found = [tried[number] for number in wrong(tried)] if tried else []
        if not found:
            break
        family = min(found, key=len)
    return family
