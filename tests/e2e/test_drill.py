"""`drill` on real parts: the restored query, replayed, is what live is; and when it is not."""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from savepoints.model import FORMS
from savepoints.operations.inspect.drill import drill
from tests import draw
from tests.e2e.shop import BUGGY, QUERY, Shop
from tests.samples import contents

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka]

BEGIN = date(1997, 1, 1)
DAY = timedelta(days=1)


@draw.taking_turns("drill", "compare", "promote")
def test_a_drill_restores_replays_to_live_and_compares(
    spark: SparkSession, local_shop: Shop
) -> None:
    """Nothing of live is touched."""
    shop = local_shop
    shop.sell(BEGIN, BEGIN + 3 * DAY)
    shop.run()
    saved = shop.store.catalog.find("latest")

    shop.sell(BEGIN + 3 * DAY, BEGIN + 4 * DAY)
    shop.run(save=False)
    root = shop.store.root.of(shop.root)
    before = {name: contents(root / name) for name in ("checkpoints", "totals")}

    done = drill(shop.store, saved.id)

    assert (done.verdict, done.differences) == ("same", ())
    assert done.live_batch == done.batch_id + 1
    assert 0 < done.restore_seconds < done.seconds
    assert before == {name: contents(root / name) for name in ("checkpoints", "totals")}
    assert shop.store.root.list("scratch") == []
    event = shop.store.events.all()[0]
    assert (event.verb, event.result, event.savepoint) == ("drill", "done", saved.id)
    assert "same" in event.message


@pytest.mark.nightly
def test_each_form_is_restored_alone_and_another_program_is_told_apart(
    spark: SparkSession, local_shop: Shop
) -> None:
    shop = local_shop
    shop.sell(BEGIN, BEGIN + 3 * DAY)
    shop.run(forms=FORMS)
    saved = shop.store.catalog.find("latest")

    alone = shop.settings.model_copy(update={"queries": {}})
    for form in FORMS:
        done = drill(shop.store.with_settings(alone), form=form)
        assert (done.verdict, done.live_batch, done.form) == ("restored", None, form)

    shop.sell(BEGIN + 3 * DAY, BEGIN + 6 * DAY)
    shop.run(BUGGY, save=False)

    done = drill(shop.store, saved.id)

    assert done.verdict == "different"
    assert {one.what for one in done.differences} >= {"output totals"}
    assert shop.store.events.all()[0].result == "failed"


@pytest.mark.nightly
def test_trap_a_drill_of_a_shared_table_compared_the_rows_of_others(
    spark: SparkSession, local_shop: Shop
) -> None:
    """Theirs since the savepoint were missing in the replay; another program is still seen."""
    shop = local_shop
    bound = shop.settings.queries[QUERY]
    shared = bound.model_copy(update={"own_rows": {"totals": "customer_id > 0"}})
    store = shop.store.with_settings(shop.settings.model_copy(update={"queries": {QUERY: shared}}))
    shop.sell(BEGIN, BEGIN + 3 * DAY)
    shop.run()
    saved = shop.store.catalog.find("latest")
    table = DeltaTable(shop.table).to_pyarrow_table()
    theirs = table.slice(0, 1).set_column(
        table.schema.get_field_index("customer_id"),
        table.schema.field("customer_id"),
        pa.array([-1], table.schema.field("customer_id").type),
    )
    write_deltalake(shop.table, theirs, mode="append")
    shop.sell(BEGIN + 3 * DAY, BEGIN + 4 * DAY)
    shop.run(save=False)

    assert drill(store, saved.id).verdict == "same"
    assert drill(shop.store, saved.id).verdict == "different"

    shop.sell(BEGIN + 4 * DAY, BEGIN + 6 * DAY)
    shop.run(BUGGY, save=False)
    assert {one.what for one in drill(store, saved.id).differences} >= {"output totals"}
    _, said, _ = shop.call("drill", saved.id)
    assert "depend on the order of rows" in " ".join(said.split())
