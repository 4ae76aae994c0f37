"""`reset`: plans and refusals on a real broker, and checkpoints written without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs import offset_log, planned_batch
from savepoints.checkpoint.logs.kafka_position import kafka_offsets, kafka_position
from savepoints.errors import (
    CheckpointDamagedError,
    NoCommittedBatchError,
    NotAlignedError,
    QueryRunningError,
    SourceDataGoneError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.rollback import reset, rollback
from savepoints.operations.rollback.reset import ResetPlan, State
from savepoints.operations.rollback.target import BeforeLast
from savepoints.sources.kafka import reset_targets
from savepoints.sources.kafka.reset_targets import Target
from savepoints.store.locks import lease
from savepoints.store.locks.journal import Journal, Operation
from tests.kafka_query import QUERY, Query, make
from tests.samples import contents, query_id, take
from tests.sources.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.drawn(4)]


@pytest.fixture
def query(broker: Broker, on_local: Location, local_store: Store) -> Query:
    """Give a query that has read a part of its topic."""
    return make(broker, on_local, local_store)


@pytest.fixture
def one_input(query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Give its store with settings that name a program, which has the topic as its only input."""
    (tmp_path / "some_app.py").write_text(
        "from savepoints import App, Input, Output\n"
        "app = App(name='totals', inputs={'orders': Input('orders', lambda d: d, 'k', 't')},\n"
        "    build=lambda i: i['orders'], outputs={'totals': Output('append')})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    bound = query.settings.queries[QUERY].model_copy(
        update={"app": "some_app:app", "topics": {"orders": query.topic}}
    )
    return query.store.with_settings(query.settings.model_copy(update={"queries": {QUERY: bound}}))


def test_an_empty_state_begins_at_the_offsets_and_nothing_else(query: Query) -> None:
    before = contents(query.checkpoint)

    done = reset.execute(query.plan(Target("earliest")), query.store)

    target = Location.of(done.checkpoint)
    written = contents(target)
    del written["_savepoints_restored_by"]
    # What Spark's own Kafka source writes when it begins; see the e2e tests.
    assert written == {"sources/0/0": b"\0v1\n" + query.read(0, 0).encode()}
    assert position.read(target).initial == {0: query.read(0, 0)}
    assert contents(query.checkpoint) == before, "the live checkpoint is never edited"
    assert query.store.generations.current(QUERY).checkpoint == done.checkpoint
    assert query.rows == [0, 1, 2, 3], "the outputs are kept"


def test_kept_state_goes_on_at_the_offsets(query: Query) -> None:
    plan = query.plan(Target("shift", -2), state="keep")
    assert "4 records will be applied to the kept state twice" in plan.warnings

    done = reset.execute(plan, query.store)

    cut = read_cut(Location.of(done.checkpoint)).cut
    assert cut.batch_id == 3
    assert cut.offsets == (query.read(4, 1),)
    live, new = contents(query.checkpoint), contents(Location.of(done.checkpoint))
    assert new.keys() - {"_savepoints_restored_by"} <= live.keys()
    assert {path for path in new if path in live and new[path] != live[path]} == {
        "offsets/2",
        "offsets/3",
    }


def test_the_plan_says_what_each_partition_does_and_writes_nothing(query: Query) -> None:
    before = contents(query.place)

    plan = query.plan(Target("latest"))

    assert contents(query.place) == before
    assert [(one.current, one.to, one.records) for one in plan.moves] == [(6, 10, -4), (3, 4, -1)]
    assert "5 records will be skipped" in plan.warnings
    assert [one.name for one in plan.steps] == [
        "safety_savepoint",
        "checkpoint_written",
        "generation_begun",
    ]
    again = ResetPlan.from_json(plan.to_json())
    assert (again.moves, again.sources, again.resumed) == (plan.moves, plan.sources, True)


def test_a_time_is_the_first_record_at_or_after_it(query: Query, broker: Broker) -> None:
    plan = query.plan(broker.now - timedelta(hours=7))
    assert plan.offsets == {query.topic: {0: 3, 1: 3}}
    with pytest.raises(UsageError, match="is in the future"):
        query.plan(broker.now + timedelta(days=1))


def test_outputs_are_emptied_with_the_state(query: Query) -> None:
    done = reset.execute(query.plan(Target("earliest"), outputs="truncate"), query.store)
    assert query.rows == []

    back = rollback.plan(query.store, BeforeLast(), query=QUERY)
    rollback.execute(back, query.store)

    assert query.rows == [0, 1, 2, 3]
    assert done.safety_id == query.store.generations.current(QUERY).begun_from


