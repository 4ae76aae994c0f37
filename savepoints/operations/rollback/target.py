"""Where a query can go back to: a savepoint, a point in time, a retained batch, or before an undo.

What "at a time" means is a choice. By *arrival*: the state after exactly the records whose
timestamps in Kafka lie before the time (`offsetsForTimes`: up to the first record at or after it);
for a query that reads Delta tables, exactly the commits that were made before it.
By *commit*: the state after the newest batch that was committed at or before the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from savepoints.checkpoint.cut import committed_batches, logs_in, read_cut
from savepoints.checkpoint.logs import source_kind, table_position
from savepoints.checkpoint.logs.kafka_position import (
    KafkaOffsets,
    by_partition,
    kafka_offsets,
    kafka_position,
    lowest_offsets,
    sources_apart,
)
from savepoints.checkpoint.state.operators import Operator
from savepoints.config.settings import Settings
from savepoints.errors import (
    NoCommittedBatchError,
    NotFoundError,
    SavepointNotFoundError,
    UsageError,
)
from savepoints.io import Location
from savepoints.model import Form, OutputVersion, Savepoint, new_id
from savepoints.moments import refuse_future, require_zone, rfc3339, to_milliseconds, utc_now
from savepoints.operations.rollback import journalled, last_operation, skipped_records
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.savepoint import create, history, output_versions, topic_ids
from savepoints.plan import silent
from savepoints.runtime.archive_of import archives_of
from savepoints.runtime.bounded import table_ends
from savepoints.runtime.bounded.bounded_tables import TableEnd
from savepoints.sources import delta_versions
from savepoints.sources.combined import availability
from savepoints.store import lineage
from savepoints.store.locks import journal
from savepoints.store.root import Store
from savepoints.store.tables import catalog
from savepoints.texts import count_text

Meaning = Literal["arrival", "commit"]


@dataclass(frozen=True)
class Named:
    """A savepoint by id, prefix, tag, `latest`, `latest~2` or `@TIME`."""

    name: str


@dataclass(frozen=True)
class AtTime:
    """Exactly the state at a time, also between two savepoints.

    Attributes:
        moment: The time, with its time zone.
        by: `arrival`: after exactly the records that Kafka received before it, or the commits that
            were made to the tables before it; `commit`: after the newest batch that was committed
            by then.
    """

    moment: datetime
    by: Meaning = "arrival"

    def __post_init__(self) -> None:
        """Refuse a time without a time zone."""
        require_zone(self.moment, "moment")


@dataclass(frozen=True)
class AtBatch:
    """A batch of the current generation that Spark still retains, saved or not.

    Attributes:
        batch_id: The batch.
    """

    batch_id: int


@dataclass(frozen=True)
class BeforeLast:
    """What the last finished rollback or reset took away: its safety savepoint.

    `query.rollback(savepoints.BeforeLast()).execute()` undoes it.
    """


Point: TypeAlias = "Named | AtTime | AtBatch | BeforeLast"


@dataclass(frozen=True)
class ResolvedTarget:
    """What a point turned out to be.

    Attributes:
        words: The point as arguments of a command; the same words always mean the same target.
        ends: Where topics or tables are to be after running on from there, as Spark's JSON: an
            object of offsets, or a list with the position in each table; None to stay.
        operators: Of a batch that is not saved: what its operator metadata says.
    """

    query: str
    words: tuple[str, ...]
    savepoint_id: str
    is_saved: bool
    generation: int
    batch_id: int
    offsets: tuple[str | None, ...]
    outputs: tuple[OutputVersion, ...]
    topics: dict[str, str]
    committed_at: datetime
    ends: str | None = None
    operators: tuple[Operator, ...] = ()


def identity(store: Store, point: Point, query: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the query that a point is of, and the point as arguments of a command.

    It is what an interrupted operation is recognised by, so nothing is asked that one changes.
    """
    if not isinstance(point, Named):
        name = query_of(store, query)
        return name, words(point, name)
    with suppress(UsageError, NotFoundError):  # Of which query, nobody has said.
        of = query_of(store, query)
        if (savepoint_id := journalled.asked_for(store, of, point.name)) is not None:
            return of, (savepoint_id,)
    try:
        found = store.catalog.find(point.name, query=query)
    except SavepointNotFoundError:
        if catalog.is_relative(point.name):
            with suppress(UsageError):
                # One that has begun its generation is why such a name means nothing now.
                journal.refuse_unfinished(store.root, query_of(store, query))
        raise
    return found.query, (found.id,)


