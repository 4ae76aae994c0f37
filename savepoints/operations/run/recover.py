"""`run --recover`: a gone or damaged checkpoint is made anew from the newest good savepoint.

Looked for are: no `metadata` although the query has committed something, logs that cannot be read,
files of the newest batch's state that are missing. What is only behind, busy, or on storage that
does not answer is not damaged. The way back is an ordinary rollback, outputs included, without a
safety savepoint: there is no present that could be saved.
"""

from __future__ import annotations

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import read_cut
from savepoints.config.settings import QuerySettings
from savepoints.errors import (
    CheckpointDamagedError,
    CheckpointNotFoundError,
    IncompatibleError,
    NoCommittedBatchError,
    NotAlignedError,
    NotFoundError,
    SavepointsError,
    UnsupportedFormatError,
    UnsupportedProviderError,
)
from savepoints.io import Location
from savepoints.model import Generation, Savepoint
from savepoints.observe.recorder import recording
from savepoints.operations.inspect import verify
from savepoints.operations.rollback import moves, rollback
from savepoints.operations.rollback.rollback import RollbackPlan
from savepoints.operations.savepoint import history
from savepoints.outputs.delta.batch_version import open_table
from savepoints.outputs.delta.write import app_id
from savepoints.plan import Progress, silent
from savepoints.store import bindings
from savepoints.store.locks import journal
from savepoints.store.root import Store

# What these say of a checkpoint that nobody writes is that the query cannot go on from it.
_DAMAGE = (
    NotAlignedError,
    CheckpointNotFoundError,
    NoCommittedBatchError,
    IncompatibleError,
    FileNotFoundError,
    ValueError,  # Of JSON, and of text that is none.
    KeyError,
    TypeError,
)


def require_present(store: Store, generation: Generation, bound: QuerySettings) -> None:
    """Refuse to begin anew where the query has committed a batch and `metadata` is gone.

    Spark would count the batches from 0 and read everything again; outputs that have seen batches
    of this generation would silently drop them.
    """
    if Location.of(generation.checkpoint).exists("metadata"):
        return
    if because := _evidence(store, generation, bound):
        raise CheckpointDamagedError(
            f"the checkpoint {generation.checkpoint} of {generation.query} is damaged: {because}, "
            "but the file 'metadata' is missing",
            hint="rebuild the checkpoint and outputs from the newest good savepoint: savepoints "
            f"run {generation.query} --recover",
            query=generation.query,
            checkpoint=generation.checkpoint,
        )


def find_damage(store: Store, generation: Generation, bound: QuerySettings) -> str | None:
    """Say what is wrong with the checkpoint of a query that does not run, None for nothing."""
    checkpoint = Location.of(generation.checkpoint)
    try:
        require_present(store, generation, bound)
        now = position.read(checkpoint)
        if (empty := position.empty_entry(checkpoint, now)) is not None:
            return f"{empty} is empty"
        if now.committed is not None:
            history.require_state(store, generation, read_cut(checkpoint))
        elif because := _evidence(store, generation, bound):
            return f"it has no committed batch, although {because}"
    except UnsupportedProviderError:
        return None  # Nothing is known about its files, neither here nor in a savepoint.
    except UnsupportedFormatError:
        raise  # Whole, as far as is known: gone back, all that a newer Spark did would be lost.
    except _DAMAGE as error:
        return error.message if isinstance(error, SavepointsError) else f"{error!r}"
    return None


def if_damaged(
    store: Store, query: str, bound: QuerySettings, *, progress: Progress = silent
) -> str | None:
    """Recover a query whose checkpoint is damaged; see `recover`.

    A recovery that was killed is finished first; every other operation is left to who began it.

    Returns:
        The id of the savepoint that it goes on from, None when nothing was wrong.

    Raises:
        UnfinishedOperationError: If an operation on it was interrupted that is no recovery.
    """
    resumed = _finish(store, query, progress=progress)
    generation = store.generations.find_current(query)
    problem = None if generation is None else find_damage(store, generation, bound)
    if problem is None:
        return resumed
    return recover(store, query, problem, progress=progress)


