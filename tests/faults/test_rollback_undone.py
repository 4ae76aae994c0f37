"""A rollback that is killed anywhere can be undone, also when the undoing is killed; no JVM."""

from __future__ import annotations

import signal

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints.errors import (
    NotAlignedError,
    StalePlanError,
    UnfinishedOperationError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations import unfinished
from savepoints.operations.inspect.verify import verify
from savepoints.operations.rollback import rollback
from savepoints.store.locks import journal
from tests import samples
from tests.draw import some
from tests.faults.test_rollback_killed import BACK_TO, NEWEST, write_output
from tests.processes import killed_at

pytestmark = pytest.mark.drawn(3)

# As long as the new generation has not begun, everything can be taken back.
POINTS = (
    "rollback.begun",
    "create.pinned",
    "create.catalog",
    "restore.claimed",
    "restore.metadata",
    "rollback.checkpoint_written",
    "rollback.output_totals_rewound",
)
UNDO_POINTS = (
    "rollback.undo_outputs",
    "rollback.undo_files",
    "rollback.undo_checkpoint",
    "rollback.finished",
)


class Killed:
    """A rollback that was killed at a point."""

    def __init__(self, store: Store, place: Location, point: str) -> None:
        self.store, self.live, self.target = store, place / "live", place / "next"
        samples.unpack("rocksdb", self.live)
        self.before = samples.contents(self.live)
        self.table = str(place / "totals")
        self.query_id = samples.query_id("rocksdb")
        write_output(self.table, self.query_id)
        self.saved = samples.take(
            store, self.live, batch_id=BACK_TO, outputs={"totals": self.table}
        )
        words = ("rollback", self.saved.id, "--to", str(self.target), "--yes")
        assert killed_at(point, *words, "--store", str(store.root)) == -signal.SIGKILL
        begun = journal.unfinished(store.root, "totals")
        assert begun is not None
        self.id = begun.id

    def undo(self, point: str = "") -> int:
        words = ("operations", "undo", self.id, "--yes", "--store", str(self.store.root))
        return killed_at(point, *words)

    def require_as_before(self) -> None:
        """The query, its output and its generation are as if nothing had been begun."""
        assert journal.unfinished(self.store.root, "totals") is None
        assert unfinished.find(self.store, self.id).state == "undone"
        assert samples.contents(self.live) == self.before
        assert samples.contents(self.target) == {}
        output = DeltaTable(self.table)
        assert sorted(output.to_pandas()["batch"]) == list(range(NEWEST + 1))
        assert output.transaction_version(self.query_id) == NEWEST
        assert self.store.generations.current("totals").generation == 1
        for one in self.store.catalog.all():
            assert verify(self.store, one.id, depth="checksums").grade == "ok"


@pytest.mark.parametrize("point", some(2, POINTS, "undone"))
def test_undone_it_is_as_if_it_had_not_been_begun(
    local_store: Store, on_local: Location, point: str
) -> None:
    killed = Killed(local_store, on_local, point)

    assert killed.undo() == 0

    killed.require_as_before()
    # The way is free, and the rollback can be done after all.
    again = rollback.plan(local_store, killed.saved.id, to=str(killed.target))
    rollback.execute(again, local_store)
    assert sorted(DeltaTable(killed.table).to_pandas()["batch"]) == list(range(BACK_TO + 1))


@pytest.mark.parametrize("point", some(1, UNDO_POINTS, "undo"))
def test_an_undo_that_is_killed_goes_on(local_store: Store, on_local: Location, point: str) -> None:
    killed = Killed(local_store, on_local, "rollback.output_totals_rewound")

    assert killed.undo(point) == -signal.SIGKILL
    assert killed.undo() == 0

    killed.require_as_before()


@pytest.mark.parametrize("point", some(1, UNDO_POINTS[:3], "undoing"))
def test_a_rollback_that_was_half_undone_can_only_be_undone(
    local_store: Store, on_local: Location, point: str
) -> None:
    """Some of its steps are gone: finished, it would begin on what is no longer there."""
    killed = Killed(local_store, on_local, "rollback.output_totals_rewound")
    assert killed.undo(point) == -signal.SIGKILL

    with pytest.raises(UnfinishedOperationError, match="the undo of rollback") as refused:
        unfinished.resume(local_store, killed.id)
    assert f"operations undo {killed.id}" in refused.value.hint
    with pytest.raises(UnfinishedOperationError, match="the undo of rollback"):
        rollback.plan(local_store, killed.saved.id, to=str(killed.target))

    assert killed.undo() == 0
    killed.require_as_before()


def test_once_the_generation_has_begun_it_can_only_be_finished(
    local_store: Store, on_local: Location
) -> None:
    killed = Killed(local_store, on_local, "rollback.generation_begun")

    with pytest.raises(UnfinishedOperationError) as in_the_way:
        journal.refuse_unfinished(local_store.root, "totals")
    # It has begun, which is not in the journal yet: an undo, which is refused, was offered.
    assert in_the_way.value.hint == f"finish it first: savepoints rollback {killed.saved.id} --yes"
    with pytest.raises(UsageError, match="has already begun") as refused:
        unfinished.undo(local_store, killed.id)
    assert f"operations resume {killed.id}" in refused.value.hint

    unfinished.resume(local_store, killed.id)
    with pytest.raises(UsageError, match="has already been finished"):
        unfinished.resume(local_store, killed.id)


def test_rows_of_others_since_the_rewind_are_not_undone_away(
    local_store: Store, on_local: Location
) -> None:
    killed = Killed(local_store, on_local, "rollback.output_totals_rewound")
    write_output(killed.table, "somebody-else")

    with pytest.raises(NotAlignedError, match="other writers"):
        unfinished.undo(local_store, killed.id)

    assert journal.unfinished(local_store.root, "totals") is not None


def write_next_batch(killed: Killed) -> None:
    """Write to the table what the driver does that goes on."""
    id_of_batch = Transaction(killed.query_id, NEWEST + 1)
    write_deltalake(
        killed.table,
        pa.table({"batch": [NEWEST + 1]}),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[id_of_batch]),
    )


