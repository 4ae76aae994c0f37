"""Many processes and one store: nothing is lost, nothing is doubled, and who waits knows why."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import time
import uuid
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

import pytest
from deltalake import DeltaTable

from savepoints.errors import LockedError, UnfinishedOperationError
from savepoints.handle import Store
from savepoints.io import Location, storage_options
from savepoints.moments import parse_rfc3339, rfc3339, utc_now
from savepoints.operations.inspect.verify import verify_all
from savepoints.operations.savepoint import create
from savepoints.operations.savepoint.create import CreatePlan
from savepoints.store.locks import journal, lease
from savepoints.store.locks.lease import Holder, LeaseRecord
from savepoints.store.savepoint.manifest import manifest_path
from tests import draw, samples
from tests.processes import at_once, killed_at

pytestmark = pytest.mark.drawn(3)

PROCESSES = draw.examples(4, 8)
PATIENCE_SECONDS = 30

CREATE = """
from savepoints.operations.savepoint import create
store = Store.at(uri + "/store").make()
try:
    plan = create.plan(store, query="totals", checkpoint=uri + "/live", forms=("native",))
    say("took", create.execute(plan, store).id, os.getpid())
except SavepointsError as error:
    say(error.exit_code, type(error).__name__, error.details["holder"])
"""

# Two savepoints of a query of its own, while the catalog is compacted all the time.
ADD = """
from savepoints.store.tables import delta_table
from tests import samples
delta_table.COMPACT_FILES = 3
store = Store.at(uri + "/store").make()
for batch_id in (0, 1):
    say(samples.take(
        store, Location.of(f"{uri}/live-{number}"), query=f"query-{number}", batch_id=batch_id
    ).id)
"""

# Two rows each: both are changed, one is removed.
ROWS = """
import dataclasses
from savepoints.store.tables import delta_table
delta_table.COMPACT_FILES = 3
store = Store.at(uri).make()
for nth in (0, 1):
    one = savepoint(number * 10 + nth, query=f"query-{number}")
    store.catalog.add(one)
    store.catalog._table.change(
        ("id",),
        lambda rows: [
            {**row, "description": row["description"] + "+"} for row in rows if row["id"] == one.id
        ],
    )
store.catalog.remove([one.id])
"""

# Takes the lease as soon as it can, and says when it had it.
WAIT = """
import time
from savepoints.errors import LockedError
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    try:
        with lease.hold(Location.of(uri), "totals", "rollback") as held:
            held.check()
            begun = time.monotonic()
            time.sleep(0.02)
            held.check()
            say(begun, time.monotonic(), held._record.fence)
        break
    except LockedError:
        time.sleep(0.01)
