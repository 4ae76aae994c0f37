"""What a correction of its table changes of a reader: computed and proved, nothing is changed.

The reader stands still and has read its table to the end. The entities that the correction touches,
and some others as controls, are replayed from the rows of the table as it is: that must give the
state and the rows that the reader has. If it does, a replay of the rows as they will be gives what
the reader would have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.state import layout
from savepoints.config.settings import Settings
from savepoints.errors import (
    CheckFailedError,
    IncompatibleError,
    NoCommittedBatchError,
    NotAlignedError,
)
from savepoints.io import Location
from savepoints.model import Generation, Savepoint, new_id
from savepoints.moments import utc_now
from savepoints.operations.cascade.cascade_plan import VERB, CascadePlan, Followed
from savepoints.operations.cascade.readers import Reader
from savepoints.operations.rollback import next_outputs, safety_savepoint
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.savepoint import create, export
from savepoints.outputs.correct import controls as correct_controls
from savepoints.outputs.correct import correct
from savepoints.outputs.correct.correct import Correction
from savepoints.outputs.correct.row_difference import Differing
from savepoints.outputs.delta import log
from savepoints.outputs.delta.write import app_id, owner_prefix
from savepoints.plan import Progress, Step
from savepoints.runtime.replay import Live, Replay, ReplayBatch
from savepoints.runtime.scratch_query import REPLAY_BATCH
from savepoints.sources.archive import sample_entities
from savepoints.sources.tables import events
from savepoints.sources.tables.events import ENTITY
from savepoints.store import batch_log, bindings, scratch
from savepoints.store.root import Store
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEFORE, AFTER, CUT = "before", "after", "cut"


@dataclass(frozen=True)
class Change:
    """What a table is going to lose and to get.

    Attributes:
        removed: Rows that it loses, each as often.
    """

    correction: Correction
    removed: DataFrame
    added: DataFrame

    @classmethod
    def kept(
        cls, spark: SparkSession, correction: Correction, found: Differing, place: Location
    ) -> Change:
        """Keep what was found below a place, for it is read several times."""
        lost, got = found.changes
        there = place / "changes" / correction.live.output.name
        removed = scratch.keep(spark, lost, there / "removed")
        return cls(correction, removed, scratch.keep(spark, got, there / "added"))


@dataclass(frozen=True)
class _Replaying:
    """A reader at its newest cut, and where what is made of it lies."""

    spark: SparkSession
    store: Store
    settings: Settings
    reader: Reader
    operation_id: str
    place: Location
    progress: Progress


def prepare(
    spark: SparkSession,
    store: Store,
    reader: Reader,
    change: Change,
    *,
    merge_id: str,
    merged: str,
    paused: bool,
    command: str,
    progress: Progress,
) -> tuple[CascadePlan, Mapping[str, Change]]:
    """Find out how a reader goes on with a correction of its table.

    Args:
        change: What is going to be changed in the table; it changes something.
        merged: The query of that merge.
        command: How to finish all of it, as a command line.

    Returns:
        What is to be done, and by output what that changes.
    """
    operation_id = new_id("op", utc_now())
    work = _Replaying(
        spark,
        store,
        bindings.complete(store),
        reader,
        operation_id,
        scratch.claim(store, operation_id),
        progress,
    )
    try:
        return _prepare(work, change, merge_id, merged, command, paused=paused)
    except BaseException:
        scratch.discard(store, operation_id)
        raise


def _prepare(
    work: _Replaying, change: Change, merge_id: str, merged: str, command: str, *, paused: bool
) -> tuple[CascadePlan, Mapping[str, Change]]:
    spark, reader, place = work.spark, work.reader, work.place
    live = work.store.generations.current(reader.query)
    version = change.correction.live.newest
    _require_read(reader, live, version)
    removed = _changed(work, change.removed, "removed")
    added = _changed(work, change.added, "added")
    entities = scratch.keep(
        spark, removed.unionByName(added).select(ENTITY).distinct(), place / scratch.ENTITIES
    )
    table = _events(spark, reader, events.version(spark, reader.table, version))
    controls = _controls(work, table, entities)
    before = scratch.keep(
        spark, events.of_entities(table, entities.unionByName(controls)), place / "events"
    )
    proof = create.save(
        work.store,
        reader.query,
        kind="merge",
        description=f"the live query that {work.operation_id} was compared with",
    )
    cut = place / CUT
    export.mount(work.store.manifest(proof.id), work.store, cut)
    work.progress(
        f"{reader.query}: replaying what it has read for {count_text(entities.count(), 'entity')}"
    )
    _prove(work, proof, cut, before, entities.unionByName(controls))
    work.progress(f"{reader.query}: replaying the same entities with the correction")
    corrected = events.corrected(events.of_entities(before, entities), removed, added)
    after = _replay(work, cut, AFTER, corrected)
    corrections = _corrections(work, live, cut)
    changes = _changes(work, corrections, entities, after)
    fields = _fields(after, entities)
    plan = _plan(
        work,
        live,
        corrections,
        follows=Followed(
            merge_id,
            merged,
            reader.table,
            reader.table_id,
            change.correction.app_id,
            change.correction.batch_id,
        ),
        replayed_batch=after.state().files.cut.batch_id,
        entity_fields={str(number): field for number, field in fields.items()},
        entities=entities.count(),
        controls=controls.count(),
        rows_removed=sum(one.removed.count() for one in changes.values()),
        rows_added=sum(one.added.count() for one in changes.values()),
        paused=paused,
        command=command,
    )
    return plan, changes


def _require_read(reader: Reader, live: Generation, version: int) -> None:
    """Check that a reader has read all rows of its table, and begun nothing else."""
    now = position.read(Location.of(live.checkpoint))
    (text,) = now.positions
    stands = table_position.parse(text)
    assert stands is not None
    unread = (
        [
            one.version
            for one in log.commits(reader.table, version)
            if one.version >= stands.version and one.changes_data
        ]
        if stands.version <= version
        else []
    )
    if unread or now.begun is not None or stands.in_snapshot:
        raise NotAlignedError(
            f"{reader.query} has not read {reader.table} up to version {version}; nothing was "
            "changed",
            hint=f"run it first: savepoints run {reader.query} --until latest",
            query=reader.query,
        )


def _changed(work: _Replaying, rows: DataFrame, name: str) -> DataFrame:
    """Keep rows that change as events of the reader; each has an entity."""
    found = scratch.keep(work.spark, _events(work.spark, work.reader, rows), work.place / name)
    with _named(work.reader):
        events.require_entities(found)
    return found


def _events(spark: SparkSession, reader: Reader, rows: DataFrame) -> DataFrame:
    """Return rows of the table as events of the reader."""
    columns = spark.createDataFrame([], reader.source.schema).columns
    with _named(reader):
        return events.events(rows, columns, reader.decoding)


@contextmanager
def _named(reader: Reader) -> Iterator[None]:
    """Let a refusal within name the reader."""
    try:
        yield
    except IncompatibleError as error:
        raise IncompatibleError(
            f"{reader.query}, input {reader.input}: {error.message}",
            hint=f"{error.hint}; or merge without correcting the readers: --downstream none",
            query=reader.query,
        ) from None


def _controls(work: _Replaying, table: DataFrame, entities: DataFrame) -> DataFrame:
    """Draw entities that the correction does not touch: `entity` string."""
    count = work.settings.merge.controls
    found = sample_entities.among(table, count, entities, work.operation_id)
    return work.spark.createDataFrame([(one,) for one in found], f"{ENTITY} string")


def _replay(work: _Replaying, cut: Location, name: str, rows: DataFrame) -> Replay:
    """Replay rows of the table up to a cut of the reader, from nothing.

    The table is the archive of its reader. All rows of the entities are one slice, without a
    watermark and in the order of event time; the watermark of the reader's newest batch comes in a
    second slice without rows, so that nothing is dropped and what is over is evicted and emitted.
    """
    files = read_cut(cut)
    last = batch_log.read_from_checkpoint(cut, files.cut.batch_id)
    if last is None:
        raise NoCommittedBatchError(
            f"the copy of the checkpoint in {cut} has no offsets for batch {files.cut.batch_id}",
            hint="run the command again",
            query=work.reader.query,
        )
    made = Replay(work.spark, work.reader.app, work.place / name, Live(cut, files))
    made.write({work.reader.input: rows.selectExpr("*", f"1 as {REPLAY_BATCH}")})
    made.run(ReplayBatch(0, 0, last.timestamp_ms))
    made.run(ReplayBatch(0, last.watermark_ms, last.timestamp_ms))
    return made


def _prove(
    work: _Replaying, proof: Savepoint, cut: Location, rows: DataFrame, entities: DataFrame
) -> None:
    """Check that a replay of what the reader has read gives what it has."""
    from savepoints.state.merge import controls as merge_controls
    from savepoints.state.storage.row_sources import CheckpointRows

    reader = work.reader
    made = _replay(work, cut, BEFORE, rows)
    tolerance = work.settings.merge.tolerance
    state = merge_controls.compare_states(
        CheckpointRows.of(work.spark, cut, read_cut(cut)),
        made.state(),
        made.operators,
        _fields(made, entities),
        entities,
        layout=layout.read(cut),
        tolerance=tolerance,
    )
    from_nothing = entities.selectExpr(ENTITY, "cast(null as bigint) as version")
    differing = [f"{count_text(state.different, 'row')} of state"] if state.different else []
    for one in proof.outputs:
        output = reader.app.outputs[one.name]
        found = correct_controls.compare_rows(
            work.spark,
            one,
            from_nothing,
            made.outputs(),
            mode=output.mode,
            key=output.key,
            entity=reader.entity_of(one.name),
            everybody=entities,
            own_rows=reader.bound.own_rows.get(one.name),
            tolerance=tolerance,
            selection=output.selection,
        )
        if found.entities:
            sample = f", for example {found.sample[0]}" if found.sample else ""
            differing.append(
                f"{count_text(found.missing + found.extra, 'row')} of {one.name}{sample}"
            )
    if differing:
        raise CheckFailedError(
            f"{reader.query} cannot apply the correction exactly: replaying what it has read "
            f"from {reader.table} does not reproduce {' and '.join(differing)}. Its program "
            "may depend on the order of arrival, on where batches end, or on late rows. "
            "Nothing was changed",
            hint="merge with --downstream none, then rebuild this query from the table it reads: "
            f"savepoints reset {reader.query} --to-earliest --outputs truncate",
            query=reader.query,
            checks=differing,
        )


def _fields(made: Replay, entities: DataFrame) -> dict[int, str]:
    from savepoints.state.merge import splice

    saved = made.state()
    return splice.entity_fields(made.keys(saved), saved, made.operators, entities)


def _corrections(work: _Replaying, live: Generation, cut: Location) -> tuple[Correction, ...]:
    """Find out whether the outputs can be corrected without loss; nothing is written."""
    reader, bound = work.reader, work.reader.bound
    known = next_outputs.own_ids(work.store, reader.query)
    number = work.store.generations.next_number(live.query)
    return tuple(
        correct.plan(
            name,
            bound.outputs[name],
            [None],
            mode=output.mode,
            key=output.key,
            entity=reader.entity_of(name),
            owner=owner_prefix(reader.query),
            own_ids=(*known, *([bound.app_ids[name]] if name in bound.app_ids else [])),
            app_id=app_id(reader.query, name, number),
            batch_id=read_cut(cut).cut.batch_id,
            merge_id=work.operation_id,
            own_rows=bound.own_rows.get(name),
            selection=output.selection,
        )
        for name, output in reader.app.outputs.items()
    )


def _changes(
    work: _Replaying, corrections: tuple[Correction, ...], entities: DataFrame, after: Replay
) -> dict[str, Change]:
    from_nothing = entities.selectExpr(ENTITY, "cast(null as bigint) as version")
    differing = (
        correct.differing(work.spark, one, from_nothing, after.outputs()) for one in corrections
    )
    return {
        one.live.output.name: Change.kept(work.spark, one, found, work.place)
        for one, found in zip(corrections, differing, strict=True)
    }


def _plan(
    work: _Replaying,
    live: Generation,
    corrections: tuple[Correction, ...],
    **found: Any,  # noqa: ANN401  (fields of the plan)
) -> CascadePlan:
    """Return the plan, with what it follows and the counts that were found."""
    store, query = work.store, work.reader.query
    context = QueryContext.open(store, query)
    present = safety_savepoint.plan(store, live, work.reader.bound.outputs, work.settings)
    (from_batch, safety_id), checkpoint = present, context.checkpoint()
    return CascadePlan(
        **context.leaving(present, work.operation_id),
        verb=VERB,
        steps=(
            *safety_savepoint.step(safety_id, live.checkpoint, from_batch),
            Step(
                "checkpoint_written",
                f"write {checkpoint}, with the state of the affected entities replaced",
            ),
            *(Step("outputs_corrected", correct.what(one)) for one in corrections),
            Step("generation_begun", f"begin generation {context.number} of {query}"),
            Step("settled", "take the first savepoint of that generation"),
        ),
        warnings=(),
        savepoint_id=safety_id,
        checkpoint=checkpoint,
        outputs=(),
        binding=bindings.find(store.root, query, live.generation),
        batch_id=from_batch if from_batch is not None else -1,
        place=str(work.place),
        corrections=corrections,
        first_id=new_id("sp", utc_now()),
        **found,
    )
