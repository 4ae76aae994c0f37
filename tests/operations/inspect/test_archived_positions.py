"""Plans that go back further than Kafka, on a real broker, with an archive made without a JVM."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from savepoints.errors import NotAlignedError, NotFoundError, SourceDataGoneError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.fork import fork_plan
from savepoints.operations.inspect import availability, estimate
from savepoints.operations.rollback import rollback, target
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.sources.archive import progress
from savepoints.sources.archive.progress import Arrival
from savepoints.sources.kafka import topics
from savepoints.sources.kafka.reset_targets import Target
from savepoints.store.tables.merge_ledger import Ledger
from tests.kafka_query import QUERY, Query, make
from tests.samples import savepoint
from tests.sources.broker import HOUR, Broker
from tests.store.tables.test_merge_ledger import merge

pytestmark = [pytest.mark.kafka, pytest.mark.drawn(2)]

# Kafka forgets up to these; the archive has the first eight and four.
FORGOTTEN = {0: 5, 1: 3}
ARCHIVED = {0: 8, 1: 4}


@pytest.fixture
def query(broker: Broker, on_local: Location, local_store: Store) -> Query:
    """Give a query whose topic is archived; each record is an hour older than the next."""
    made = make(broker, on_local, local_store)
    uri = str(on_local / "archive")
    archive(broker, made.topic, uri, ARCHIVED)
    bound = made.settings.queries[QUERY].model_copy(update={"archives": {"orders": uri}})
    settings = made.settings.model_copy(update={"queries": {QUERY: bound}})
    for part, offset in FORGOTTEN.items():
        broker.forget(made.topic, part, offset)
    return replace(made, store=made.store.with_settings(settings))


def archive(broker: Broker, topic: str, uri: str, ends: dict[int, int]) -> None:
    rows = [
        (topic, part, at, broker.now - HOUR * (10 - at))
        for part, end in ends.items()
        for at in range(end)
    ]
    columns = list(zip(*rows, strict=True))
    write_deltalake(
        uri,
        pa.table(
            {
                "topic": columns[0],
                "partition": pa.array(columns[1], pa.int32()),
                "offset": pa.array(columns[2], pa.int64()),
                "timestamp": pa.array(columns[3], pa.timestamp("us", tz="UTC")),
                "merge_id": pa.nulls(len(rows), pa.string()),
            }
        ),
    )
    known = topics.ids([topic], broker.settings)[topic]
    came = [Arrival(topic, part, 0, end, end, None, topic_id=known) for part, end in ends.items()]
    progress.add(uri, came, app="batches", version=1)


def test_a_reset_goes_to_the_first_record_of_the_archive(query: Query) -> None:
    plan = query.plan(Target("earliest"))
    assert [(one.to, one.earliest, one.from_archive) for one in plan.moves] == [
        (0, 0, 5),
        (0, 0, 3),
    ]
    assert any("Kafka no longer has 8 of the next 14 records" in w for w in plan.warnings)
    assert [one.to for one in query.plan(Target("shift", -3)).moves] == [3, 0]

    without = query.settings.queries[QUERY].model_copy(update={"archives": {}})
    bare = replace(
        query,
        store=query.store.with_settings(
            query.settings.model_copy(update={"queries": {QUERY: without}})
        ),
    )
    with pytest.raises(
        SourceDataGoneError, match="partition 0 starting at the target: available 5"
    ):
        bare.plan(Target("earliest"))


def test_a_time_is_looked_for_in_the_archive_too(query: Query, broker: Broker) -> None:
    """By Kafka alone it would be Kafka's first record."""
    moment = broker.now - timedelta(hours=7, minutes=30)
    assert [one.to for one in query.plan(moment).moves] == [3, 3]
    assert [one.to for one in query.plan(broker.now - HOUR * 20).moves] == [0, 0]
    late = broker.now - timedelta(hours=2, minutes=30)
    assert [one.to for one in query.plan(late).moves] == [8, 4]


def test_a_savepoint_is_restorable_thanks_to_the_archive(query: Query, on_local: Location) -> None:
    (saved,) = query.store.catalog.all()  # At offsets 2 and 1.
    kafka = query.settings.kafka
    archives = tuple(query.settings.queries[QUERY].archives.values())
    assert availability.check_savepoint(saved, kafka).restorable == "no"
    found = availability.check_savepoint(saved, kafka, archives)
    assert (found.restorable, [one.archived for one in found.partitions]) == ("yes", [3, 2])
    assert "only in the archive: 5" in found.reason
    assert found.basis
    assert (
        availability.check_savepoints([saved], kafka, {QUERY: archives})[saved.id].restorable
        == "yes"
    )
    assert availability.check_savepoints([saved], kafka)[saved.id].restorable == "no"

    told = "Kafka no longer has 5 of the next 11 records"
    back = rollback.plan(query.store, saved.id)
    assert any(told in one for one in back.warnings)
    asked = fork_plan.ForkOptions(app="unused:app", outputs={"totals": str(on_local / "fork")})
    forked = fork_plan.plan(query.store, saved.id, "variant", asked)
    assert any(told in one for one in forked.warnings)
    assert forked.binding.settings().archives == query.settings.queries[QUERY].archives
    left = estimate.estimate(query.store, QUERY, from_savepoint=saved.id)
    assert left.backlog_records == 11
    assert any(told in one for one in left.findings)
    at = target.AtTime(saved.cut.committed_at)
    context = QueryContext.open(query.store.with_settings(query.settings), QUERY)
    assert target.resolve(context, at).savepoint_id == saved.id


