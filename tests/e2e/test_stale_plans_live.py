"""Plans of verbs that need Spark, carried out after somebody else has acted: right, or refused.

The verbs of `tests/operations/test_stale_plans.py` need none. Whatever came first, the query then
runs on, and its table is compared with pandas over the raw orders.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pytest

import savepoints
from savepoints.errors import NotAlignedError
from savepoints.model import Savepoint
from savepoints.operations.fork import promote, promote_plan
from savepoints.operations.merge import merge as merging
from savepoints.operations.migrate import edit
from savepoints.operations.rollback import reset, rollback
from savepoints.operations.rollback.target import BeforeLast
from savepoints.sources.kafka.reset_targets import Target
from savepoints.store.locks import journal
from tests.e2e.late_shop import day, differing, ids, late_orders, prepared, written
from tests.e2e.marks import NIGHTLY
from tests.e2e.shop import QUERY, RIGHT, Shop

pytestmark = NIGHTLY

HELD = late_orders(0, 2)
FORK = "again"


@dataclass
class Bench:
    """A shop with late orders, a savepoint to go back to, and a fork.

    Attributes:
        shop: The shop.
        good: Its first savepoint.
        end: The day before which all orders but the late ones were sold.
        merged: Whether the late ones are in.
    """

    shop: Shop
    good: Savepoint
    end: date
    merged: bool = False

    def require_right(self) -> None:
        """All orders have their effect once, by pandas, when the query has gone on."""
        shop = self.shop
        assert journal.unfinished(shop.store.root, QUERY) is None
        tomorrow = self.end + timedelta(days=1)
        shop.sell(self.end, tomorrow)
        self.end = tomorrow
        shop.run()
        missing = set() if self.merged else ids(HELD)
        assert differing(shop, self.end, without=missing) == 0


@pytest.fixture
def bench(local_shop: Shop) -> Bench:
    shop = local_shop
    shop.sell(day(0), day(2), without=ids(HELD))
    shop.run(forms=("native", "canonical"))
    good = shop.store.catalog.find("latest")
    shop.store.savepoint(good.id).fork(FORK, app=RIGHT).execute()
    shop.sell(day(2), day(3))
    shop.run()
    return Bench(shop, good, day(3))


# What carries the plan out, and whether the late orders are in afterwards; None: as before.
Planned = tuple[Callable[[], object], bool | None]


def go_back(bench: Bench) -> Planned:
    shop = bench.shop
    plan = rollback.plan(shop.store, bench.good.id)
    return lambda: rollback.execute(plan, shop.store), False


def undo(bench: Bench) -> Planned:
    """Take back the last rollback; the first is done here if none was."""
    shop = bench.shop
    before = bench.merged
    if shop.store.generations.current(QUERY).begun_by not in {"rollback", "reset"}:
        execute, _ = go_back(bench)
        execute()
    else:
        before = False
    plan = rollback.plan(shop.store, BeforeLast(), query=QUERY)
    bench.merged = False
    return lambda: rollback.execute(plan, shop.store), before


def begin_again(bench: Bench) -> Planned:
    shop = bench.shop
    plan = reset.plan(shop.store, QUERY, Target("earliest"), outputs="truncate")
    return lambda: reset.execute(plan, shop.store), False


def merge(bench: Bench) -> Planned:
    shop = bench.shop
    found = prepared(shop, written(shop, HELD))
    return lambda: merging.execute(found, shop.store), True


def take_over(bench: Bench) -> Planned:
    """By the same program, forked before the late orders came."""
    shop = bench.shop
    plan = promote_plan.plan(shop.store, FORK)
    return lambda: promote.execute(plan, shop.store), False


def edited(bench: Bench) -> Planned:
    """Another savepoint; the query itself is not concerned."""
    shop = bench.shop
    change = savepoints.StateEdit(where="true", delete=True)
    plan = edit.plan(shop.store, bench.good.id, change, reason="a test", at_most=10**6)
    return lambda: edit.execute(plan, shop.store, change), None


def back_to_edited(bench: Bench) -> Planned:
    """To a savepoint that was edited there and back, so that its state is that of the good one."""
    shop, last = bench.shop, bench.good.id
    for sign in "+-":
        change = savepoints.StateEdit(assignments=(f"count = count {sign} 1",))
        change_plan = edit.plan(shop.store, last, change, reason="a test", at_most=10**6)
        last = edit.execute(change_plan, shop.store, change).id
    plan = rollback.plan(shop.store, last)
    return lambda: rollback.execute(plan, shop.store), False


VERBS: dict[str, Callable[[Bench], Planned]] = {
    "rollback": go_back,
    "rollback --undo": undo,
    "reset": begin_again,
    "merge": merge,
    "promote": take_over,
    "edit": edited,
    "rollback to an edit": back_to_edited,
}


def refusals(planned: str, meanwhile: str) -> tuple[type[Exception], ...]:
    """Return how a plan may be refused: not at all where what came before has no part in it.

    A rollback and a reset are made from the savepoints that there are, which an edit adds to.
    """
    apart = planned == "edit" or (meanwhile == "edit" and planned in {"merge", "promote"})
    return () if apart else (NotAlignedError,)


def carry_out(bench: Bench, planned: Planned) -> None:
    execute, merged = planned
    execute()
    bench.merged = bench.merged if merged is None else merged


@pytest.mark.parametrize(("planned", "meanwhile"), list(itertools.product(VERBS, VERBS)))
def test_what_was_planned_before_somebody_acted_is_refused_or_right(
    bench: Bench, planned: str, meanwhile: str
) -> None:
    late: Any = VERBS[planned](bench)
    carry_out(bench, VERBS[meanwhile](bench))

    try:
        carry_out(bench, late)
        print(f"{planned} after {meanwhile}: done")
    except refusals(planned, meanwhile) as refused:
        print(f"{planned} after {meanwhile}: {type(refused).__name__}: {refused}")

    bench.require_right()