def words(point: AtTime | AtBatch | BeforeLast, query: str) -> tuple[str, ...]:
    """Return a point as arguments of a command; the same point always gives the same words."""
    if isinstance(point, BeforeLast):
        return ("--undo", "--query", query)
    if isinstance(point, AtBatch):
        return ("--at-batch", str(point.batch_id), "--query", query)
    by = () if point.by == "arrival" else ("--at-by", point.by)
    return ("--at", rfc3339(point.moment), "--exact", *by, "--query", query)


def query_of(store: Store, query: str | None) -> str:
    """Return the query that is meant; a store that has one alone means that."""
    if query is not None:
        return query
    queries = sorted({one.query for one in store.generations.all()})
    if len(queries) == 1:
        return queries[0]
    if not queries:
        raise NotFoundError(
            f"the store {store.root} has no queries yet",
            hint="check the URI of the store, or take the first savepoint: savepoints create "
            "--checkpoint URI --name QUERY",
        )
    raise UsageError(
        f"the store has {len(queries)} queries, so it is unclear which one is meant",
        hint=f"name one with --query (in the store: {', '.join(queries)})",
    )


def resolve(context: QueryContext, point: Point) -> ResolvedTarget:
    """Find out what a point of a query means; nothing is written."""
    store, query = context.store, context.query
    if isinstance(point, Named):
        found = store.catalog.find(point.name, query=query)
        return _of_savepoint(history.named_as_now(found, context.output_uris), (found.id,))
    said = words(point, query)
    if isinstance(point, BeforeLast):
        before = _before_last(store, query)
        return _of_savepoint(history.named_as_now(before, context.output_uris), said)
    if isinstance(point, AtBatch):
        return _of_batch(context, point.batch_id, said)
    refuse_future(point.moment, hint="choose a time in the past")
    if point.by == "commit":
        return _of_batch(context, _committed_by(context, point.moment), said)
    return _arrived_by(context, point.moment, said)


def save_batch(
    store: Store,
    *,
    query: str,
    checkpoint: str,
    batch_id: int,
    savepoint_id: str,
    settings: Settings,
) -> None:
    """Save the retained batch that a target is; done before, nothing happens."""
    create.save(
        store,
        query,
        checkpoint=checkpoint,
        batch_id=batch_id,
        outputs=history.output_uris(store, query, settings),
        description="saved as a rollback target",
        savepoint_id=savepoint_id,
        kind="manual",
    )


def refuse_unsaved(found: ResolvedTarget, form: Form | None) -> None:
    """Refuse a form that a batch which is not saved yet will not have."""
    if form == "canonical":
        raise UsageError(
            f"batch {found.batch_id} has no savepoint yet; one would be taken first, in the native "
            "form only, so --format canonical cannot be used",
            hint="omit --format",
        )


def _of_savepoint(
    savepoint: Savepoint, said: tuple[str, ...], ends: str | None = None
) -> ResolvedTarget:
    return ResolvedTarget(
        query=savepoint.query,
        words=said,
        savepoint_id=savepoint.id,
        is_saved=True,
        generation=savepoint.generation,
        batch_id=savepoint.cut.batch_id,
        offsets=savepoint.cut.offsets,
        outputs=savepoint.outputs,
        topics=dict(savepoint.topics),
        committed_at=savepoint.cut.committed_at,
        ends=ends,
    )


