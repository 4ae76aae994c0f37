"""A second version of silver with gold behind it: forked, compared, promoted; pandas as truth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from savepoints.config.settings import PromoteSettings
from savepoints.errors import CheckFailedError, UsageError
from savepoints.operations import unfinished
from savepoints.operations.pipeline_fork.pipeline_fork import PipelineForked
from savepoints.operations.pipeline_rollback import pipeline_rollback
from savepoints.operations.rollback import last_operation
from savepoints.outputs.delta.batch_version import open_table
from savepoints.store.locks import journal
from tests.e2e.tables_shop import FIXED, RIGHT, TablesShop
from tests.killed import killed_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> TablesShop:
    """A group is taken while gold is behind silver; then both go on, with the bug."""
    shop = TablesShop(tmp_path)
    shop.sell(9)
    shop.run()
    shop.sell(8)
    shop.run("silver")
    shop.store.query("silver").create_group(name="before").execute()
    shop.sell(10)
    shop.run()
    return shop


SAVED = 17
REVENUE = {
    "revenue": "SELECT sum(amount_cents) FROM days",
    "rows": "SELECT (SELECT count(*) FROM lines) + (SELECT count(*) FROM days)",
}


def forked(shop: TablesShop, name: str = "fix", app: str | None = FIXED) -> PipelineForked:
    apps = {"silver": app} if app else {}
    return shop.store.query("silver").fork_pipeline("before", name, apps=apps).execute()


def test_trap_a_metric_that_cannot_be_measured_is_refused_by_name(shop: TablesShop) -> None:
    forked(shop)
    wrong = shop.measuring({"typo": "SELECT sum(amount_cent) FROM lines"}).query("silver")

    comparing = wrong.compare_pipeline("fix")

    assert "compare the metrics typo" in str(comparing)
    with pytest.raises(UsageError, match="the metric typo cannot be computed"):
        comparing.execute()
    promoting = shop.measuring(REVENUE, promote=PromoteSettings(compare=True)).query("silver")
    with pytest.raises(CheckFailedError, match="metrics: different; metric revenue"):
        promoting.promote_pipeline("fix").execute()


def tables(name: str, shop: TablesShop) -> dict[str, str]:
    return {level: shop.uri(f"{level}_forks/{level}_{name}") for level in ("silver", "gold")}


def days_of(shop: TablesShop, numbers: range) -> set[tuple[pd.Timestamp, str]]:
    """Return the keys of gold that some orders count for."""
    lines = shop.truth()["silver"].iloc[list(numbers)]
    return set(zip(lines["ordered_at"].dt.floor("1D"), lines["tier"], strict=True))


def test_a_fix_is_forked_compared_promoted_and_undone(shop: TablesShop) -> None:
    made = forked(shop)

    assert [one.query for one in made.forks] == ["silver_fix", "gold_fix"]
    # The forks stand at the group; gold has read what it had not read of silver.
    assert shop.differing(shop.truth(count=SAVED), tables("fix", shop)) == RIGHT
    assert shop.differing(shop.truth()) == RIGHT
    shop.run("silver_fix", "gold_fix")
    shop.sell(7)
    after = range(SAVED, len(shop.orders))

    found = shop.measuring(REVENUE).query("gold").compare_pipeline("fix").execute()

    fixed = shop.truth(fixed=after)
    assert shop.differing(fixed, tables("fix", shop)) == RIGHT
    assert shop.differing(shop.truth()) == RIGHT
    silver, gold = (level.pairs[0] for level in found.levels)
    assert found.verdict == "different"
    lines = silver.outputs[0]
    assert (lines.equal, lines.different_rows) == (SAVED, 2 * len(after))
    changed = days_of(shop, after)
    days = gold.outputs[0]
    assert (days.changed, days.equal) == (len(changed), len(fixed["gold"]) - len(changed))
    # One metric sees silver's lines and gold's days; it is judged, and so is what was run paid for.
    revenue, both = (
        [frames["gold"]["amount_cents"].sum(), len(frames["silver"]) + len(frames["gold"])]
        for frames in (shop.truth(), fixed)
    )
    assert [(one.name, one.before, one.after) for one in found.metrics] == [
        ("revenue", revenue[0], both[0]),
        ("rows", revenue[1], both[1]),
    ]
    assert [one.partition(":")[0] for one in found.reasons] == ["metric revenue"]
    costs = {one.query: one.cost for level in found.levels for one in level.variants}
    # The forks had read all but the last orders; silver reads a row of each, gold those of silver.
    assert {name: cost.input_rows for name, cost in costs.items() if cost} == dict.fromkeys(
        ("silver", "silver_fix", "gold", "gold_fix"), 7
    )

    shop.store.query("silver").promote_pipeline("fix").execute()

    assert shop.differing(fixed) == RIGHT
    shop.sell(6)
    shop.run()
    later = range(SAVED, len(shop.orders))
    assert shop.differing(shop.truth(fixed=later)) == RIGHT
    # The fork stays as it was.
    assert shop.differing(fixed, tables("fix", shop)) == RIGHT

    last = last_operation.require(shop.store, "gold")
    back = unfinished.undo_together_plan(shop.store, last)
    assert back is not None
    pipeline_rollback.execute(back, shop.store)

    assert shop.differing(shop.truth(count=after.stop)) == RIGHT
    shop.run()
    assert shop.differing(shop.truth()) == RIGHT


def test_a_fork_with_the_same_programs_is_the_same(shop: TablesShop) -> None:
    """The negative control of a comparison; and clones read the files of the originals."""
    plan = shop.store.query("silver").fork_pipeline("before", "same", outputs="clone")
    assert plan.execute().forks[1].origin == "gold"
    shop.sell(5)

    found = shop.store.query("silver").compare_pipeline("same").execute()

    assert [level.verdict for level in found.levels] == ["same", "same"]
    # The others are the same as what pandas has. (deltalake does not read clones.)
    assert shop.differing(shop.truth()) == RIGHT


PROMOTING = (
    "caught_up",
    "met",
    "checked",
    "begun",
    "silver.safety_savepoint",
    "gold.fork_saved",
    "silver.checkpoint_written",
    "silver.outputs_taken_over",
    "gold.outputs_taken_over",
    "gold.followed",
    "gold.generation_begun",
    "silver.generation_begun",
    "silver.settled",
    "gold.settled",
    "finished",
)


UNDONE = ("gold.checkpoint_written", "silver.outputs_taken_over", "gold.followed")


def undo(shop: TablesShop) -> None:
    (begun,) = journal.all_unfinished(shop.store.root)
    unfinished.undo(shop.store, begun.id)


def promoted(shop: TablesShop) -> None:
    shop.store.query("silver").promote_pipeline("fix").execute()


def test_a_fork_killed_while_gold_reads_up_to_the_group_goes_on_or_is_undone(
    shop: TablesShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other steps: tests/operations/pipeline_fork."""
    killed_at(monkeypatch, "pipeline fork.gold_fix.caught_up", lambda: forked(shop))
    undo(shop)
    assert shop.store.queries() == ["gold", "silver"]
    assert not list((shop.directory / "gold_forks").rglob("*.parquet"))
    for point in ("gold_fix.caught_up", "gold_fix.followed"):
        killed_at(monkeypatch, f"pipeline fork.{point}", lambda: forked(shop))

    assert [one.query for one in forked(shop).forks] == ["silver_fix", "gold_fix"]

    assert shop.differing(shop.truth(count=SAVED), tables("fix", shop)) == RIGHT


