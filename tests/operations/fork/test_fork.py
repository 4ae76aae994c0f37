"""`fork` without a JVM: plans, refusals, isolated tables, bindings, and the origin untouched."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.checkpoint.cut import read_cut, read_query_id
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import (
    FileSinkError,
    LockedError,
    NotAlignedError,
    NotFoundError,
    SavepointNotFoundError,
    TargetExistsError,
    UnfinishedOperationError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations import unfinished
from savepoints.operations.fork import fork, fork_plan
from savepoints.operations.fork.compared_queries import common_archives, compared_query
from savepoints.operations.fork.fork import Forked
from savepoints.operations.fork.fork_plan import ForkOptions, ForkPlan
from savepoints.operations.inspect import lineage
from savepoints.operations.maintain import removal
from savepoints.operations.migrate.migrate import MigrationOptions
from savepoints.operations.rollback import last_operation, rollback
from savepoints.operations.rollback.target import BeforeLast
from savepoints.operations.savepoint import create, restore
from savepoints.outputs.delta import log as delta_log
from savepoints.outputs.delta.batch_version import open_table
from savepoints.outputs.fork import isolated_copy
from savepoints.store import bindings
from savepoints.store.locks import journal, lease
from savepoints.store.locks.journal import Journal, Operation
from tests.draw import some
from tests.samples import contents, query_id, take, unpack

pytestmark = pytest.mark.drawn(5)

APP = "spark_jobs.order_totals:app"
# The query of the sample, at batch 3; the savepoint is of batch 1.
ORIGIN, SAVED, NEWEST = "order_totals", 1, 3


@dataclasses.dataclass(frozen=True)
class Origin:
    """A query with four batches in state and output, and a savepoint of the second."""

    place: Location
    store: Store
    saved: Savepoint

    @property
    def settings(self) -> Settings:
        return self.store.settings

    @property
    def checkpoint(self) -> Location:
        return self.place / "live"

    @property
    def table(self) -> str:
        return str(self.place / "totals")

    def plan(self, name: str = "variant", **asked: object) -> ForkPlan:
        return fork_plan.plan(
            self.store,
            self.saved.id,
            name,
            ForkOptions(**asked),  # type: ignore[arg-type]
        )

    def fork(self, name: str = "variant", **asked: object) -> Forked:
        return fork.execute(self.plan(name, **asked), self.store)

    def with_table(self, name: str, **bound: object) -> Origin:
        """Return it with a table `[queries.NAME]` in the settings."""
        given = {"app": APP, "app_name": ORIGIN, "checkpoints": str(self.place / "own")}
        table = QuerySettings(**{**given, **bound})  # type: ignore[arg-type]
        queries = {**self.settings.queries, name: table}
        return dataclasses.replace(
            self,
            store=self.store.with_settings(self.settings.model_copy(update={"queries": queries})),
        )


def write_batch(uri: str, app: str, batch: int) -> None:
    """Write a batch as one commit with its transaction id."""
    write_deltalake(
        uri,
        pa.table({"batch": [batch]}),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(app, batch)]),
    )


def rows(uri: str) -> list[int]:
    # Not by the reader that to_pyarrow_table() has: it looks for a clone's files in its directory.
    return sorted(row["batch"] for row in pa.table(DeltaTable(uri).scan()).to_pylist())


def transactions(uri: str) -> dict[str, int]:
    return delta_log.transactions(uri, int(DeltaTable(uri).version()))


@pytest.fixture
def origin(on_local: Location, local_store: Store) -> Origin:
    checkpoint = unpack("rocksdb", on_local / "live")
    table = str(on_local / "totals")
    for batch in range(NEWEST + 1):
        write_batch(table, query_id("rocksdb"), batch)
    saved = take(local_store, checkpoint, batch_id=SAVED, query=ORIGIN, outputs={"totals": table})
    bound = QuerySettings(
        app=APP,
        checkpoints=str(on_local / "checkpoints"),
        outputs={"totals": table},
        topics={"orders": "shop"},
        every="10m",
        max_offsets_per_trigger=7,
    )
    return Origin(on_local, local_store.with_settings(Settings(queries={ORIGIN: bound})), saved)


def test_a_fork_is_a_query_of_its_own_from_the_cut_of_the_savepoint(origin: Origin) -> None:
    before = {place: contents(origin.place / place) for place in ("live", "totals")}

    done = origin.fork()

    assert {place: contents(origin.place / place) for place in before} == before
    assert (done.query, done.generation, done.batch_id) == ("variant", 1, SAVED)
    made = Location.of(done.checkpoint)
    assert str(made) == str(origin.place / "checkpoints" / "variant" / "1")
    assert read_cut(made).cut == dataclasses.replace(
        origin.saved.cut, committed_at=read_cut(made).cut.committed_at
    )
    assert read_query_id(made) == done.query_id != query_id("rocksdb")
    current = origin.store.generations.current("variant")
    assert (current.begun_by, current.begun_from) == ("fork", origin.saved.id)
    assert rows(done.outputs["totals"]) == list(range(SAVED + 1))
    # Nobody wrote a lease, a journal or a generation for the origin.
    assert [one.generation for one in origin.store.generations.all(ORIGIN)] == [1]
    assert not origin.store.root.exists(f"leases/{ORIGIN}.json")


def test_the_origin_may_run_meanwhile(origin: Origin) -> None:
    with lease.hold(origin.store.root, ORIGIN, "run"):
        held = origin.store.root.get(f"leases/{ORIGIN}.json")
        before = [(origin.place / place).list() for place in ("live", "totals")]

        origin.fork()
        origin.fork("cloned", way="clone")

        assert [(origin.place / place).list() for place in ("live", "totals")] == before
        assert origin.store.root.get(f"leases/{ORIGIN}.json") == held


def test_its_table_has_its_own_transaction_id_in_the_commit_of_the_rows(origin: Origin) -> None:
    uri = origin.fork().outputs["totals"]

    assert uri == f"{origin.table}_forks/variant"
    assert DeltaTable(uri).version() == 0
    assert transactions(uri) == {"variant/totals/1": SAVED}
    assert not transactions(uri).keys() & transactions(origin.table).keys()
    assert open_table(uri).metadata().id != open_table(origin.table).metadata().id


def test_a_savepoint_of_the_fork_before_its_first_batch_finds_its_version(origin: Origin) -> None:
    origin.fork()

    plan = create.plan(origin.store, query="variant", forms=("native",))
    saved = create.execute(plan, origin.store)

    (output,) = saved.outputs
    assert (output.version, output.app_id, output.app_version) == (0, "variant/totals/1", SAVED)
    assert saved.application == APP
    assert saved.cut.committed_at == origin.saved.cut.committed_at


def test_the_store_says_what_a_fork_runs_where_no_settings_name_it(origin: Origin) -> None:
    done = origin.fork()

    bound = bindings.complete(origin.store).queries["variant"]
    assert bound == QuerySettings(
        app=APP,
        app_name=ORIGIN,
        checkpoints=str(origin.place / "checkpoints"),
        outputs=done.outputs,
        topics={"orders": "shop"},
        max_offsets_per_trigger=7,
    )


def test_planning_writes_nothing_and_says_every_step(origin: Origin) -> None:
    before = contents(origin.place)

    plan = origin.plan(way="clone")

    assert contents(origin.place) == before
    assert [step.name for step in plan.steps] == [
        "checkpoint_written",
        "output_totals_isolated",
        "generation_begun",
    ]
    assert any("VACUUM" in note and origin.table in note for note in plan.warnings)
    assert ForkPlan.from_json(json.loads(json.dumps(plan.to_json()))) == dataclasses.replace(
        plan, resumed=True
    )


def test_any_number_of_forks_share_nothing(origin: Origin) -> None:
    plans = fork_plan.plan_all(origin.store, origin.saved.id, ["a", "b", "c"])

    done = fork.execute_all(plans, origin.store)

    assert len({one.query_id for one in done} | {query_id("rocksdb")}) == 4
    assert len({one.checkpoint for one in done}) == 3
    tables = [origin.table, *(one.outputs["totals"] for one in done)]
    known = [set(transactions(uri)) for uri in tables]
    assert sum(map(len, known)) == len(set().union(*known))


def test_a_fork_of_a_fork_and_of_an_old_generation(origin: Origin) -> None:
    origin.fork()
    plan = create.plan(origin.store, query="variant", forms=("native",))
    saved = create.execute(plan, origin.store)
    back = rollback.plan(origin.store, saved.id)
    rollback.execute(back, origin.store)
    assert origin.store.generations.current("variant").generation == 2

    second = dataclasses.replace(origin, saved=saved)
    done = second.fork("deeper")

    assert done.origin == "variant"
    assert done.outputs["totals"] == f"{origin.table}_forks/variant_forks/deeper"
    assert rows(done.outputs["totals"]) == list(range(SAVED + 1))
    assert transactions(done.outputs["totals"]) == {"deeper/totals/1": SAVED}
    bound = bindings.complete(origin.store).queries["deeper"]
    assert (bound.app, bound.app_name) == (APP, ORIGIN)


def test_a_fork_can_be_rolled_back_without_any_settings_of_it(origin: Origin) -> None:
    """Copied and cloned; the table of a clone goes back although its files lie elsewhere."""
    for way in ("copy", "clone"):
        done = origin.fork(way, way=way)
        plan = create.plan(origin.store, query=way, forms=("native",))
        saved = create.execute(plan, origin.store)
        write_batch(done.outputs["totals"], f"{way}/totals/1", SAVED + 1)

        back = rollback.plan(origin.store, saved.id, query=way)
        assert back.checkpoint == str(origin.place / "checkpoints" / way / "2")
        rollback.execute(back, origin.store)

        assert rows(done.outputs["totals"]) == list(range(SAVED + 1))
        assert transactions(done.outputs["totals"])[f"{way}/totals/2"] == SAVED
        bound = bindings.complete(origin.store).queries[way]
        assert bound.outputs == done.outputs
    assert rows(origin.table) == list(range(NEWEST + 1))


def test_the_same_fork_again_does_nothing(origin: Origin) -> None:
    origin.fork()
    before = contents(origin.place)

    again = origin.plan()
    assert (again.finished, again.steps) == (True, ())
    done = fork.execute(again, origin.store)

    assert done.already_forked
    after = contents(origin.place)
    assert {path for path in after if "events/" not in path} == {
        path for path in before if "events/" not in path
    }


def test_a_name_that_is_a_query_already_is_refused(origin: Origin) -> None:
    origin.fork()

    for asked in ({"way": "clone"}, {"checkpoints": str(origin.place / "x")}):
        with pytest.raises(TargetExistsError, match="already has a query named variant, begun by"):
            origin.plan(**asked)
    with pytest.raises(TargetExistsError, match=f"already has a query named {ORIGIN}"):
        origin.plan(ORIGIN)


def test_what_is_no_savepoint_is_refused(origin: Origin) -> None:
    with pytest.raises(SavepointNotFoundError):
        fork_plan.plan(origin.store, "nothing", "variant")


def test_places_that_are_taken_are_refused(origin: Origin) -> None:
    (origin.place / "taken").put("something", b"1")
    checkpoint = origin.place / "elsewhere" / "variant" / "1"
    checkpoint.put("offsets/0", b"1")

    with pytest.raises(TargetExistsError, match="already has 1 file"):
        origin.plan(outputs={"totals": str(origin.place / "taken")})
    with pytest.raises(TargetExistsError, match="lies within the Delta table"):
        origin.plan(outputs={"totals": f"{origin.table}/forks/variant"})
    with pytest.raises(TargetExistsError, match="already has"):
        origin.plan(outputs={"totals": str(origin.place)})
    with pytest.raises(TargetExistsError, match="already has"):
        origin.plan(checkpoints=str(origin.place / "elsewhere"))


def test_two_forks_in_one_place_are_refused(origin: Origin) -> None:
    with pytest.raises(TargetExistsError, match="would overlap"):
        fork_plan.plan_all(
            origin.store,
            origin.saved.id,
            ["a", "b"],
            ForkOptions(outputs={"totals": str(origin.place / "same")}),
        )
    with pytest.raises(TargetExistsError, match="would overlap"):
        origin.plan(
            checkpoints=str(origin.place / "x"),
            outputs={"totals": str(origin.place / "x" / "variant")},
        )
    with pytest.raises(UsageError, match="each fork needs a different name, but got"):
        fork_plan.plan_all(origin.store, origin.saved.id, ["a", "a"])


def test_a_file_sink_is_refused_with_a_way_out(origin: Origin) -> None:
    (output,) = origin.saved.outputs
    sink = dataclasses.replace(output, kind="files")
    with pytest.raises(FileSinkError, match="file sink") as refused:
        isolated_copy.plan(sink, str(origin.place / "x"), "copy", "variant/totals/1", SAVED)
    assert "--app" in refused.value.hint


def test_a_version_that_vacuum_took_is_refused_before_anything_is_written(origin: Origin) -> None:
    (old, *_) = DeltaTable(origin.table, version=0).file_uris()
    Path(old).unlink()
    before = contents(origin.place)

    with pytest.raises(NotAlignedError, match=r"is missing 1 file .*deleted by VACUUM"):
        origin.plan()
    assert contents(origin.place) == before


def test_a_table_in_the_settings_says_where_the_fork_lives(origin: Origin) -> None:
    wanted = {"totals": str(origin.place / "mine")}
    bound = origin.with_table("variant", outputs=wanted, every="5m", topics={"orders": "other"})

    done = bound.fork()

    assert done.outputs == wanted
    assert done.checkpoint == str(origin.place / "own" / "variant" / "1")
    (written,) = bindings.every(origin.store.root)
    assert written.settings().outputs == wanted
    assert written.settings().every is None
    # The table holds as it is.
    complete = bindings.complete(bound.store)
    assert complete.queries["variant"] == bound.settings.queries["variant"]


@pytest.mark.parametrize(
    "asked",
    [
        {"app": "spark_jobs.order_totals_buggy:app"},
        {"checkpoints": "/elsewhere"},
        {"outputs": {"totals": "/elsewhere"}},
    ],
)
def test_flags_that_contradict_the_settings_are_refused(
    origin: Origin, asked: dict[str, object]
) -> None:
    bound = origin.with_table("variant", outputs={"totals": str(origin.place / "mine")})

    with pytest.raises(UsageError, match=r"contradicts \[queries.variant\]"):
        bound.plan("variant", **asked)


def test_trap_a_place_in_another_spelling_contradicted_the_settings(origin: Origin) -> None:
    mine = str(origin.place / "mine")
    bound = origin.with_table("variant", outputs={"totals": mine})

    planned = bound.plan(
        "variant", outputs={"totals": f"file://{mine}/"}, checkpoints=f"{origin.place}/own/"
    )

    assert [one.uri for one in planned.outputs] == [mine]


def test_trap_an_archive_in_another_spelling_was_none_that_two_queries_have(
    origin: Origin,
) -> None:
    """So what only the archive still has could not be compared."""
    archive = str(origin.place / "archive")
    bound = origin.with_table(
        "variant", outputs={"totals": str(origin.place / "mine")}, archives={"orders": archive}
    )
    bound.fork()
    queries = bound.store.settings.queries
    mine = queries[ORIGIN].model_copy(update={"archives": {"orders": f"file://{archive}/"}})
    settings = bound.store.settings.model_copy(update={"queries": {**queries, ORIGIN: mine}})

    compared = [compared_query(bound.store, one, settings) for one in (ORIGIN, "variant")]

    assert common_archives(compared) == [archive]


def test_settings_that_lack_what_the_fork_needs_are_refused(origin: Origin) -> None:
    nameless = origin.with_table("variant", app_name=None, outputs={"totals": "/mine"})
    with pytest.raises(UsageError, match="another name") as refused:
        nameless.plan()
    assert f'app_name = "{ORIGIN}"' in refused.value.hint
    with pytest.raises(UsageError, match="output totals of the fork variant has no table"):
        origin.with_table("variant").plan()


def test_without_the_origins_settings_all_must_be_said(origin: Origin) -> None:
    unknown = dataclasses.replace(origin, store=origin.store.with_settings(Settings()))

    with pytest.raises(UsageError, match="the program of the fork variant is unknown"):
        unknown.plan()
    with pytest.raises(UsageError, match="the directory for the checkpoints of the fork variant"):
        unknown.plan(app=APP)
    done = unknown.fork(app=APP, checkpoints=str(origin.place / "x"))
    assert done.outputs == {"totals": f"{origin.table}_forks/variant"}


def test_another_program_is_said_and_one_with_more_outputs_wants_tables(origin: Origin) -> None:
    plan = origin.plan(app="spark_jobs.order_totals_buggy:app")
    assert any("before the first batch" in note for note in plan.warnings)
    assert plan.binding.settings().app_name == ORIGIN

    with pytest.raises(UsageError, match="has no output 'nothing'"):
        origin.plan(outputs={"nothing": "/x"})
    with pytest.raises(UsageError, match="cannot be imported"):
        origin.plan(app="no.such:app")


def test_a_migration_cannot_copy_files_and_is_part_of_the_command(origin: Origin) -> None:
    asked = MigrationOptions(("max=most", "n="), {"count": "0"}, allow_dropped_state=True)

    with pytest.raises(UsageError, match="--format native copies files"):
        origin.plan(form="native", migration=asked)
    assert not origin.store.generations.all("variant")
    assert ForkOptions(migration=asked).words() == [
        "--migrate", "--map", "max=most", "--map", "n=", "--default", "count=0",
        "--allow-dropped-state",
    ]  # fmt: skip


def test_retention_keeps_what_a_fork_that_has_not_run_begins_from(origin: Origin) -> None:
    assert origin.saved.id not in removal.needed(origin.store)
    origin.fork()

    assert removal.needed(origin.store)[origin.saved.id] == (
        "generation 1 of variant began from this savepoint",
    )


@pytest.mark.parametrize(
    "step",
    some(1, ["begun", "checkpoint_written", "output_totals_isolated", "in the table"], "undone"),
)
def test_an_interrupted_fork_is_taken_back_to_nothing(
    origin: Origin, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path for path in contents(origin.place) if not path.startswith("store/")}
    plan = interrupted(origin, step, monkeypatch)

    with pytest.raises(UnfinishedOperationError, match=plan.operation_id):
        origin.plan(way="clone")
    with pytest.raises(LockedError):
        origin.plan(checkpoints="/elsewhere")
    done = unfinished.undo(origin.store, plan.operation_id)

    assert done.undone
    after = {path for path in contents(origin.place) if not path.startswith("store/")}
    assert after == before
    assert origin.store.generations.all("variant") == []
    assert bindings.every(origin.store.root) == []
    assert origin.fork().query == "variant"


@pytest.mark.parametrize(
    "step", some(1, ["checkpoint_written", "output_totals_isolated", "in the table"], "goes on")
)
def test_an_interrupted_fork_goes_on(
    origin: Origin, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = interrupted(origin, step, monkeypatch)

    again = origin.plan()
    assert (again.operation_id, again.query_id, again.resumed) == (
        plan.operation_id,
        plan.query_id,
        True,
    )
    done = unfinished.resume(origin.store, plan.operation_id)

    assert isinstance(done, Forked)
    assert read_query_id(Location.of(done.checkpoint)) == plan.query_id
    assert rows(done.outputs["totals"]) == list(range(SAVED + 1))
    assert DeltaTable(done.outputs["totals"]).version() == 0
    assert origin.plan().finished


class _Stopped(Exception):  # noqa: N818  (what stands for a kill)
    pass


def interrupted(origin: Origin, step: str, monkeypatch: pytest.MonkeyPatch) -> ForkPlan:
    """Let a fork end just after a step, or between the files of a table and its commit."""
    plan = origin.plan()
    record, create_file = Journal.record, Location.create

    def stop_after(log: Journal, name: str, **facts: object) -> None:
        record(log, name, **facts)
        if name == step:
            raise _Stopped

    def stop_before_commit(place: Location, path: str, data: bytes) -> str:
        if path.startswith("_delta_log/0") and "variant" in str(place):
            raise _Stopped
        return create_file(place, path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "record", stop_after)
        if step == "in the table":
            patch.setattr(Location, "create", stop_before_commit)
        if step == "begun":
            patch.setattr(restore, "plan", lambda *_a, **_k: (_ for _ in ()).throw(_Stopped))
        with pytest.raises(_Stopped):
            fork.execute(plan, origin.store)
    return plan


def test_what_has_begun_cannot_be_undone(origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = interrupted(origin, "generation_begun", monkeypatch)

    with pytest.raises(UsageError, match="has already begun") as refused:
        unfinished.undo(origin.store, plan.operation_id)
    assert origin.fork().operation_id == plan.operation_id
    # An undo is refused for a query that began with the fork.
    assert refused.value.hint.endswith(": savepoints end variant")


def test_a_held_name_and_another_operation_are_refused(origin: Origin) -> None:
    with (
        lease.hold(origin.store.root, "variant", "other"),
        pytest.raises(LockedError),
    ):
        origin.plan()
    plan = origin.plan()
    Journal.begin(
        origin.store.root,
        Operation("op-20261121-101530-k3f9ab", "fork", "variant", {"command": "x"}, "x", "now"),
    )
    with pytest.raises(UnfinishedOperationError):
        fork.execute(plan, origin.store)
    assert journal.unfinished(origin.store.root, "variant") is not None


def test_the_lineage_shows_forks_below_the_savepoint_and_what_clones_need(origin: Origin) -> None:
    origin.fork("copied")
    origin.fork("cloned", way="clone")

    found = lineage.lineage(origin.store, query=ORIGIN)

    text = lineage.tree(found)
    below = text[text.index(origin.saved.id) :]
    assert "generation copied/1" in below
    assert f"needs version {SAVED} of {origin.table}" in below
    (clone,) = (node for node in found.nodes if node.needs)
    assert clone.id == "cloned/1"
    for picture in (lineage.mermaid(found), lineage.dot(found), json.dumps(found.to_json())):
        assert f"needs version {SAVED}" in picture or f"version {SAVED} of" in picture


def test_trap_the_undo_of_a_fork_is_said_to_have_found_nothing_to_save(origin: Origin) -> None:
    """Nothing of it was there before: the way out is to end it."""
    origin.fork()
    for undo in (
        lambda: last_operation.require(origin.store, "variant"),
        lambda: rollback.plan(origin.store, BeforeLast(), query="variant"),
    ):
        with pytest.raises(NotFoundError, match="the query began with it") as refused:
            undo()
        assert "savepoints end variant" in refused.value.hint
