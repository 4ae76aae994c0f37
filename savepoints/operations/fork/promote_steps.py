"""What a promotion does once both queries stand at the same offsets: plan and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from savepoints.checkpoint.cut import read_cut
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import IncompatibleError, UsageError
from savepoints.io import Location
from savepoints.model import Generation, OutputVersion, new_id
from savepoints.moments import utc_now
from savepoints.operations.rollback import generation_change, next_outputs, safety_savepoint
from savepoints.operations.rollback.generation_change import Moved, OwnStep, TransitionPlan, Work
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.run import pause_for_verb
from savepoints.operations.savepoint import create, output_versions
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.write import app_id, owner_prefix
from savepoints.outputs.fork import replace_content
from savepoints.outputs.fork.replace_content import Takeover
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.plan import Progress, Step
from savepoints.store import bindings
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store

VERB = "promote"

# `replace`: the live tables get the fork's rows; `point`: readers go to the fork's tables.
HandOver = Literal["replace", "point"]


@dataclass(frozen=True, kw_only=True)
class PromotionPlan(TransitionPlan):
    """How the live query continues as its fork, both being at the same offsets.

    Attributes:
        fork: Name of the fork.
        fork_checkpoint: Its directory.
        fork_batch: Its newest batch, after which the live query continues.
        query_id: Spark's id of the live query, which stays.
        hand_over: How the outputs are handed over.
        taken: The live tables whose rows are replaced with the fork's; empty with `point`.
        paused: The live query's run was paused for this and is to be resumed.
        first_id: The savepoint that is taken where the new generation begins.
    """

    savepoint_id: str
    fork: str = ""
    fork_checkpoint: str = ""
    fork_batch: int = -1
    query_id: str = ""
    hand_over: HandOver = "replace"
    taken: tuple[Takeover, ...] = ()
    paused: bool = False
    first_id: str = ""


def require_possible(
    store: Store, live: str, fork: str, *, settings: Settings, hand_over: HandOver
) -> dict[str, str]:
    """Refuse outputs that could not be handed over, before anything is run or paused.

    Returns:
        By output, what becomes of the live table's columns, as things stand.
    """
    mine, other = settings.queries[live], settings.queries[fork]
    if other.outputs.keys() != mine.outputs.keys():
        raise UsageError(
            f"{fork} writes {_listed(other.outputs)}, but {live} writes {_listed(mine.outputs)}; "
            "their outputs must have the same names",
            hint="give the outputs of both queries the same names in the settings",
            query=live,
        )
    number = store.generations.current(fork).generation
    known = bindings.find(store.root, fork, number)
    if hand_over == "point" and known is not None and known.clone_of:
        name, one = next(iter(known.clone_of.items()))
        raise IncompatibleError(
            f"{other.outputs.get(name)} is a shallow clone of {one.uri}: once readers have "
            "switched to it, VACUUM on the original would delete files that the clone reads",
            hint="promote with --outputs replace, or fork again with: savepoints fork … "
            "--outputs copy",
            query=fork,
        )
    columns = {}
    for name, uri in other.outputs.items():
        source = batch_version.present(name, uri, app_id(fork, name, number))
        if hand_over == "replace":
            taken = _taken(store, source, live, number, mine, 0)
            columns[name] = replace_content.columns_text(taken)
        else:
            _pointed(source, fork, live, number)
    return columns


def plan(
    store: Store,
    live: Generation,
    fork: Generation,
    *,
    hand_over: HandOver,
    command: str,
    paused: bool,
    operation_id: str | None = None,
    tables: Mapping[str, str] | None = None,
) -> PromotionPlan:
    """Find out how a live query goes on as its fork; nothing is written.

    Args:
        operation_id: That of the promotion of several queries which this is a part of.
        tables: What the live query reads from then on, by input; None for what the fork reads.
    """
    settings = bindings.complete(store)
    mine, other = settings.queries[live.query], settings.queries[fork.query]
    cut = read_cut(Location.of(fork.checkpoint))
    sources = output_versions.outputs_of(fork.query, fork.generation, cut, other.outputs, other)
    context = QueryContext.open(store, live.query)
    number, checkpoint, present = context.number, context.checkpoint(), context.present()
    taken = (
        tuple(_taken(store, one, live.query, number, mine, cut.cut.batch_id) for one in sources)
        if hand_over == "replace"
        else ()
    )
    pointed = (
        tuple(_pointed(one, fork.query, live.query, number) for one in sources)
        if hand_over == "point"
        else ()
    )
    savepoint_id = new_id("sp", utc_now())
    ended = f", and end {fork.query}" if hand_over == "point" else ""
    return PromotionPlan(
        **context.leaving(present, operation_id),
        verb=VERB,
        steps=(
            *safety_savepoint.step(present.safety_id, live.checkpoint, present.batch_id),
            Step(
                "fork_saved",
                f"take the savepoint {savepoint_id} of {fork.query} at batch {cut.cut.batch_id}",
            ),
            Step("checkpoint_written", f"restore {savepoint_id} to {checkpoint}"),
            *next_outputs.output_steps(pointed),
            *(Step("outputs_taken_over", replace_content.what(one)) for one in taken),
            Step("generation_begun", f"begin generation {number} of {live.query}"),
            Step("settled", f"take the first savepoint of that generation{ended}"),
        ),
        warnings=(),
        command=command,
        savepoint_id=savepoint_id,
        checkpoint=checkpoint,
        outputs=pointed,
        binding=_binding(context, fork, hand_over, tables),
        fork=fork.query,
        fork_checkpoint=fork.checkpoint,
        fork_batch=cut.cut.batch_id,
        query_id=read_cut(Location.of(live.checkpoint)).query_id,
        hand_over=hand_over,
        taken=taken,
        paused=paused,
        first_id=new_id("sp", utc_now()),
    )


def carry_out(plan: PromotionPlan, store: Store, held: Lease, *, progress: Progress) -> Moved:
    """Let the live query go on as its fork; goes on where an earlier attempt was killed.

    The caller holds the leases of both.
    """

    def take_over(check: Callable[[], None]) -> None:
        exchange_rows(plan, store, check, progress)

    write = partial(
        generation_change.restored, plan, store, query_id=plan.query_id, progress=progress,
    )  # fmt: skip
    work = Work(
        write,
        prepare=OwnStep("fork_saved", lambda _check: save_fork(plan, store, progress)),
        complete=OwnStep("outputs_taken_over", take_over) if plan.taken else None,
        follow=OwnStep("settled", lambda check: settle(plan, store, check)),
    )
    return generation_change.carry_out(plan, store, work, held, progress=progress)


def save_fork(plan: PromotionPlan, store: Store, progress: Progress) -> None:
    """Take the savepoint of the fork from which the live query goes on; taken before, nothing."""
    progress(f"taking the savepoint {plan.savepoint_id} of {plan.fork} at batch {plan.fork_batch}")
    create.save(
        store,
        plan.fork,
        batch_id=plan.fork_batch,
        kind="fork",
        description=f"promoted to {plan.query}",
        savepoint_id=plan.savepoint_id,
    )


def exchange_rows(
    plan: PromotionPlan, store: Store, check: Callable[[], None], progress: Progress
) -> dict[str, int]:
    """Give the live tables the fork's rows; done before, nothing happens.

    Returns:
        By URI of a live table the version that the exchange made, now or before.
    """
    from savepoints.spark.session import session

    spark = session(store.settings, f"savepoints promote {plan.fork}")
    made = {}
    for one in plan.taken:
        check()
        progress(replace_content.what(one))
        made[one.live.output.uri] = replace_content.execute(spark, one)
    return made


def settle(plan: PromotionPlan, store: Store, check: Callable[[], None]) -> None:
    """Take the first savepoint of the generation that has begun, and end a fork without tables."""
    if plan.hand_over == "point":
        # Its tables are the live query's from now on, and two may not write them.
        store.generations.end(plan.fork, why=f"promoted to {plan.query}")
    check()
    pause_for_verb.settle(
        store,
        plan.query,
        kind="fork",
        description=f"{plan.fork} as it was when it took over",
        savepoint_id=plan.first_id,
        paused=plan.paused,
    )


def undo(plan: PromotionPlan, store: Store, *, progress: Progress) -> None:
    """Take back what an interrupted promotion has done so far."""
    pause_for_verb.undo(
        plan, store, plan.taken, replace_content.undo, replace_content.is_done,
        paused=plan.paused, progress=progress,
    )  # fmt: skip


def _taken(
    store: Store, source: OutputVersion, live: str, number: int, bound: QuerySettings, batch_id: int
) -> Takeover:
    own_id = bound.app_ids.get(source.name)
    own_ids = (*next_outputs.own_ids(store, live), *((own_id,) if own_id else ()))
    return replace_content.plan(
        source.name,
        bound.outputs[source.name],
        source,
        owner=owner_prefix(live),
        own_ids=own_ids,
        app_id=app_id(live, source.name, number),
        batch_id=batch_id,
        own_rows=bound.own_rows.get(source.name),
    )


def _pointed(source: OutputVersion, fork: str, live: str, number: int) -> Rewind:
    """Let a fork's table know the id under which the live query goes on with it."""
    return rewind.plan(source, owner_prefix(fork), app_id(live, source.name, number))


