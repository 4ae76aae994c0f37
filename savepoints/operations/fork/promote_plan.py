"""What `promote` is going to do, and what it could not do, before anything is run or paused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from savepoints.checkpoint.cut import committed_in
from savepoints.config.settings import QuerySettings
from savepoints.errors import NotAlignedError, UsageError
from savepoints.io import Location
from savepoints.moments import rfc3339
from savepoints.operations.fork import promote_steps
from savepoints.operations.fork.promote_steps import VERB, HandOver, PromotionPlan
from savepoints.operations.rollback import journalled, notes
from savepoints.operations.run import pause
from savepoints.operations.savepoint import plan_basis
from savepoints.operations.savepoint.plan_basis import Basis
from savepoints.plan import Plan, Step
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.store.tables import merge_ledger
from savepoints.store.tables.merge_ledger import Merge
from savepoints.texts import count_text

# What its own run may be doing while it is up.
_RUNNING = frozenset({"running", "resuming", "pausing"})


@dataclass(frozen=True)
class PromotePlan(Plan):
    """What `promote` is going to do.

    Attributes:
        fork: Name of the fork; `query` is the live one.
        hand_over: `replace`: the rows of the live tables are replaced with the fork's; `point`: the
            live query continues in the fork's tables, and readers have to switch to them.
        live_app: The program that runs now.
        fork_app: The program that takes over.
        checks: Whether the checks have to pass.
        command: How to do it again as a command line, which also finishes it after a crash.
        bases: What the plan was made from, by query; the queries may continue and take savepoints.
        begun: The interrupted promotion that is finished; None for a new one.
    """

    fork: str
    hand_over: HandOver
    live_app: str
    fork_app: str
    checks: bool
    command: str
    bases: tuple[tuple[str, Basis], ...] = ()
    begun: PromotionPlan | None = None


def plan(
    store: Store,
    fork: str,
    *,
    into: str | None = None,
    hand_over: HandOver = "replace",
    checks: bool = True,
    has_readers: bool = False,
) -> PromotePlan:
    """Plan a promotion; nothing is written, and the live query is not touched.

    Args:
        fork: Name of the fork.
        into: The live query, if not the one that was forked.
        hand_over: How the outputs are handed over.
        checks: Whether the checks have to pass.
        has_readers: Whether the fork is one of several that read each other's tables.

    Raises:
        QueryNotFoundError: If the store has no such query.
        UsageError: If it is no fork, or not of a query that `run` runs.
        QueryRunningError: If the fork runs.
        UnfinishedOperationError: If an operation on one of the two was interrupted.
        NotAlignedError: If late events were merged into the live query that the fork does not have.
    """
    store = store.snapshot()
    origin = into or _origin(store, fork)
    command = _command(fork, origin, hand_over, checks=checks)
    if (begun := journalled.begun(PromotionPlan, store, origin, VERB, command)) is not None:
        bound = begun.binding.settings() if begun.binding else store.settings.queries[origin]
        return PromotePlan(
            VERB, origin, begun.steps, ("finishing an interrupted promotion",),
            fork, begun.hand_over, "", bound.app, checks, command, (), begun,
        )  # fmt: skip
    bases = tuple((one, plan_basis.read_but_savepoints(store, one)) for one in (fork, origin))
    completed = bindings.complete(store)
    live_bound, fork_bound = (
        completed.bound(one, "it cannot be stopped at exact offsets") for one in (origin, fork)
    )
    if fork == origin:
        raise UsageError(
            f"{fork} is the live query itself and cannot take over from itself",
            hint="name one of its forks; to see them: savepoints lineage",
        )
    _refuse_done(store, fork, origin)
    _refuse_unmerged(store, fork, origin, has_readers=has_readers)
    columns = promote_steps.require_possible(
        store, origin, fork, settings=completed, hand_over=hand_over
    )
    lease.refuse_held(store.root, fork)
    journal.refuse_unfinished(store.root, fork)
    state = pause.state(store, origin).state
    return PromotePlan(
        verb=VERB,
        query=origin,
        steps=tuple(_steps(origin, fork, fork_bound, columns, state, checks=checks)),
        warnings=(
            *_warnings(origin, live_bound, fork_bound, hand_over, state),
            *notes.of_next(store, origin, live_bound),
        ),
        fork=fork,
        hand_over=hand_over,
        live_app=live_bound.app,
        fork_app=fork_bound.app,
        checks=checks,
        command=command,
        bases=bases,
    )


def _origin(store: Store, fork: str) -> str:
    generations = [one for one in store.generations.all(fork) if one.begun_by == "fork"]
    known = {one.id: one for one in store.catalog.all()}
    origin = generations[0].origin_among(known) if generations else None
    if origin is None:
        store.generations.current(fork)
        forks = _forks_of(store, fork)
        raise UsageError(
            f"{fork} was not created by `savepoints fork`, so the query that it would take "
            "over from is unknown",
            hint=f"promote one of its forks ({', '.join(forks)}): savepoints promote {forks[0]}"
            if forks
            else f"name that query: savepoints promote {fork} --into QUERY",
            query=fork,
        )
    return origin.query


def _forks_of(store: Store, query: str) -> list[str]:
    """Return the queries that were forked from a query."""
    known = {one.id: one for one in store.catalog.all()}
    forks = [one for one in store.generations.all() if one.begun_by == "fork"]
    origins = ((one.query, one.origin_among(known)) for one in forks)
    return sorted({name for name, origin in origins if origin and origin.query == query})


def _refuse_done(store: Store, fork: str, live: str) -> None:
    """Refuse to promote again what has taken over and not moved since."""
    now = store.generations.current(live)
    if not now.is_promoted or now.begun_from is None:
        return
    saved = store.catalog.find(now.begun_from)
    batches = committed_in(Location.of(store.generations.current(fork).checkpoint))
    if saved.query == fork and batches[-1:] == [saved.cut.batch_id]:
        raise UsageError(
            f"{fork} was already promoted to {live} at {rfc3339(now.begun_at)}, and {live} has "
            "not committed a batch since",
            hint=f"start {live}, which continues from {fork}: savepoints run {live} (or "
            f"savepoints resume {live} if it is paused); or undo the promotion: savepoints undo "
            f"{live}",
            query=live,
        )


def _refuse_unmerged(store: Store, fork: str, live: str, *, has_readers: bool) -> None:
    """Refuse a fork without the late events of the live query, which would be gone."""
    merges, generations = store.ledger.all(), store.generations.all()
    savepoints = store.catalog.all()

    def merged(query: str) -> list[Merge]:
        number = store.generations.current(query).generation
        line = merge_ledger.ancestry(query, number, generations, savepoints, merges)
        return merge_ledger.in_effect(merges, line)

    there = merged(fork)
    for one in merged(live):
        if merge_ledger.find_same_batch(there, one.input, one.content_hash) is None:
            raise NotAlignedError(
                f"a promotion would lose late events that were merged into {live} but not into "
                f"{fork}: {count_text(one.rows, 'event')}, batch {one.batch}",
                hint=f"merge them into the fork: savepoints merge {fork} "
                f"{_again(one, has_readers=has_readers)}; if they "
                f"are from before it began, add --across-promotions, or fork {live} again",
                query=fork,
                merge=one.id,
            )


def _command(fork: str, live: str, hand_over: HandOver, *, checks: bool) -> str:
    words = ["savepoints promote", fork, "--into", live, "--outputs", hand_over]
    return " ".join([*words, *([] if checks else ["--no-checks"]), "--yes"])


def _steps(
    live: str,
    fork: str,
    bound: QuerySettings,
    columns: Mapping[str, str],
    state: str,
    *,
    checks: bool,
) -> Iterator[Step]:
    meanwhile = ", which keeps running" if state in _RUNNING else ""
    yield Step("catch_up", f"run {fork} to the position of {live}{meanwhile}")
    if state != "stopped":
        yield Step("pause", f"pause {live} between two batches")
    yield Step("meet", f"run {live} and {fork} ({bound.app}) to exactly the same offsets")
    if checks:
        yield Step("checks", f"check {fork}; if a check fails, {live} continues unchanged")
    yield Step("fork_saved", f"take a savepoint of {fork} and of {live}")
    yield Step(
        "checkpoint_written", f"restore the savepoint of {fork} as the next generation of {live}"
    )
    for name, uri in sorted(bound.outputs.items()):
        if name in columns:
            yield Step(
                "outputs_taken_over",
                f"replace the rows of the live table {name} with those of {uri}{columns[name]}",
            )
        else:
            yield Step(f"output_{name}_rewound", f"make {live} write to {uri} from then on")
    yield Step("generation_begun", f"begin the next generation of {live} with {bound.app}")
    if state in _RUNNING:
        yield Step("resume", f"resume the run of {live}")


def _warnings(
    live: str, mine: QuerySettings, other: QuerySettings, hand_over: HandOver, state: str
) -> Iterator[str]:
    if hand_over == "replace":
        yield (
            "streaming readers of the live tables see all rows replaced in one commit; readers "
            "without skipChangeCommits fail and must start over"
        )
    else:
        for name, uri in sorted(other.outputs.items()):
            yield f"readers of {name} must switch from {mine.outputs.get(name)} to {uri}"
    if mine.app != other.app:
        yield (
            f"{live} continues with {other.app}; you can leave {mine.app} in its settings, or "
            "change them to the new program, including app_name and topics"
        )
    elif state != "stopped":
        yield (
            f"both queries run {mine.app}: the process of {live} keeps the code it has loaded; if "
            "the code has changed, stop that process first"
        )
    if state == "stopped":
        yield f"{live} is not running; start it afterwards: savepoints run {live}"


def _again(one: Merge, *, has_readers: bool) -> str:
    """Return the options of `merge` for the same events."""
    if one.batch == merge_ledger.DROPPED:
        return "--dropped"  # They can be merged into the query itself only.
    through = " --downstream merge" if has_readers else ""
    return f"--batch {one.batch}{through}"