def recover(store: Store, query: str, problem: str, *, progress: Progress = silent) -> str:
    """Take a query back to its newest savepoint of which every file is whole, outputs included.

    Only savepoints count that the present comes from: not those of batches that were rolled back,
    nor those edited by hand, unless somebody took the query to one of them.

    Raises:
        CheckpointDamagedError: If no savepoint is whole.
        NotAlignedError: If an output cannot be taken back without loss, or the savepoint is from
            before something that has moved the query in its sources.
    """
    with recording(store, "recover", query=query, parameters={"problem": problem}) as noted:
        progress(f"the checkpoint is damaged: {problem}")
        savepoint = _newest_whole(store, query, problem, progress)
        noted.note(savepoint=savepoint.id)
        _refuse_moved(store, savepoint)
        progress(f"recovering from {savepoint.id}, batch {savepoint.cut.batch_id}")
        bound = bindings.complete(store).queries[query]
        plan = rollback.plan(
            store,
            savepoint.id,
            query=query,
            rewind_outputs=bool(savepoint.outputs or bound.outputs),
            save_present=False,
        )
        for warning in plan.warnings:
            progress(warning)
        done = rollback.execute(plan, store, progress=progress)
        noted.note(
            message=f"{problem}; generation {done.generation} begins from batch {done.batch_id}",
            bytes=done.bytes_written,
        )
    return savepoint.id


def _finish(store: Store, query: str, *, progress: Progress) -> str | None:
    """Finish a recovery that was killed; returns what it goes back to, None if there is none."""
    begun = journal.unfinished(store.root, query)
    if begun is None:
        return None
    if begun.verb != rollback.VERB or begun.plan["safety_id"] is not None:
        raise journal.refusal(store.root, begun)
    plan = RollbackPlan.from_json(dict(begun.plan))
    parameters = {"operation": begun.id}
    with recording(store, "recover", query=query, parameters=parameters) as noted:
        progress(f"finishing the interrupted recovery {begun.id} ({begun.verb})")
        done = rollback.execute(plan, store, progress=progress)
        noted.note(
            savepoint=plan.savepoint_id,
            message=f"finished; generation {done.generation} begins from batch {done.batch_id}",
            bytes=done.bytes_written,
        )
    return plan.savepoint_id


def _newest_whole(store: Store, query: str, problem: str, progress: Progress) -> Savepoint:
    known = history.history(store, query)
    for savepoint in known:
        progress(f"reading every file of {savepoint.id}")
        report = verify.verify(store, savepoint.id, query=query, depth="checksums")
        if report.grade != "broken":
            return savepoint
        progress(f"{savepoint.id} is broken: {report.findings[0].what}")
    raise CheckpointDamagedError(
        f"the checkpoint of {query} is damaged ({problem}), and no savepoint that it could be "
        f"recovered from is intact (checked: {len(known)})",
        hint=f"{_made_anew(store, query)}start over from the first record: savepoints reset "
        f"{query} --to-earliest "
        "--outputs truncate --no-safety-savepoint; or see the savepoints: savepoints list "
        f"--query {query}",
        query=query,
        savepoints=[one.id for one in known],
    )


def _made_anew(store: Store, query: str) -> str:
    """Say how a fork is made again, beside what is left of it; empty for any other query.

    What it began from is a savepoint of its origin, which is kept as long as the fork lives.
    """
    current = store.generations.current(query)
    began = store.catalog.get(current.begun_from)
    by = journal.by_generation(store.root).get((query, current.generation))
    again = by.plan.get("again") if by else None
    if by is None or not again or began is None or began.state != "complete":
        return ""
    over = " && ".join(f"savepoints end {one}" for one in by.plan.get("queries") or (query,))
    return (
        f"make the fork again from where it began, under another name: {again}; then end this "
        f"one: {over}; or "
    )


def _refuse_moved(store: Store, savepoint: Savepoint) -> None:
    """Refuse a savepoint from before the query was moved: it would be where it was then."""
    if moved := moves.since(store, savepoint):
        raise NotAlignedError(
            f"{savepoint.query} cannot be recovered exactly: {savepoint.id} is its newest intact "
            f"savepoint, but is from before {moved[0]} and moved the query in its sources",
            hint="go back to before that: "
            + moves.way_back(savepoint, moved, "--no-safety-savepoint"),
            query=savepoint.query,
            savepoint=savepoint.id,
        )


def _evidence(store: Store, generation: Generation, bound: QuerySettings) -> str | None:
    """Say why a checkpoint cannot be that of a generation that has run nothing, None if it can."""
    if generation.begun_from is not None:
        return f"it was written from {generation.begun_from}"
    for savepoint in store.catalog.all():
        if savepoint.place == generation.place:
            return f"savepoint {savepoint.id} was taken at its batch {savepoint.cut.batch_id}"
    for name, uri in bound.outputs.items():
        app = app_id(generation.query, name, generation.generation)
        try:
            newest = open_table(uri).transaction_version(app)
        except NotFoundError:
            continue
        if newest is not None and newest >= 0:  # A new generation's id begins below 0.
            return f"output {name} has its batch {newest}"
    return None
