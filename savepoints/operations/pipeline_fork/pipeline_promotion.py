"""What a promotion of a pipeline does once all queries and forks stand at equal cuts.

Each live query begins its next generation with the state, the program and the rows of its fork, as
in `promote`. A reader of a live table goes on behind the commit that exchanged its rows: its fork
has read all of them. There is one journal for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs import table_position
from savepoints.config.settings import QuerySettings
from savepoints.io import Location
from savepoints.operations.fork import promote_steps
from savepoints.operations.fork.promote_steps import PromotionPlan
from savepoints.operations.pipeline import follow, joint_plan
from savepoints.operations.pipeline.joint_plan import JointPlan, step_of
from savepoints.operations.pipeline_fork.forked_pairs import ForkedPair
from savepoints.operations.rollback import generation_change
from savepoints.operations.rollback.generation_change import OwnStep, TransitionPlan
from savepoints.outputs.delta import batch_version
from savepoints.outputs.fork import replace_content
from savepoints.plan import Progress
from savepoints.store import bindings
from savepoints.store.locks.journal import Journal
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store

VERB = "pipeline promote"


@dataclass(frozen=True)
class PromotedMember:
    """One live query that continues as its fork.

    Attributes:
        promotion: The plan for this one alone.
        reads: By source number, the live table it reads whose rows are replaced.
    """

    promotion: PromotionPlan
    reads: Mapping[int, str]

    @property
    def query(self) -> str:
        """The name of the live query."""
        return self.promotion.query


@dataclass(frozen=True, kw_only=True)
class PipelinePromotionPlan(JointPlan):
    """How live queries continue as their forks.

    Attributes:
        forks: Names of the forks, in the order of `queries`.
        members: What is done to each live query.
    """

    forks: tuple[str, ...]
    members: tuple[PromotedMember, ...]

    @property
    def transitions(self) -> tuple[TransitionPlan, ...]:
        """What is done to each live query alone."""
        return tuple(one.promotion for one in self.members)

    def has_changed_tables(self) -> bool:
        """Return True if a live table got the rows of a fork."""
        return any(
            replace_content.is_done(taken) for one in self.members for taken in one.promotion.taken
        )


def plan(
    store: Store,
    pairs: Sequence[ForkedPair],
    *,
    query: str,
    command: str,
    operation_id: str,
    paused: Sequence[str],
) -> PipelinePromotionPlan:
    """Find out how live queries go on as their forks; all stand still, and nothing is written."""
    settings = bindings.complete(store)
    exchanged = {
        str(Location.of(uri)): settings.queries[pair.live].outputs[name]
        for pair in pairs
        for name, uri in settings.queries[pair.fork].outputs.items()
    }
    ids = {
        batch_version.table_id(batch_version.open_table(uri)): str(Location.of(live))
        for uri, live in exchanged.items()
    }
    members = tuple(
        _member(store, one, settings.queries[one.fork], exchanged, ids, command, operation_id)
        for one in pairs
    )
    return PipelinePromotionPlan(
        verb=VERB,
        query=query,
        steps=tuple(step_of(one.query, step) for one in members for step in one.promotion.steps),
        warnings=(),
        command=command,
        operation_id=operation_id,
        queries=tuple(pair.live for pair in pairs),
        paused=tuple(paused),
        forks=tuple(pair.fork for pair in pairs),
        members=members,
    )


def _member(
    store: Store,
    pair: ForkedPair,
    bound: QuerySettings,
    exchanged: Mapping[str, str],
    ids: Mapping[str, str],
    command: str,
    operation_id: str,
) -> PromotedMember:
    """Find out how one live query goes on as its fork.

    Args:
        bound: What the fork is bound to.
        exchanged: By URI of a fork's table, the live table that gets its rows.
        ids: The same by the id of the fork's table.
    """
    live, fork = (store.generations.current(one) for one in (pair.live, pair.fork))
    tables = {name: exchanged.get(str(Location.of(uri)), uri) for name, uri in bound.tables.items()}
    alone = promote_steps.plan(
        store, live, fork, hand_over="replace", command=command, paused=False,
        operation_id=operation_id, tables=tables,
    )  # fmt: skip
    offsets = read_cut(Location.of(fork.checkpoint)).cut.offsets
    positions = {number: table_position.parse(one) for number, one in enumerate(offsets)}
    return PromotedMember(
        replace(alone, verb=VERB),
        {
            number: ids[one.table_id]
            for number, one in positions.items()
            if one is not None and one.table_id in ids
        },
    )


def carry_out(
    plan: PipelinePromotionPlan, store: Store, held: Mapping[str, Lease], *, progress: Progress
) -> None:
    """Let the live queries go on as their forks; goes on where an earlier attempt was killed.

    The caller holds the leases of all, also those of the forks.

    Raises:
        StalePlanError: If a live query has gone on since it was begun.
        NotAlignedError: If others have written to a live table since the plan.
    """
    joint_plan.carry_out(plan, store, lambda log: _move(plan, store, log, held, progress), progress)


def _move(
    plan: PipelinePromotionPlan,
    store: Store,
    log: Journal,
    held: Mapping[str, Lease],
    progress: Progress,
) -> None:
    for one in plan.members:
        part, lease = log.part(one.query), held[one.query]
        lease.check()
        generation_change.save_present(one.promotion, store, part, progress)
        _save_fork(one, store, part, lease, progress)
    with ExitStack() as generations:
        for one in plan.members:
            write = partial(
                generation_change.restored, one.promotion, store,
                query_id=one.promotion.query_id, progress=progress,
            )  # fmt: skip
            generations.enter_context(
                generation_change.new_generation(
                    one.promotion, store, write, log.part(one.query), held[one.query]
                )
            )
        made: dict[str, int] = {}
        for one in plan.members:
            made |= _exchange(one, store, log.part(one.query), held[one.query], progress)
        for one in plan.members:
            held[one.query].check()
            _follow(one, made, log.part(one.query))
    for one in plan.members:
        settling = partial(promote_steps.settle, one.promotion, store)
        generation_change.do(OwnStep("settled", settling), log.part(one.query), held[one.query])


def _save_fork(
    member: PromotedMember, store: Store, log: Journal, held: Lease, progress: Progress
) -> None:
    def save(_check: Callable[[], None]) -> None:
        promote_steps.save_fork(member.promotion, store, progress)

    generation_change.do(OwnStep("fork_saved", save), log, held)


def _exchange(
    member: PromotedMember, store: Store, log: Journal, held: Lease, progress: Progress
) -> dict[str, int]:
    """Give live tables the rows of their forks; return the version that each exchange made."""
    step = "outputs_taken_over"
    if not log.is_done(step):
        made = promote_steps.exchange_rows(member.promotion, store, held.check, progress)
        log.record(step, versions=made)
    versions: dict[str, int] = dict(log.operation.done[step]["versions"])
    return versions


def _follow(member: PromotedMember, made: Mapping[str, int], log: Journal) -> None:
    """Set a reader behind the commits that exchanged the rows of its tables."""
    if not member.reads or log.is_done("followed"):
        return
    ids = {
        uri: batch_version.table_id(batch_version.open_table(uri)) for uri in member.reads.values()
    }
    follow.go_on_at(
        Location.of(member.promotion.checkpoint),
        {
            number: table_position.after(ids[uri], made[uri]).text
            for number, uri in member.reads.items()
        },
    )
    log.record("followed")