def test_outputs_that_go_back_without_the_state_take_batches_from_0_again(query: Query) -> None:
    """Under an id of the user's own, batches up to the savepoint's would silently be dropped."""
    bound = query.settings.queries[QUERY].model_copy(
        update={"app_ids": {"totals": query_id("rocksdb")}}
    )
    settings = query.settings.model_copy(update={"queries": {QUERY: bound}})
    there = Target("file", offsets={query.topic: {0: 2, 1: 1}})

    plan = reset.plan(query.store.with_settings(settings), QUERY, there, outputs="rewind")
    reset.execute(plan, query.store.with_settings(settings))

    assert query.rows == [0, 1]
    assert DeltaTable(query.table).transaction_version(query_id("rocksdb")) == -1


def test_a_compacted_topic_is_no_problem_where_nothing_is_read_again(
    query: Query, broker: Broker
) -> None:
    topic = broker.make(partitions=2, config={"cleanup.policy": "compact"})
    for batch in (2, 3):
        path = f"offsets/{batch}"
        read = kafka_position({topic: {0: 0, 1: 0}})
        query.checkpoint.put(
            path, offset_log.with_batch(query.checkpoint.get(path), path, positions=[read])
        )
    assert query.plan(Target("latest")).moves


def test_outputs_go_back_to_a_savepoint_at_the_very_offsets_or_nowhere(query: Query) -> None:
    with pytest.raises(UsageError, match="no savepoint of totals was taken at exactly"):
        query.plan(Target("earliest"), outputs="rewind")
    there = Target("file", offsets={query.topic: {0: 2, 1: 1}})

    reset.execute(query.plan(there, outputs="rewind", state="keep"), query.store)

    assert query.rows == [0, 1]


def half_done(query: Query) -> None:
    """Begin a batch that is not committed."""
    before, path = query.checkpoint.get("offsets/3"), "offsets/4"
    query.checkpoint.put(path, offset_log.with_batch(before, path, positions=[query.read(8, 4)]))


def own_driver(query: Query) -> Store:
    """Return the store as it is for a query that no settings know."""
    return query.store.with_settings(query.settings.model_copy(update={"queries": {}}))


def test_trap_the_table_of_an_own_driver_is_not_emptied_as_asked(query: Query) -> None:
    """Only its savepoints know the table; its rows would be written a second time beside these."""
    store = own_driver(query)

    plan = reset.plan(store, QUERY, Target("earliest"), outputs="truncate", stopped=True)
    reset.execute(plan, store)

    assert query.rows == []


def test_trap_the_table_of_an_own_driver_is_kept_with_half_a_batch(query: Query) -> None:
    """It may have the batch whose number comes next, which Delta would silently drop."""
    half_done(query)
    store = own_driver(query)

    with pytest.raises(UsageError, match="batch 4 of totals was started but not") as refused:
        reset.plan(store, QUERY, Target("shift", -1), state="keep", stopped=True)

    assert "start its driver" in refused.value.hint


def test_what_nobody_knows_is_not_emptied(query: Query) -> None:
    store = own_driver(query)
    take(store, query.checkpoint, batch_id=3, outputs={})

    with pytest.raises(NotAlignedError, match="the output tables of totals are unk") as refused:
        reset.plan(store, QUERY, Target("earliest"), outputs="truncate", stopped=True)
    assert "savepoints create totals --table NAME=URI" in refused.value.hint

    kept = reset.plan(store, QUERY, Target("earliest"), stopped=True)
    assert any("no output table" in one for one in kept.warnings)
    take(store, query.checkpoint, batch_id=3, outputs={"totals": query.table})
    assert reset.plan(store, QUERY, Target("earliest"), outputs="truncate", stopped=True).outputs


def test_a_reset_is_undone_like_a_rollback(query: Query) -> None:
    reset.execute(query.plan(Target("latest")), query.store)

    back = rollback.plan(query.store, BeforeLast(), query=QUERY)
    done = rollback.execute(back, query.store)

    assert done.generation == 3
    assert read_cut(Location.of(done.checkpoint)).cut.offsets == (query.read(6, 3),)


