"""`run --recover` without a JVM: what is damage, and which savepoint a query goes back to."""

from __future__ import annotations

import dataclasses
import io
import signal
import zipfile

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.checkpoint.cut import read_cut
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import (
    CheckpointDamagedError,
    NotAlignedError,
    QueryRunningError,
    SavepointsError,
    UnfinishedOperationError,
    UnreachableError,
    UnsupportedFormatError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Edit, Generation, Savepoint
from savepoints.moments import utc_now
from savepoints.operations.rollback import rollback
from savepoints.operations.run import recover
from savepoints.operations.savepoint import create
from savepoints.store.locks import journal, lease
from tests.processes import killed_at, script_killed_at
from tests.samples import contents, take, unpack

pytestmark = pytest.mark.drawn(5)

RECOVER = """
import sys
from savepoints.config.settings import Settings
from savepoints.operations.run import recover
from savepoints.handle import Store

settings = Settings.model_validate_json(sys.argv[2])
store = Store.at(sys.argv[1], settings=settings).make()
recover.if_damaged(store, "totals", settings.queries["totals"])
"""


@dataclasses.dataclass(frozen=True)
class Query:
    """A query with four batches in state and output, and savepoints of the second and third."""

    store: Store
    output: str
    saved: list[Savepoint]

    @property
    def settings(self) -> Settings:
        return self.store.settings

    @property
    def bound(self) -> QuerySettings:
        return self.settings.queries["totals"]

    @property
    def generation(self) -> Generation:
        return self.store.generations.current("totals")

    @property
    def checkpoint(self) -> Location:
        return Location.of(self.generation.checkpoint)

    @property
    def rows(self) -> list[int]:
        rows = DeltaTable(self.output).to_pyarrow_table().to_pylist()
        return sorted(row["batch"] for row in rows)

    def write(self, batch: int) -> None:
        own = Transaction(f"totals/out/{self.generation.generation}", batch)
        write_deltalake(
            self.output,
            pa.table({"batch": [batch]}),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[own]),
        )

    def recover(self) -> str | None:
        return recover.if_damaged(self.store, "totals", self.bound)

    def recover_until(self, point: str) -> int:
        """Recover in a process that is killed at a crash point, and return its exit code."""
        return script_killed_at(
            point, RECOVER, str(self.store.root), self.settings.model_dump_json()
        )


@pytest.fixture
def query(on_local: Location, local_store: Store) -> Query:
    output = str(on_local / "out")
    bound = QuerySettings(app="a:b", checkpoints=str(on_local / "live"), outputs={"out": output})
    settings = Settings(queries={"totals": bound})
    live = unpack("rocksdb", on_local / "live" / "totals" / "1")
    local_store.generations.begin("totals", 1, live, by="run")
    made = Query(local_store.with_settings(settings), output, [])
    for batch in range(4):
        made.write(batch)
    made.saved.extend(
        take(local_store, live, batch_id=batch, outputs={"out": output}) for batch in (1, 2)
    )
    return made


def test_a_checkpoint_that_is_whole_is_left_alone(query: Query) -> None:
    before = contents(query.checkpoint)
    # Begun and not committed: behind, and not damaged.
    query.checkpoint.copy_from(query.checkpoint, "offsets/3", "offsets/4")

    assert query.recover() is None
    assert query.generation.generation == 1
    assert contents(query.checkpoint).items() > before.items()
    assert query.rows == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("path", "data", "problem"),
    [
        ("metadata", None, "but the file 'metadata' is missing"),
        ("metadata", b"{", "JSONDecodeError"),
        ("offsets/3", None, "offsets/3 is missing"),
        ("offsets/2", None, "offsets/2 is missing"),
        ("offsets/3", b"v1\n{", "offsets/3"),
        ("commits/3", b"garbage", "commits/3"),
        # A full disk leaves files without bytes, which no list has, and at which Spark stops.
        ("offsets/4", b"", "offsets/4 is empty"),
        ("commits/3", b"", "commits/3 is empty"),
        ("sources/0/3", b"", "sources/0/3"),
        ("state/0/1/4.zip", None, "version 4 of the state cannot be read"),
        ("state/0/_metadata/metadata", None, "operator metadata"),
    ],
)
def test_what_is_gone_or_unreadable_is_made_anew_with_the_outputs_taken_back(
    query: Query, path: str, data: bytes | None, problem: str
) -> None:
    if data is None:
        query.checkpoint.delete([path])
    else:
        query.checkpoint.put(path, data)
    found = recover.find_damage(query.store, query.generation, query.bound)
    assert found is not None
    assert problem in found

    assert query.recover() == query.saved[1].id

    generation = query.generation
    assert (generation.generation, generation.begun_from) == (2, query.saved[1].id)
    assert read_cut(query.checkpoint).cut.batch_id == 2
    assert query.rows == [0, 1, 2], "what came after the savepoint is read again"
    events = {one.verb: one for one in query.store.events.all()}
    assert events["recover"].savepoint == query.saved[1].id
    assert problem in events["recover"].message
    assert query.recover() is None


