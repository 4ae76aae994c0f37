"""`rollback` without a JVM: plans, refusals, and state and output going back together."""

from __future__ import annotations

import dataclasses
import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.checkpoint.cut import read_cut
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import (
    CredentialsError,
    LockedError,
    NotAlignedError,
    NotFoundError,
    QueryRunningError,
    SavepointsError,
    StateUnwrittenError,
    TargetExistsError,
    UnfinishedOperationError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.moments import rfc3339
from savepoints.operations import unfinished
from savepoints.operations.inspect.verify import verify
from savepoints.operations.rollback import generation_change, rollback
from savepoints.operations.rollback.generation_change import NewCheckpoint, Work
from savepoints.operations.rollback.rollback import RollbackPlan
from savepoints.operations.rollback.target import AtBatch, BeforeLast
from savepoints.store import batch_log
from savepoints.store.locks import journal, lease
from savepoints.store.locks.journal import Journal, Operation
from savepoints.texts import moment_text
from tests.denied import denied
from tests.killed import killed_at
from tests.samples import contents, query_id, take, unpack, write
from tests.store.tables.test_merge_ledger import merge

pytestmark = pytest.mark.drawn(4)


@dataclasses.dataclass(frozen=True)
class Query:
    """A query with four batches in state and output, and a savepoint of the second."""

    place: Location
    store: Store
    checkpoint: Location
    output: str
    saved: Savepoint

    def plan(self, **options: object) -> RollbackPlan:
        target = str(self.place / "next")
        return rollback.plan(self.store, self.saved.id, **{"to": target, **options})  # type: ignore[arg-type]

    def plan_to(self, point: AtBatch) -> RollbackPlan:
        return rollback.plan(self.store, point, query="totals", to=str(self.place / "next"))

    def write(self, batch: int, app: str | None = None) -> None:
        app = app or query_id("rocksdb")
        write_deltalake(
            self.output,
            pa.table({"batch": [batch]}),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(app, batch)]),
        )

    @property
    def rows(self) -> list[int]:
        rows = DeltaTable(self.output).to_pyarrow_table().to_pylist()
        return sorted(row["batch"] for row in rows)


@pytest.fixture
def query(on_local: Location, local_store: Store) -> Query:
    checkpoint = unpack("rocksdb", on_local / "live")
    made = Query(on_local, local_store, checkpoint, str(on_local / "output"), None)  # type: ignore[arg-type]
    for batch in range(4):
        made.write(batch)
    saved = take(local_store, checkpoint, batch_id=1, outputs={"totals": made.output})
    return dataclasses.replace(made, saved=saved)


def test_state_and_output_go_back_together(query: Query) -> None:
    before = contents(query.checkpoint)

    done = rollback.execute(query.plan(), query.store)

    assert (done.generation, done.batch_id, done.query) == (2, 1, "totals")
    assert read_cut(query.place / "next").cut.offsets == ('{"logOffset":1}',)
    assert query.rows == [0, 1]
    assert contents(query.checkpoint) == before
    current = query.store.generations.current("totals")
    assert (current.checkpoint, current.begun_from) == (done.checkpoint, query.saved.id)
    safety, _ = query.store.catalog.all()
    assert (safety.id, safety.cut.batch_id) == (done.safety_id, 3)
    assert safety.outputs[0].version == 3


def test_trap_a_driver_has_another_table_of_the_same_name_since_the_savepoint(
    query: Query,
) -> None:
    """The old one would be taken back, and the rows in the one that it writes now would stay."""
    other = dataclasses.replace(query, output=str(query.place / "v2" / "output"))
    for batch in range(2, 4):
        other.write(batch)
    newest = take(query.store, query.checkpoint, outputs={"totals": other.output})

    with pytest.raises(NotAlignedError, match=r"now writes .*v2/output, which would not be") as no:
        query.plan()

    assert "[queries.totals.outputs]" in no.value.hint
    assert (query.rows, other.rows) == ([0, 1, 2, 3], [2, 3])
    there = {
        "totals": QuerySettings(
            app="shop:totals", checkpoints="unused", outputs={"totals": query.output}
        )
    }
    named = Store.at(str(query.store.root), settings=Settings(queries=there))
    target = str(query.place / "next")
    assert [one.output.uri for one in rollback.plan(named, query.saved.id, to=target).outputs] == [
        query.output
    ]
    assert rollback.plan(query.store, newest.id, to=target).outputs[0].output.uri == other.output