def test_a_reset_query_that_has_run_nothing_can_be_reset_again(
    query: Query, one_input: Store
) -> None:
    reset.execute(query.plan(Target("latest")), query.store)

    plan = reset.plan(one_input, QUERY, Target("shift", -1))

    assert plan.safety_id is None
    assert kafka_offsets(plan.sources[0][1]) == {query.topic: {0: 9, 1: 3}}
    with pytest.raises(NoCommittedBatchError, match="no state to keep"):
        reset.plan(one_input, QUERY, Target("earliest"), state="keep")


def destroyed(query: Query) -> Iterator[str]:
    """Destroy the logs of its checkpoint, one way after the other."""
    place, whole = query.checkpoint, contents(query.checkpoint)
    ways: dict[str, Callable[[], object]] = {
        "offsets/3 is not one": lambda: place.put("offsets/3", b"\0\0\0"),
        "offsets/3 is empty": lambda: place.put("offsets/3", b""),
        "commits/3 is not one": lambda: place.put("commits/3", b"\xff"),
        "no commits": lambda: place.delete([info.path for info in place.list("commits")]),
        "nothing": lambda: place.delete([info.path for info in place.list()]),
    }
    for name, destroy in ways.items():
        for path, data in whole.items():
            place.put(path, data)
        destroy()
        yield name


def test_trap_a_destroyed_checkpoint_leaves_no_way_out(query: Query) -> None:
    """Its sources are those of the newest savepoint; state and position are given up by name."""
    for how in destroyed(query):
        for store in (query.store, own_driver(query)):
            given_up = reset.plan(
                store, QUERY, Target("earliest"), outputs="truncate",
                save_present=False, stopped=True,
            )  # fmt: skip
            assert (given_up.offsets, given_up.safety_id) == ({query.topic: {0: 0, 1: 0}}, None)
            assert any("batch 1, and records are counted" in one for one in given_up.warnings), how
            for target in (Target("current"), Target("shift", -1)):
                with pytest.raises(CheckpointDamagedError, match="unknown where totals is") as no:
                    reset.plan(store, QUERY, target, save_present=False, stopped=True)
                assert "reset totals --to-earliest --no-safety-savepoint" in no.value.hint
            if how != "nothing":  # Where there is nothing, nothing is given up.
                with pytest.raises(CheckpointDamagedError, match="unknown where totals is"):
                    reset.plan(store, QUERY, Target("earliest"), stopped=True)

    done = reset.execute(given_up, store)

    new = contents(Location.of(done.checkpoint))
    assert new["sources/0/0"] == b"\0v1\n" + query.read(0, 0).encode()
    assert (query.rows, store.generations.current(QUERY).generation) == ([], 2)


def test_a_destroyed_checkpoint_without_a_savepoint_is_left_by_the_settings(
    query: Query, one_input: Store
) -> None:
    query.store.catalog.remove([query.store.catalog.find("latest").id])
    query.checkpoint.put("offsets/3", b"\0\0\0")

    plan = reset.plan(one_input, QUERY, Target("latest"), save_present=False)

    assert plan.offsets == {query.topic: {0: 10, 1: 4}}
    assert any("unknown how far totals had run" in one for one in plan.warnings)
    with pytest.raises(NoCommittedBatchError, match="and there is no savepoint of it"):
        reset.plan(own_driver(query), QUERY, Target("latest"), save_present=False, stopped=True)


def test_an_active_query_is_not_reset(query: Query) -> None:
    with lease.hold(query.store.root, QUERY, "run"):
        plan = query.plan(Target("earliest"))
        assert "so this cannot be executed yet" in plan.warnings[0]
        with pytest.raises(QueryRunningError, match="is running"):
            reset.execute(plan, query.store)


def test_dry_run_force_still_evicts_members(query: Query) -> None:
    """Kafka's tool removes members of the group before it looks whether it is a dry run."""
    before = contents(query.place)
    with lease.hold(query.store.root, QUERY, "run"):
        query.plan(Target("earliest"))
    after = contents(query.place)
    assert {path for path in after if after[path] != before.get(path)} <= {
        path for path in after if "leases/" in path
    }


def test_failed_uncommitted_batch_on_top_of_last_commit(query: Query) -> None:
    """Its rows may be in the outputs, so these cannot be kept; they can be taken back."""
    half_done(query)
    with pytest.raises(UsageError, match="batch 4 of totals was started but not committed"):
        query.plan(Target("earliest"))
    assert query.plan(Target("earliest"), outputs="truncate").from_batch == 3


