"""A fork that is killed anywhere goes on when it is run again, or is taken back; no JVM needed."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path

import pytest

from savepoints.errors import CheckpointDamagedError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.run import recover
from savepoints.outputs.delta import log
from savepoints.outputs.fork.isolated_copy import FORK_MARKER
from savepoints.store import bindings
from savepoints.store.locks import journal
from tests.draw import some
from tests.faults.test_rollback_killed import BACK_TO, NEWEST, write_output
from tests.outputs import tables
from tests.processes import killed_at
from tests.samples import contents, query_id, take, unpack

# Every step of `fork`, and every moment inside the restore and the copy that are in it.
POINTS = (
    "fork.begun",
    "restore.claimed",
    "restore.files",
    "restore.metadata",
    "fork.checkpoint_written",
    "fork.files_copied",
    "fork.output_totals_isolated",
    "fork.generation_begun",
    "fork.finished",
)
UNDONE_AT = ("fork.undo_files", "fork.undo_outputs", "fork.undo_checkpoint", "fork.finished")


@pytest.fixture
def saved(local_store: Store, on_local: Location) -> Savepoint:
    """Give a savepoint of a query that has gone on since, whose settings are in a file."""
    live = unpack("rocksdb", on_local / "live")
    write_output(str(on_local / "totals"), query_id("rocksdb"))
    outputs = {"totals": str(on_local / "totals")}
    Path(str(on_local / "savepoints.toml")).write_text(
        f'[queries.order_totals]\napp = "spark_jobs.order_totals:app"\n'
        f'checkpoints = "{on_local / "checkpoints"}"\noutputs.totals = "{outputs["totals"]}"\n'
    )
    return take(local_store, live, batch_id=BACK_TO, query="order_totals", outputs=outputs)


def command(store: Store, place: Location, *words: str, crash_at: str = "") -> int:
    """Call the command line; returns its exit code."""
    given = ("--yes", "--store", str(store.root), "--config", str(place / "savepoints.toml"))
    return killed_at(crash_at, *words, *given)


def origin(place: Location) -> dict[str, bytes]:
    """Return everything of the query that is forked."""
    return {
        f"{name}/{path}": data
        for name in ("live", "totals")
        for path, data in contents(place / name).items()
    }


@pytest.mark.parametrize("point", some(2, POINTS, "fork"))
def test_killed_and_run_again_it_is_as_if_it_had_not_been_killed(
    local_store: Store, on_local: Location, saved: Savepoint, point: str
) -> None:
    """Trap: `latest` is what the query has saved by then, so the same words were refused."""
    store, before = local_store, origin(on_local)
    words = ("fork", "latest", "variant", "--query", "order_totals")

    assert command(store, on_local, *words, crash_at=point) == -signal.SIGKILL
    begun = journal.unfinished(store.root, "variant")
    assert begun is not None
    assert origin(on_local) == before, "the origin is never touched"
    take(store, on_local / "live", query="order_totals")

    assert command(store, on_local, *words) == 0
    assert journal.unfinished(store.root, "variant") is None
    assert origin(on_local) == before
    (done,) = journal.all_operations(store.root)
    assert (done.id, done.state) == (begun.id, "finished")

    restored = contents(on_local / "checkpoints" / "variant" / "1")
    assert done.plan["query_id"] in restored.pop("metadata").decode()
    del restored["_savepoints_restored_by"]
    live = contents(on_local / "live")
    assert restored == {path: live[path] for path in restored}
    assert {*restored, "metadata"} == {file.path for file in store.manifest(saved.id).native}

    made = str(on_local / "totals_forks" / "variant")
    assert [row["batch"] for row in tables.rows(made)] == list(range(BACK_TO + 1))
    assert tables.opened(made).version() == 0, "one commit, however often it was begun"
    assert log.transactions(made, 0) == {"variant/totals/1": BACK_TO}
    there = {info.path for info in Location.of(made).list()}
    data = {Path(uri).name for uri in tables.opened(made).file_uris()}
    assert there == data | {FORK_MARKER, f"_delta_log/{0:020}.json"}, "nothing is left over"

    (life,) = store.generations.all("variant")
    assert (life.generation, life.status, life.begun_from) == (1, "current", saved.id)
    assert [one.generation for one in store.generations.all("order_totals")] == [1]
    assert [row["batch"] for row in tables.rows(str(on_local / "totals"))] == [*range(NEWEST + 1)]


def test_trap_of_a_fork_that_is_lost_all_was_to_be_read_again_from_the_first_record(
    local_store: Store, on_local: Location, saved: Savepoint
) -> None:
    """It has no savepoint of its own yet; but the one that it began from is still there."""
    # Its table is its own: where another one goes, somebody has to say.
    table = ("--table", f"totals={on_local / 'mine'}")
    assert command(local_store, on_local, "fork", saved.id, "variant", *table) == 0
    lost = on_local / "checkpoints" / "variant" / "1"
    lost.delete(info.path for info in lost.list())
    bound = bindings.complete(local_store).queries["variant"]

    with pytest.raises(CheckpointDamagedError, match="no savepoint") as refused:
        recover.if_damaged(local_store, "variant", bound)

    found = re.search(
        r"savepoints (fork .*) --yes; then .*: savepoints (end \w+); or ", refused.value.hint
    )
    assert found is not None
    made = str(on_local / "elsewhere")
    again, over = (shlex.split(one) for one in found.groups())
    again = [one.replace("NEW_NAME", "variant_2").replace("NEW_URI", made) for one in again]
    assert "--app" in again, "the settings may name it for this fork alone"
    assert command(local_store, on_local, *again) == 0
    assert command(local_store, on_local, *over) == 0
    assert [row["batch"] for row in tables.rows(made)] == list(range(BACK_TO + 1))
    assert local_store.generations.current("variant_2").begun_from == saved.id
    assert local_store.generations.find_current("variant") is None


@pytest.mark.parametrize("point", some(1, UNDONE_AT, "fork undone"))
def test_an_undo_that_is_killed_is_undone_to_the_end(
    local_store: Store, on_local: Location, saved: Savepoint, point: str
) -> None:
    store = local_store
    before = {path for path in contents(on_local) if not path.startswith("store/")}
    words = ("fork", saved.id, "variant")
    assert command(store, on_local, *words, crash_at="fork.output_totals_isolated") < 0
    begun = journal.unfinished(store.root, "variant")
    assert begun is not None

    undo = ("operations", "undo", begun.id)
    assert command(store, on_local, *undo, crash_at=point) == -signal.SIGKILL
    if point != "fork.finished":
        assert command(store, on_local, *words) == 11, "half undone it cannot go on"
    assert command(store, on_local, *undo) == 0

    assert {path for path in contents(on_local) if not path.startswith("store/")} == before
    assert store.generations.all("variant") == []
    assert command(store, on_local, *words) == 0
    assert [row["batch"] for row in tables.rows(str(on_local / "totals_forks" / "variant"))] == [
        *range(BACK_TO + 1)
    ]