@pytest.mark.parametrize("bound", [False, True], ids=["newest-savepoint", "settings"])
def test_trap_a_driver_and_an_app_give_one_table_two_names(query: Query, bound: bool) -> None:
    """A driver without settings calls it by its directory; neither could go back to the other's."""
    if bound:
        app = QuerySettings(app="a:b", checkpoints="unused", outputs={"rows": query.output})
        settings = Settings(queries={"totals": app})
        query = dataclasses.replace(query, store=Store.at(str(query.store.root), settings=settings))
    else:
        take(query.store, query.checkpoint, outputs={"rows": query.output})

    done = rollback.execute(query.plan(), query.store)

    assert query.rows == [0, 1]
    assert [one.name for one in query.store.catalog.find(done.safety_id or "").outputs] == ["rows"]
    back = rollback.plan(query.store, BeforeLast(), query="totals", to=str(query.place / "again"))
    rollback.execute(back, query.store)
    assert query.rows == [0, 1, 2, 3]


def test_a_rollback_can_be_undone_by_its_safety_savepoint(query: Query) -> None:
    done = rollback.execute(query.plan(), query.store)
    assert done.safety_id

    back = rollback.plan(query.store, done.safety_id, to=str(query.place / "again"))
    rollback.execute(back, query.store)

    assert query.rows == [0, 1, 2, 3]
    assert read_cut(query.place / "again").cut.batch_id == 3
    assert query.store.generations.current("totals").generation == 3


@pytest.mark.parametrize("saved", [True, False])
def test_trap_the_batch_log_lacked_what_a_killed_run_left_of_a_generation(
    query: Query, saved: bool
) -> None:
    """Nobody looks at the log of its checkpoint later, though an undo leads back to there."""
    offsets = read_cut(query.checkpoint).cut.offsets

    rollback.execute(query.plan(save_present=saved), query.store)

    logged = batch_log.read(query.store.root, "totals", 1)
    assert sorted(logged) == [0, 1, 2, 3]
    assert logged[3].offsets == offsets


def test_trap_a_time_in_the_bug_means_a_savepoint_of_before_and_nobody_says_so(
    query: Query,
) -> None:
    """The id has a later time than was asked for: the plan says when its batch was committed."""
    done = rollback.execute(query.plan(), query.store)
    assert done.safety_id
    bug = query.store.catalog.find(done.safety_id)
    later = query.saved.cut.committed_at + timedelta(minutes=1)
    query.store.catalog.put(
        [dataclasses.replace(bug, cut=dataclasses.replace(bug.cut, committed_at=later))]
    )
    at = [f"@{rfc3339(later + timedelta(minutes=minutes))}" for minutes in (1, -1)]

    in_the_bug, before = (
        rollback.plan(query.store, one, query="totals", to=str(query.place / "again")) for one in at
    )

    assert in_the_bug.savepoint_id == before.savepoint_id == query.saved.id
    committed = moment_text(query.saved.cut.committed_at)
    assert f"committed {committed}" in str(in_the_bug)
    note = f"not used although nearer to {at[0][1:]}: 1 savepoint of batches that no longer count"
    assert f"{note}, the newest of them {bug.id} (rolled back)" in str(in_the_bug)
    assert "not used" not in str(before)


def test_planning_writes_nothing_and_says_every_step(query: Query) -> None:
    before = contents(query.place)

    plan = query.plan()

    assert contents(query.place) == before
    assert [step.name for step in plan.steps] == [
        "safety_savepoint",
        "checkpoint_written",
        "output_totals_rewound",
        "generation_begun",
    ]
    assert (plan.from_batch, plan.batch_id, plan.generation) == (3, 1, 2)
    assert RollbackPlan.from_json(plan.to_json()) == dataclasses.replace(plan, resumed=True)


def test_outputs_may_be_left_as_they_are(query: Query) -> None:
    plan = query.plan(rewind_outputs=False)
    assert "silently drop batches 2 to 3 when they run again" in plan.warnings[1]

    rollback.execute(plan, query.store)

    assert query.rows == [0, 1, 2, 3]


