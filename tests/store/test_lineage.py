"""How far back a state can be told from its events: by lineages that are drawn by hand."""

from __future__ import annotations

import dataclasses
import json

import pytest

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Edit, Savepoint
from savepoints.moments import utc_now
from savepoints.store import batch_log, checked_programs, lineage
from savepoints.store.lineage import ReadOtherwise
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.tables import living_line
from tests import samples

QUERY = "orders"


@pytest.fixture
def store(on_local: Location) -> Store:
    """Give a store whose query ran from the beginning, and was saved at batches 3 and 7."""
    found = Store(on_local)
    found.generations.begin(QUERY, 1, on_local / "checkpoints/1", by="run")
    for number in (3, 7):
        found.catalog.add(samples.savepoint(number, query=QUERY))
    return found


def begin(store: Store, number: int, by: str, origin: Savepoint | None) -> None:
    place = store.root / f"checkpoints/{number}"
    begun_from = origin.id if origin else None
    savepoints = store.catalog.all()
    store.generations.begin(
        QUERY, number, place, by=by, begun_from=begun_from, savepoints=savepoints
    )


def saved(store: Store, batch: int) -> Savepoint:
    return next(one for one in store.catalog.all() if one.cut.batch_id == batch)


def of(one: Savepoint, generation: int, batch: int) -> Savepoint:
    cut = dataclasses.replace(one.cut, batch_id=batch)
    return dataclasses.replace(one, generation=generation, cut=cut)


def test_a_query_that_only_ran_can_be_told_from_its_beginning(store: Store) -> None:
    known = lineage.reach(store, QUERY)

    assert known.ends_with == ""
    assert all(known.has(one) for one in store.catalog.all())


def test_batches_that_were_rolled_back_do_not_count(store: Store) -> None:
    third = saved(store, 3)
    begin(store, 2, "rollback", third)

    known = lineage.reach(store, QUERY)

    assert known.ends_with == ""
    assert known.has(third)
    assert known.has(of(third, 2, 9))
    assert not known.has(saved(store, 7))
    assert known.first == {(QUERY, 1): 0, (QUERY, 2): 4}


def test_a_reset_to_empty_state_is_told_from_its_events(store: Store) -> None:
    begin(store, 2, "reset", None)

    known = lineage.reach(store, QUERY)

    assert (known.ends_with, known.newest) == ("", {(QUERY, 2): None})


def test_trap_a_reset_behind_a_merge_does_not_read_it_again(store: Store) -> None:
    live = store.generations.current(QUERY)
    merge = samples.merge(QUERY, {"t": {0: 10, 1: 10}}, utc_now())
    at: KafkaOffsets = {"t": {0: 10, 1: 12}}
    # It was merged into the query that began there.
    assert not lineage.GenerationHistory.of(store).begins_behind(live, merge, at)

    begin(store, 2, "reset", None)

    known, live = lineage.GenerationHistory.of(store), store.generations.current(QUERY)
    assert known.begins_behind(live, merge, at)
    assert not known.begins_behind(live, merge, {"t": {0: 10, 1: 9}})
    assert not known.begins_behind(live, merge, {"t": {0: 10}})


@pytest.mark.parametrize("by", ["reset", "promote", "create", "fork"])
def test_nothing_is_told_from_before_what_is_not_in_the_events(store: Store, by: str) -> None:
    third = saved(store, 3)
    begin(store, 2, by, third)

    known = lineage.reach(store, QUERY)

    assert known.ends_with == f"generation 2 was begun by {by}"
    assert known.is_of_driver == (by == "create")
    assert known.has(of(third, 2, 9))
    assert not known.has(third)


def test_events_tell_what_was_before_a_promotion_to_whoever_asks_for_it(store: Store) -> None:
    """The fork began at batch 3 and took over at batch 9."""
    third, seventh = store.catalog.find(saved(store, 3).id), saved(store, 7)
    store.generations.begin(
        "fork", 1, store.root / "checkpoints/fork", by="fork", begun_from=third.id,
        savepoints=store.catalog.all(),
    )  # fmt: skip
    ninth = samples.savepoint(9, query="fork")
    store.catalog.add(ninth)
    begin(store, 2, "promote", ninth)
    fresh = of(samples.savepoint(11, query=QUERY), 2, 11)

    alone = lineage.reach(store, QUERY)
    across = lineage.reach(store, QUERY, across_promotions=True)
    of_fork = lineage.reach(store, "fork", across_promotions=True)

    assert alone.is_promotion
    assert not any(alone.has(one) for one in (third, seventh, ninth))
    assert (across.ends_with, across.crossed) == ("", "generation 2 was begun by promote")
    assert across.first == {(QUERY, 2): 10, ("fork", 1): 4, (QUERY, 1): 0}
    assert across.newest == {(QUERY, 2): None, ("fork", 1): 9, (QUERY, 1): 3}
    assert [across.has(one) for one in (fresh, ninth, third, seventh)] == [True] * 3 + [False]
    assert [across.crosses(one) for one in (fresh, ninth, third, None)] == [False] + [True] * 3
    assert of_fork.crossed == "generation 1 was begun by fork"
    assert of_fork.newest == {("fork", 1): None, (QUERY, 1): 3}


def test_nothing_is_told_from_before_an_edit(store: Store) -> None:
    third = saved(store, 3)
    edited = dataclasses.replace(
        samples.savepoint(4, query=QUERY), edit=Edit("somebody", "ticket 4711", 0)
    )
    store.catalog.add(edited)
    begin(store, 2, "rollback", edited)

    known = lineage.reach(store, QUERY)

    assert known.ends_with == f"the state of {edited.id} was edited"
    assert not known.has(edited)
    assert not known.has(third)
    assert known.has(of(third, 2, 9))


