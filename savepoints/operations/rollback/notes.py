"""What a plan to go back says besides its steps: of its point, its program, and its records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.kafka_position import (
    KafkaOffsets,
    kafka_offsets,
    kafka_position,
    lowest_offsets,
)
from savepoints.config.settings import QuerySettings
from savepoints.errors import IncompatibleError, NotAlignedError
from savepoints.io import Location
from savepoints.model import OutputTopic
from savepoints.moments import parse_rfc3339
from savepoints.operations.rollback import moves
from savepoints.operations.rollback.query_context import checkpoint_of
from savepoints.operations.rollback.safety_savepoint import Present
from savepoints.operations.rollback.target import Named, Point, ResolvedTarget
from savepoints.operations.savepoint import history, restore_checks
from savepoints.sources.kafka.offsets import count
from savepoints.store import bindings
from savepoints.store.lineage import CASCADE, GenerationHistory
from savepoints.store.root import Store
from savepoints.store.tables import living_line
from savepoints.texts import count_text, offsets_text, span_text
from savepoints.uri import lies_in


def of_point(store: Store, wanted: Point, found: ResolvedTarget) -> Iterator[str]:
    """Say how far a savepoint is from the time that it was chosen by, and which are nearer."""
    if not (isinstance(wanted, Named) and wanted.name.startswith("@")):
        return
    text = wanted.name[1:]
    moment = parse_rfc3339(text)
    before = span_text(moment - found.committed_at)
    yield f"{found.savepoint_id} was committed {before} before {text}"
    yield from _passed_over(store, found, moment, text)


def _passed_over(store: Store, found: ResolvedTarget, moment: datetime, text: str) -> Iterator[str]:
    """Say which savepoints are nearer to a time, but of batches that no longer count."""
    known = store.catalog.all()
    gone = living_line.left(known, store.generations.all())
    nearer = [
        one
        for one in known
        if one.query == found.query
        and one.id in gone
        and found.committed_at < one.cut.committed_at <= moment
    ]
    if not nearer:
        return
    newest = max(nearer, key=lambda one: one.cut.committed_at)
    yield (
        f"not used although nearer to {text}: {count_text(len(nearer), 'savepoint')} "
        f"of batches that no longer count, the newest of them {newest.id} ({gone[newest.id]}); to "
        f"go there all the same: savepoints rollback {newest.id}"
    )


def of_place(old: str, new: str, chosen_by: str = "--to URI") -> Iterator[str]:
    """Say that the next checkpoint lies within the present one, with which it would be deleted."""
    if lies_in(new, old):
        yield (
            f"the new checkpoint {new} lies inside the old one, so the old one must not be "
            f"deleted; to choose another place: {chosen_by}"
        )


def of_next(store: Store, query: str, bound: QuerySettings) -> Iterator[str]:
    """Say that of the checkpoint that the settings give the next generation of a query."""
    number = store.generations.next_number(query)
    new = str(checkpoint_of(bound.checkpoints, query, number))
    old = store.generations.current(query).checkpoint
    yield from of_place(old, new, f"checkpoints in [queries.{query}]")


def of_present(checkpoint: str, present: Present, verb: str) -> Iterator[str]:
    """Say why there will be no safety savepoint, if there will be none."""
    if present.batch_id is None:
        yield f"{checkpoint} has no committed batch, so no safety savepoint is taken"
    elif present.safety_id is None:
        yield f"without a safety savepoint, this {verb} cannot be undone"


def of_program(now: QuerySettings | None, then: QuerySettings | None) -> Iterator[str]:
    """Say that the query continues with another program: over a promotion, the one before it."""
    if now is not None and then is not None and now.app != then.app:
        yield f"the query continues with the program {then.app}, not {now.app}"


def of_records(checkpoint: str, newest: int | None, offsets: Sequence[str | None]) -> Iterator[str]:
    """Say how many records lie between a target and the newest batch.

    Nothing is said where that is not known: of other sources than Kafka's, when partitions were
    added since, or if the checkpoint that is left is damaged.

    Args:
        checkpoint: Of the generation that is left.
        newest: Its newest committed batch, None when it has none.
        offsets: Where each source of the target continues, as Spark's JSON.
    """
    if newest is None:
        return
    try:
        now = offset_log.read(Location.of(checkpoint), newest).sources
        pairs = zip(map(_of_kafka, offsets), map(_of_kafka, now), strict=True)
        records = sum(count(begin, end) for begin, end in pairs)
    except (FileNotFoundError, ValueError, IncompatibleError):
        return
    if records:
        yield f"{count_text(records, 'record')} read since then will be read again"


def of_clock(store: Store, found: ResolvedTarget) -> list[str]:
    """Say which operators of a target go by the time at which batches run."""
    if (saved := store.catalog.get(found.savepoint_id)) is not None:
        return restore_checks.clock_notes(store, saved)
    return restore_checks.of_clock(found.operators)


def of_merges(store: Store, found: ResolvedTarget, current: int) -> Iterator[str]:
    """Say which late events are in the state now and will not be, as nothing reads them again.

    Args:
        current: The generation that is left.
    """
    known = GenerationHistory.of(store)
    try:
        stay = known.in_effect(found.query, found.generation)
        left = [one for one in known.in_effect(found.query, current) if one not in stay]
    except NotAlignedError as error:
        yield error.message
        return
    if left:
        events = count_text(sum(one.rows for one in left), "event")
        yield (
            f"{events} from {count_text(len(left), 'merge')} ({', '.join(one.id for one in left)}) "
            "will no longer count; to have them again, merge them again"
        )


def of_corrections(store: Store, found: ResolvedTarget) -> Iterator[str]:
    """Say which corrections of its table a reader took over, and will read as rows."""
    if not any(one.begun_by == CASCADE for one in store.generations.all(found.query)):
        return
    saved = store.catalog.get(found.savepoint_id)
    for one in moves.since(store, saved) if saved else ():
        if one.by is not None and one.by.follows:
            follows = one.by.plan["follows"]
            yield (
                f"the correction of {follows['table']} by the merge {one.by.follows}, which "
                f"{found.query} took over, will no longer be in its state: {found.query} will read "
                f"the merged rows as new ones; to go back to before the merge together with "
                f"{follows['query']}: savepoints pipeline rollback {follows['query']} NAME"
            )


def _of_kafka(position: str | None) -> KafkaOffsets:
    found = kafka_offsets(position)
    if found is None:
        raise ValueError(f"{position} is not a set of Kafka offsets")
    return found


def of_topics(store: Store, query: str, to: ResolvedTarget | None = None) -> Iterator[str]:
    """Say that topics keep what they have, and who reads it.

    Args:
        to: What the query goes back to; None if that is nothing it was.
    """
    known = store.catalog.all()
    saved = {
        topic.topic: topic
        for one in known
        if to is not None and one.id == to.savepoint_id
        for topic in one.output_topics
    }
    newest = {one.query: one for one in reversed(known)}
    for topic in history.output_topics(known, query, bindings.complete(store)):
        readers = sorted(
            name
            for name, one in newest.items()
            if name != query and topic in lowest_offsets(one.cut.offsets)
        )
        what = (
            f"topic {topic} keeps the records of the batches that run again"
            f"{_since(saved.get(topic))}, and gets them a second time: its readers see both"
        )
        if readers:
            what += (
                f"; to roll back its readers ({', '.join(readers)}) as well: savepoints pipeline "
                f"rollback {query} NAME"
            )
        yield what


def of_topics_read(store: Store, to: ResolvedTarget) -> Iterator[str]:
    """Say which topics have records after a point that were rolled back: it need not be saved."""
    if (saved := store.catalog.get(to.savepoint_id)) is not None:
        yield from restore_checks.topics_read_again(store, saved)
        return
    topics, batch = {*lowest_offsets(to.offsets)}, f"batch {to.batch_id}"
    yield from restore_checks.rolled_back_since(store, to.query, topics, batch, to.committed_at)


def _since(topic: OutputTopic | None) -> str:
    """Say from which offsets on a topic has what a savepoint does not."""
    if topic is None or topic.ends is None:
        return ""
    earliest = "" if topic.is_exact else " at the earliest"
    return f", from offsets {offsets_text(topic.ends)} on{earliest}"


def going_on_without(gone: Sequence[Mapping[str, Any]], found: ResolvedTarget) -> str:
    """Return the command that goes on at the first records that are there, as the end of a hint.

    Empty where a position is beyond the end, which is that of another topic of this name, and where
    it is not known which of several sources reads a topic.

    Args:
        gone: As of `availability.require_available`.
    """
    of_kafka = [at for at, one in enumerate(found.offsets) if kafka_offsets(one)]
    beyond = any(one["end"] is not None and one["wanted"] > one["end"] for one in gone)
    if not gone or beyond or len(of_kafka) != 1 or not found.is_saved or found.ends is not None:
        return ""
    goes_on = {**(kafka_offsets(found.offsets[of_kafka[0]]) or {})}
    for one in gone:
        parts = {**goes_on.get(one["topic"], {})}
        if one["end"] is None:
            parts.pop(one["partition"], None)
        else:
            parts[one["partition"]] = one["earliest"]
        goes_on[one["topic"]] = parts
    goes_on = {topic: parts for topic, parts in goes_on.items() if parts}
    if not goes_on:
        return ""
    starts = [f"--source keep:{at}" for at in range(len(found.offsets))]
    starts[of_kafka[0]] = f"--source '{kafka_position(goes_on)}'"
    return (
        "; or go on without these records: savepoints rollback "
        f"{found.savepoint_id} {' '.join(starts)}"
    )
