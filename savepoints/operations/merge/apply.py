"""What a merge does once the live query stands still.

A safety savepoint, a new checkpoint with the replayed state of the touched entities, the corrected
outputs, the new generation; then the events go to the archive, the ledger says what was done, and a
savepoint is taken of where the generation begins. What the replay made lies in the store's scratch
space until all of it is done, so a merge that was killed goes on without replaying anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from savepoints import faults
from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.config.settings import Settings
from savepoints.errors import NotAlignedError
from savepoints.io import Location
from savepoints.moments import parse_rfc3339, utc_now
from savepoints.observe.recorder import who
from savepoints.operations.merge import functions as merge_functions
from savepoints.operations.merge import splice_checkpoint
from savepoints.operations.merge.assignment import Assignment
from savepoints.operations.merge.plan import MergingPlan
from savepoints.operations.merge.workspace import FEW_ROWS
from savepoints.operations.rollback import generation_change
from savepoints.operations.rollback.generation_change import Moved, NewCheckpoint, OwnStep, Work
from savepoints.operations.run import pause_for_verb
from savepoints.outputs.correct import correct
from savepoints.outputs.correct.correct import Change, Correction
from savepoints.outputs.correct.row_difference import Differing
from savepoints.outputs.delta import batch_version
from savepoints.plan import Progress
from savepoints.runtime import app as apps
from savepoints.runtime import scratch_query
from savepoints.runtime.app import MergeFunctions
from savepoints.runtime.replay import Live
from savepoints.sources.archive import archive
from savepoints.sources.archive import files as archive_files
from savepoints.sources.archive.files import WrittenFiles
from savepoints.sources.late import affected_entities
from savepoints.spark import threads
from savepoints.store import bindings, scratch
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import DROPPED, Merge
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from savepoints.state.storage.row_sources import SavedRows

# Of what `write_inputs` writes, so that no job has to look into the files for it.
_ENTITIES = "entity string, base int"


def write_inputs(assignment: Assignment, place: Location) -> None:
    """Write down what is merged and for whom, before the merge begins that cannot be repeated."""
    events, entities = place / scratch.EVENTS, place / scratch.ENTITIES
    assignment.affected.late.coalesce(1).write.mode("overwrite").parquet(events.uri.hadoop)
    assignment.touched.coalesce(1).write.mode("overwrite").parquet(entities.uri.hadoop)


def carry_out(plan: MergingPlan, store: Store, held: Lease, *, progress: Progress) -> Moved:
    """Let the query go on with the late events; goes on where an earlier attempt was killed.

    The caller holds the query's lease.
    """
    from savepoints.spark.session import session, session_for

    settings = bindings.complete(store)
    rows = None if plan.facts.policy == "replay-all" else plan.facts.rows
    spark = session_for(session(settings, f"savepoints merge {plan.query}"), rows)
    place = Location.of(plan.place)
    functions = _functions(plan, settings)
    with threads.pool() as pool:
        # The query stands still: what changes nothing yet is done beside the new state.
        changes = [
            (one, pool.submit(_compare, spark, plan, one, functions)) for one in plan.corrections
        ]
        late = pool.submit(_write_late, spark, plan)

        def write() -> NewCheckpoint:
            progress(f"writing the new state to {plan.checkpoint}")
            return _write(spark, plan, store, place, functions)

        # Corrected before the generation begins, while the run is paused and all of it can be
        # undone; archived and noted after, since both say that the events are in the query's state.
        work = Work(
            write,
            complete=OwnStep("outputs_corrected", lambda check: _correct(changes, progress, check)),
            follow=OwnStep("settled", lambda check: _settle(spark, plan, store, late, check)),
        )
        try:
            moved = generation_change.carry_out(plan, store, work, held, progress=progress)
        finally:
            _release(change for _, change in changes)
    # Only now: until the journal is finished, resuming needs the replayed state and rows.
    scratch.discard(store, plan.operation_id)
    return moved


def _compare(
    spark: SparkSession, plan: MergingPlan, one: Correction, functions: MergeFunctions | None
) -> Change | None:
    return correct.compare(spark, one, *_sides(spark, plan, one, functions))


def _correct(
    changes: Sequence[tuple[Correction, Future[Change | None]]],
    progress: Progress,
    check: Callable[[], None],
) -> None:
    """Correct the rows of each output; done again after a crash it comes to the same."""
    for one, change in changes:
        check()
        progress(correct.what(one))
        correct.carry_out(one, change.result())
        faults.reach(f"merge.corrected_{one.live.output.name}")


def _release(changes: Iterable[Future[Change | None]]) -> None:
    """Let go of what was compared and, after an error, not carried out."""
    for one in changes:
        if one.exception() is None and (change := one.result()) is not None:
            change.release()


def _sides(
    spark: SparkSession, plan: MergingPlan, one: Correction, functions: MergeFunctions | None
) -> tuple[DataFrame | None, DataFrame]:
    """Return the entities that an output is corrected for, and the rows that they should have."""
    place = Location.of(plan.place)
    results = spark.read.parquet((_replay(plan) / scratch_query.RESULTS).uri.hadoop)
    if plan.of_all:
        return None, results
    versions = plan.base_versions[one.live.output.name]
    entities = affected_entities.versioned(_touched(spark, place), versions)
    if functions is not None:
        return entities, merge_functions.rows(spark, one, entities, results, functions)
    return entities, results


def differing(spark: SparkSession, plan: MergingPlan, one: Correction) -> Differing:
    """Return what the correction of an output of an exact merge is going to change."""
    entities, replayed = _sides(spark, plan, one, None)
    assert entities is not None
    return correct.differing(spark, one, entities, replayed)


def _write_late(spark: SparkSession, plan: MergingPlan) -> WrittenFiles | None:
    place = Location.of(plan.place) / scratch.EVENTS
    events = spark.read.schema(archive_files.SCHEMA).parquet(place.uri.hadoop)
    return archive.write_late(plan.archive, events, plan.operation_id)


def _settle(
    spark: SparkSession,
    plan: MergingPlan,
    store: Store,
    late: Future[WrittenFiles | None],
    check: Callable[[], None],
) -> None:
    """Archive the events, note the merge in the ledger, and save where the generation begins."""
    # The archive before the ledger: who finds a merge in the ledger reads its events from there.
    if (written := late.result()) is not None:
        archive.append_late(spark, plan.archive, written, plan.operation_id)
    faults.reach("merge.archived")
    check()
    store.ledger.add(_row(plan, store))
    faults.reach("merge.in_ledger")
    check()
    # Last, because it lets a paused run go on.
    pause_for_verb.settle(
        store,
        plan.query,
        kind="merge",
        description=f"with {count_text(plan.facts.rows, 'late event')} from {plan.facts.batch}"
        if plan.facts.batch != DROPPED
        else f"with {count_text(plan.facts.rows, 'event')} that had been dropped as late",
        savepoint_id=plan.first_id,
        paused=plan.paused,
    )


def undo(plan: MergingPlan, store: Store, *, progress: Progress) -> None:
    """Take back what an interrupted merge has done so far."""
    pause_for_verb.undo(
        plan, store, plan.corrections, correct.undo, correct.is_done,
        paused=plan.paused, progress=progress,
    )  # fmt: skip
    scratch.discard(store, plan.operation_id)


def refuse_other_generation(store: Store, query: str, generation: int) -> None:
    """Refuse to merge into a query that went another way since the replay was begun."""
    now = store.generations.current(query)
    if now.generation != generation:
        raise NotAlignedError(
            f"{query} was in generation {generation} when the merge began, but is now in "
            f"generation {now.generation} ({now.begun_by}); nothing was changed",
            hint="run the merge again",
            query=query,
        )


def _functions(plan: MergingPlan, settings: Settings) -> MergeFunctions | None:
    """Return the functions that combine what the late events gave; None after a replay."""
    if plan.facts.policy != "merge-function":
        return None
    bound = settings.queries[plan.query]
    app = apps.load_for(plan.query, bound)
    return merge_functions.required(app)


def _write(
    spark: SparkSession,
    plan: MergingPlan,
    store: Store,
    place: Location,
    functions: MergeFunctions | None,
) -> NewCheckpoint:
    """Write the new checkpoint from the safety savepoint and the replayed state."""
    from savepoints.state.storage.row_sources import CheckpointRows

    def replayed(live: Live) -> SavedRows:
        replay = _replay(plan) / scratch_query.CHECKPOINT
        found = CheckpointRows.of(spark, replay, read_cut(replay, plan.replayed_batch))
        if functions is None:
            return found
        before = CheckpointRows.of(spark, live.checkpoint, live.files)
        return merge_functions.state(before, found, functions)

    # With functions, the rows of all entities are given: combined, or as they were.
    all_given = plan.of_all or functions is not None
    entities = None if all_given else _touched(spark, place).select("entity")
    return splice_checkpoint.from_safety_savepoint(spark, plan, store, replayed, entities)


def _replay(plan: MergingPlan) -> Location:
    return Location.of(plan.place) / scratch.replay_directory(plan.facts.policy, plan.facts.way)


def _touched(spark: SparkSession, place: Location) -> DataFrame:
    """Return the entities; few of them in the plan, since several queries use them in the pause."""
    from savepoints.spark import few_rows

    found = spark.read.schema(_ENTITIES).parquet((place / scratch.ENTITIES).uri.hadoop)
    few = few_rows.in_plan(spark, found, FEW_ROWS)
    return found if few is None else few


def _row(plan: MergingPlan, store: Store) -> Merge:
    """Return what the ledger says of the merge."""
    now = utc_now()
    savepoint = store.manifest(plan.savepoint_id or "").savepoint
    since = None if plan.still_since is None else parse_rfc3339(plan.still_since)
    outputs = (batch_version.present(one.live.output.name, one.live.output.uri, one.app_id)
               for one in plan.corrections)  # fmt: skip
    return Merge(
        id=plan.operation_id,
        query=plan.query,
        generation=plan.generation,
        descent=(*plan.descent, f"{plan.query}/{plan.generation}"),
        **vars(plan.facts),
        controls_differing=0,
        batch_id=plan.batch_id,
        offsets=lowest_offsets(savepoint.cut.offsets),
        outputs=tuple(outputs),
        pause_seconds=(now - since).total_seconds() if since else 0.0,
        by=who(),
        at=now,
    )