def test_nothing_is_told_from_before_a_savepoint_that_is_gone_or_of_another_query(
    store: Store,
) -> None:
    other = samples.savepoint(5, query="another")
    begin(store, 2, "rollback", other)
    assert "no longer exists" in lineage.reach(store, QUERY).ends_with

    store.catalog.add(other)
    assert lineage.reach(store, QUERY).ends_with == (
        f"generation 2 began from {other.id} of another"
    )


def test_batches_that_nobody_has_copied_yet_are_in_the_checkpoint(store: Store) -> None:
    files = samples.files_of("hdfs")
    checkpoint = store.root / "checkpoints/1"
    later = {one: files[one] for one in files if one.rpartition("/")[2] in ("2", "3")}
    samples.write(checkpoint, {one: files[one] for one in files.keys() - later.keys()})
    batch_log.copy(store.root, QUERY, 1, checkpoint)
    samples.write(checkpoint, later)
    known = lineage.reach(store, QUERY)

    found = lineage.batches(store, known, checkpoint)

    assert sorted(lineage.batches(store, known)) == [0, 1]
    assert sorted(found) == [0, 1, 2, 3]
    for number, one in found.items():
        said = json.loads(files[f"offsets/{number}"].decode().split("\n")[1])
        assert one.watermark_ms == said["batchWatermarkMs"]
        assert one.timestamp_ms == said["batchTimestampMs"]


def test_trap_the_line_goes_on_behind_a_savepoint_that_was_expired(store: Store) -> None:
    third = saved(store, 3)
    begin(store, 2, "rollback", third)
    fifth = of(samples.savepoint(5, query=QUERY), 2, 5)
    store.catalog.add(fifth)
    begin(store, 3, "rollback", fifth)
    store.catalog.remove([third.id, fifth.id])

    known = lineage.reach(store, QUERY)

    assert known.ends_with == ""
    assert known.first == {(QUERY, 1): 0, (QUERY, 2): 4, (QUERY, 3): 6}
    line = living_line.of_query(QUERY, store.generations.all(), [])
    assert line.newest == {3: None, 2: 5, 1: 3}


@pytest.mark.parametrize("topic_reads", [[], [{"topic": "lines"}], None])
def test_trap_after_a_pipeline_was_rolled_back_no_late_event_could_be_merged(
    store: Store, topic_reads: list[object] | None
) -> None:
    """It goes back to a savepoint as a rollback does, but for readers of topics, which skip."""
    begin(store, 2, "pipeline rollback", saved(store, 3))
    if topic_reads is not None:
        member = {"rollback": {"query": QUERY}, "topic_reads": topic_reads}
        plan = {"steps": [], "members": [member]}
        begun = Operation("op-1", "pipeline rollback", "gold", plan, "c", utc_now().isoformat())
        log = Journal.begin(store.root, begun)
        log.record(f"{QUERY}.{journal.GENERATION_BEGUN}", generation=2)
        log.finish()

    known = lineage.reach(store, QUERY)

    if topic_reads == []:
        assert (known.ends_with, known.first) == ("", {(QUERY, 1): 0, (QUERY, 2): 4})
    else:
        assert known.ends_with == "generation 2 was begun by pipeline rollback"


def test_trap_a_program_changed_in_place_left_no_trace_in_a_merge(store: Store) -> None:
    """Batches 0 to 4 by a, 5 by b, from 6 on by a; then a rollback to batch 3, and again by a."""
    for plan, first in (("a", 0), ("b", 5), ("a", 6)):
        checked_programs.write(store.root, QUERY, 1, plan, first_batch=first)
    known = lineage.reach(store, QUERY)
    other = ReadOtherwise((QUERY, 1), 5)

    def since(one: Savepoint | None) -> ReadOtherwise | None:
        return lineage.read_otherwise(store, known, "a", one)

    assert since(None) == since(saved(store, 3)) == since(of(saved(store, 7), 1, 4)) == other
    assert since(of(saved(store, 7), 1, 5)) is None
    assert since(saved(store, 7)) is None
    assert known.oldest([saved(store, 7), saved(store, 3)]) == saved(store, 3)
    assert known.oldest([saved(store, 7), None]) is None

    begin(store, 2, "rollback", saved(store, 3))
    checked_programs.write(store.root, QUERY, 2, "a", first_batch=4)
    assert lineage.read_otherwise(store, lineage.reach(store, QUERY), "a", None) is None


def test_a_program_that_was_not_started_yet_is_another_one(store: Store) -> None:
    third = saved(store, 3)
    begin(store, 2, "rollback", third)
    known = lineage.reach(store, QUERY)
    assert lineage.read_otherwise(store, known, "b", None) is None

    checked_programs.write(store.root, QUERY, 1, "a", first_batch=0)
    before = ReadOtherwise((QUERY, 1), 3)
    assert lineage.read_otherwise(store, known, "b", None) == before
    assert lineage.read_otherwise(store, known, "b", third) is None

    checked_programs.write(store.root, QUERY, 2, "a", first_batch=4)
    now = ReadOtherwise((QUERY, 2), None)
    assert lineage.read_otherwise(store, known, "b", of(third, 2, 9)) == now
    assert known.oldest([of(third, 2, 9), third, of(third, 2, 8)]) == third
