"""The timeline as a list, the newest first, with lanes as indentation: for a phone and on paper."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from savepoints.model import Place
from savepoints.texts import bytes_text, count_text
from savepoints.ui import timeline
from savepoints.ui.facts import StoreFacts
from savepoints.ui.lanes import Lane, lanes

# A phone has no room for more.
_DEEPEST = 4
# Fewer plain savepoints in a row are shown one by one.
_FEW = 4


@dataclass(frozen=True)
class Entry:
    """A line of the list.

    Attributes:
        kind: The sign; see `timeline.Mark`.
        depth: By how many lanes it is indented.
        anchor: Where its details are, empty without any.
        faded: It was rolled back.
        until: Of several savepoints that are one line, when the last was; None for one.
        plain: It may become one line with its neighbours.
    """

    at: datetime
    kind: str
    depth: int
    text: str
    tags: tuple[str, ...] = ()
    anchor: str = ""
    faded: bool = False
    until: datetime | None = None
    plain: bool = False


def history(facts: StoreFacts, family: Sequence[str]) -> tuple[Entry, ...]:
    """List what happened in a family, the newest first, runs of plain savepoints as one line."""
    mine = facts.of(family)
    drawn = lanes(mine, family)
    order = sorted(drawn, key=lambda one: (one.begun_at, one.query, one.generation))
    depths = {one.place: at for at, one in enumerate(order)}
    places = {one.place: one for one in drawn}
    deep = {place: min(depth, _DEEPEST) for place, depth in depths.items()}
    found = [*_savepoints(facts, places, deep, alone=not family[1:]), *_others(mine, drawn, deep)]
    return tuple(_collapsed(sorted(found, key=lambda one: one.at, reverse=True)))


def _savepoints(
    facts: StoreFacts,
    places: dict[Place, Lane],
    depths: dict[Place, int],
    *,
    alone: bool,
) -> Iterator[Entry]:
    for one in facts.savepoints:
        place = one.place
        if place not in places or not facts.shows(one.created_at):
            continue
        kind = timeline.savepoint_kind(one)
        reason = f", broken: {one.state_reason}" if one.state_reason else ""
        where = f"generation {one.generation}" if alone else f"{one.query} {one.generation}"
        size = bytes_text(one.cost.bytes_copied + one.cost.export_bytes)
        tags = (*one.tags, *(["pinned"] if one.pinned else []))
        yield Entry(
            places[place].moment_of(one),
            kind,
            depths[place],
            f"batch {one.cut.batch_id} of {where}, {one.kind}, {size} new{reason}",
            tags,
            one.id,
            faded=one.id in facts.left,
            plain=kind in ("both", "native", "canonical") and not tags,
        )


def _others(facts: StoreFacts, drawn: Sequence[Lane], depths: dict[Place, int]) -> Iterator[Entry]:
    for lane in drawn:
        # A merge tells of itself.
        if lane.begun_by not in ("", "merge") and facts.shows(lane.begun_at):
            kind = lane.begun_by if lane.begun_by in ("promote", "reset") else "begin"
            origin = f" from {lane.begun_from}" if lane.begun_from else ""
            yield Entry(
                lane.begun_at,
                kind,
                depths[lane.place],
                f"generation {lane.generation} of {lane.query} begun by {lane.begun_by}{origin}",
                faded=not lane.counts(lane.begun_at),
            )
    known = {one.place for one in drawn}
    for merge in facts.merges:
        place = merge.place
        if place in known and facts.shows(merge.at):
            yield Entry(merge.at, "merge", depths[place], timeline.merge_title(merge))


def _collapsed(entries: Iterable[Entry]) -> Iterator[Entry]:
    waiting: list[Entry] = []
    for one in entries:
        if waiting and not _alike(waiting[-1], one):
            yield from _as_one(waiting)
            waiting = []
        waiting.append(one)
    yield from _as_one(waiting)


def _alike(newer: Entry, older: Entry) -> bool:
    return (
        newer.plain
        and older.plain
        and (newer.kind, newer.depth, newer.faded) == (older.kind, older.depth, older.faded)
    )


def _as_one(run: Sequence[Entry]) -> Iterator[Entry]:
    if len(run) < _FEW:
        yield from run
        return
    newest, *middle, oldest = run
    # The ends stay: what lies around them is told by them.
    yield newest
    text = f"{count_text(len(middle), 'more savepoint')}"
    yield replace(middle[0], text=text, until=middle[-1].at, anchor="")
    yield oldest
