"""Queries that read each other's tables, taken back together without a JVM: none is behind."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from deltalake import DeltaTable

from savepoints import faults
from savepoints.checkpoint.logs import file_log
from savepoints.errors import (
    AmbiguousNameError,
    LockedError,
    NotAlignedError,
    NotFoundError,
    QueryRunningError,
    SavepointNotFoundError,
    SourceDataGoneError,
    StalePlanError,
    UnfinishedOperationError,
    UsageError,
    VerificationError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Labels
from savepoints.moments import rfc3339, utc_now
from savepoints.operations import unfinished
from savepoints.operations.pipeline_rollback import pipeline_rollback, rollback_plan
from savepoints.operations.pipeline_rollback.pipeline_rollback import PipelineRolledBack
from savepoints.operations.pipeline_rollback.rollback_plan import PipelineRollbackPlan
from savepoints.operations.rollback import last_operation, rollback
from savepoints.operations.rollback.target import BeforeLast
from savepoints.operations.run import recover
from savepoints.store import checked_programs
from savepoints.store.locks import journal, lease
from savepoints.store.locks.journal import Journal, Operation
from tests import killed
from tests.draw import some
from tests.operations.pipeline.lines import NEWEST, SAVED, Line, chain, contents, topic
from tests.pipelines import next_version
from tests.processes import killed_at
from tests.samples import take

pytestmark = pytest.mark.drawn(4)

QUERIES = ("bronze", "silver", "gold")
ALL = list(range(NEWEST + 1))
BEFORE = list(range(SAVED + 1))
# What the rewind of each table makes.
REWOUND = NEWEST + 1

POINTS = (
    "begun",
    "bronze.safety_savepoint",
    "gold.safety_savepoint",
    "bronze.checkpoint_written",
    "gold.checkpoint_written",
    "bronze.output_bronze_rewound",
    "silver.output_silver_rewound",
    "gold.output_gold_rewound",
    "silver.caught_up",
    "silver.followed",
    "gold.caught_up",
    "gold.followed",
    "gold.generation_begun",
    "bronze.generation_begun",
    "finished",
)


@pytest.fixture
def line(local_store: Store, on_local: Location) -> Line:
    return Line(local_store, on_local)


def plan(line: Line, query: str, point: str, **options: Any) -> PipelineRollbackPlan:
    return rollback_plan.plan(line.configured_store, query, point, check_source=False, **options)


def rolled_back(line: Line, query: str, point: str, **options: Any) -> PipelineRolledBack:
    made = plan(line, query, point, **options)
    return pipeline_rollback.execute(made, line.configured_store)


def assert_back(line: Line, generation: int = 2, rewound: int = REWOUND) -> None:
    """All are at their savepoints, and the readers behind the rewinds of their tables."""
    for query in QUERIES:
        assert line.store.generations.current(query).generation == generation
        assert line.rows(query) == BEFORE
    for reader, writer in (("silver", "bronze"), ("gold", "silver")):
        behind = next_version(str(line.table(writer).metadata().id), rewound + 1)
        for batch in (SAVED - 1, SAVED):
            assert line.sources(reader, batch) == (behind,)
    assert line.sources("bronze", SAVED) == (topic(SAVED),)
    assert journal.all_unfinished(line.store.root) == []


def test_trap_the_first_query_has_read_files_that_were_cleaned_up(line: Line) -> None:
    """It is refused with an option as the way out, which the command has to have."""
    line.add("bronze", file_log.position)
    for batch in range(NEWEST + 1):
        entry = file_log.entry(batch, [line.place.uri / f"in/{batch}.json"], 0)
        line.live("bronze").put(f"sources/0/{batch}", entry)
    line.add("silver", line.reads("bronze"))
    for query in ("bronze", "silver"):
        line.save(query, "good")

    with pytest.raises(SourceDataGoneError, match="2 are gone") as refused:
        plan(line, "bronze", "good")

    assert "--accept-unreplayable" in refused.value.hint
    assert len(plan(line, "bronze", "good", accept_unreplayable=True).members) == 2


def test_all_queries_go_back_to_a_group_and_readers_behind_the_rewinds(line: Line) -> None:
    saved = chain(line)
    before = contents(line, QUERIES)

    done = rolled_back(line, "silver", "before", every=True)

    assert_back(line)
    assert [one.query for one in done.members] == [*QUERIES]
    assert [one.savepoint_id for one in done.members] == [saved[one].id for one in QUERIES]
    assert [one.outputs for one in done.members] == [{one: REWOUND} for one in QUERIES]
    assert contents(line, QUERIES) == before, "a live checkpoint is never edited"
    safety = {one.query: one for one in line.store.catalog.all() if one.kind == "safety"}
    assert {one: safety[one].cut.batch_id for one in QUERIES} == dict.fromkeys(QUERIES, NEWEST)


def test_trap_of_two_savepoints_with_the_tag_a_reader_went_to_the_older_one(line: Line) -> None:
    """As a killed `tag --move` leaves them, for which nobody can say which one is meant."""
    chain(line)
    second = line.save("gold", batch=SAVED - 1)
    line.store.catalog.relabel([second.id], lambda labels: replace(labels, tags=("before",)))

    for query, every in (("bronze", True), ("silver", False), ("gold", False)):
        with pytest.raises(AmbiguousNameError, match=second.id) as refused:
            plan(line, query, "before", every=every)
        assert "savepoints tag ID before --move" in refused.value.hint


def test_trap_a_reader_of_a_table_cannot_be_recovered_behind_its_rewind(line: Line) -> None:
    """Every savepoint was from before it, where its stream fails."""
    saved = chain(line)
    rolled_back(line, "silver", "before", every=True)
    store = line.configured_store
    first = {one: store.catalog.find("latest", query=one) for one in QUERIES}
    assert first["bronze"].id == saved["bronze"].id, "it reads nothing that goes back"
    for query in ("silver", "gold"):
        line.checkpoint(query).delete([f"commits/{SAVED}"])

        recovered = recover.recover(store, query, "a commit is gone")

        assert recovered == first[query].id
        assert (first[query].generation, first[query].cut.batch_id) == (2, SAVED)
        assert line.rows(query) == BEFORE
    for reader, writer in (("silver", "bronze"), ("gold", "silver")):
        assert line.store.generations.current(reader).generation == 3
        behind = next_version(str(line.table(writer).metadata().id), REWOUND + 1)
        assert line.sources(reader, SAVED) == (behind,)


def test_a_query_goes_back_with_its_readers_and_what_it_reads_stays(line: Line) -> None:
    saved = chain(line)

    done = rolled_back(line, "silver", saved["silver"].id)

    assert [one.query for one in done.members] == ["silver", "gold"]
    assert line.rows("bronze") == ALL
    assert line.store.generations.current("bronze").generation == 1
    # It reads again what it has read since.
    assert line.sources("silver", SAVED) == (line.reads("bronze")(SAVED),)
    behind = next_version(str(line.table("silver").metadata().id), REWOUND + 1)
    assert line.sources("gold", SAVED) == (behind,)


def test_a_reader_goes_to_its_newest_savepoint_that_has_read_nothing_of_it(line: Line) -> None:
    chain(line)
    line.save("gold", batch=2)

    made = plan(line, "silver", "before")
    newest = plan(line, "silver", line.save("silver", batch=2).id)

    assert [one.rollback.batch_id for one in made.members] == [SAVED, SAVED]
    assert [one.rollback.batch_id for one in newest.members] == [2, 2]


def test_one_reader_of_two_tables_is_set_behind_both(line: Line) -> None:
    line.add("bronze", topic)
    line.add("left", line.reads("bronze"))
    line.add("right", line.reads("bronze"))
    line.add("gold", line.reads("left"), line.reads("right"), line.reads("bronze"))
    for query in ("gold", "left", "right", "bronze"):
        line.save(query, "before")

    rolled_back(line, "gold", "before", every=True)

    ids = [str(line.table(one).metadata().id) for one in ("left", "right", "bronze")]
    assert line.sources("gold", SAVED) == tuple(next_version(one, REWOUND + 1) for one in ids)
    assert line.sources("right", SAVED) == (next_version(ids[2], REWOUND + 1),)


def test_back_to_the_same_group_once_more(line: Line) -> None:
    chain(line)
    rolled_back(line, "silver", "before", every=True)

    rolled_back(line, "silver", "before", every=True)

    assert_back(line, generation=3, rewound=REWOUND + 1)


def test_versions_without_rows_need_no_reading(line: Line) -> None:
    """A version of OPTIMIZE belongs to what the writer's next savepoint holds."""
    line.add("bronze", topic)
    DeltaTable(line.uri("bronze")).optimize.compact()
    line.add("silver", lambda _batch: line.reads("bronze")(NEWEST + 1))
    line.save("bronze", "before", batch=NEWEST)
    line.save("silver", "before")

    made = plan(line, "bronze", "before", every=True)

    assert [one.is_behind for one in made.members] == [False, False]