def _binding(
    context: QueryContext, fork: Generation, hand_over: HandOver, tables: Mapping[str, str] | None
) -> bindings.Binding:
    """Return what the live query's next generation is bound to."""
    live, settings = context.current, context.settings
    mine, other = settings.queries[live.query], settings.queries[fork.query]
    handed: dict[str, object] = {
        "app": other.app,
        "app_name": other.app_name or fork.query,
        "topics": other.topics,
        "tables": other.tables if tables is None else dict(tables),
    }
    if hand_over == "point":
        handed["outputs"] = other.outputs
    # Tables that are shallow clones stay so, whoever writes them.
    whose = fork if hand_over == "point" else live
    known = bindings.find(context.store.root, whose.query, whose.generation)
    clone_of = known.clone_of if known else {}
    bound = mine.model_copy(update=handed)
    given = context.store.settings
    if live.query not in given.queries:
        return bindings.fresh(live.query, context.number, bound, clone_of)
    # What an earlier promotion has put in place of the settings goes on holding.
    was = given.queries[live.query]
    changes = {
        name: getattr(bound, name)
        for name in type(bound).model_fields
        if name in handed or getattr(bound, name) != getattr(was, name)
    }
    overriding = bindings.overriding(live.query, context.number, was, changes)
    return replace(overriding, clone_of=clone_of)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