def test_a_compacted_topic_is_refused_unless_that_is_given_up(query: Query, broker: Broker) -> None:
    topic = broker.make(partitions=2, config={"cleanup.policy": "compact"})
    broker.put(topic, 0, timedelta(hours=1), timedelta(minutes=1))
    for batch in (2, 3):
        path = f"offsets/{batch}"
        read = kafka_position({topic: {0: 1, 1: 0}})
        query.checkpoint.put(
            path, offset_log.with_batch(query.checkpoint.get(path), path, positions=[read])
        )
    with pytest.raises(SourceDataGoneError, match=f"topic {topic} is compacted"):
        query.plan(Target("earliest"))
    assert query.plan(Target("earliest"), allow_data_loss=True).moves


def test_partial_reset_when_a_topic_is_missing(query: Query, broker: Broker) -> None:
    """Kafka's tool resets the other topics, and offsets and deletions are not atomic."""
    broker.remove(query.topic)
    before = contents(query.place)
    with pytest.raises(SourceDataGoneError, match=f"Kafka has no topic {query.topic}"):
        query.plan(Target("earliest"))
    assert contents(query.place) == before


@pytest.mark.parametrize("state", ["empty", "keep"])
def test_trap_a_topic_is_recreated_with_fewer_partitions(
    query: Query, broker: Broker, state: State
) -> None:
    """No target would be accepted, and no savepoint: the query could go nowhere for good."""
    broker.remove(query.topic)
    broker.make(partitions=1, name=query.topic)
    broker.put(query.topic, 0, timedelta(hours=1))

    with pytest.raises(SourceDataGoneError, match="partition 1, which was deleted") as refused:
        query.plan(Target("earliest"), state=state)
    assert "--allow-data-loss" in refused.value.hint
    plan = query.plan(Target("earliest"), state=state, allow_data_loss=True)
    done = reset.execute(plan, query.store)

    assert any(f"any more: {query.topic} partition 1" in one for one in plan.warnings)
    now = position.read(Location.of(done.checkpoint))
    assert now.offsets == {query.topic: {0: 0}}


def test_trap_a_recreated_topic_is_counted_by_the_offsets_of_the_deleted_one(
    query: Query, broker: Broker
) -> None:
    """Records of the new topic that nobody had read counted as read, and were never read."""
    taken = take(query.store, query.checkpoint, query=QUERY)
    broker.remove(query.topic)
    broker.make(partitions=2, name=query.topic)
    for partition in range(2):
        broker.put(query.topic, partition, *(timedelta(hours=hour) for hour in range(8, 0, -1)))
    scope = reset_targets.parse_scope([f"{query.topic}:0"])

    with pytest.raises(SourceDataGoneError, match="deleted and recreated since") as refused:
        query.plan(Target("latest"), scope=scope)
    assert taken.id in refused.value.message
    plan = query.plan(Target("latest"), scope=scope, state="keep", allow_data_loss=True)

    # Without the topic's old offsets this is what Kafka's tool does to a group without commits.
    assert [(one.current, one.to, one.records) for one in plan.moves] == [
        (None, 8, -8),
        (None, 0, 0),
    ]
    assert "8 records will be skipped" in plan.warnings
    assert any("none of its records counts as read" in one for one in plan.warnings)
    done = reset.execute(plan, query.store)
    assert read_cut(Location.of(done.checkpoint)).cut.offsets == (query.read(8, 0),)
    again = query.plan(Target("latest"))
    assert [one.current for one in again.moves] == [8, 0], "the reset has chosen these"


def read_by(query: Query, *positions: str) -> None:
    """Let the query have one source for each of these positions."""
    for path in ("offsets/2", "offsets/3"):
        metadata = query.checkpoint.get(path).splitlines()[:2]
        lines = [*metadata, *(one.encode() for one in positions)]
        query.checkpoint.put(path, b"\n".join(lines))


def test_trap_a_query_that_names_its_partitions_is_not_told_to_read_others(
    query: Query, broker: Broker
) -> None:
    """By Spark's option `assign`: it would fail at each start on partitions of others."""
    broker.grow(query.topic, 3)
    broker.put(query.topic, 2, timedelta(hours=1))
    broker.forget(query.topic, 0, 5)
    own = {query.topic: {1: 3}}
    read_by(query, kafka_position(own))

    plan = query.plan(Target("earliest"))
    assert plan.sources == (("0", kafka_position({query.topic: {1: 0}})),)
    assert plan.offsets == {query.topic: {1: 0, 2: 0}}
    assert [one.to for one in query.plan(Target("latest")).moves] == [4, 1]
    (warned,) = [one for one in query.plan(Target("latest")).warnings if "assign" in one]
    assert warned.endswith(f"add --topic {query.topic}:1")
    scope = reset_targets.parse_scope([f"{query.topic}:1"])
    scoped = query.plan(Target("latest"), scope=scope)
    assert scoped.sources == (("0", kafka_position({query.topic: {1: 4}})),)
    assert not any("assign" in one for one in scoped.warnings)