@pytest.mark.parametrize("point", some(2, POINTS, "pipeline rollback"))
def test_killed_and_run_again_it_is_as_if_it_had_not_been_killed(line: Line, point: str) -> None:
    chain(line)
    before = contents(line, QUERIES)
    words = ("pipeline", "rollback", "silver", "before", "--all", "--yes", "--no-source-check")
    config = line.config()

    killed = killed_at(f"pipeline rollback.{point}", *words, "--config", config)

    assert killed == -signal.SIGKILL
    for query in QUERIES:
        with pytest.raises(UnfinishedOperationError):
            journal.refuse_unfinished(line.store.root, query)
    assert contents(line, QUERIES) == before
    assert killed_at("", *words, "--config", config) == 0
    assert_back(line)
    for query in QUERIES:
        operations = [one["operation"] for one in line.table(query).history()]
        assert operations.count("RESTORE") == 1


@pytest.mark.parametrize("point", some(1, POINTS[:-3], "undone"))
def test_killed_and_undone_all_go_on_from_where_they_were(line: Line, point: str) -> None:
    chain(line)
    config = line.config()
    words = ("pipeline", "rollback", "silver", "before", "--all", "--yes", "--no-source-check")
    assert killed_at(f"pipeline rollback.{point}", *words, "--config", config) == -signal.SIGKILL
    is_rewound = any(int(line.table(one).version()) > NEWEST for one in QUERIES)
    # A reader that catches up writes down its program.
    checked_programs.write(line.store.root, "gold", 2, "program", first_batch=SAVED + 1)

    assert killed_at("", "undo", "gold", "--yes", "--config", config) == 0

    assert journal.all_unfinished(line.store.root) == []
    assert checked_programs.read(line.store.root, "gold", 2) == (), "another may begin with 2"
    for query in QUERIES:
        assert line.rows(query) == ALL
        assert not line.place.list(f"checkpoints/{query}/2")
    if not is_rewound:
        assert {line.store.generations.current(one).generation for one in QUERIES} == {1}
        return
    newest = {one: int(line.table(one).version()) for one in QUERIES}
    for reader, writer in (("silver", "bronze"), ("gold", "silver")):
        behind = next_version(str(line.table(writer).metadata().id), newest[writer] + 1)
        assert line.sources(reader, NEWEST) == (behind,)
        assert line.sources(reader, NEWEST - 1) == (behind,)