def test_trap_a_driver_that_dies_behind_a_rewind_leaves_half_a_batch(
    local_store: Store, on_local: Location
) -> None:
    """It is in the table, and only begun in the checkpoint; finished, its rows stayed, and Delta
    dropped all new batches up to its number."""
    killed = Killed(local_store, on_local, "rollback.output_totals_rewound")
    begun = f"offsets/{NEWEST + 1}"
    killed.live.put(begun, killed.live.get(f"offsets/{NEWEST}"))
    write_next_batch(killed)

    with pytest.raises(StalePlanError, match="has written to it since") as refused:
        unfinished.resume(local_store, killed.id)
    assert f"operations undo {killed.id}" in refused.value.hint

    unfinished.undo(local_store, killed.id)
    killed.live.delete([begun])
    killed.require_as_before()


def test_trap_a_driver_that_goes_on_behind_a_rewind_loses_no_batch_by_its_undo(
    local_store: Store, on_local: Location
) -> None:
    """Its batch came into the table that had been taken back; finished, later ones were dropped."""
    killed = Killed(local_store, on_local, "rollback.output_totals_rewound")
    logs = {
        f"{name}/{NEWEST + 1}": killed.live.get(f"{name}/{NEWEST}")
        for name in ("offsets", "commits")
    }
    for path, data in logs.items():
        killed.live.put(path, data)
    write_next_batch(killed)

    for way in (unfinished.resume, unfinished.undo):
        with pytest.raises(StalePlanError, match=f"run to batch {NEWEST + 1} since") as refused:
            way(local_store, killed.id)
        assert f"delete the files of batch {NEWEST + 1} and later" in refused.value.hint
    killed.live.delete(logs)
    unfinished.undo(local_store, killed.id)

    killed.require_as_before()