def test_trap_late_events_that_a_rollback_takes_along_are_named(query: Query) -> None:
    """Only the archive has them, and from there nothing is read again."""
    done = rollback.execute(query.plan(), query.store)
    late = merge(done.generation, "totals", rows=4)
    query.store.ledger.add(late)
    after = take(query.store, query.place / "next", outputs={"totals": query.output})

    def said(savepoint: str) -> list[str]:
        plan = rollback.plan(query.store, savepoint, to=str(query.place / "third"))
        return [one for one in plan.warnings if late.id in one]

    (note,) = said(query.saved.id)
    assert note.startswith(f"4 events from 1 merge ({late.id}) will no longer count")
    assert said(after.id) == []


def test_trap_a_table_that_was_removed_can_be_left_removed(query: Query) -> None:
    """To rebuild it: what is read from the savepoint on is all that it will have."""
    shutil.rmtree(query.output)
    with pytest.raises(NotFoundError, match="there is no Delta table") as refused:
        query.plan()
    assert "--outputs none" in refused.value.hint

    plan = query.plan(rewind_outputs=False, save_present=False)
    assert any(f"no Delta table at {query.output}" in one for one in plan.warnings)
    rollback.execute(plan, query.store)

    assert query.store.generations.current("totals").begun_from == query.saved.id
    assert read_cut(query.place / "next").cut.batch_id == 1
    assert not Path(query.output).exists()


def test_a_query_that_commits_between_plan_and_execution_is_refused(query: Query) -> None:
    plan = query.plan()
    newest = contents(query.checkpoint)
    write(query.checkpoint, {"offsets/4": newest["offsets/3"], "commits/4": newest["commits/3"]})
    before = contents(query.place / "output")

    with pytest.raises(QueryRunningError, match="changed since the plan"):
        rollback.execute(plan, query.store)

    assert contents(query.place / "output") == before
    assert not (query.place / "next").exists("metadata")
    journal.refuse_unfinished(query.store.root, "totals")


def test_trap_a_driver_that_nobody_knows_commits_while_a_rollback_is_under_way(
    query: Query,
) -> None:
    """It would go on to write the table that was taken back, beside the next generation."""
    plan = query.plan()
    newest = contents(query.checkpoint)
    begun = {"offsets/4": newest["offsets/3"], "commits/4": newest["commits/3"]}

    def commit(said: str) -> None:
        if said.startswith("taking the safety savepoint"):
            write(query.checkpoint, begun)

    with pytest.raises(QueryRunningError, match="a driver that holds no lease has committed bat"):
        rollback.execute(plan, query.store, progress=commit)

    assert query.rows == [0, 1, 2, 3]
    assert (query.place / "next").list() == []
    assert query.store.generations.current("totals").generation == 1
    journal.refuse_unfinished(query.store.root, "totals")


def test_a_query_that_another_verb_has_is_refused(query: Query) -> None:
    plan = query.plan()
    with lease.hold(query.store.root, "totals", "merge"):
        with pytest.raises(LockedError):
            query.plan()
        with pytest.raises(LockedError):
            rollback.execute(plan, query.store)
    assert query.rows == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("verb", "runs"),
    [
        (lease.RUN, "the query totals is running"),
        (lease.ATTACH, "the query totals has been running in its own driver"),
    ],
)
def test_of_a_query_that_runs_the_plan_can_be_looked_at(query: Query, verb: str, runs: str) -> None:
    """Nothing is written before it has stopped."""
    before = contents(query.place / "output")
    with lease.hold(query.store.root, "totals", verb):
        plan = query.plan()
        assert runs in plan.warnings[0]
        assert "so this cannot be executed yet" in plan.warnings[0]
        with pytest.raises(QueryRunningError, match=runs):
            rollback.execute(plan, query.store)
    assert contents(query.place / "output") == before
    assert not (query.place / "next").exists("metadata")


def test_another_unfinished_operation_is_refused(query: Query) -> None:
    other = Operation("op-x", "merge", "totals", {}, "savepoints merge x", "2026-11-20T10:00:00Z")
    Journal.begin(query.store.root, other)

    with pytest.raises(UnfinishedOperationError) as refused:
        query.plan()

    assert refused.value.hint == (
        "finish it first: savepoints merge x; or undo it: savepoints operations undo op-x"
    )


def test_rows_of_others_are_not_taken_back(query: Query) -> None:
    query.write(99, "another/app/1")
    before = contents(query.store.root)

    with pytest.raises(NotAlignedError, match="other writers"):
        query.plan()

    assert contents(query.store.root) == before


