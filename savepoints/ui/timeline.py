"""The timeline of a family, as shapes with coordinates: lanes, branches, marks, chips and bands.

Pure geometry, so that it can be tested; a template only writes it down.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from savepoints.model import Savepoint
from savepoints.store.tables.merge_ledger import Merge
from savepoints.texts import bytes_text, count_text, moment_text, span_text
from savepoints.ui.axis import Axis, Tick
from savepoints.ui.facts import StoreFacts
from savepoints.ui.lanes import Downtime, Lane, downtimes, lanes

WIDTH = 1180
_GUTTER, _RIGHT = 178, 28
_TOP, _ROW, _BOTTOM = 40, 52, 14
# Marks shrink where there are many, so that they can still be told apart.
_MANY, _RADIUS, _SMALL = 60, 5.5, 3.5
_LETTER, _CHIP_LETTERS, _LABEL_LETTERS = 6.6, 16, 23
_CHIP_ROOM = 6


@dataclass(frozen=True)
class LaneLine:
    """A part of a lane. `kind`: `alive`, `fork`, or `gone` for what was rolled back."""

    x1: float
    x2: float
    y: float
    kind: str


@dataclass(frozen=True)
class LaneLabel:
    """What stands in front of a lane."""

    y: float
    name: str
    note: str
    title: str
    current: bool


@dataclass(frozen=True)
class Branch:
    """The curve from the savepoint that a generation began from to its lane."""

    path: str
    kind: str


@dataclass(frozen=True)
class Mark:
    """A sign on a lane.

    Attributes:
        kind: `both`, `native`, `canonical`, `broken`, `edit`, `merge`, `promote`, `reset`, `begin`.
        title: What a pointer shows.
        anchor: Where on the page its details are, empty without any.
        faded: It was rolled back.
    """

    kind: str
    x: float
    y: float
    radius: float
    title: str
    anchor: str = ""
    faded: bool = False


@dataclass(frozen=True)
class Chip:
    """A tag, or that a savepoint is pinned. `text` is empty where there is no room for it."""

    x: float
    y: float
    width: float
    text: str
    title: str


@dataclass(frozen=True)
class Band:
    """A part of the time, over one lane or, without `y`, over all of them."""

    x: float
    width: float
    title: str
    y: float | None = None


@dataclass(frozen=True)
class Timeline:
    """A drawing, `WIDTH` wide.

    Attributes:
        summary: The same for those who cannot see it.
        lost: What Kafka no longer has the records for, None when all is there or nobody asked.
    """

    title: str
    summary: str
    height: float
    axis_y: float
    ticks: tuple[Tick, ...]
    labels: tuple[LaneLabel, ...]
    lines: tuple[LaneLine, ...]
    branches: tuple[Branch, ...]
    marks: tuple[Mark, ...]
    chips: tuple[Chip, ...]
    downtimes: tuple[Band, ...]
    lost: Band | None
    width: float = WIDTH


def timeline(facts: StoreFacts, family: Sequence[str]) -> Timeline | None:
    """Draw a family; None when there is nothing to draw."""
    mine = facts.of(family)
    drawn = lanes(mine, family)
    if not drawn:
        return None
    shown = [one for one in mine.savepoints if facts.shows(one.created_at)]
    moments = [one.begun_at for one in drawn] + [one.cut.committed_at for one in shown]
    first = max(min(moments), facts.since) if facts.since else min(moments)
    axis = Axis.between(first, facts.at, _GUTTER, WIDTH - _RIGHT)
    marks = [*_savepoint_marks(facts.left, drawn, shown, axis), *_other_marks(mine, drawn, axis)]
    gaps = list(downtimes(mine, drawn))
    return Timeline(
        title=f"Timeline of {family[0]}"
        + (f" and {count_text(len(family) - 1, 'fork')}" if family[1:] else ""),
        summary=_summary(drawn, shown, gaps),
        height=_TOP + _ROW * len(drawn) + _BOTTOM,
        axis_y=_TOP - 16,
        ticks=axis.ticks(),
        labels=tuple(_label(one, alone=not family[1:]) for one in drawn),
        lines=tuple(part for one in drawn for part in _lines(one, axis, family[0])),
        branches=tuple(_branches(drawn, axis, family[0])),
        marks=tuple(marks),
        chips=tuple(_chips(drawn, shown, axis)),
        downtimes=tuple(_downtime(one, axis) for one in gaps),
        lost=_lost(mine, shown, axis),
    )


def shortened(text: str, most: int) -> str:
    """Leave out the middle of a long text: of ids, both ends tell them apart."""
    if len(text) <= most:
        return text
    return f"{text[: (most - 1) // 2]}…{text[-(most // 2) :]}"


def savepoint_kind(one: Savepoint) -> str:
    """Return which sign a savepoint has."""
    if one.state == "broken":
        return "broken"
    if one.edit is not None:
        return "edit"
    return "both" if len(one.forms) > 1 else one.forms[0]


def savepoint_title(one: Savepoint) -> str:
    """Describe a savepoint in a line."""
    parts = [
        one.id,
        f"batch {one.cut.batch_id}",
        moment_text(one.cut.committed_at),
        f"{' and '.join(one.forms)} form",
        *([] if one.rows is None else [count_text(one.rows, "row")]),
        bytes_text(one.cost.bytes_copied + one.cost.export_bytes) + " new",
        *([f"broken: {one.state_reason or 'no reason recorded'}"] if one.state == "broken" else []),
        *([f"edited: {one.edit.reason}"] if one.edit else []),
        *([f"tags {', '.join(one.tags)}"] if one.tags else []),
        *(["pinned"] if one.pinned else []),
    ]
    return ", ".join(parts)


def merge_title(one: Merge) -> str:
    """Describe a merge in a line."""
    return (
        f"merge {one.id}, {moment_text(one.at)}: {count_text(one.rows, 'late row')}, "
        f"{one.entities:,} {'entity' if one.entities == 1 else 'entities'}"
    )


def _y(row: int) -> float:
    return _TOP + _ROW * row + _ROW / 2 + 4


def _summary(drawn: Sequence[Lane], shown: Sequence[Savepoint], gaps: Sequence[Downtime]) -> str:
    current = [f"{one.query} generation {one.generation}" for one in drawn if one.current]
    off = sum(one.counts_until is not None for one in drawn)
    return (
        f"{count_text(len(shown), 'savepoint')} in {count_text(len(drawn), 'generation')}; "
        f"current: {', '.join(current) or 'none'}; {off} with batches that were rolled back or "
        f"replaced; {count_text(len(gaps), 'gap')} without known batches. The table below has the "
        "same savepoints."
    )


def _label(lane: Lane, *, alone: bool) -> LaneLabel:
    generation = f"generation {lane.generation}"
    status = "current" if lane.current else f"by {lane.begun_by}" if lane.begun_by else "ended"
    name, note = (generation, status) if alone else (lane.query, f"{generation}, {status}")
    title = f"{lane.query}, {generation}, {status}"
    return LaneLabel(_y(lane.row), shortened(name, _LABEL_LETTERS), note, title, lane.current)


def _lines(lane: Lane, axis: Axis, root: str) -> Iterator[LaneLine]:
    kind = "alive" if lane.query == root else "fork"
    begin, end, y = axis.x(lane.begun_at), axis.x(lane.ended_at), _y(lane.row)
    if lane.counts_until is None:
        yield LaneLine(begin, end, y, kind)
        return
    cut = min(max(axis.x(lane.counts_until), begin), end)
    if cut > begin:
        yield LaneLine(begin, cut, y, kind)
    if end > cut:
        yield LaneLine(cut, end, y, "gone")


def _branches(drawn: Sequence[Lane], axis: Axis, root: str) -> Iterator[Branch]:
    for lane in drawn:
        if lane.origin is None:
            continue
        row, moment = lane.origin
        x1, y1, x2, y2 = axis.x(moment), _y(row), axis.x(lane.begun_at), _y(lane.row)
        middle = round((y1 + y2) / 2, 1)
        gone = lane.counts_until is not None and lane.counts_until <= lane.begun_at
        kind = "gone" if gone else "alive" if lane.query == root else "fork"
        yield Branch(f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}", kind)


def _savepoint_marks(
    left: Collection[str], drawn: Sequence[Lane], shown: Sequence[Savepoint], axis: Axis
) -> Iterator[Mark]:
    places = {one.place: one for one in drawn}
    # The oldest first, so that newer ones lie on top.
    for one in reversed(shown):
        lane = places.get(one.place)
        if lane is not None:
            yield Mark(
                savepoint_kind(one),
                axis.x(lane.moment_of(one)),
                _y(lane.row),
                _SMALL if len(shown) > _MANY else _RADIUS,
                savepoint_title(one),
                one.id,
                faded=one.id in left,
            )


def _other_marks(facts: StoreFacts, drawn: Sequence[Lane], axis: Axis) -> Iterator[Mark]:
    for lane in drawn:
        if lane.begun_from is None and lane.begun_by not in ("reset", "promote"):
            continue
        if lane.begun_by == "merge" or not facts.shows(lane.begun_at):
            continue
        kind = lane.begun_by if lane.begun_by in ("promote", "reset") else "begin"
        origin = f" from {lane.begun_from}" if lane.begun_from else ""
        title = (
            f"generation {lane.generation} of {lane.query} begun by {lane.begun_by}{origin}, "
            f"{moment_text(lane.begun_at)}"
        )
        gone = not lane.counts(lane.begun_at)
        yield Mark(kind, axis.x(lane.begun_at), _y(lane.row), _RADIUS, title, faded=gone)
    places = {one.place: one for one in drawn}
    for merge in facts.merges:
        at = places.get(merge.place)
        if at is not None and facts.shows(merge.at):
            title = merge_title(merge)
            yield Mark("merge", axis.x(merge.at), _y(at.row), _RADIUS + 1, title)


def _chips(drawn: Sequence[Lane], shown: Sequence[Savepoint], axis: Axis) -> Iterator[Chip]:
    places = {one.place: one for one in drawn}
    free_from: dict[int, float] = {}
    placed = [
        (lane.moment_of(one), lane, one)
        for one in shown
        if (lane := places.get(one.place)) is not None
    ]
    for moment, lane, one in sorted(placed, key=lambda each: each[0]):
        names = [*one.tags, *(["pinned"] if one.pinned else [])]
        if not names:
            continue
        text = shortened(names[0], _CHIP_LETTERS) + (f" +{len(names) - 1}" if names[1:] else "")
        width = round(len(text) * _LETTER + 12, 1)
        x, y = axis.x(moment), _y(lane.row) - 27
        left = min(x - 6, WIDTH - width - 2)
        if left < free_from.get(lane.row, 0):
            # The mark has the tags in its title, and the table has them.
            yield Chip(x - 3, _y(lane.row) - 9, 6, "", f"{', '.join(names)}: {one.id}")
            continue
        free_from[lane.row] = left + width + _CHIP_ROOM
        yield Chip(left, y, width, text, f"{', '.join(names)}: {one.id}")


def _downtime(one: Downtime, axis: Axis) -> Band:
    x = axis.x(one.begin)
    begin, end = moment_text(one.begin), moment_text(one.end) if one.over else "now"
    title = f"No known batches between {begin} and {end}: {span_text(one.span)}"
    return Band(x, max(2.0, round(axis.x(one.end) - x, 1)), title, _y(one.row) + 11)


def _lost(facts: StoreFacts, shown: Sequence[Savepoint], axis: Axis) -> Band | None:
    """Find up to when savepoints cannot be restored, for Kafka has not what comes after them."""
    asked = {name: one for source in facts.sources.values() for name, one in source.each.items()}
    gone = [
        one.cut.committed_at
        for one in shown
        if one.state == "complete" and one.id in asked and asked[one.id].restorable == "no"
    ]
    if not gone:
        return None
    title = (
        f"Savepoints up to {moment_text(max(gone))} cannot be restored: Kafka no longer has the "
        "records that follow"
    )
    return Band(_GUTTER, round(axis.x(max(gone)) - _GUTTER + 8, 1), title)