"""


@pytest.mark.s3
def test_of_many_that_save_one_query_the_others_are_told_who_does(
    store: Store, place: Location
) -> None:
    samples.unpack("grand_total", place / "live")

    with at_once(CREATE, str(place), PROCESSES) as processes:
        said = [processes.say() for _ in range(PROCESSES)]
        failed, errors = processes.end()

    assert failed == 0, errors
    took = {line.split()[1]: line.split()[2] for line in said if line.startswith("took ")}
    refused = [line for line in said if not line.startswith("took ")]
    assert took
    holder = re.compile(r"11 LockedError process (\d+) on \S+")
    for line in refused:
        match = holder.fullmatch(line)
        assert match, line
        assert match.group(1) in took.values()
    # One after the other may win, but never two at a time, and none is lost.
    assert {one.id for one in store.catalog.all()} == set(took)
    assert len(store.generations.all("totals")) == 1
    assert verify_all(store, depth="checksums").grade == "ok"


def test_many_that_save_a_query_each_lose_nothing_while_the_catalog_is_compacted(
    store: Store, place: Location
) -> None:
    files = samples.files_of("grand_total")
    for number in range(PROCESSES):
        metadata = json.dumps({"id": str(uuid.uuid4())}).encode()
        samples.write(place / f"live-{number}", {**files, "metadata": metadata})

    with at_once(ADD, str(place), PROCESSES) as processes:
        said = [processes.say() for _ in range(2 * PROCESSES)]
        failed, errors = processes.end()

    assert failed == 0, errors
    found = store.catalog.all()
    assert sorted(one.id for one in found) == sorted(said)
    expected = [(f"query-{number}", batch) for number in range(PROCESSES) for batch in (0, 1)]
    assert sorted((one.query, one.cut.batch_id) for one in found) == expected
    assert len(store.generations.all()) == PROCESSES
    assert verify_all(store, depth="checksums").grade == "ok"
    catalog = store.root / "catalog"
    table = DeltaTable(str(catalog), storage_options=storage_options(catalog.uri))
    modes = [entry["operationParameters"].get("mode") for entry in table.history()]
    assert "Overwrite" in modes
    assert len([one for one in store.events.all() if one.verb == "create"]) == 2 * PROCESSES


def test_many_that_add_change_and_remove_rows_do_not_undo_each_other(on_local: Location) -> None:
    store = Store(on_local)

    with at_once(ROWS, str(on_local), PROCESSES) as processes:
        failed, errors = processes.end()

    assert failed == 0, errors
    found = [(one.query, one.description) for one in store.catalog.all()]
    assert sorted(found) == [(f"query-{number}", "+") for number in range(PROCESSES)]


def elsewhere(root: Location, path: str, *, left: timedelta) -> LeaseRecord:
    """Make the holder of a lease one on another machine, whose lease ends soon.

    By a conditional write, as that machine would: on a disk the holder may be renewing it just now.
    """
    holder = Holder("another-host/boot/pid:[1]", 4711, "123")
    while True:
        data, etag = root.get_version(path)
        expires = rfc3339(utc_now() - lease.CLOCK_SKEW + left)
        record = dataclasses.replace(
            LeaseRecord.parse(data, path), holder=holder, expires_at=expires
        )
        with suppress(FileExistsError):
            root.replace(path, record.to_bytes(), etag)
            return record


def test_of_many_that_wait_for_a_dead_machine_one_at_a_time_goes_on_after_its_lease(
    place: Location,
) -> None:
    with lease.hold(place, "totals", "rollback"):
        pass
    dead = elsewhere(place, "leases/totals.json", left=timedelta(seconds=1))

    with at_once(WAIT, str(place), PROCESSES) as processes:
        said = [processes.say() for _ in range(PROCESSES)]
        failed, errors = processes.end()

    assert failed == 0, errors
    turns = sorted(tuple(float(word) for word in line.split()) for line in said)
    assert len(turns) == PROCESSES
    expiry = parse_rfc3339(dead.expires_at) + lease.CLOCK_SKEW
    assert utc_now() > expiry
    for (_, ended, fence), (begun, _, next_fence) in pairwise(turns):
        assert begun > ended
        assert next_fence > fence


def test_an_operation_of_a_dead_machine_is_named_and_goes_on_after_its_lease(
    local_store: Store, on_local: Location
) -> None:
    store, live = local_store, samples.unpack("grand_total", on_local / "live")
    target = samples.take(store, live, batch_id=0)
    words = ("rollback", target.id, "--to", str(on_local / "next"), "--outputs", "none", "--yes")
    where = ("--store", str(store.root))
    assert killed_at("rollback.begun", *words, *where) == -signal.SIGKILL
    (operation,) = journal.all_unfinished(store.root)
    elsewhere(store.root, "leases/totals.json", left=timedelta(seconds=4))

    assert killed_at("", *words, *where) == LockedError.exit_code
    with pytest.raises(LockedError, match="process 4711 on another-host"):
        lease.refuse_held(store.root, "totals")
    with pytest.raises(UnfinishedOperationError, match=operation.id):
        journal.refuse_unfinished(store.root, "totals")
    assert journal.all_unfinished(store.root) == [operation]

    deadline = time.monotonic() + PATIENCE_SECONDS
    while (code := killed_at("", *words, *where)) == LockedError.exit_code:
        assert time.monotonic() < deadline
    assert code == 0
    assert journal.all_unfinished(store.root) == []
    assert [one.id for one in journal.all_operations(store.root)] == [operation.id]
    assert store.generations.current("totals").begun_from == target.id


FILES_LEASE = f"leases/files/{samples.query_id('grand_total')}.json"


class Robber:
    """Another machine that takes the lease of the files while this process is paused."""

    def __init__(self, root: Location, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lease, "TTL", timedelta(seconds=0.5))
        self._root = root
        self.taken: bytes | None = None

    def rob(self) -> None:
        elsewhere(self._root, FILES_LEASE, left=timedelta(seconds=60))
        self.taken = self._root.get(FILES_LEASE)
        expires = utc_now() + lease.TTL
        while utc_now() <= expires:
            time.sleep(0.02)

    def require_holding(self) -> None:
        assert self.taken is not None
        assert self._root.get(FILES_LEASE) == self.taken


def plan(store: Store, live: Location) -> CreatePlan:
    return create.plan(store, query="totals", checkpoint=str(live), forms=("native",))


def test_who_lost_the_lease_while_copying_writes_no_manifest(
    store: Store, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = samples.unpack("grand_total", place / "live")
    planned = plan(store, live)
    robber = Robber(store.root, monkeypatch)

    with pytest.raises(LockedError, match="was lost"):
        create.execute(planned, store, progress=lambda _: robber.rob())

    robber.require_holding()
    assert not store.root.exists(manifest_path(planned.savepoint_id))
    assert store.catalog.all() == []
    (event,) = store.events.all()
    assert (event.result, event.error) == ("skipped", "LockedError")


def test_who_lost_the_lease_after_the_manifest_adds_no_row(
    store: Store, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = samples.unpack("grand_total", place / "live")
    planned = plan(store, live)
    robber = Robber(store.root, monkeypatch)

    def reach(point: str) -> None:
        if point == "create.manifest":
            robber.rob()

    with monkeypatch.context() as patch:
        patch.setattr("savepoints.faults.reach", reach)
        with pytest.raises(LockedError, match="was lost"):
            create.execute(planned, store)
    robber.require_holding()
    assert store.catalog.all() == []

    # The other is done: the same plan goes on where it stopped.
    store.root.delete([FILES_LEASE])
    assert create.execute(planned, store).id == planned.savepoint_id
    assert verify_all(store, depth="checksums").grade == "ok"


def test_a_killed_process_is_succeeded_at_once_and_its_savepoint_is_whole_or_absent(
    store: Store, place: Location
) -> None:
    live = samples.unpack("grand_total", place / "live")
    with at_once(STOPPED, str(place), 1) as processes:
        pid = int(processes.say())
        with pytest.raises(LockedError, match=f"process {pid} on "):
            samples.take(store, live)
        os.kill(pid, signal.SIGKILL)
        processes.end()

    taken = samples.take(store, live)

    assert store.catalog.all() == [taken]


# Stops for ever between its manifest and its row.
STOPPED = """
from savepoints import faults
from tests import samples
def reach(point):
    if point == "create.manifest":
        say(os.getpid())
        wait_for_end()
faults.reach = reach
samples.take(Store.at(uri + "/store").make(), Location.of(uri + "/live"))
"""