def test_trap_two_sources_each_have_their_own_partitions(query: Query) -> None:
    read_by(query, *(kafka_position({query.topic: {part: 2}}) for part in (0, 1)))

    plan = query.plan(Target("latest"), state="keep")

    assert [place for _, place in plan.sources] == [
        kafka_position({query.topic: {0: 10}}),
        kafka_position({query.topic: {1: 4}}),
    ]


@pytest.mark.parametrize("target", [Target("earliest"), Target("latest"), Target("offset", 2)])
def test_trap_two_sources_of_one_topic_that_are_apart_can_go_nowhere(
    query: Query, target: Target
) -> None:
    """Sources often are while records arrive, and a reset that all go to was refused as well."""
    read_by(query, query.read(6, 3), query.read(4, 4))

    plan = query.plan(target)

    to = {"earliest": (0, 0), "latest": (10, 4), "offset": (2, 2)}[target.kind]
    assert plan.sources == (("0", query.read(*to)), ("1", query.read(*to)))
    assert [one.current for one in plan.moves] == [4, 3]
    assert any("counted from the source that is behind" in one for one in plan.warnings)
    for options in ({"state": "keep"}, {"scope": reset_targets.parse_scope([f"{query.topic}:0"])}):
        with pytest.raises(UsageError, match="are at different offsets, 6 and 4") as refused:
            query.plan(target, **options)
        assert "--to-earliest" in refused.value.hint
    with pytest.raises(UsageError, match="are at different offsets, 6 and 4"):
        query.plan(Target("shift", -1))


def test_trap_a_source_that_is_read_twice_has_two_positions_and_one_directory(
    query: Query, broker: Broker
) -> None:
    """As in a union with itself: the next source began at offsets of the wrong topic."""
    other = broker.make(partitions=1)
    broker.put(other, 0, timedelta(hours=1))
    read_by(query, query.read(6, 3), query.read(6, 3), kafka_position({other: {0: 1}}))
    for number, first in enumerate([query.read(0, 0), kafka_position({other: {0: 0}})]):
        query.checkpoint.put(f"sources/{number}/0", planned_batch.initial_position(first))

    again = ("0", query.read(0, 0)), ("1", kafka_position({other: {0: 0}}))
    assert query.plan(Target("earliest")).sources == again
    done = reset.execute(query.plan(Target("latest")), query.store)
    written = Location.of(done.checkpoint)
    assert position.read(written).initial == {
        0: query.read(10, 4),
        1: kafka_position({other: {0: 1}}),
    }


def test_trap_one_of_several_topics_was_deleted(query: Query, broker: Broker) -> None:
    """As one that a pattern matched: Spark refuses to go on, too, and so did each reset."""
    both = kafka_position({query.topic: {0: 6, 1: 3}, "deleted": {0: 5}})
    path = "offsets/3"
    query.checkpoint.put(
        path, offset_log.with_batch(query.checkpoint.get(path), path, positions=[both])
    )

    with pytest.raises(SourceDataGoneError, match="has no topic deleted") as refused:
        query.plan(Target("current"))
    assert "--allow-data-loss" in refused.value.hint
    plan = query.plan(Target("current"), allow_data_loss=True)

    assert plan.sources == (("0", query.read(6, 3)),)
    assert any("any more: deleted partition 0" in one for one in plan.warnings)
    assert query.plan(broker.now - timedelta(hours=7), allow_data_loss=True).offsets == {
        query.topic: {0: 3, 1: 3}
    }
    broker.remove(query.topic)
    with pytest.raises(SourceDataGoneError, match="has no topic"):
        query.plan(Target("current"), allow_data_loss=True)


def test_an_interrupted_reset_is_only_finished_as_it_was_begun(query: Query) -> None:
    plan = query.plan(Target("earliest"))
    begun = Operation(
        plan.operation_id, "reset", QUERY, plan.to_json(), plan.command, "2026-11-22T00:00:00Z"
    )
    Journal.begin(query.store.root, begun)
    assert query.plan(Target("earliest")).resumed
    with pytest.raises(UsageError, match="and has to be ended first"):
        query.plan(Target("latest"))