@pytest.mark.parametrize(
    "point", some(1, ["undo_checkpoints", "undo.gold.followed"], "killed undo")
)
def test_an_undo_that_is_killed_is_finished(line: Line, point: str) -> None:
    chain(line)
    config = line.config()
    words = ("pipeline", "rollback", "silver", "before", "--all", "--yes", "--no-source-check")
    killed_at("pipeline rollback.gold.output_gold_rewound", *words, "--config", config)
    undo = ("undo", "silver", "--yes", "--config", config)

    assert killed_at(f"pipeline rollback.{point}", *undo) == -signal.SIGKILL
    assert killed_at("", *words, "--config", config) != 0, "it can only be undone"
    assert killed_at("", *undo) == 0

    assert [line.rows(one) for one in QUERIES] == [ALL] * 3
    assert journal.all_unfinished(line.store.root) == []


@pytest.mark.parametrize("point", some(1, ("begun", *POINTS[3:]), "undo run again"))
def test_trap_an_undo_that_is_killed_and_run_again_undid_itself(line: Line, point: str) -> None:
    """The queries were where they had been rolled back to, and the command said that it was done.

    Whoever wants that can still have it, by the id of the operation.
    """
    chain(line)
    config = line.config()
    words = ("pipeline", "rollback", "silver", "before", "--all", "--yes", "--no-source-check")
    assert killed_at("", *words, "--config", config) == 0
    undo = ("undo", "silver", "--yes", "--stopped", "--config", config)

    assert killed_at(f"pipeline rollback.{point}", *undo) == -signal.SIGKILL
    assert killed_at("", *undo) == 0

    assert [line.rows(one) for one in QUERIES] == [ALL] * 3
    assert [line.store.generations.current(one).generation for one in QUERIES] == [3] * 3
    assert journal.all_unfinished(line.store.root) == []


