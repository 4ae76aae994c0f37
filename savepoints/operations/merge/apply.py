"""What a merge does once the live query stands still: plan and steps.

A safety savepoint, a new checkpoint with the replayed state of the touched entities, the corrected
outputs, the new generation; then the events go to the archive, the ledger says what was done, and a
savepoint is taken of where the generation begins. What the replay made lies in the store's scratch
space until all of it is done, so a merge that was killed goes on without replaying anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from savepoints import faults
from savepoints.checkpoint.cut import read_cut
from savepoints.config.settings import Settings
from savepoints.errors import NotAlignedError
from savepoints.io import Location
from savepoints.model import (
    Generation,
    lowest_offsets,
    new_id,
    parse_rfc3339,
    rfc3339,
    utc_now,
)
from savepoints.observe.recorder import who
from savepoints.operations.merge import corrections as merge_corrections
from savepoints.operations.merge import functions as merge_functions
from savepoints.operations.merge import splice_checkpoint
from savepoints.operations.merge.scope import FROM_NOTHING, MergeScope
from savepoints.operations.rollback import generation_change, safety_savepoint
from savepoints.operations.rollback.generation_change import (
    Moved,
    NewCheckpoint,
    OwnStep,
    TransitionPlan,
    Work,
)
from savepoints.operations.rollback.next_checkpoint import next_checkpoint
from savepoints.operations.run import pause
from savepoints.operations.savepoint import create, export, history, plan_basis, restore
from savepoints.outputs.correct import correct
from savepoints.outputs.correct.correct import Correction
from savepoints.outputs.delta import batch_version
from savepoints.plan import Progress, Step
from savepoints.runtime import app as apps
from savepoints.runtime import scratch_query
from savepoints.runtime.app import App, MergeFunctions
from savepoints.runtime.replay import Live
from savepoints.sources.archive import archive
from savepoints.sources.late import affected_entities
from savepoints.store import bindings
from savepoints.store.locks import journal
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import Merge, MergeFacts, MergePolicy, ReplayStrategy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from savepoints.state.storage.row_sources import SavedRows

VERB = "merge"

# Below the scratch directory of a merge.
_EVENTS, _ENTITIES, _LIVE = "merged-events", "merged-entities", "live"


@dataclass(frozen=True, kw_only=True)
class MergingPlan(TransitionPlan):
    """How a query goes on with late events worked in.

    Attributes:
        facts: What the ledger will say of the batch.
        batch_id: The last batch of the generation that ends.
        place: Where what the replay made lies.
        replayed_batch: Number of the last batch of the replay's own checkpoint.
        entity_fields: By operator, the field of its keys that is the entity.
        corrections: What is corrected in each table.
        base_versions: By output: version at each base, by the base's number; None for entities
            that begin with nothing.
        descent: The generations from which the one that ends descends, as the ledger has them.
        archive: The archive that the events go to.
        still_since: Since when the query's run is paused for this, RFC 3339; None without one.
        first_id: The savepoint of where the new generation begins.
    """

    facts: MergeFacts
    batch_id: int = -1
    place: str = ""
    replayed_batch: int = -1
    entity_fields: Mapping[str, str] = field(default_factory=dict)
    corrections: tuple[Correction, ...] = ()
    base_versions: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    descent: tuple[str, ...] = ()
    archive: str = ""
    still_since: str | None = None
    first_id: str = ""

    @property
    def paused(self) -> bool:
        """Whether a run of the query was paused for this, and is to go on afterwards."""
        return self.still_since is not None

    @property
    def of_all(self) -> bool:
        """Whether the state and the rows of all entities are replaced."""
        return self.facts.policy == "replay-all"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> MergingPlan:
        """Read a plan from the journal, to go on with it."""
        return generation_change.from_json(
            cls,
            data,
            facts=MergeFacts.from_json(data["facts"]),
            corrections=tuple(Correction.from_json(one) for one in data["corrections"]),
            descent=tuple(data["descent"]),
        )


def replay_directory(policy: MergePolicy, strategy: ReplayStrategy | None) -> str:
    """Return where a replay lies, below the scratch directory of its merge."""
    return strategy or policy


def place_of(store: Store, operation_id: str) -> Location:
    """Return where what a merge makes lies until it is done."""
    return store.root / "scratch" / operation_id


def events_of(place: Location) -> Location:
    """Return where the events lie that are merged, below the scratch directory of a merge."""
    return place / _EVENTS


def write_inputs(scope: MergeScope, place: Location, policy: MergePolicy) -> None:
    """Write down what is merged and for whom, before the merge begins that cannot be repeated."""
    scope.late.coalesce(1).write.mode("overwrite").parquet(events_of(place).uri.hadoop)
    if policy == "replay-all":
        return
    touched = scope.touched if policy == "exact" else scope.from_nothing
    touched.coalesce(1).write.mode("overwrite").parquet((place / _ENTITIES).uri.hadoop)


def plan(
    store: Store,
    live: Generation,
    scope: MergeScope,
    facts: MergeFacts,
    *,
    app: App,
    given: Settings,
    replayed_batch: int,
    entity_fields: Mapping[int, str],
    command: str,
    still_since: datetime | None,
) -> MergingPlan:
    """Find out how the query goes on with the late events; writes nothing.

    Args:
        store: Where it is.
        live: The generation that ends.
        scope: What the batch concerns.
        facts: What the ledger will say of it.
        app: The application.
        given: The settings, not completed by bindings.
        replayed_batch: Number of the last batch of the replay's own checkpoint.
        entity_fields: By operator, the field of its keys that is the entity.
        command: How to do it again as a command line.
        still_since: Since when its run is paused for this, None without one.

    Raises:
        NotAlignedError: If an output cannot be corrected without loss.
        OutputVersionGoneError: If the version of an output at a base can no longer be read.
        FileSinkError: If an output is a file sink.
        IncompatibleError: If a table does not say which entity a row is about.
    """
    settings = bindings.complete(store, given)
    bound = settings.queries[live.query]
    cut = read_cut(Location.of(live.checkpoint))
    number = store.generations.next_number(live.query)
    checkpoint = next_checkpoint(settings, live.query, number)
    from_batch, safety_id = safety_savepoint.plan(live, bound.outputs, settings)
    operation_id = scope.merge_id
    corrected = merge_corrections.corrections(scope, number, cut.cut.batch_id, facts.policy)
    whose = "all states" if facts.policy == "replay-all" else f"the states of {facts.entities}"
    known = bindings.find(store.root, live.query, live.generation)
    first_id = new_id("sp", utc_now())
    return MergingPlan(
        verb=VERB,
        query=live.query,
        steps=(
            *safety_savepoint.step(safety_id, live.checkpoint, from_batch),
            Step("checkpoint_written", f"write {checkpoint} with {whose} replaced"),
            *(Step("outputs_corrected", correct.what(one)) for one in corrected),
            Step("generation_begun", f"begin generation {number} of {live.query}"),
            Step("settled", f"archive the events, note them in the ledger, save {first_id}"),
        ),
        warnings=(),
        command=command,
        operation_id=operation_id,
        savepoint_id=safety_id,
        safety_id=safety_id,
        from_checkpoint=live.checkpoint,
        from_batch=from_batch,
        generation=number,
        checkpoint=checkpoint,
        outputs=(),
        output_uris=history.output_uris(store, live.query, settings),
        binding=known,
        basis=plan_basis.read(store, live.query),
        facts=facts,
        batch_id=cut.cut.batch_id,
        place=str(place_of(store, operation_id)),
        replayed_batch=replayed_batch,
        corrections=corrected,
        entity_fields={str(operator): field for operator, field in entity_fields.items()},
        base_versions={
            name: scope.base_versions(name) if facts.policy == "exact" else FROM_NOTHING
            for name in app.outputs
        },
        descent=scope.descent,
        archive=scope.inputs.archive(scope.name),
        still_since=None if still_since is None else rfc3339(still_since),
        first_id=first_id,
    )


def carry_out(
    plan: MergingPlan,
    store: Store,
    held: Lease,
    *,
    given: Settings,
    progress: Progress,
) -> Moved:
    """Let the query go on with the late events; goes on where an earlier attempt was killed.

    The caller holds the query's lease.

    Raises:
        UnfinishedOperationError: If another operation was begun since the plan.
        NotAlignedError: If others have written to an output since.
    """
    from savepoints.spark.session import session, session_for

    settings = bindings.complete(store, given)
    rows = None if plan.facts.policy == "replay-all" else plan.facts.rows
    spark = session_for(session(settings, f"savepoints merge {plan.query}"), rows)
    place = Location.of(plan.place)
    functions = _functions(plan, settings)

    def write() -> NewCheckpoint:
        progress(f"writing {plan.checkpoint} with the new states")
        return _write(spark, plan, store, place, functions)

    def correct_outputs(check: Callable[[], None]) -> None:
        touched = None if plan.of_all else _touched(spark, place)
        results = spark.read.parquet((_replay(plan) / scratch_query.RESULTS).uri.hadoop)
        for one in plan.corrections:
            check()
            progress(correct.what(one))
            entities, replayed = None, results
            if touched is not None:
                entities = affected_entities.versioned(
                    touched, plan.base_versions[one.live.output.name]
                )
                if functions is not None:
                    replayed = merge_functions.rows(spark, one, entities, results, functions)
            correct.execute(spark, one, entities, replayed)
            faults.reach(f"merge.corrected_{one.live.output.name}")

    def settle(check: Callable[[], None]) -> None:
        events = spark.read.parquet((place / _EVENTS).uri.hadoop)
        archive.append_late(spark, plan.archive, events, plan.operation_id)
        faults.reach("merge.archived")
        check()
        store.ledger.add(_row(plan, store))
        faults.reach("merge.in_ledger")
        check()
        # Without one the query could not go back to where this generation began, nor be recovered.
        create.save(
            store,
            plan.query,
            settings=given,
            kind="merge",
            description=f"with {plan.facts.rows} late events of {plan.facts.batch}",
            savepoint_id=plan.first_id,
        )
        if plan.paused:
            # It waits for the lease, which is held until the operation is finished.
            pause.resume(store, plan.query)

    work = Work(
        write,
        complete=OwnStep("outputs_corrected", correct_outputs),
        follow=OwnStep("settled", settle),
    )
    moved = generation_change.carry_out(
        plan, store, work, held, settings=settings, progress=progress
    )
    discard(store, plan.operation_id)
    return moved


def undo(plan: MergingPlan, store: Store, *, progress: Progress) -> None:
    """Take back what an interrupted merge has done so far.

    Raises:
        UsageError: If the new generation has begun.
        NotAlignedError: If others have written to an output since.
    """

    def give_back() -> None:
        for one in plan.corrections:
            progress(f"bringing {one.live.output.uri} back to version {one.live.newest}")
            correct.undo(one, plan.operation_id)
        if plan.paused:
            # It waits until the operation is taken back to its end.
            pause.resume(store, plan.query)

    generation_change.undo(plan, store, also=give_back, progress=progress)
    discard(store, plan.operation_id)


def discard(store: Store, operation_id: str) -> None:
    """Remove what a merge has made, which nothing needs any more."""
    place = place_of(store, operation_id)
    place.delete(info.path for info in place.list())


def refuse_other_generation(store: Store, query: str, generation: int) -> None:
    """Refuse to merge into a query that went another way since the replay was begun.

    Raises:
        NotAlignedError: If another generation has begun.
    """
    now = store.generations.current(query)
    if now.generation != generation:
        raise NotAlignedError(
            f"{query} was in generation {generation} when the merge began, and is in "
            f"{now.generation} now, begun by {now.begun_by}",
            hint="nothing was changed; run the merge again",
            query=query,
        )


def unfinished(store: Store, query: str) -> MergingPlan | None:
    """Return the merge of a query that was interrupted after its journal began.

    Raises:
        UnfinishedOperationError: If another operation on it was interrupted.
    """
    operation = journal.unfinished(store.root, query)
    if operation is None:
        return None
    if operation.verb != VERB or journal.UNDOING in operation.done:
        raise journal.refusal(operation)
    return MergingPlan.from_json(dict(operation.plan))


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

    begun = time.monotonic()
    assert plan.safety_id is not None
    restoring = restore.plan(
        store,
        plan.safety_id,
        plan.checkpoint,
        form="native",
        owner=plan.operation_id,
        asked=False,
    )
    stored = store.manifest(plan.safety_id)
    live = place / _LIVE
    live.delete(info.path for info in live.list())
    export.mount(stored, store, live)
    replay = _replay(plan) / scratch_query.CHECKPOINT
    files = read_cut(live, plan.batch_id)
    found: SavedRows = CheckpointRows.of(spark, replay, read_cut(replay, plan.replayed_batch))
    entities = None if plan.of_all else _touched(spark, place).select("entity")
    if functions is not None:
        before = CheckpointRows.of(spark, live, files)
        found = merge_functions.state(before, found, functions)
        entities = None  # The rows of all of them: combined, or as they were.
    done = restore.fill(
        restoring,
        store,
        stored,
        lambda: splice_checkpoint.write(
            spark,
            Location.of(plan.checkpoint),
            Live(live, files),
            found,
            {int(operator): field for operator, field in plan.entity_fields.items()},
            entities,
        ),
        begun=begun,
    )
    return NewCheckpoint(done.seconds, done.bytes_written)


def _replay(plan: MergingPlan) -> Location:
    return Location.of(plan.place) / replay_directory(plan.facts.policy, plan.facts.way)


def _touched(spark: SparkSession, place: Location) -> DataFrame:
    return spark.read.parquet((place / _ENTITIES).uri.hadoop)


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