def test_rows_that_others_write_after_the_plan_are_not_taken_back(query: Query) -> None:
    plan = query.plan()
    query.write(99, "another/app/1")

    with pytest.raises(NotAlignedError):
        rollback.execute(plan, query.store)

    assert 99 in query.rows


def test_a_target_that_is_taken_is_refused_before_anything_is_written(query: Query) -> None:
    (query.place / "next").put("precious", b"data")
    before = contents(query.place)

    with pytest.raises(TargetExistsError):
        rollback.execute(query.plan(), query.store)

    assert contents(query.place) == before


def test_without_settings_the_new_checkpoint_is_beside_the_old_one(query: Query) -> None:
    plan = query.plan(to=None)

    assert plan.checkpoint == f"{query.checkpoint}-2"
    done = rollback.execute(plan, query.store)
    assert (done.checkpoint, done.generation) == (plan.checkpoint, 2)


def test_a_present_without_committed_batch_needs_no_safety_savepoint(query: Query) -> None:
    query.checkpoint.delete([info.path for info in query.checkpoint.list("commits")])

    plan = query.plan()

    assert plan.safety_id is None
    assert "no safety savepoint" in plan.warnings[0]
    assert rollback.execute(plan, query.store).safety_id is None
    assert Path(str(query.place / "next" / "metadata")).exists()


def settings_of(query: Query, **outputs: str) -> Settings:
    bound = QuerySettings(app="a:b", checkpoints=str(query.place / "made"), outputs=outputs)
    return Settings(queries={"totals": bound})


def test_an_output_that_the_savepoint_does_not_know_is_refused(query: Query) -> None:
    """Its rows would stay while its batches run again under a new id."""
    audit = str(query.place / "audit")
    known = query.store.with_settings(settings_of(query, totals=query.output, audit=audit))
    write_deltalake(audit, pa.table({"batch": [3]}))

    with pytest.raises(NotAlignedError, match="does not include the output audit"):
        dataclasses.replace(query, store=known).plan()


def test_a_present_that_cannot_be_saved_is_refused_before_anything_is_begun(query: Query) -> None:
    lost = next(one.path for one in query.checkpoint.list("state") if "/3." in one.path)
    query.checkpoint.delete([lost])
    kept = [one.path for one in query.checkpoint.list("state") if one.path.endswith(".zip")]
    query.checkpoint.delete(kept)

    with pytest.raises(SavepointsError) as refused:
        query.plan()
    assert "--no-safety-savepoint" in refused.value.hint
    assert journal.unfinished(query.store.root, "totals") is None

    done = rollback.execute(query.plan(save_present=False), query.store)
    assert done.safety_id is None
    assert query.rows == [0, 1]


