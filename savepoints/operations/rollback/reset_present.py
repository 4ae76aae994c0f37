"""Where a query stands that is to be reset: by its checkpoint, or by its newest savepoint.

A checkpoint whose logs are destroyed says nothing any more. Who gives it up, state and all, needs
to know of it only which sources there are, and a savepoint says that, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from savepoints.checkpoint import position as checkpoint_position
from savepoints.checkpoint.logs import commit_log, offset_log, table_position
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, kafka_offsets
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.config.settings import QuerySettings
from savepoints.errors import (
    CheckpointDamagedError,
    IncompatibleError,
    NoCommittedBatchError,
    NotAlignedError,
    message_of,
)
from savepoints.io import Location
from savepoints.model import Generation
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.runtime import app as apps
from savepoints.store.savepoint import manifest

# What is said of logs that are damaged or not whole; a place that does not answer is none of them.
_UNREADABLE = (FileNotFoundError, IncompatibleError, NoCommittedBatchError, NotAlignedError)


@dataclass(frozen=True)
class ResetPresent:
    """Where a query stands.

    Attributes:
        batch_id: The newest committed batch, None without one.
        begun: The batch after it, when it was begun; its rows may be in the outputs.
        names: The directories of the sources, in order.
        positions: Where each source is in its topics.
        watermark_ms: In force after the batch.
        tables: Where it is in the tables that it reads, in place of `positions`.
        initial: By number of its directory, where a source of Kafka's began.
        notes: What is not known of the present, for the plan.
    """

    batch_id: int | None
    begun: int | None
    names: tuple[str, ...]
    positions: tuple[KafkaOffsets, ...]
    watermark_ms: int = 0
    tables: tuple[TablePosition, ...] = ()
    initial: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def topics(self) -> list[str]:
        """What it reads."""
        return sorted({topic for one in self.positions for topic in one})


def of(context: QueryContext, *, is_absolute: bool, given_up: bool) -> ResetPresent:
    """Find out where a query stands.

    Args:
        is_absolute: Where it goes does not depend on where it is.
        given_up: Nothing of its checkpoint is to be saved or kept.

    Raises:
        SavepointsError: If its checkpoint does not say it, and it has to.
    """
    place = Location.of(context.current.checkpoint)
    try:
        now = checkpoint_position.read(place)
        newest = None if now.committed is None else _read(place, now.committed)
    except _UNREADABLE as error:
        why = f"the logs of {place} cannot be read: {message_of(error)}"
        if not (is_absolute and given_up):
            raise _refused(context, why) from None
        return _of_savepoint(context, why)
    if newest is not None:
        return _at(context.query, now, *newest)
    generation = context.current.generation
    if now.initial or all(one.generation != generation for one in context.history):
        return _unstarted(context.current, now, context.bound)
    why = f"{place} has no batches any more"
    if not is_absolute:
        raise _refused(context, why)
    return _of_savepoint(context, why)


def _read(checkpoint: Location, batch: int) -> tuple[offset_log.OffsetLogEntry, int]:
    """Return what a batch read, and the watermark after it."""
    entry = offset_log.read(checkpoint, batch)
    return entry, max(entry.watermark_ms, commit_log.read(checkpoint, batch).next_watermark_ms)


def _at(
    query: str, now: CheckpointPosition, entry: offset_log.OffsetLogEntry, watermark_ms: int
) -> ResetPresent:
    tables = [table_position.parse(one) for one in entry.sources]
    if tables and all(tables):
        found = tuple(one for one in tables if one is not None)
        return ResetPresent(now.committed, now.begun, entry.names, (), watermark_ms, found)
    positions = [kafka_offsets(one) for one in entry.sources]
    not_kafka = [name for name, one in zip(entry.names, positions, strict=True) if one is None]
    if not_kafka:
        raise IncompatibleError(
            f"{query} cannot be reset because of source {not_kafka[0]}: a reset works only for "
            "a query that reads only Kafka topics or only Delta tables",
            hint=f"roll back instead, to a savepoint (savepoints rollback NAME --query {query}) or "
            f"to a retained batch (savepoints rollback --at-batch N --query {query})",
            query=query,
        )
    return ResetPresent(
        now.committed,
        now.begun,
        entry.names,
        tuple(one for one in positions if one is not None),
        watermark_ms,
        initial=now.initial,
    )


def _refused(context: QueryContext, why: str) -> CheckpointDamagedError:
    query = context.query
    return CheckpointDamagedError(
        f"it is unknown where {query} is: {why}",
        hint=f"roll back to a savepoint: savepoints rollback latest --query {query} "
        "--no-safety-savepoint; or, to give up the state, begin at a place that does not depend on "
        f"it: savepoints reset {query} --to-earliest --no-safety-savepoint",
        query=query,
        checkpoint=context.current.checkpoint,
    )


def _of_savepoint(context: QueryContext, why: str) -> ResetPresent:
    """Return where a query stood whose checkpoint does not say it, for its sources."""
    if not context.history:
        return _of_settings(context, why)
    saved = context.history[0]
    small = context.store.root / manifest.directory(saved.id) / "checkpoint"
    known = checkpoint_position.read(small)
    found = _at(context.query, known, *_read(small, saved.cut.batch_id))
    note = (
        f"{why}; its sources are those of the savepoint {saved.id}, batch {saved.cut.batch_id}, "
        "and records are counted from there: the query may have run further, and its outputs may "
        "have rows of later batches"
    )
    return replace(found, batch_id=None, notes=(note,))


def _of_settings(context: QueryContext, why: str) -> ResetPresent:
    query, bound = context.query, context.bound
    if bound is None or len(apps.load(bound.app).inputs) != 1:
        raise NoCommittedBatchError(
            f"the sources of {query} are unknown: {why}, and there is no savepoint of it",
            hint="the store has nothing of it to go on from: start the program as a new query, "
            "with another name and a new checkpoint",
            query=query,
        )
    nothing = CheckpointPosition(None, (), None, (), {}, watermark_moved=False, next_watermark_ms=0)
    note = f"{why}; it is unknown how far {query} had run, and what its outputs have"
    return replace(_unstarted(context.current, nothing, bound), notes=(note,))


def _unstarted(
    generation: Generation, now: CheckpointPosition, bound: QuerySettings | None
) -> ResetPresent:
    """Return where a generation stands that has committed nothing: at its beginning."""
    if bound is None:
        raise NoCommittedBatchError(
            f"the sources of {generation.query} are unknown, because it has not committed a "
            f"batch in {generation.checkpoint}",
            hint=f"add a section [queries.{generation.query}] to the settings, or run one batch of "
            "the query first",
            query=generation.query,
        )
    app = apps.load(bound.app)
    inputs = {name: app.kafka_input(name) for name in app.inputs}
    if now.initial:
        positions = [kafka_offsets(one) or {} for _, one in sorted(now.initial.items())]
    elif len(inputs) == 1:
        positions = [{bound.topics.get(name, one.topic): {}} for name, one in inputs.items()]
    else:
        raise NoCommittedBatchError(
            f"{generation.query} has {len(inputs)} sources but has never run, so the order in "
            "which Spark numbers them is unknown",
            hint=f"run one batch first: savepoints run {generation.query} --max-records 1",
            query=generation.query,
        )
    names = tuple(str(number) for number in range(len(positions)))
    return ResetPresent(None, now.begun, names, tuple(positions))
