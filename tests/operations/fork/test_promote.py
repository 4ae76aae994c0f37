"""`promote` without a JVM: refusals, and its journalled part, killed, finished, undone."""

from __future__ import annotations

import dataclasses
import signal

import pytest

from savepoints.checkpoint.cut import read_query_id
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import (
    IncompatibleError,
    NotAlignedError,
    QueryNotFoundError,
    UnfinishedOperationError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import new_id
from savepoints.moments import rfc3339, utc_now
from savepoints.operations.fork import promote, promote_plan, promote_steps
from savepoints.operations.fork.promote_steps import PromotionPlan
from savepoints.operations.inspect.locate import locate
from savepoints.operations.rollback import rollback
from savepoints.operations.rollback.target import BeforeLast
from savepoints.operations.run import overtaken
from savepoints.operations.run.run import run
from savepoints.plan import silent
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.locks.journal import Journal, Operation
from tests.draw import some
from tests.operations.fork.test_fork import (
    ORIGIN,
    SAVED,
    Origin,
    origin,
    rows,
    transactions,
)
from tests.processes import script_killed_at
from tests.samples import merge, query_id

pytestmark = pytest.mark.drawn(3)

__all__ = ["origin"]  # A fixture.

V2 = "spark_jobs.order_tiers_v2:app"
STEPS = (
    "promote.begun",
    "promote.safety_savepoint",
    "promote.fork_saved",
    "promote.checkpoint_written",
    "promote.output_totals_rewound",
    "promote.generation_begun",
    "promote.settled",
    "promote.finished",
)


PROMOTE = """
import sys
from savepoints.config.settings import Settings
from tests.operations.fork.test_promote import carried_out

settings = Settings.model_validate_json(sys.argv[2])
carried_out(Store.at(sys.argv[1], settings=settings).make())
"""


def planned(shop: Origin) -> PromotionPlan:
    """Plan what follows when both stand still; here they stand where they are."""
    return _planned(shop.store)


def _planned(store: Store) -> PromotionPlan:
    return promote_steps.plan(
        store,
        store.generations.current(ORIGIN),
        store.generations.current("variant"),
        hand_over="point",
        command="savepoints promote variant --yes",
        paused=False,
    )


def carry_out(shop: Origin, plan: PromotionPlan) -> None:
    with lease.hold(shop.store.root, ORIGIN, "promote") as held:
        promote_steps.carry_out(plan, shop.store, held, progress=silent)


def carried_out(store: Store) -> None:
    """Plan and carry out: what a process does that is to be killed."""
    with lease.hold(store.root, ORIGIN, "promote") as held:
        plan = _planned(store)
        promote_steps.carry_out(plan, store, held, progress=silent)


def kill(shop: Origin, point: str) -> None:
    given = (str(shop.store.root), shop.settings.model_dump_json())
    assert script_killed_at(point, PROMOTE, *given) == -signal.SIGKILL


def now(shop: Origin) -> QuerySettings:
    """Return what the live query is bound to."""
    return bindings.complete(shop.store).queries[ORIGIN]


@pytest.fixture
def forked(origin: Origin) -> Origin:
    """Give a query and a fork of it with another program, in a table of its own."""
    shop = origin.with_table(
        "variant", app=V2, app_name="order_tiers_v2", outputs={"totals": str(origin.place / "v2")}
    )
    shop.fork(check_source=False)
    return shop


def test_the_live_query_goes_on_as_its_fork_in_the_fork_s_table(forked: Origin) -> None:
    shop, old = forked, forked.settings.queries[ORIGIN]
    carry_out(shop, planned(shop))

    live = shop.store.generations.current(ORIGIN)
    assert (live.generation, live.begun_by) == (2, "promote")
    assert read_query_id(Location.of(live.checkpoint)) == query_id("rocksdb"), "it stays the query"
    bound = now(shop)
    assert (bound.app, bound.app_name) == (V2, "order_tiers_v2")
    assert bound.outputs == {"totals": str(shop.place / "v2")}
    assert (bound.every, bound.checkpoints) == (old.every, old.checkpoints), "all else is its own"
    assert locate(shop.store, ORIGIN).outputs == bound.outputs
    assert transactions(bound.outputs["totals"])[f"{ORIGIN}/totals/2"] == SAVED
    first = shop.store.catalog.find("latest", query=ORIGIN)
    assert (first.generation, first.cut.batch_id) == (2, SAVED)
    with pytest.raises(QueryNotFoundError, match="promoted to order_totals"):
        run(shop.store, "variant")


@pytest.mark.parametrize("point", some(2, STEPS, "promote"))
def test_killed_anywhere_it_is_finished_by_its_journal(forked: Origin, point: str) -> None:
    shop = forked
    kill(shop, point)
    for query in (ORIGIN, "variant"):
        with pytest.raises(UnfinishedOperationError):
            journal.refuse_unfinished(shop.store.root, query)
    operation = journal.unfinished(shop.store.root, ORIGIN)
    assert operation is not None

    promote.finish(PromotionPlan.from_json(dict(operation.plan)), shop.store)

    assert journal.unfinished(shop.store.root, "variant") is None
    assert [one.status for one in shop.store.generations.all(ORIGIN)] == ["current", "ended"]
    assert shop.store.generations.find_current("variant") is None
    assert now(shop).app == V2
    assert len({one.id for one in shop.store.catalog.all() if one.generation == 2}) == 1


@pytest.mark.parametrize("point", some(1, STEPS[:-3], "promote undone"))
def test_killed_and_taken_back_nothing_has_happened(forked: Origin, point: str) -> None:
    shop = forked
    before = now(shop)
    kill(shop, point)
    operation = journal.unfinished(shop.store.root, ORIGIN)
    assert operation is not None

    promote.undo(PromotionPlan.from_json(dict(operation.plan)), shop.store)

    assert now(shop) == before
    assert bindings.find(shop.store.root, ORIGIN, 2) is None
    assert shop.store.generations.current("variant").generation == 1
    assert transactions(str(shop.place / "v2")).get(f"{ORIGIN}/totals/2", -1) == -1
    carry_out(shop, planned(shop))  # And it can be done once more.
    assert now(shop).app == V2


def test_trap_a_driver_goes_on_in_the_table_of_before(forked: Origin) -> None:
    """Readers are pointed at the fork's, and would never see what the driver writes."""
    shop, new = forked, {"totals": str(forked.place / "v2")}
    carry_out(shop, planned(shop))
    live = shop.store.generations.current(ORIGIN)
    without_settings = Store.open(str(shop.store.root), settings=Settings())

    for store in (shop.store, without_settings):
        with pytest.raises(NotAlignedError, match=r"writes its output totals to .*/v2, but this"):
            overtaken.refuse_elsewhere(store, live, {"out": shop.table})
        for outputs in (new, {}):
            overtaken.refuse_elsewhere(store, live, outputs)

    back = rollback.plan(shop.store, BeforeLast(), query=ORIGIN, check_source=False)
    rollback.execute(back, shop.store)
    live = shop.store.generations.current(ORIGIN)
    overtaken.refuse_elsewhere(without_settings, live, {"out": shop.table})


def test_undone_the_old_program_goes_on_in_the_old_table(forked: Origin) -> None:
    """Also when somebody has written the new ones into the settings meanwhile."""
    shop = forked
    old = now(shop)
    carry_out(shop, planned(shop))
    followed = dataclasses.replace(
        shop,
        store=shop.store.with_settings(
            shop.settings.model_copy(
                update={"queries": {**shop.settings.queries, ORIGIN: now(shop)}}
            )
        ),
    )

    back = rollback.plan(followed.store, BeforeLast(), query=ORIGIN, check_source=False)
    rollback.execute(back, followed.store)

    assert now(followed) == old
    assert rows(shop.table) == [0, 1, 2, 3], "it was never touched"


def test_what_has_taken_over_and_not_moved_is_not_promoted_again(forked: Origin) -> None:
    shop = forked
    plan = dataclasses.replace(planned(shop), hand_over="replace")
    carry_out(shop, plan)  # Without tables to give it rows: the fork stays.

    with pytest.raises(UsageError, match="was already promoted to order_totals"):
        promote_plan.plan(shop.store, "variant")


def test_trap_forks_that_read_each_other_were_left_without_the_late_events_of_one(
    forked: Origin,
) -> None:
    """Merged into the one fork alone, its readers would take over without them."""
    saved = forked.store.catalog.find("latest", query=ORIGIN)
    again = rollback.plan(forked.store, saved.id, rewind_outputs=False)
    number = rollback.execute(again, forked.store).generation
    live = merge(ORIGIN, {"orders": {0: 1}}, utc_now())
    forked.store.ledger.add(dataclasses.replace(live, generation=number, content_hash="late"))

    for has_readers, words in ((True, " --downstream merge;"), (False, ";")):
        with pytest.raises(NotAlignedError, match="would lose late events") as refused:
            promote_plan.plan(forked.store, "variant", has_readers=has_readers)
        assert f"savepoints merge variant --batch late.parquet{words}" in refused.value.hint


def test_trap_only_a_rollback_says_that_it_writes_into_the_checkpoint_it_leaves(
    forked: Origin,
) -> None:
    inside = forked.store.generations.current(ORIGIN).checkpoint
    live = forked.settings.queries[ORIGIN].model_copy(update={"checkpoints": inside})
    queries = {**forked.settings.queries, ORIGIN: live}
    store = forked.store.with_settings(forked.settings.model_copy(update={"queries": queries}))

    def said(store: Store) -> list[str]:
        return [one for one in promote_plan.plan(store, "variant").warnings if "inside" in one]

    assert [f"{inside}/{ORIGIN}/2 lies inside" in one for one in said(store)] == [True]
    assert said(forked.store) == []


def test_trap_an_operation_on_the_fork_is_interrupted_after_the_plan(forked: Origin) -> None:
    """A rollback that was killed may have taken back tables of rows that would be promoted."""
    store = forked.store
    plan = promote_plan.plan(store, "variant", hand_over="point")
    begun = Operation(new_id("op", utc_now()), "rollback", "variant", {}, "x", rfc3339(utc_now()))
    Journal.begin(store.root, begun)

    with pytest.raises(UnfinishedOperationError, match=begun.id):
        promote.execute(plan, store)


def test_a_clone_is_not_what_readers_are_pointed_at(origin: Origin) -> None:
    origin.fork(way="clone")

    with pytest.raises(IncompatibleError, match="shallow clone"):
        promote_plan.plan(origin.store, "variant", hand_over="point")


def test_only_a_fork_knows_whom_it_takes_over_from(origin: Origin) -> None:
    with pytest.raises(UsageError, match="was not created by"):
        promote_plan.plan(origin.store, ORIGIN)
    with pytest.raises(QueryNotFoundError):
        promote_plan.plan(origin.store, "nobody")


def test_other_outputs_cannot_be_handed_over(forked: Origin) -> None:
    shop = forked
    more = {**shop.settings.queries[ORIGIN].outputs, "audit": str(shop.place / "audit")}
    live = shop.settings.queries[ORIGIN].model_copy(update={"outputs": more})
    settings = shop.settings.model_copy(update={"queries": {**shop.settings.queries, ORIGIN: live}})

    with pytest.raises(
        UsageError,
        match="but order_totals writes audit, totals",
    ):
        promote_plan.plan(shop.store.with_settings(settings), "variant")