def test_a_promotion_killed_at_each_step_goes_on(
    shop: TablesShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked(shop)

    for point in PROMOTING:
        killed_at(monkeypatch, f"pipeline promote.{point}", lambda: promoted(shop))
    promoted(shop)

    assert not journal.all_unfinished(shop.store.root)
    shop.sell(6)
    shop.run()
    after = range(SAVED, len(shop.orders))
    assert shop.differing(shop.truth(fixed=after)) == RIGHT


def test_a_promotion_killed_and_undone_leaves_the_pipeline_as_it_was(
    shop: TablesShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when a live table has the fork's rows already, and when the undo is killed, too."""
    forked(shop)

    for number, point in enumerate(UNDONE):
        killed_at(monkeypatch, f"pipeline promote.{point}", lambda: promoted(shop))
        if number:
            killed_at(monkeypatch, "pipeline promote.undo_checkpoints", lambda: undo(shop))
        undo(shop)
        assert shop.differing(shop.truth()) == RIGHT
    shop.sell(6)
    shop.run()
    assert shop.differing(shop.truth()) == RIGHT
    promoted(shop)
    after = range(SAVED, len(shop.orders))
    assert shop.differing(shop.truth(fixed=after)) == RIGHT


def test_trap_a_fork_that_kept_the_position_in_the_original_table_fails(
    shop: TablesShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta refuses to go on in another table: its id is in the position."""
    from savepoints.operations.pipeline import follow

    with monkeypatch.context() as patch:
        patch.setattr(follow, "go_on_at", lambda *_: None)
        forked(shop)
    version = open_table(tables("fix", shop)["gold"]).version()
    with pytest.raises(Exception, match=r"DELTA_\w+"):
        shop.run("gold_fix")
    assert open_table(tables("fix", shop)["gold"]).version() == version