def interrupted(monkeypatch: pytest.MonkeyPatch, point: str, do: Callable[[], object]) -> None:
    """Do something that is killed somewhere."""
    killed.killed_at(monkeypatch, f"pipeline rollback.{point}", do)


def test_trap_a_rollback_that_fails_after_its_generations_began_did_not_say_so(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of a query is lost, and its error alone says nothing of what is left to do."""
    chain(line)
    made, store = plan(line, "silver", "before"), line.configured_store

    def reach(name: str) -> None:
        if name == "pipeline rollback.silver.generation_begun":
            raise LockedError("the lease was lost", hint="look who has it")

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reach", reach)
        with pytest.raises(LockedError) as failed:
            pipeline_rollback.execute(made, store)

    assert failed.value.message.startswith("generation 2 of gold has begun, but the pipeline")
    assert failed.value.hint == f"look who has it; then finish it: {made.command}"
    unfinished.resume(store, made.operation_id)
    assert journal.all_unfinished(store.root) == []


def go_on(line: Line, query: str, batch: int) -> None:
    """Run a batch in a driver that nobody knows of."""
    for log in ("offsets", "commits"):
        line.live(query).put(f"{log}/{batch}", line.live(query).get(f"{log}/{batch - 1}"))
    line.write(query, batch, line.store_id(query))


@pytest.mark.parametrize(
    "point",
    some(1, ["undoing", "undo.bronze.output_bronze_rewound", "undo.gold.followed"], "gone on"),
)
def test_trap_a_driver_goes_on_behind_an_undo_that_was_interrupted(
    line: Line, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Its batch runs again: Delta must not drop it then, nor have its rows already."""
    chain(line)
    rewound = "gold.output_gold_rewound"
    interrupted(monkeypatch, rewound, lambda: rolled_back(line, "silver", "before", every=True))
    (begun,) = journal.all_unfinished(line.store.root)
    undo = partial(unfinished.undo, line.configured_store, begun.id)
    interrupted(monkeypatch, point, undo)
    go_on(line, "bronze", NEWEST + 1)

    undo()

    assert journal.all_unfinished(line.store.root) == []
    for query in QUERIES:
        assert line.rows(query) == ALL
        assert line.table(query).transaction_version(line.store_id(query)) == NEWEST
        assert [one.path for one in line.checkpoint(query).list("commits")] == [f"commits/{NEWEST}"]
    behind = next_version(
        str(line.table("bronze").metadata().id), line.table("bronze").version() + 1
    )
    assert line.sources("silver", NEWEST) == (behind,)


def test_trap_a_driver_goes_on_behind_a_rollback_that_its_caller_executes_again(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same plan, not one that was read from the journal."""
    chain(line)
    made, store = plan(line, "silver", "before", every=True), line.configured_store
    again = partial(pipeline_rollback.execute, made, store)
    interrupted(monkeypatch, "gold.output_gold_rewound", again)
    go_on(line, "bronze", NEWEST + 1)

    with pytest.raises(StalePlanError, match=r"bronze has run to batch 4 since"):
        again()

    unfinished.undo(store, made.operation_id)
    assert [line.rows(one) for one in QUERIES] == [ALL] * 3


@pytest.mark.parametrize("batch", some(1, [SAVED + 1, NEWEST + 1], "own batch"))
def test_trap_a_batch_of_its_own_was_taken_for_that_of_a_driver(line: Line, batch: int) -> None:
    """A reader that catches up writes under the id of its driver, which had begun a batch.

    That of the driver is refused, and what the refusal says leads on.
    """
    chain(line)
    words = ("pipeline", "rollback", "bronze", "before", "--yes")
    beside = ("--no-source-check", "--stopped", "--config", line.config())
    live = line.live("gold")
    live.put(f"offsets/{NEWEST + 1}", live.get(f"offsets/{NEWEST}"))
    point = "pipeline rollback.gold.caught_up"
    assert killed_at(point, *words, *beside) == -signal.SIGKILL
    line.write("gold", batch, line.store_id("gold"))
    (begun,) = journal.all_unfinished(line.store.root)

    if batch > NEWEST:
        with pytest.raises(StalePlanError, match="has written to it since") as refused:
            unfinished.resume(line.configured_store, begun.id)
        undo, again = re.findall(r"savepoints (.*?)(?:;|$)", refused.value.hint)
        assert killed_at("", *undo.split(), "--yes", *beside[2:]) == 0
        assert line.rows("gold") == ALL
        assert again == begun.command.removeprefix("savepoints ")
    assert killed_at("", *words, *beside) == 0

    assert line.rows("gold") == (BEFORE if batch > NEWEST else sorted([*BEFORE, batch]))
    assert line.store.generations.current("gold").begun_by == "pipeline rollback"


def test_undone_as_a_whole_by_the_name_of_any_of_them(line: Line) -> None:
    chain(line)
    rolled_back(line, "silver", "before", every=True)
    store = line.configured_store
    with pytest.raises(UsageError, match="changed several queries together: bronze, silver, gold"):
        rollback.plan(store, BeforeLast(), query="gold")

    back = rollback_plan.undo_plan(store, last_operation.require(store, "gold"))
    pipeline_rollback.execute(back, store)

    assert [line.rows(one) for one in QUERIES] == [ALL] * 3
    assert [line.store.generations.current(one).generation for one in QUERIES] == [3] * 3
    last = last_operation.require(store, "bronze")
    with pytest.raises(UsageError, match="was itself an undo"):
        rollback_plan.undo_plan(store, last)


@pytest.mark.parametrize("query", some(1, ["silver", "gold"], "done since"))
def test_what_one_of_them_did_since_is_undone_first(line: Line, query: str) -> None:
    saved = chain(line)
    rolled_back(line, "silver", "before", every=True)
    store = line.configured_store
    alone = rollback.plan(store, saved[query].id, query=query, check_source=False)
    rollback.execute(alone, store)

    with pytest.raises(
        NotFoundError, match=rf"{query} was changed by the .* after the pipeline rollback"
    ) as refused:
        rollback_plan.undo_plan(store, last_operation.require(store, "bronze"))
    assert f"savepoints undo {query}" in refused.value.hint
    rollback.execute(rollback.plan(store, BeforeLast(), query=query, check_source=False), store)

    back = rollback_plan.undo_plan(store, last_operation.require(store, "bronze"))
    pipeline_rollback.execute(back, store)

    assert [line.rows(one) for one in QUERIES] == [ALL] * 3


def test_trap_what_cannot_be_undone_alone_was_to_be_undone_first(line: Line) -> None:
    """Late events that were appended to a topic stay there."""
    chain(line)
    rolled_back(line, "silver", "before", every=True)
    store = line.configured_store
    appended = Operation(
        "op-20991126-101500-bbbbbb", "append", "bronze", {}, "savepoints merge", rfc3339(utc_now())
    )
    Journal.begin(store.root, appended).finish()

    with pytest.raises(NotFoundError, match="bronze was changed by the append") as refused:
        rollback_plan.undo_plan(store, last_operation.require(store, "silver"))

    assert refused.value.hint.startswith("roll all queries back together: savepoints pipeline")
    with pytest.raises(NotFoundError, match="undo does not work for the append"):
        last_operation.require(store, "bronze")


def test_a_member_without_a_savepoint_of_the_group_is_named(line: Line) -> None:
    line.add("bronze", topic)
    line.add("silver", line.reads("bronze"))
    line.add("gold", line.reads("silver"))
    for query in ("gold", "bronze"):
        line.save(query, "before")

    with pytest.raises(
        SavepointNotFoundError,
        match="the group before is incomplete: it has no savepoint of silver",
    ):
        plan(line, "gold", "before", every=True)


def test_trap_the_savepoint_of_a_reader_is_broken(line: Line) -> None:
    """It was refused with an option that the command does not have, though another one fits."""
    saved = chain(line)
    other = line.save("gold")

    def broken(labels: Labels) -> Labels:
        return replace(labels, state="broken", state_reason="a file is missing")

    line.store.catalog.relabel([saved["gold"].id], broken)

    made = plan(line, "silver", "before")

    assert [one.rollback.savepoint_id for one in made.members] == [saved["silver"].id, other.id]
    with pytest.raises(VerificationError, match="is broken: a file is missing") as refused:
        plan(line, "silver", "before", every=True)
    assert refused.value.hint.endswith(
        "--even-broken, which restore, rollback, fork and drill have"
    )


def test_a_reader_that_has_no_savepoint_before_the_cut_is_named(line: Line) -> None:
    line.add("bronze", topic)
    line.add("silver", line.reads("bronze"))
    line.save("bronze", "before")
    line.save("silver", batch=2)

    ahead = r"no savepoint of silver is consistent.*silver is ahead of"
    with pytest.raises(NotAlignedError, match=ahead):
        plan(line, "bronze", "before")


def test_a_fork_that_has_read_what_is_rolled_back_may_be_ended(line: Line) -> None:
    chain(line)
    line.add("silver_b", line.reads("bronze"), begun_by="fork")

    with pytest.raises(NotAlignedError, match=r"silver_b is consistent.* has no savepoints") as how:
        plan(line, "bronze", "before")

    assert how.value.hint.startswith("end the fork if you no longer need it: savepoints end silver")
    line.configured_store.query("silver_b").end().execute()
    assert [one.query for one in plan(line, "bronze", "before").members] == [*QUERIES]


def test_a_reader_that_is_behind_needs_what_runs_it(line: Line) -> None:
    chain(line, ahead=0)

    with pytest.raises(UsageError, match="jobs:app cannot be imported"):
        plan(line, "silver", "before", every=True)
    with pytest.raises(UsageError, match="the writer of silver, nowhere:gold, cannot be imported"):
        plan(line, "silver", "before", every=True, writers={"silver": "nowhere:gold"})


def test_a_reader_that_is_behind_and_in_no_settings_needs_a_writer(line: Line) -> None:
    line.add("bronze", topic)
    line.add("silver", line.reads("bronze", ahead=0), configure=False)
    for query in ("silver", "bronze"):
        line.save(query, "before")
    where = str(line.place / "others")

    with pytest.raises(
        UsageError, match=r"silver must read 1 more version of .* \(up to version 1"
    ):
        plan(line, "bronze", "before", checkpoints=where)


def test_a_reader_whose_effects_are_elsewhere_is_named(line: Line) -> None:
    """Such as one that calls a service for each row: nothing can take that back."""
    line.add("bronze", topic)
    line.add("calls", line.reads("bronze"), configure=False)
    take(line.store, line.live("calls"), batch_id=SAVED, query="calls", tags=("before",))
    line.save("bronze", "before")

    with pytest.raises(NotAlignedError, match="the outputs of calls are unknown") as refused:
        plan(line, "bronze", "before")

    assert "[queries.calls.outputs]" in str(refused.value.hint)
    assert line.rows("bronze") == ALL


def test_trap_files_that_a_reader_still_has_to_read_are_gone(line: Line) -> None:
    """They are no part of the version that the table goes back to, so that can be read."""
    line.add("bronze", topic, compacted_after=2)
    line.add("silver", lambda _batch: line.reads("bronze")(0))
    line.save("silver", "before")
    line.save("bronze", "before", batch=NEWEST)
    DeltaTable(line.uri("bronze")).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False
    )

    with pytest.raises(
        NotAlignedError, match=r"silver has to read .* is missing .* files? of that version"
    ):
        plan(line, "bronze", "before", every=True)


def test_trap_a_savepoint_from_before_a_rewind_cannot_read_across_it(line: Line) -> None:
    saved = chain(line)
    rolled_back(line, "silver", "before")
    # Silver has written a batch since, gold has no savepoint any more that has seen the rewind.
    line.store.catalog.remove([line.store.catalog.find("latest", query="gold").id])
    line.write("silver", SAVED + 1, line.store.catalog.find("before", query="silver").query_id)
    store = line.configured_store
    here = line.checkpoint("silver")
    for log in ("offsets", "commits"):
        here.put(f"{log}/{SAVED + 1}", line.live("silver").get(f"{log}/{SAVED + 1}"))
    for info in line.live("silver").list("state"):
        if not here.exists(info.path):
            here.put(info.path, line.live("silver").get(info.path))
    later = store.query("silver").create(forms=("native",)).execute()
    assert later.outputs[0].version == REWOUND + 1
    assert saved["gold"].outputs

    with pytest.raises(NotAlignedError, match="because version 4 rewound the table"):
        plan(line, "silver", later.id)


def test_queries_in_a_circle_have_no_first(line: Line) -> None:
    line.add("there", topic)
    line.add("back", line.reads("there"))
    there = line.live("there")
    for batch in range(NEWEST + 1):
        name = f"offsets/{batch}"
        version, settings, *_ = there.get(name).decode().split("\n")
        there.put(name, "\n".join([version, settings, line.reads("back")(batch)]).encode())
    line.save("there", "before")
    line.save("back", "before")

    with pytest.raises(NotAlignedError, match="read each other in a cycle"):
        plan(line, "there", "before")


def test_queries_in_drivers_of_their_own_are_named(line: Line) -> None:
    chain(line)
    root = line.store.root
    with (
        lease.hold(root, "silver", lease.ATTACH),
        lease.hold(root, "gold", lease.ATTACH),
        pytest.raises(
            QueryRunningError, match=r"in their own drivers: silver \(process \d+ on .*\), gold \("
        ) as refused,
    ):
        plan(line, "silver", "before", every=True)
    assert refused.value.exit_code == 12


def test_what_runs_is_planned_with_its_pause(line: Line) -> None:
    chain(line)
    with lease.hold(line.store.root, "silver", lease.RUN):
        made = plan(line, "silver", "before", every=True)

    assert made.paused == ("silver",)
    assert made.steps[0].what == "pause silver"


def test_a_plan_that_something_has_overtaken_is_refused(line: Line) -> None:
    chain(line)
    made = plan(line, "silver", "before", every=True)
    rolled_back(line, "silver", "before", every=True)

    with pytest.raises(StalePlanError):
        pipeline_rollback.execute(made, line.configured_store)
    assert_back(line)


def test_a_plan_is_the_same_after_the_journal(line: Line) -> None:
    chain(line)
    made = plan(line, "silver", "before", every=True)

    read = PipelineRollbackPlan.from_json(made.to_json())

    assert {**read.to_json(), "members": ()} == {**made.to_json(), "resumed": True, "members": ()}
    assert [one.reads for one in read.members] == [one.reads for one in made.members]


def test_the_plan_says_who_reads_what_goes_back(line: Line, on_local: Location) -> None:
    chain(line)

    told = str(plan(line, "silver", "before", every=True))

    assert f"gold: continue after the rewind of silver's {line.uri('silver')}" in told
    assert (
        f"{line.uri('silver')}: gold will be rolled back as well; any other streaming reader"
        in told
    )
    assert f"{line.uri('gold')}: a streaming reader fails at the rewind" in told


def test_trap_a_reader_that_has_read_what_is_not_committed_cannot_be_put_back(line: Line) -> None:
    line.add("bronze", topic)
    line.write("bronze", NEWEST + 1, line.store_id("bronze"))
    line.add("silver", line.reads("bronze", ahead=2))
    for query in ("silver", "bronze"):
        line.save(query, "before", batch=SAVED if query == "bronze" else 0)

    made = plan(line, "bronze", "before", every=True)

    assert "silver: it has read version 4 (WRITE)" in made.warnings[0]
    pipeline_rollback.execute(made, line.configured_store)
    last = last_operation.require(line.configured_store, "bronze")
    with pytest.raises(NotAlignedError, match="silver is ahead of bronze"):
        rollback_plan.undo_plan(line.configured_store, last)


def test_an_operation_is_listed_for_each_of_its_queries(line: Line) -> None:
    chain(line)
    rolled_back(line, "silver", "before", every=True)

    (one,) = journal.all_operations(line.store.root)

    assert all(one.is_on(query) for query in QUERIES)
    assert not one.is_on("other")
    assert unfinished.find(line.store, one.id).verb == "pipeline rollback"
