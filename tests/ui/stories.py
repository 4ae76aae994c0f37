"""Stores made by hand, with everything in them that a page can show."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any

from savepoints.model import Cost, Cut, Edit, Generation, OperatorState, OutputVersion, Savepoint
from savepoints.operations.inspect.availability import Availability
from savepoints.operations.inspect.source_places import PartitionPlace, SourcePlace
from savepoints.operations.inspect.topology import Topology
from savepoints.store.locks.journal import Operation
from savepoints.store.tables.events import Event
from savepoints.store.tables.merge_ledger import Merge
from savepoints.ui.facts import SourceFacts, StoreFacts
from tests.comparisons import HOSTILE
from tests.samples import BEGINNING

HOUR = timedelta(hours=1)
NOW = BEGINNING + 72 * HOUR
UUID = "7f1d3a52-93c4-4c0e-9d0b-5f2b7f0f6e11"


def hour(number: float) -> datetime:
    """Return the moment so many hours after the beginning."""
    return BEGINNING + number * HOUR


def generation(query: str, number: int, begun: float, by: str = "run", **more: Any) -> Generation:
    """Make a generation that began so many hours after the beginning."""
    ended = more.pop("ended", None)
    return Generation(
        query, number, f"s3://lake/checkpoints/{query}/{number}",
        "current" if ended is None else "ended", hour(begun), by,
        ended_at=None if ended is None else hour(ended), **more,
    )  # fmt: skip


def saved(at: float, *, query: str = "orders", of: int = 1, batch: int | None = None,
          **more: Any) -> Savepoint:  # fmt: skip
    """Make a savepoint that was taken a minute after its cut."""
    batch = round(at * 10) if batch is None else batch
    committed = hour(at)
    name = f"sp-{committed:%Y%m%d-%H%M%S}-{query[:3].lower()}{of:03d}"
    rows = 20_000 + 40 * batch
    made = Savepoint(
        id=more.pop("id", name),
        query=query,
        query_id="c8a54052-ae64-4515-a59b-49b09fc453cb",
        generation=of,
        cut=Cut(
            batch, committed, 1_763_800_000_000 + batch * 1000,
            (f'{{"orders":{{"0":{1200 * batch},"1":{1180 * batch}}}}}',),
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider", 4,
        ),
        created_at=committed + timedelta(minutes=1),
        forms=("native",),
        operators=(OperatorState(0, "stateStoreSave", ("default",), 4, rows, rows * 84),),
        outputs=(OutputVersion("totals", "s3://lake/tables/totals", "t", batch + 3, "a", batch),),
        cost=Cost(0.4, 0.2, 1.1 + batch / 900, 14, 900_000 + 700 * batch, 31, 4_200_000, 800_000),
        kind="periodic",
        application="shop.totals:app",
    )  # fmt: skip
    return dataclasses.replace(made, **more)


def operation(verb: str, at: float, *steps: str, done: int | None = None, **more: Any) -> Operation:
    """Make an operation of which so many steps are done; all when not given."""
    count = len(steps) if done is None else done
    begun = hour(at)
    return Operation(
        f"op-{begun:%Y%m%d-%H%M%S}-{verb[:6]}",
        verb,
        more.pop("query", "orders"),
        {"steps": [{"name": name, "what": f"do what {name} says"} for name in steps]},
        more.pop("command", f"savepoints operations resume op-{begun:%Y%m%d-%H%M%S}-{verb[:6]}"),
        begun.isoformat(),
        {
            name: {"at": (begun + timedelta(seconds=7 * nth)).isoformat()}
            for nth, name in enumerate(steps[:count], 1)
        },
        finished_at=None if count < len(steps) else (begun + timedelta(seconds=50)).isoformat(),
        **more,
    )


def event(verb: str, at: float, result: str = "done", **more: Any) -> Event:
    """Make an event of the query orders, or of another."""
    facts = {"query": "orders", "seconds": 2.5, "message": "", **more}
    return Event(f"op-{at}", hour(at), verb, "ops@host, process 7", result, **facts)  # type: ignore[arg-type]


def merge(at: float, of: int) -> Merge:
    """Make a merge of 412 rows that began a generation."""
    return Merge(
        id=f"op-merge-{of}", query="orders", generation=of, controls_differing=0, batch_id=0,
        offsets={}, outputs=(), descent=(), pause_seconds=4.0, by="ops@host", at=hour(at),
        input="orders", batch="s3://lake/late/2025", content_hash="h", first_event_time=None,
        last_event_time=None, rows=412, entities=37,
    )  # fmt: skip


def availability(savepoint: Savepoint, until: datetime | None, restorable: str = "yes") -> Any:
    """Make what Kafka says of a savepoint."""
    return Availability(
        savepoint.id, NOW, restorable,  # type: ignore[arg-type]
        "Kafka has every record after the savepoint" if restorable == "yes"
        else "orders partition 0: wanted offset 12, available 400 to 900",
        until, "retention.ms of orders is 604800000",
    )  # fmt: skip


def standing(query: str, generation: int, batch: int, at: float, lag: int) -> Topology:
    """Make where a query stands."""
    parts = (PartitionPlace("orders", 0, 10, 0, 10 + lag, lag, 10, 0),)
    return Topology(
        query, "id", f"s3://lake/checkpoints/{query}/{generation}", generation, "current", None,
        None, batch, hour(at), None, "RocksDB", 4, 1, (),
        (SourcePlace(0, "kafka", "{}", None, parts, lag),), (), (),
    )  # fmt: skip


def story() -> StoreFacts:
    """Make a store in which all has happened: rollback, merge, fork, edit, promote, a rollback cut.

    The last savepoint of `orders` is overdue, one is broken, and a rollback is not finished.
    """
    first = [saved(at, of=1) for at in range(0, 25, 2)]
    second = [saved(at, of=2) for at in range(26, 49, 2)]
    third = [saved(at, of=3) for at in range(50, 67, 2)]
    good, safety = first[8], saved(24.5, of=1, kind="safety", forms=("native", "canonical"))
    release = dataclasses.replace(
        first[4], tags=("before-release", "v1.4"), pinned=True, forms=("native", "canonical")
    )
    broken = dataclasses.replace(
        second[3], state="broken", state_reason="state/0/3/7.zip is missing"
    )
    change = Edit("ops@host", "customer 4711 was counted twice", 0, rows_changed=1)
    edited = saved(40.2, of=2, id="sp-20261122-021500-edited", parent=second[7].id, edit=change)
    fork = [saved(at, query="orders_b", of=1) for at in range(37, 56, 3)]
    every = [
        *(one for one in first if one.id != release.id), release, safety, edited, *third, *fork,
        *(one for one in second if one.id != broken.id), broken,
        saved(30, query="clicks"), saved(50, query="clicks"), saved(71, query="clicks"),
    ]  # fmt: skip
    every.sort(key=lambda one: one.taken_order, reverse=True)
    linked = [
        dataclasses.replace(
            one,
            parent=one.parent
            or next(
                (
                    it.id
                    for it in every[at + 1 :]
                    if (it.query, it.generation) == (one.query, one.generation)
                ),
                None,
            ),
        )
        for at, one in enumerate(every)
    ]
    return StoreFacts(
        "s3://lake/savepoints",
        NOW,
        tuple(linked),
        (
            generation("orders_b", 1, 36.2, "fork", begun_from=second[5].id),
            generation("orders", 3, 48.5, "merge", begun_from=second[11].id),
            generation("orders", 2, 25, "rollback", begun_from=good.id, ended=48.5),
            generation("orders", 1, 0, ended=25),
            generation("clicks", 1, 20),
        ),
        (
            operation("rollback", 71.5, "safety", "checkpoint", "output_totals", "begin", done=2),
            operation("merge", 48.4, "replay", "splice", "correct", "begin"),
            operation("rollback", 24.9, "safety", "checkpoint", "output_totals", "begin"),
        ),
        (
            event("verify", 70, query=None, message="ok, 42 checked, 0 broken"),
            *(event("create", one.created_at.hour, savepoint=one.id) for one in third),
            event("drill", 47, message="same: restored in 12.4 s, compared with the live query"),
            event("verify", 30, "failed", message=f"broken, 1 checked: {broken.id}"),
        ),
        (merge(48.5, 3),),
        {
            "orders": SourceFacts(
                standing("orders", 3, 700, 71.4, 12_408), "",
                availability(third[-1], NOW + 40 * HOUR),
                {one.id: availability(one, None, "no") for one in first[:5]},
            ),
            "clicks": SourceFacts(
                standing("clicks", 1, 720, 71.95, 0), "",
                availability(saved(71, query="clicks"), NOW + 150 * HOUR), {},
            ),
            "orders_b": SourceFacts(None, "no checkpoint at s3://lake/checkpoints/orders_b/1"),
        },
        {"clicks": "run"},
    )  # fmt: skip


def hostile() -> StoreFacts:
    """Make a store whose names are markup, and one of whose queries is called like a UUID."""
    name = HOSTILE
    bad = saved(1, query=name, tags=(HOSTILE, "a" * 100), description=HOSTILE)
    bad = dataclasses.replace(bad, id="sp-20261120-110000-aaaaaa", application=HOSTILE)
    facts = story()
    return dataclasses.replace(
        facts,
        savepoints=(bad, *(saved(at, query=UUID) for at in (9, 6, 3))),
        generations=(generation(name, 1, 0), generation(UUID, 1, 0)),
        operations=(operation("rollback", 2, HOSTILE, "b", done=1, query=name, command=HOSTILE),),
        events=(event("verify", 3, "failed", query=name, message=HOSTILE),),
        merges=(),
        sources={name: SourceFacts(None, HOSTILE)},
        busy={},
    )


def large(savepoints: int = 1000, generations: int = 20) -> StoreFacts:
    """Make a store with many of both: each generation was rolled back to its middle."""
    each = savepoints // generations
    made: list[Savepoint] = []
    began: list[Generation] = []
    for number in range(1, generations + 1):
        start = float((number - 1) * each) / 2
        mine = [
            saved(start + nth / 2, of=number, tags=(f"tag-{number}-{nth}",) if nth % 7 == 0 else ())
            for nth in range(each)
        ]
        origin = made[-each // 2].id if made else None
        ended = None if number == generations else start + each / 2
        by = "rollback" if origin else "run"
        began.append(generation("orders", number, start, by, begun_from=origin, ended=ended))
        made += mine
    made.reverse()
    at = made[0].created_at + HOUR / 4
    return StoreFacts("/srv/store", at, tuple(made), tuple(reversed(began)))