def _of_batch(context: QueryContext, batch_id: int, said: tuple[str, ...]) -> ResolvedTarget:
    generation = context.current
    files = read_cut(Location.of(generation.checkpoint), batch_id)
    for one in context.history:
        if (one.generation, one.cut.batch_id) == (generation.generation, batch_id):
            return _of_savepoint(one, said)
    known = lineage.of_topics(context.store, generation)
    topics = topic_ids.known_ids(files.cut, known, context.settings.kafka, silent)
    return ResolvedTarget(
        query=context.query,
        words=said,
        savepoint_id=new_id("sp", utc_now()),
        is_saved=False,
        generation=generation.generation,
        batch_id=batch_id,
        offsets=files.cut.offsets,
        outputs=output_versions.outputs_of(
            context.query, generation.generation, files, context.output_uris, context.bound
        ),
        topics=topics,
        committed_at=files.cut.committed_at,
        operators=files.operators,
    )


def _committed_by(context: QueryContext, moment: datetime) -> int:
    """Return the newest batch of the generation that was committed at or before a time."""
    generation = context.current
    files = logs_in(Location.of(generation.checkpoint))
    # As they are shown: who gives the time of a commit means that batch.
    times = {info.path: to_milliseconds(info.last_modified) for info in files}
    origin = None
    if generation.begun_from is not None:
        # Files of the batch that was restored are copies, and younger than the commit.
        origin = context.store.catalog.find(generation.begun_from).cut.batch_id
    own = [one for one in committed_batches(files) if origin is None or one > origin]
    before = [one for one in own if times[f"commits/{one}"] <= moment]
    if before:
        return before[-1]
    raise NoCommittedBatchError(
        f"generation {generation.generation} of {generation.query} retains no batch committed at "
        f"or before {rfc3339(moment)}"
        + (f"; the oldest retained batch is {own[0]}" if own else ""),
        hint="use the newest savepoint before that time (--at without --exact), the arrival times "
        "of records (--at-by arrival, which needs an App), or an older generation: savepoints "
        f"lineage --query {generation.query}",
        query=generation.query,
    )


def _arrived_by(context: QueryContext, moment: datetime, said: tuple[str, ...]) -> ResolvedTarget:
    query, settings = context.query, context.settings
    newest = context.history[:1]
    if newest and all(table_position.parse(one) for one in newest[0].cut.offsets):
        return _committed_to_tables(context, moment, said)
    there = availability.at_time(
        _topics(query, context.history), moment, settings.kafka, archives_of(settings, query)
    )
    if (found := newest_before(context.history, there)) is not None:
        skipped_records.refuse_read(context.store, found, there, moment)
        is_there = _read_by(found) == there
        return _of_savepoint(found, said, None if is_there else kafka_position(there))
    divided = sum(_read_by(one) is None for one in context.history)
    left_out = (
        f"; {count_text(divided, 'savepoint')} in which two sources read the same topic up to "
        "different offsets cannot lead to one time"
        if divided
        else ""
    )
    raise SavepointNotFoundError(
        f"no savepoint of {query} was taken before {rfc3339(moment)}, when Kafka was at "
        f"{kafka_position(there)}{left_out}",
        hint=f"choose a savepoint (savepoints list --query {query}), or start over from the "
        f"first record: savepoints reset {query} --to-earliest",
        query=query,
    )


def newest_before(savepoints: Iterable[Savepoint], there: KafkaOffsets) -> Savepoint | None:
    """Return the first savepoint that has read nothing at or beyond a position of Kafka.

    Those are left out in which two sources of a topic differ: both cannot be where it was.
    """
    for savepoint in savepoints:
        read = _read_by(savepoint)
        if read is not None and _is_before(read, there):
            return savepoint
    return None


def _read_by(savepoint: Savepoint) -> KafkaOffsets | None:
    """Return up to where a savepoint has read; None if two sources of it differ in a topic."""
    offsets = savepoint.cut.offsets
    return None if sources_apart(offsets) else lowest_offsets(offsets)


