"""What is damaged is refused before anything is made of it, marked as broken or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from deltalake import DeltaTable

from savepoints.config.settings import RestoreSettings, Settings
from savepoints.errors import SavepointsError, VerificationError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.inspect import drill
from savepoints.operations.inspect.verify import verify
from savepoints.operations.rollback import rollback
from savepoints.operations.savepoint import restore, restore_checks
from savepoints.store.locks import journal
from tests.draw import some
from tests.faults.test_rollback_killed import write_output
from tests.samples import contents, query_id, take, unpack

pytestmark = pytest.mark.drawn(5)

# One of each kind of file: of the logs, a changelog, a snapshot, an SST.
KINDS = {
    "offsets": ("rocksdb", "offsets/3"),
    "commits": ("rocksdb", "commits/3"),
    "metadata": ("rocksdb", "metadata"),
    "sst": ("rocksdb", ".sst"),
    "snapshot": ("rocksdb", ".zip"),
    "delta": ("hdfs", ".delta"),
}


def flipped(store: Store, savepoint: Savepoint, ending: str) -> str:
    """Change a byte of a file of a savepoint, of the store's copy alone, and return its name."""
    stored = store.manifest(savepoint.id).native
    file = next(one for one in stored if one.path.endswith(ending))
    data = bytearray(store.root.get(file.stored_at))
    data[len(data) // 2] ^= 1
    store.root.delete([file.stored_at])  # It may be a hard link of the live one.
    store.root.put(file.stored_at, bytes(data))
    return file.stored_at


@pytest.mark.s3
@pytest.mark.parametrize("kind", some(3, KINDS, "changed byte"))
def test_trap_a_changed_byte_is_restored(kind: str, store: Store, place: Location) -> None:
    sample, ending = KINDS[kind]
    taken = take(store, unpack(sample, place / "live"))
    damaged = flipped(store, taken, ending)
    target = place / "restored"

    plan = restore.plan(store, taken.id, str(target))
    with pytest.raises(
        VerificationError, match="1 file failed the SHA-256 check against the manifest"
    ) as refused:
        restore.execute(plan, store)

    assert refused.value.details["files"] == [damaged]
    assert not target.list(), "nothing is left that could be started"


def test_large_files_are_read_where_the_settings_say_so(
    local_store: Store, on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the object store copies them by itself, and nobody reads them."""
    monkeypatch.setattr(restore_checks, "_ALWAYS_READ", 100)
    taken = take(local_store, unpack("rocksdb", on_local / "live"))
    flipped(local_store, taken, ".sst")

    careful = Settings(restore=RestoreSettings(verify=True))
    plan = restore.plan(local_store, taken.id, str(on_local / "restored"))
    with pytest.raises(VerificationError):
        restore.execute(plan, local_store.with_settings(careful))

    assert restore.execute(plan, local_store).batch_id == taken.cut.batch_id


def broken(store: Store, place: Location) -> Savepoint:
    """Return a savepoint that verify found broken, and that was mended without its being told."""
    taken = take(store, unpack("rocksdb", place / "live"), outputs={"totals": str(place / "out")})
    stored = store.manifest(taken.id).native
    file = next(one for one in stored if one.path == "offsets/3")
    whole = store.root.get(file.stored_at)
    flipped(store, taken, "offsets/3")
    assert verify(store, taken.id, depth="checksums").grade == "broken"
    store.root.put(file.stored_at, whole)
    return taken


def test_what_is_marked_broken_is_refused_unless_it_is_asked_for(
    local_store: Store, on_local: Location
) -> None:
    write_output(str(on_local / "out"), query_id("rocksdb"))
    taken = broken(local_store, on_local)
    verbs: list[Callable[[], object]] = [
        lambda: restore.plan(local_store, taken.id, str(on_local / "a")),
        lambda: rollback.plan(local_store, taken.id, to=str(on_local / "b")),
        lambda: drill.drill(local_store, taken.id),
    ]
    for verb in verbs:
        with pytest.raises(VerificationError, match="is broken: verify") as refused:
            verb()
        assert "--even-broken" in refused.value.hint

    plan = rollback.plan(local_store, taken.id, to=str(on_local / "b"), even_broken=True)
    assert rollback.execute(plan, local_store).batch_id == taken.cut.batch_id


def test_a_rollback_that_meets_damage_leaves_no_operation_and_touches_nothing(
    local_store: Store, on_local: Location
) -> None:
    """Otherwise the query could not run until somebody had taken it back by hand."""
    write_output(str(on_local / "out"), query_id("rocksdb"))
    live = unpack("rocksdb", on_local / "live")
    taken = take(local_store, live, batch_id=1, outputs={"totals": str(on_local / "out")})
    flipped(local_store, taken, "offsets/1")
    before, rows = contents(live), DeltaTable(str(on_local / "out")).version()

    plan = rollback.plan(local_store, taken.id, to=str(on_local / "next"))
    with pytest.raises(
        SavepointsError, match="1 file failed the SHA-256 check against the manifest"
    ):
        rollback.execute(plan, local_store)

    assert journal.unfinished(local_store.root, "totals") is None
    assert (contents(live), DeltaTable(str(on_local / "out")).version()) == (before, rows)
    assert not (on_local / "next").list()
    assert local_store.generations.current("totals").generation == 1
