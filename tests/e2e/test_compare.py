"""`compare` on real parts: what differs is computed from the raw orders by pandas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from savepoints.checkpoint.logs import offset_log
from savepoints.cli.main import _run
from savepoints.cli.output import Terminal
from savepoints.config.settings import Settings
from savepoints.errors import IncompatibleError, StoppedError
from savepoints.io import Location
from savepoints.operations.fork import compare as fork_compare
from savepoints.operations.fork.verdict import Comparison
from savepoints.spark.versions import SparkVersion
from savepoints.store import bindings
from spark_jobs.orders.cdnow import orders_between, read_orders
from tests import draw
from tests.e2e.shop import BUGGY, RIGHT, Shop

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka]

BEGIN = date(1997, 1, 1)
DAY = timedelta(days=1)
FORKED, END = BEGIN + 3 * DAY, BEGIN + 5 * DAY
REVENUE = {"revenue": "SELECT sum(amount_cents) / 100 FROM totals"}


def truth() -> tuple[pd.Series, pd.Series]:
    """Return the cents of each customer by the right program, and by the wrong one since the fork.

    The wrong program multiplies each amount by the quantity.
    """
    orders = pd.DataFrame(orders_between(read_orders(), from_date=BEGIN, until_date=END))
    late = orders["ordered_at"] >= pd.Timestamp(FORKED, tz="UTC")
    wrong = orders["amount_cents"].where(~late, orders["amount_cents"] * orders["quantity"])
    by_customer = orders["customer_id"]
    return orders["amount_cents"].groupby(by_customer).sum(), wrong.groupby(by_customer).sum()


def batches(shop: Shop, query: str) -> dict[int, tuple[str | None, ...]]:
    """Return where the sources of a query were after each batch that its checkpoint keeps."""
    checkpoint = Location.of(shop.store.generations.current(query).checkpoint)
    names = [info.path for info in checkpoint.list("offsets") if info.path[8:].isdigit()]
    return {int(name[8:]): offset_log.parse(checkpoint.get(name), name).sources for name in names}


def in_batches_of(shop: Shop, most: int) -> Settings:
    """Return settings that name the forks too, with batches of another size."""
    completed = bindings.complete(shop.store)
    change = {"max_offsets_per_trigger": most}
    queries = {name: one.model_copy(update=change) for name, one in completed.queries.items()}
    return completed.model_copy(update={"queries": queries})


INSTALLED = SparkVersion.installed()
# Spark 3.5 says nowhere what state there is to read.
WITH_STATE = INSTALLED is None or INSTALLED.reads_rows


def compare(shop: Shop, *queries: str, settings: Settings) -> Comparison:
    store = shop.store.with_settings(settings)
    if not WITH_STATE:
        with pytest.raises(IncompatibleError, match="cannot read state") as refused:
            store.compare(*queries)
        assert f"savepoints compare {' '.join(queries)} --no-state" in refused.value.hint
    return store.compare(*queries, metrics=REVENUE, state=WITH_STATE).execute()


@contextmanager
def stopped_at_once(stop: Callable[[], None]) -> Iterator[None]:
    """Stand in for a signal that comes before the first batch."""
    stop()
    yield


@draw.taking_turns("compare", "promote", "drill")
def test_forks_see_the_same_batches_and_only_what_differs_is_found(
    spark: SparkSession,
    local_shop: Shop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two forks of the same program are the same, one with a bug differs as the bug says."""
    shop = local_shop
    shop.sell(BEGIN, FORKED)
    shop.run()
    saved = shop.store.catalog.find("latest")
    for names, app in (("a", "b"), RIGHT), (("bug",), BUGGY):
        shop.store.savepoint(saved.id).fork(*names, app=app).execute()
    read = shop.sell(FORKED, END)
    live = batches(shop, "order_totals")
    # One of them is ahead, in other batches than it would run here.
    ahead = in_batches_of(shop, read // 2 + 1)
    ran, _ = shop.store.with_settings(ahead).query("b").run(until="latest")
    assert ran.batches > 1
    bound = in_batches_of(shop, read)

    with monkeypatch.context() as patch:
        patch.setattr(fork_compare, "stopped_by_signals", stopped_at_once)
        with pytest.raises(StoppedError, match=f"while a had {read} records left to read"):
            compare(shop, "a", "b", "bug", settings=bound)

    found = compare(shop, "a", "b", "bug", settings=bound)

    right, wrong = truth()
    assert found.same_batches
    assert found.notes == ()
    assert batches(shop, "a") == batches(shop, "b") == batches(shop, "bug")
    assert batches(shop, "order_totals") == live, "the live query was touched"
    assert [one.begun_from for one in found.variants] == [saved.id] * 3
    assert {one.metrics["revenue"] for one in found.variants[:2]} == {right.sum() / 100}
    same, different = found.pairs
    assert (found.verdict, same.verdict, different.verdict) == ("different", "same", "different")
    assert same.reasons == ()
    assert same.outputs[0].equal == len(right)
    if WITH_STATE:
        assert same.state
        assert different.state
        assert (same.state.rows, different.state.rows) == (0, len((wrong - right)[wrong != right]))

    more = (wrong - right)[wrong != right]
    (totals,) = different.outputs
    assert (totals.key, totals.missing, totals.extra) == (("customer_id",), 0, 0)
    assert totals.changed == len(more)
    cents = next(one for one in totals.changes if one.column == "amount_cents")
    assert (cents.rows, cents.sum, cents.max) == (len(more), more.sum(), more.max())
    for one in totals.sample:
        customer = one.key["customer_id"]
        assert one.before
        assert one.after
        assert one.before["amount_cents"] == right[customer]
        assert one.after["amount_cents"] == wrong[customer]
    assert different.metrics[0].difference == pytest.approx(more.sum() / 100)
    costs = {one.query: one.cost for one in found.variants}
    assert costs["a"]
    assert costs["b"] is None, "it had nothing left to run"
    assert (costs["a"].input_rows, costs["a"].batches) == (read, ran.batches)

    monkeypatch.chdir(shop.directory)
    page = tmp_path / "report.html"
    capsys.readouterr()
    code = _run(
        Terminal(),
        ["compare", "a", "bug", "--report", str(page), "--no-state", "--yes", "-o", "json"],
    )
    assert code == 3
    document = json.loads(capsys.readouterr().out)["comparison"]
    assert (document["verdict"], document["same_batches"]) == ("different", None)
    assert [one["savepoint"] for one in document["variants"]] == [
        one.savepoint for one in found.variants if one.query != "b"
    ], "nothing was run, so no savepoint was needed"
    assert document["pairs"][0]["state"] is None
    assert document["pairs"][0]["outputs"][0]["changed"] == len(more)
    assert "amount_cents" in page.read_text()
