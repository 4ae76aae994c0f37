"""The table of savepoints: a row of each, and the details that a row opens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from savepoints.checkpoint.logs.kafka_position import by_partition, lowest_offsets
from savepoints.model import OperatorState, OutputVersion, Savepoint, hashes_agree
from savepoints.operations.inspect import diff
from savepoints.operations.inspect.availability import Availability
from savepoints.texts import bytes_text, span_text, watermark_text
from savepoints.ui.facts import StoreFacts

# Shown at once; those before are there, folded.
NEWEST = 20


@dataclass(frozen=True)
class Change:
    """A value that is not the same in two savepoints."""

    name: str
    before: str
    after: str
    by: str = ""


@dataclass(frozen=True)
class Row:
    """A savepoint.

    Attributes:
        status: `complete`, `broken`, `rolled back`, or `replaced by` a verb.
        restorable: Whether it is, as far as somebody asked.
        facts: Name and value of what else there is to know.
        offsets: Topic, partition and next offset of Kafka's; text of other sources.
        commands: What one does with it.
        before: The savepoint that it came from, None for the first.
    """

    id: str
    query: str
    generation: int
    batch: int
    age: str
    kind: str
    rows: str
    new_bytes: str
    forms: str
    status: str
    restorable: str
    tags: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    offsets: tuple[tuple[str, str, str], ...]
    operators: tuple[OperatorState, ...]
    outputs: tuple[OutputVersion, ...]
    commands: tuple[tuple[str, str], ...]
    before: str | None
    changes: tuple[Change, ...]


def rows(facts: StoreFacts, family: Sequence[str]) -> tuple[Row, ...]:
    """Describe the savepoints of a family, the newest first."""
    mine = facts.of(family)
    asked = {name: one for it in facts.sources.values() for name, one in it.each.items()}
    before = _before(facts)
    return tuple(
        _row(facts, one, before.get(one.id), asked, facts.left.get(one.id))
        for one in mine.savepoints
        if facts.shows(one.created_at)
    )


def changes(before: Savepoint, after: Savepoint) -> tuple[Change, ...]:
    """Compare two savepoints by what the catalog says of them."""
    return tuple(_changes(before, after))


def _before(facts: StoreFacts) -> Mapping[str, Savepoint]:
    """Find what each savepoint came from: the one before it in its generation, or its origin.

    The parent may be of a batch that had been rolled back by then.
    """
    by_id = {one.id: one for one in facts.savepoints}
    newest = {one.place: one.begun_from for one in facts.generations}
    found = {}
    for one in sorted(facts.savepoints, key=lambda it: it.taken_order):
        place = one.place
        origin = one.parent if one.edit else newest.get(place) or one.parent
        if origin in by_id:
            found[one.id] = by_id[origin]
        if one.edit is None:
            newest[place] = one.id
    return found


def _row(
    facts: StoreFacts,
    one: Savepoint,
    before: Savepoint | None,
    asked: Mapping[str, Availability],
    left: str | None,
) -> Row:
    cost = one.cost
    state = left if left is not None and one.state == "complete" else one.state
    availability = asked.get(one.id)
    return Row(
        one.id,
        one.query,
        one.generation,
        one.cut.batch_id,
        span_text(facts.at - one.created_at),
        one.kind,
        "-" if one.rows is None else f"{one.rows:,}",
        bytes_text(cost.bytes_copied + cost.export_bytes),
        " + ".join(one.forms),
        state,
        availability.restorable if availability else "-",
        (*one.tags, *(["pinned"] if one.pinned else [])),
        tuple(_facts(one, availability)),
        tuple(_offsets(one)),
        one.operators,
        one.outputs,
        tuple(_commands(one, before)),
        before.id if before else None,
        changes(before, one) if before else (),
    )


def _facts(one: Savepoint, availability: Availability | None) -> Iterator[tuple[str, str]]:
    cut = one.cut
    if one.state_reason:
        yield "Why broken", one.state_reason
    if availability and availability.restorable != "yes":
        yield "Restorable", f"{availability.restorable}: {availability.reason}"
    if one.edit:
        yield "Edited", f"{one.edit.reason} ({one.edit.by})"
    if one.rows_missing:
        yield "Export failed", one.rows_missing
    if one.description:
        yield "Description", one.description
    yield "Watermark", watermark_text(cut.watermark_ms)
    yield (
        "State store",
        f"{cut.provider.rpartition('.')[2]}, partitions: {cut.partitions or 'none'}",
    )
    yield "Took", f"{one.cost.seconds:.1f} s"
    if one.application:
        yield "Program", one.application
    if one.code_version:
        yield "Code version", one.code_version


def _offsets(one: Savepoint) -> Iterator[tuple[str, str, str]]:
    for topic, partition, offset in by_partition(lowest_offsets(one.cut.offsets)):
        yield topic, str(partition), str(offset)
    if not lowest_offsets(one.cut.offsets):
        for number, position in enumerate(one.cut.offsets):
            yield f"source {number}", "-", position or "not started"


def _commands(one: Savepoint, before: Savepoint | None) -> Iterator[tuple[str, str]]:
    yield "Show all details", f"savepoints show {one.id}"
    yield "Preview a rollback to it", f"savepoints rollback {one.id} --dry-run"
    yield "Check its files", f"savepoints verify {one.id}"
    yield "Rehearse a recovery", f"savepoints drill {one.id}"
    if before:
        yield "Compare the state row by row", f"savepoints diff {before.id} {one.id}"
    yield "Protect it from retention", f"savepoints tag {one.id} --pin"


def _changes(before: Savepoint, after: Savepoint) -> Iterator[Change]:
    found = diff.of_catalog(before, after)
    first, second = before.cut, after.cut
    yield Change(
        "batch",
        f"{first.batch_id:,}",
        f"{second.batch_id:,}",
        f"{second.batch_id - first.batch_id:+,}",
    )
    if found.watermark_ms.differs:
        yield Change(
            "watermark", watermark_text(first.watermark_ms), watermark_text(second.watermark_ms)
        )
    for one in found.offsets:
        numbers = [it for it in (one.before, one.after) if isinstance(it, int)]
        by = f"{numbers[1] - numbers[0]:+,}" if len(numbers) > 1 else ""
        yield Change(str(one), _text(one.before), _text(one.after), by)
    if before.application != after.application:
        yield Change("program", _text(before.application), _text(after.application))
    yield from _operator_changes(before, after)
    yield from _output_changes(before, after)
    for name, value in found.settings.items():
        yield Change(name, _text(value.before), _text(value.after))


def _operator_changes(before: Savepoint, after: Savepoint) -> Iterator[Change]:
    older = {(one.operator_id, one.name): one for one in before.operators}
    newer = {(one.operator_id, one.name): one for one in after.operators}
    for place in sorted(older.keys() | newer.keys()):
        was, is_ = older.get(place), newer.get(place)
        name = f"rows of operator {place[0]} ({place[1]})"
        if was is None or is_ is None:
            yield Change(name, "no operator" if was is None else _text(was.rows),
                         "no operator" if is_ is None else _text(is_.rows))  # fmt: skip
        elif was.rows != is_.rows and was.rows is not None and is_.rows is not None:
            yield Change(name, f"{was.rows:,}", f"{is_.rows:,}", f"{is_.rows - was.rows:+,}")
        elif not hashes_agree(was.content_hash, is_.content_hash):
            yield Change(name, _text(was.rows), _text(is_.rows), "different contents")


def _output_changes(before: Savepoint, after: Savepoint) -> Iterator[Change]:
    older = {one.name: one for one in before.outputs}
    newer = {one.name: one for one in after.outputs}
    for name in sorted(older.keys() | newer.keys()):
        was, is_ = older.get(name), newer.get(name)
        if was != is_:
            yield Change(
                f"version of output {name}",
                _text(was.version if was else None),
                _text(is_.version if is_ else None),
            )


def _text(value: float | str | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