def test_trap_an_archive_of_one_query_made_the_savepoints_of_all_unknown(
    query: Query, broker: Broker, on_local: Location
) -> None:
    """Its topic was recreated, which is nothing to the others."""
    (saved,) = query.store.catalog.all()
    archives = tuple(query.settings.queries[QUERY].archives.values())
    topic = broker.make(partitions=1)
    stale = str(on_local / "stale")
    came = Arrival(topic, 0, 0, 0, 0, None, topic_id="of-another-life")
    progress.add(stale, [came], app="batches", version=1)
    other = savepoint(2, query="other", offsets=(json.dumps({topic: {"0": 0}}),))

    found = availability.check_savepoints(
        [saved, other], query.settings.kafka, {QUERY: archives, "other": (stale,)}
    )

    assert found[saved.id].restorable == "yes"
    assert found[other.id].restorable == "unknown"
    assert f"topic {topic} has been deleted and recreated" in found[other.id].reason


def test_trap_a_hole_between_archive_and_kafka_is_read_over(query: Query, broker: Broker) -> None:
    broker.forget(query.topic, 0, 9)
    with pytest.raises(SourceDataGoneError, match=r"0 to 8 in the archive .*: 8 to 9 are in"):
        query.plan(Target("earliest"))
    (saved,) = query.store.catalog.all()
    with pytest.raises(SourceDataGoneError, match="8 to 9 are in neither"):
        rollback.plan(query.store, saved.id)
    archives = tuple(query.settings.queries[QUERY].archives.values())
    found = availability.check_savepoint(saved, query.settings.kafka, archives)
    assert found.restorable == "no"
    assert "8 to 9 are in neither" in found.reason


def test_trap_a_topic_made_anew_is_gone_on_with_from_the_archive_of_the_old(
    query: Query, broker: Broker
) -> None:
    broker.remove(query.topic)
    broker.make(partitions=2, name=query.topic)
    broker.put(query.topic, 0, *([HOUR] * 12))
    broker.put(query.topic, 1, *([HOUR] * 6))
    with pytest.raises(SourceDataGoneError, match="deleted and recreated since it was archived"):
        query.plan(Target("earliest"))


def test_trap_a_reset_forgets_what_was_merged(query: Query) -> None:
    """Merged at offsets 6 and 3: a reset to before them has to read the events again, or tell."""
    done = merge(
        1, QUERY, offsets={query.topic: {0: 6, 1: 3}}, input="orders", id="op-merged", descent=()
    )
    Ledger(query.store.root).add(done)
    assert query.plan(Target("current")).warnings == (), "nothing lies ahead"
    known = replace_app(query, "tests.sources.json_input:app")
    with pytest.raises(NotFoundError, match=r"op-merged are in the state .* not in the archive of"):
        known.plan(Target("earliest"))
    # Also where Kafka has all of them.
    with pytest.raises(NotFoundError, match="op-merged"):
        known.plan(Target("shift", -1), scope={query.topic: frozenset({0})})

    write_late(query, "op-merged")
    said = [one for one in known.plan(Target("earliest")).warnings if "op-merged" in one]
    assert len(said) == 1
    assert said[0].startswith("10 events from 1 merge (op-merged) will also be read again")

    Ledger(query.store.root).add(replace(done, id="op-before", offsets={"renamed": {0: 6}}))
    (told,) = [one for one in known.plan(Target("latest")).warnings if "op-before" in one]
    assert "not be read again: the query read renamed at that time" in told

    # Where they belong is known only as far as the archive goes.
    Ledger(query.store.root).add(
        replace(done, id="op-later", offsets={query.topic: {0: 9, 1: 4}}, at=done.at)
    )
    write_late(query, "op-later")
    with pytest.raises(NotAlignedError, match=r"merge op-later .* archived up to 8"):
        known.plan(Target("earliest"))


def replace_app(query: Query, app: str) -> Query:
    """Bind it to another program, whose output has another name."""
    more = {"app": app, "app_name": "counts", "outputs": {"counts": query.table}}
    bound = query.settings.queries[QUERY].model_copy(
        update={**more, "topics": {"orders": query.topic}}
    )
    return replace(
        query,
        store=query.store.with_settings(
            query.settings.model_copy(update={"queries": {QUERY: bound}})
        ),
    )


def write_late(query: Query, merge_id: str) -> None:
    """Let the archive say that it has the events of a merge."""
    from deltalake import CommitProperties, Transaction

    uri = query.settings.queries[QUERY].archives["orders"]
    row = {"topic": [query.topic], "partition": [-1], "offset": [0], "merge_id": [merge_id]}
    write_deltalake(
        uri,
        pa.table({**row, "partition": pa.array([-1], pa.int32())}),
        mode="append",
        schema_mode="merge",
        commit_properties=CommitProperties(app_transactions=[Transaction(merge_id, 0)]),
    )