def test_trap_a_checkpoint_without_its_state_was_that_of_a_query_without_state(
    query: Query,
) -> None:
    """Not damaged, it was started, which Spark refuses; and saved, as the latest, without state."""
    state = [one.path for one in query.checkpoint.list("state")]
    assert query.saved[1].operators
    query.checkpoint.delete(state)

    found = recover.find_damage(query.store, query.generation, query.bound)
    with pytest.raises(CheckpointDamagedError, match="has no state, although") as saving:
        create.plan(query.store, query="totals", forms=("native",))
    with pytest.raises(CheckpointDamagedError, match="has no state, although") as going_back:
        rollback.plan(query.store, query.saved[0].id, stopped=True)

    assert found is not None
    assert f"no state, although its savepoint {query.saved[1].id} has" in found
    assert "savepoints run totals --recover" in saving.value.hint
    assert "--no-safety-savepoint" in going_back.value.hint
    assert query.recover() == query.saved[1].id
    assert query.checkpoint.list("state")
    assert read_cut(query.checkpoint).cut.batch_id == 2


def test_a_checkpoint_of_which_nothing_is_left(query: Query) -> None:
    query.checkpoint.delete(info.path for info in query.checkpoint.list())

    assert query.recover() == query.saved[1].id
    assert query.rows == [0, 1, 2]


def test_what_was_edited_by_hand_is_passed_over(query: Query) -> None:
    newest, older = query.saved[1], query.saved[0]
    edit = Edit("me", "a try", 0)
    query.store.catalog.add(
        dataclasses.replace(
            older, id=f"{older.id}-edited", created_at=utc_now(), parent=older.id, edit=edit
        )
    )
    query.checkpoint.delete(["metadata"])

    assert query.recover() == newest.id
    assert query.rows == [0, 1, 2]


def test_a_savepoint_that_is_damaged_is_passed_over_and_called_broken(query: Query) -> None:
    query.checkpoint.delete(["metadata"])
    newest, older = query.saved[1], query.saved[0]
    unshared = set(query.store.manifest(newest.id).files) - set(
        query.store.manifest(older.id).files
    )
    state = next(one.stored_at for one in unshared if one.stored_at.endswith((".sst", ".zip")))
    data = query.store.root.get(state)
    query.store.root.put(state, data[:-1] + bytes([data[-1] ^ 1]))

    assert query.recover() == older.id
    assert query.rows == [0, 1]
    states = {one.id: one.state for one in query.store.catalog.all()}
    assert states[newest.id] == "broken"


def test_without_a_savepoint_it_says_what_can_be_done(query: Query) -> None:
    query.store.catalog.remove([one.id for one in query.saved])
    query.checkpoint.delete(["metadata"])

    with pytest.raises(
        CheckpointDamagedError, match=r"no savepoint .* is intact \(checked: 0\)"
    ) as refused:
        query.recover()

    assert "savepoints reset totals --to-earliest" in refused.value.hint
    assert "output out has its batch 3" in refused.value.message
    assert query.rows == [0, 1, 2, 3]


def test_trap_a_savepoint_that_was_rolled_back_is_never_recovered_from(query: Query) -> None:
    """It is the newest one, but its batches are those that somebody took back on purpose."""
    older, newest = query.saved
    plan = rollback.plan(query.store, older.id, query="totals")
    rollback.execute(plan, query.store)
    query.checkpoint.delete(["metadata"])

    assert query.recover() == older.id
    assert query.generation.generation == 3
    assert query.rows == [0, 1]
    assert newest.id in {one.id for one in query.store.catalog.all()}