def test_trap_an_undo_that_vacuum_has_made_impossible_is_not_begun(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it counted as begun, the operation could not be finished any more, nor undone."""
    plan = query.plan()
    killed_at(
        monkeypatch, "rollback.output_totals_rewound", lambda: rollback.execute(plan, query.store)
    )
    assert query.rows == [0, 1]
    DeltaTable(query.output).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False
    )

    with pytest.raises(NotAlignedError, match=r"version 3 of .* is missing 2 files") as refused:
        unfinished.undo(query.store, plan.operation_id)

    finish = f"savepoints operations resume {plan.operation_id}"
    assert refused.value.hint.startswith(f"finish the operation: {finish}; or put the files back")
    unfinished.resume(query.store, plan.operation_id)
    assert query.store.generations.current("totals").generation == 2
    assert query.rows == [0, 1]


def test_trap_what_ran_behind_a_promotion_is_refused_in_words_that_fit_it(query: Query) -> None:
    """It took nothing back: `pipeline promote` and others change outputs in their own ways."""
    plan = dataclasses.replace(query.plan(), verb="pipeline promote")

    said = generation_change.written_behind(plan, 4).message

    assert said == (
        "totals has run to batch 4 since this pipeline promote operation changed its outputs at "
        "batch 3"
    )


def test_an_operation_whose_state_cannot_be_written_is_taken_back_at_once(query: Query) -> None:
    """The query, paused for it, can go on; nobody has to find out that `undo` is the only way."""

    def fail() -> NewCheckpoint:
        raise StateUnwrittenError.of(plan.checkpoint, "no space left on device")

    plan = query.plan()
    held = lease.hold(query.store.root, "totals", "rollback")
    with held as mine, pytest.raises(StateUnwrittenError, match="no space left"):
        generation_change.carry_out(plan, query.store, Work(fail), mine)

    assert journal.unfinished(query.store.root, "totals") is None
    assert query.store.generations.current("totals").generation == 1
    assert query.rows == [0, 1, 2, 3]
    rollback.execute(query.plan(), query.store)
    assert query.rows == [0, 1]


def test_a_batch_that_nobody_saved_takes_outputs_along_that_only_savepoints_know(
    query: Query,
) -> None:
    plan = query.plan_to(AtBatch(2))

    assert [one.output.version for one in plan.outputs] == [2]
    rollback.execute(plan, query.store)
    assert query.rows == [0, 1, 2]


def test_after_a_rollback_that_left_the_outputs_it_can_be_undone(query: Query) -> None:
    """The new generation's id must be in the table, or no version belongs to its first batch."""
    table = str(query.place / "managed")
    for batch in range(4):
        write_deltalake(
            table,
            pa.table({"batch": [batch]}),
            mode="append",
            commit_properties=CommitProperties(
                app_transactions=[Transaction("totals/managed/1", batch)]
            ),
        )
    settings = settings_of(query, managed=table)
    saved = take(query.store, query.checkpoint, batch_id=2, outputs={"managed": table})
    plan = rollback.plan(query.store.with_settings(settings), saved.id, rewind_outputs=False)
    assert any("rows may be duplicated" in one for one in plan.warnings)
    rollback.execute(plan, query.store.with_settings(settings))

    back = rollback.plan(query.store.with_settings(settings), BeforeLast(), query="totals")
    rollback.execute(back, query.store.with_settings(settings))

    assert read_cut(Location.of(back.checkpoint)).cut.batch_id == 3


def test_an_interrupted_rollback_is_only_finished_as_it_was_begun(query: Query) -> None:
    plan = query.plan()
    Journal.begin(
        query.store.root,
        Operation(
            plan.operation_id, "rollback", "totals", plan.to_json(), plan.command, "2026-11-20"
        ),
    )
    assert query.plan().resumed
    with pytest.raises(UsageError, match=r"started with other options \(checkpoint"):
        query.plan(to=str(query.place / "elsewhere"))
    with pytest.raises(UnfinishedOperationError) as refused:
        query.plan(rewind_outputs=False)
    assert f"{plan.command}; or undo it" in refused.value.hint


def test_trap_a_first_savepoint_that_fails_left_no_word_of_the_rollback(
    on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its generation had begun; the error named the keys alone, and hints an undo that is refused.

    The same words, `latest~1`, mean another savepoint by then, or none, and finish it nevertheless.
    """
    store, live = Store.at(str(on_s3 / "store")).make(), unpack("rocksdb", on_s3 / "live")
    saved = take(store, live, batch_id=1)
    take(store, live)

    def plan(name: str) -> RollbackPlan:
        return rollback.plan(
            store, name, to=str(on_s3 / "next"), sources=("keep:0",),
            rewind_outputs=False, check_source=False, stopped=True,
        )  # fmt: skip

    begun = plan("latest~1")
    manifest = f"savepoints/{begun.first_id}/manifest.json"
    with denied(
        s3_endpoint, lambda method, path, _: method == "PUT" and path.endswith(manifest)
    ) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(CredentialsError) as failed:
            rollback.execute(begun, store)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)

    assert failed.value.message.startswith("generation 2 of totals has begun, but the rollback")
    assert failed.value.hint.endswith(f"; then finish it: {begun.command}")
    for refused in (
        lambda: journal.refuse_unfinished(store.root, "totals"),
        lambda: plan("latest~2"),
    ):
        with pytest.raises(UnfinishedOperationError) as told:
            refused()
        assert told.value.hint == f"finish it first: {begun.command}"
    with pytest.raises(UsageError, match="generation 2 of totals has already begun"):
        unfinished.undo_plan(store, begun.operation_id)

    again = plan("latest~1")
    assert again == plan(saved.id)
    assert again.resumed
    assert again.command == begun.command
    rollback.execute(again, store)

    first = store.catalog.find("latest", query="totals")
    assert (first.id, first.generation) == (begun.first_id, 2)
    assert (first.cut.batch_id, first.cut.offsets) == (1, saved.cut.offsets)
    assert verify(store, first.id, depth="checksums").grade == "ok"
    journal.refuse_unfinished(store.root, "totals")
