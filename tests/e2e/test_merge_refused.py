"""Merges that are refused leave everything as it was; bad rows can be set aside instead."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from savepoints.errors import IncompatibleError, NotAlignedError
from savepoints.local import LocalWorld
from savepoints.operations.merge import merge as merging
from savepoints.operations.merge.prepare import Prepared
from savepoints.runtime.app import load
from savepoints.runtime.inputs import Inputs
from savepoints.sources.combined import archiving_query
from savepoints.sources.combined.archiving_query import Archiving
from spark_jobs.orders.cdnow import Order
from spark_jobs.orders.producer import produce
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.late_shop import (
    Standing,
    day,
    differing,
    ids,
    late_orders,
    merge,
    prepared,
    written,
)
from tests.e2e.shop import QUERY, Shop, called
from tests.fidelity.driver_job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(1800),
]


def row(order: Order, **other: object) -> dict[str, object]:
    values = {**vars(order), "ordered_at": order.ordered_at.isoformat(), **other}
    return {name: value for name, value in values.items() if value is not None}


def refused(shop: Shop, batch: Path, code: int, *more: str) -> str:
    """Try to merge; return what was said, and check that nothing was changed."""
    before = Standing.of(shop)
    config = str(shop.directory / "savepoints.toml")
    words = ["merge", QUERY, "--batch", str(batch), "--yes", "--config", config, *more]
    found, _, said = called(*words)
    assert found == code, said
    assert Standing.of(shop) == before
    return said


def require_refused(shop: Shop, plan: Prepared, why: str) -> None:
    """Check that a plan that is out of date is refused, thrown away, and changes nothing else."""
    before = replace(Standing.of(shop), scratch=())
    with pytest.raises(NotAlignedError, match=why) as error:
        merging.execute(plan, shop.store)
    assert error.value.exit_code == 13
    assert Standing.of(shop) == before


def with_bad_rows(good: Sequence[Order], file: Path) -> dict[str, int]:
    """Write a batch in which every tenth line is garbage; return its bad rows by reason."""
    some = good[0]
    lines = [json.dumps(row(one)) for one in good]
    lines += [json.dumps(row(some, order_id=f"no-customer-{n}", customer_id=None)) for n in (1, 2)]
    lines += [json.dumps(row(some, order_id="no-time", ordered_at=None))]
    future = (some.ordered_at + timedelta(days=9999)).isoformat()
    lines += [json.dumps(row(some, order_id="future", ordered_at=future))]
    garbage = ["{ no order" for _ in lines[::9]]
    file.write_text("\n".join([*lines, *garbage]))
    return {"no entity": 2, "no event time": 1, "later": 1, "not readable": len(garbage)}


def require_known_otherwise(shop: Shop) -> None:
    """Check what becomes of events that the query knows with another amount, or customer."""
    sold = sorted(late_orders(0, 4, of=2), key=lambda one: one.customer_id)
    first, mine = next(two for two in pairwise(sold) if two[0].customer_id == two[1].customer_id)
    other = next(one for one in sold if one.customer_id != first.customer_id)
    changed = shop.directory / "changed.json"
    dearer = row(first, amount_cents=first.amount_cents + 1)
    changed.write_text("\n".join(map(json.dumps, (dearer, row(other)))))
    before = Standing.of(shop)
    config = str(shop.directory / "savepoints.toml")
    code, out, said = called("merge", QUERY, "--batch", str(changed), "--yes", "--config", config)
    assert (code, Standing.of(shop)) == (0, before)
    assert f"1 event of the batch that {QUERY} has already seen with other content" in out + said
    assert f"for example event {first.order_id}: to correct" in out + said

    moved = shop.directory / "moved.json"
    rows = (row(first, customer_id=other.customer_id), row(mine))
    moved.write_text("\n".join(map(json.dumps, rows)))
    assert f"has seen the event {first.order_id} of the late batch under" in refused(
        shop, moved, 16
    )


def test_trap_an_archive_of_events_with_other_ids_is_not_merged_from(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """What has arrived would not be known again by its new id, and be merged once more."""
    desk = LateDesk.open(world, spark, tmp_path, "windowed")
    known = Event("1", "a", 1, 3)
    desk.arrive([known, Event("2", "b", 2, 55)])
    bound = desk.desk.settings.queries[desk.desk.query]
    inputs = Inputs(load(bound.app), bound, desk.desk.settings.kafka)
    before = replace(inputs.decoding("events"), event_id=("id", "k"))
    uri, topic = inputs.archive("events"), inputs.topic("events")
    what = Archiving(uri, topic, before, desk.desk.settings.kafka)
    assert archiving_query.start(spark, what).awaitTermination(120)
    batch = desk.write([known])

    with pytest.raises(IncompatibleError, match=f"archived at {uri}: {topic} partition . offset 0"):
        desk.prepare(batch)
    with pytest.raises(IncompatibleError, match="decodes events differently"):
        desk.archive()


def test_bad_batches_and_stale_plans_change_nothing(local_shop: Shop) -> None:
    """One shop, one attempt after the other; the good rows of the last batch are merged.

    A plan is stale when the query has begun another generation since, or when an order that it is
    about has arrived in the topic by itself.
    """
    shop, held = local_shop, late_orders(0, 3)
    shop.sell(day(0), day(4), without=ids(held))
    shop.run()

    other = shop.directory / "other.parquet"
    pd.DataFrame({"customer": [1], "cents": [100]}).to_parquet(other)
    assert "lacks columns" in refused(shop, other, 16)
    strings = shop.directory / "strings.parquet"
    pd.DataFrame([row(one, customer_id=f"c{one.customer_id}") for one in held]).to_parquet(strings)
    assert "customer_id is string" in refused(shop, strings, 16)
    records = shop.directory / "records.parquet"
    pd.DataFrame({"value": [b"no order"], "key": [b"1"]}).to_parquet(records)
    aside = str(shop.directory / "aside")
    refused(shop, records, 16, "--quarantine", aside)  # Its `decode` raises an error.

    bad = shop.directory / "bad.json"
    reasons = with_bad_rows(held, bad)
    said = refused(shop, bad, 16)
    for reason, count in reasons.items():
        assert re.search(rf"{reason}[^()]* \({count}\)", said)
    assert "for example" in said
    assert not Path(aside).exists()
    gone = shop.directory / "gone.json"
    gone.write_text("\n".join(json.dumps(row(one, op="remove")) for one in held[:2]))
    assert "removes or replaces 2 events that" in refused(shop, gone, 16)
    require_known_otherwise(shop)

    stale = prepared(shop, written(shop, held))
    shop.store.savepoint("latest", query=QUERY).rollback().execute()
    require_refused(shop, stale, "generation")
    shop.run()

    doubled = prepared(shop, written(shop, held))
    produce(held[:1], bootstrap_servers=shop.bootstrap_servers, topic=shop.topic)
    shop.run()
    require_refused(shop, doubled, "arrived in")

    done = merge(shop, bad, "--quarantine", aside)

    assert (done["rows"], done["known"]) == (len(held) - 1, 1)
    assert differing(shop, day(4)) == 0
    rows: Any = pd.read_parquet(f"{aside}/{done['operation_id']}")
    found = Counter(one.partition(" than")[0] for one in rows["reason"])
    assert found == reasons
    assert rows["row"].str.contains("{ no order", regex=False).sum() == reasons["not readable"]


def test_a_query_that_a_driver_began_is_told_how_it_can_begin_with_all_events(
    world: LocalWorld, world_environment: dict[str, str], spark: SparkSession, tmp_path: Path
) -> None:
    """A run of its program later does not tell which one has read what the driver read."""
    desk = LateDesk.open(world, spark, tmp_path, "running")
    servers, topic = world.bootstrap_servers, desk.desk.topics["events"]
    job = Job("app", str(tmp_path), str(tmp_path), "running", servers=servers, topic=topic)
    desk.bind(outputs={"out": job.table})
    desk.produce([Event("1", "a", 1, 1), Event("2", "b", 2, 20)])
    query, attached = job.start(spark)
    query.processAllAvailable()
    attached.stop()
    desk.archive()
    desk.arrive([Event("3", "a", 3, 30)])
    desk.archive()

    with pytest.raises(IncompatibleError, match="the first savepoint that a driver took") as how:
        desk.prepare(desk.write([Event("late", "a", 1, 10)]))

    assert "savepoints bootstrap NAME" in how.value.hint
    late = desk.write([Event("newer", "c", 5, 25)])
    desk.merge(desk.prepare(late))
    rows = [(one["k"], one["count"], one["total"]) for one in desk.desk.rows("tables/running")]
    assert rows == [("a", 2, 4), ("b", 1, 2), ("c", 1, 5)]