def _topics(query: str, savepoints: Sequence[Savepoint]) -> list[str]:
    """Return the topics of a query, as its newest savepoint has them."""
    if not savepoints:
        raise SavepointNotFoundError(
            f"an exact time can be reached only from a savepoint, but {query} has taken none "
            "since it began without one, as after a reset with empty state",
            hint="choose an earlier savepoint by its id: savepoints list "
            f"--query {query} shows all of them",
            query=query,
        )
    for savepoint in savepoints:
        sources = [kafka_offsets(one) for one in savepoint.cut.offsets]
        if sources and all(sources):
            return sorted({topic for one in sources for topic in one or {}})
    kinds = sorted({source_kind.kind_of(one) for one in savepoints[0].cut.offsets})
    newest = f" (sources of its newest savepoint: {', '.join(kinds)})" if kinds else ""
    raise SavepointNotFoundError(
        "an exact time can be reached only from a savepoint of a query that reads only Kafka "
        f"topics or only Delta tables, but {query} has none{newest}",
        hint="use the commit times of batches (--at-by commit), or choose a savepoint: "
        f"savepoints list --query {query}",
        query=query,
    )


def _committed_to_tables(
    context: QueryContext, moment: datetime, said: tuple[str, ...]
) -> ResolvedTarget:
    """Find the savepoint of a query that reads tables from which their versions can be reached."""
    query, bound = context.query, context.bound
    if bound is None or not bound.tables:
        raise UsageError(
            f"the locations of the tables that {query} reads are unknown, and so are their "
            "versions at that time",
            hint=f"add [queries.{query}.tables] to the settings, or use the commit times of "
            "batches: --at-by commit",
            query=query,
        )
    tables = delta_versions.read_each(bound.tables.values())
    there = {one.table_id: table_position.after(one.table_id, one.before(moment)) for one in tables}
    end = TableEnd(there, tables)
    for savepoint in context.history:
        read = list(map(table_position.parse, savepoint.cut.offsets))
        if {one and one.table_id for one in read} != there.keys():
            continue
        if end.is_within(savepoint.cut.offsets):
            skipped_records.refuse_read(context.store, savepoint, {}, moment)
            end.require_reachable(savepoint.cut.offsets)
            is_there = all(one == there[one.table_id] for one in read if one)
            return _of_savepoint(savepoint, said, None if is_there else table_ends.to_text(there))
    versions = table_ends.versions(there, tables)
    listed = ", ".join(f"{uri} was at version {version}" for uri, version in versions.items())
    raise SavepointNotFoundError(
        f"no savepoint of {query} was taken before {rfc3339(moment)}, when {listed}",
        hint=f"choose a savepoint (savepoints list --query {query}), or start over: savepoints "
        f"reset {query} --to-earliest",
        query=query,
    )


def _is_before(read: KafkaOffsets, there: KafkaOffsets) -> bool:
    """Say whether nothing was read that lies at or beyond a position."""
    return read.keys() == there.keys() and all(
        offset <= there[topic].get(partition, -1) for topic, partition, offset in by_partition(read)
    )


def _before_last(store: Store, query: str) -> Savepoint:
    known = journal.all_operations(store.root)
    done = [one for one in known if one.is_on(query) and one.state == "finished"]
    if done:
        last_operation.refuse_first(done[0], query)
    if done and (together := last_operation.changed_together(done[0], known)):
        raise UsageError(
            f"the last operation on {query}, {done[0].id} ({done[0].verb}), changed several "
            f"queries together: {', '.join(together)}",
            hint=f"undo it for all of them: savepoints undo {query}",
            query=query,
            operation=done[0].id,
        )
    if not done or not done[0].plan.get("safety_id"):
        raise NotFoundError(
            f"{query} was never rolled back or reset, so there is nothing to undo"
            if not done
            else (
                f"the {done[0].verb} operation {done[0].id} on {query} took no safety savepoint, "
                "so there is no state to return to"
            ),
            hint=f"choose a savepoint to roll back to: savepoints list --query {query}",
            query=query,
        )
    last = done[0]
    if last.is_undo:
        raise UsageError(
            f"the last operation on {query} has already been undone, by {last.id} at "
            f"{last.finished_at}",
            hint=f"bring back what was undone: savepoints rollback {last.plan['safety_id']}",
            query=query,
            operation=last.id,
        )
    return store.catalog.find(str(last.plan["safety_id"]), query=query)