def test_trap_a_savepoint_from_before_a_reset_with_kept_state_is_not_recovered_from(
    query: Query,
) -> None:
    """The query would be where it was, and nobody would know that the reset was lost."""
    last, generations = query.saved[-1], query.store.generations
    generations.begin(
        "totals", 2, query.checkpoint / "moved", by="reset", begun_from=last.id,
        savepoints=query.store.catalog.all(),
    )  # fmt: skip
    rows = query.rows

    with pytest.raises(NotAlignedError, match="before the reset that began generation 2") as how:
        query.recover()

    assert f"savepoints rollback {last.id} --no-safety-savepoint" in how.value.hint
    assert (query.rows, query.generation.generation) == (rows, 2)


def test_a_query_that_never_ran_is_not_damaged(query: Query) -> None:
    other = QuerySettings(app="a:b", checkpoints=str(query.checkpoint), outputs={})
    fresh = query.store.generations.begin("other", 1, query.checkpoint / "no", by="run")

    recover.require_present(query.store, fresh, other)
    assert recover.find_damage(query.store, fresh, other) is None
    assert recover.if_damaged(query.store, "unknown", other) is None


def test_trap_a_checkpoint_that_is_gone_is_not_begun_anew_where_outputs_drop_its_batches(
    query: Query,
) -> None:
    query.store.catalog.remove([one.id for one in query.saved])
    query.checkpoint.delete(info.path for info in query.checkpoint.list())

    with pytest.raises(CheckpointDamagedError, match="output out has its batch 3") as refused:
        recover.require_present(query.store, query.generation, query.bound)

    assert "savepoints run totals --recover" in refused.value.hint


@pytest.mark.parametrize(
    "point", ["rollback.begun", "rollback.checkpoint_written", "rollback.output_out_rewound"]
)
def test_a_recovery_that_was_killed_is_finished_by_the_next_one(query: Query, point: str) -> None:
    query.checkpoint.delete(["metadata"])
    assert query.recover_until(point) == -signal.SIGKILL
    assert journal.unfinished(query.store.root, "totals") is not None

    assert query.recover() == query.saved[1].id

    assert journal.unfinished(query.store.root, "totals") is None
    assert (query.generation.generation, query.rows) == (2, [0, 1, 2])
    assert query.recover() is None


def test_a_rollback_that_somebody_else_began_is_theirs_to_finish(query: Query) -> None:
    words = ("rollback", query.saved[0].id, "--yes", "--store", str(query.store.root))
    to = str(query.checkpoint / "next")
    assert killed_at("rollback.begun", *words, "--to", to) == -signal.SIGKILL

    with pytest.raises(UnfinishedOperationError, match="was interrupted"):
        query.recover()


def test_trap_a_file_of_a_newer_spark_is_not_damage(query: Query) -> None:
    """Gone back without a safety savepoint, all that the newer Spark did would be lost."""
    snapshot = io.BytesIO()
    with zipfile.ZipFile(snapshot, "w") as archive:
        archive.writestr("metadata", "v7\n{}")
    for path, data in (
        ("offsets/3", b"v3\n{}"),
        ("commits/3", b"v4\n{}"),
        ("state/0/_metadata/metadata", b"v9\n{}"),
        ("state/0/1/4.zip", snapshot.getvalue()),
    ):
        before = query.checkpoint.get(path)
        query.checkpoint.put(path, data)
        with pytest.raises(UnsupportedFormatError, match="is not supported"):
            query.recover()
        query.checkpoint.put(path, before)
    assert query.generation.generation == 1
    assert query.recover() is None


def test_a_query_that_runs_is_not_recovered(query: Query) -> None:
    query.checkpoint.delete(["metadata"])

    with (
        lease.hold(query.store.root, "totals", "run"),
        pytest.raises(QueryRunningError, match="is running"),
    ):
        query.recover()
    assert query.generation.generation == 1


def test_storage_that_does_not_answer_is_not_damage(
    query: Query, s3_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    away = dataclasses.replace(query.generation, checkpoint="s3://bucket/checkpoint")

    with pytest.raises(SavepointsError) as refused:
        recover.find_damage(query.store, away, query.bound)

    assert isinstance(refused.value, UnreachableError)
