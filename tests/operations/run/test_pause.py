"""Pause and resume without a JVM: a run's life is a thread that holds what a run holds."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import final

import pytest

from savepoints.errors import (
    CheckpointDamagedError,
    LockedError,
    PartlyDoneError,
    QueryNotFoundError,
    QueryRunningError,
    UnfinishedOperationError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.moments import rfc3339, utc_now
from savepoints.operations.run import pause as pauses
from savepoints.operations.run import supervisor
from savepoints.operations.run.pause import (
    PauseState,
    pause,
    resume,
    state,
)
from savepoints.operations.run.supervisor import Segment, Supervisor
from savepoints.runtime.runner import Ran
from savepoints.store.locks import lease, pause_requests
from savepoints.store.locks.journal import Journal, Operation
from savepoints.store.locks.lease import Holder, Lease, LeaseRecord
from tests.processes import at_once
from tests.samples import lasting, take, unpack
from tests.spark_session import wait_until

pytestmark = pytest.mark.drawn(2)

QUERY = "totals"
LONG = timedelta(minutes=2)
SHORT = timedelta(milliseconds=300)
# For what does not depend on the kind of store.
ON_LOCAL = pytest.mark.parametrize("place", ["local"], indirect=True)
ELSEWHERE = Holder("another-host/boot/pid:[1]", 4711, "123")


@pytest.fixture(autouse=True)
def looking_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the store all the time, in both roles."""
    monkeypatch.setattr(supervisor, "POLL_INTERVAL", timedelta(milliseconds=20))
    monkeypatch.setattr(supervisor, "_IDLE_SECONDS", 0.02)
    monkeypatch.setattr(pauses, "_POLL_SECONDS", 0.02)


@pytest.fixture
def live(store: Store) -> Location:
    """Give a checkpoint that is the current generation of a query in the store."""
    live = unpack("rocksdb", Location.of(f"{store.root}-live"))
    store.generations.begin(QUERY, 1, live, by="run")
    return live


@final
class Run:
    """A run whose batches do nothing; all the rest is as in `savepoints run`."""

    def __init__(
        self,
        store: Store,
        *,
        idles: bool = True,
        save: bool = True,
        drained: Callable[[], None] = lambda: None,
    ) -> None:
        self.store = store
        self.said: list[str] = []
        self.lives: list[int] = []
        self.taken: list[Savepoint] = []
        self.failed: BaseException | None = None
        self.last: Segment | None = None
        self._save = save
        self._drained = drained
        self._supervisor = Supervisor(store, QUERY, idles=idles, progress=self.said.append)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.last = self._supervisor.supervise(self._live, drained=self._drained)
        except Exception as error:  # noqa: BLE001
            self.failed = error

    def _live(self, pausing: Supervisor, held: Lease) -> Segment:
        ends = threading.Event()
        current = self.store.generations.current(QUERY)
        pausing.answers.resumed(current.generation)
        self.lives.append(current.generation)
        with pausing.may_stop(ends.set):
            while not (ends.wait(0.005) or self._stop.is_set()):
                held.check()
        ran = Ran(QUERY, current.generation, None, None, 0, 0, 0.0, "drained")
        if not (pausing.pause_requested and self._save):
            return Segment(ran, None, "" if self._save else "the disk is full")
        self.taken.append(take(self.store, Location.of(current.checkpoint), query=QUERY))
        return Segment(ran, self.taken[-1])

    def __enter__(self) -> Run:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        """Do what a signal does."""
        self._stop.set()
        self._supervisor.stop()

    def ends(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive(), self.said

    def is_in(self, wanted: str) -> PauseState:
        """Wait until the query is in this state."""
        wait_until(
            lambda: self.failed is not None or state(self.store, QUERY).state == wanted,
            f"it is {wanted}: {self.said}",
        )
        if wanted == "running":
            # It holds the lease a moment before its first batch, and could still turn round then.
            wait_until(lambda: self.failed is not None or bool(self.lives), "it lives")
        assert self.failed is None, self.failed
        return state(self.store, QUERY)


def no_segment(_supervisor: Supervisor, _held: Lease) -> Segment:
    raise AssertionError


def verbs(store: Store) -> list[tuple[str, str]]:
    return [(one.verb, one.result) for one in reversed(store.events.all())]


@ON_LOCAL
def test_what_takes_time_is_done_while_the_run_waits_and_others_know_that_it_is_paused(
    store: Store, live: Location
) -> None:
    """Once for each pause, after the answer, and not by a run that ends instead."""
    seen: list[str] = []

    def look() -> None:
        seen.append(state(store, QUERY).state)

    with Run(store, drained=look) as run:
        run.is_in("running")
        pause(store, QUERY, wait=LONG)
        wait_until(lambda: seen == ["paused"], "it was called")
        resume(store, QUERY, wait=LONG)
        run.is_in("running")
    assert seen == ["paused"]
    with Run(store, idles=False, drained=look) as run:
        run.is_in("running")
        pause(store, QUERY)
        run.ends()
    assert seen == ["paused"]


@ON_LOCAL
def test_a_query_that_the_store_does_not_know(store: Store) -> None:
    for verb in (pause, resume):
        with pytest.raises(QueryNotFoundError, match="'totals'"):
            verb(store, QUERY)
    assert set(lasting(store)) == {"store.json"}


def test_a_pause_drains_saves_and_frees_the_query_and_resume_goes_on(
    store: Store, live: Location
) -> None:
    with Run(store) as run:
        assert run.is_in("running").wanted == "running"
        now = pause(store, QUERY, reason="a new layout", wait=LONG)

        assert (now.state, now.wanted, now.changed) == ("paused", "paused", True)
        (taken,) = run.taken
        assert (now.savepoint_id, now.batch_id) == (taken.id, taken.cut.batch_id)
        assert (now.generation, now.reason, now.error) == (1, "a new layout", "")
        assert f"process {os.getpid()}" in str(now.run)
        assert now.paused_at is not None
        assert now.asked_at is not None
        assert now.paused_at >= now.asked_at

        again = pause(store, QUERY, reason="another", wait=SHORT)
        assert again == dataclasses.replace(now, changed=False)

        # Whoever was told so can work on it at once, in a generation of its own.
        with lease.hold(store.root, QUERY, "rollback"):
            store.generations.begin(QUERY, 2, live, by="rollback")
            assert state(store, QUERY) == dataclasses.replace(now, changed=False)
        assert run.lives == [1]

        on = resume(store, QUERY, wait=LONG)
        assert (on.state, on.wanted, on.changed) == ("running", "running", True)
        assert (on.paused_at, on.savepoint_id) == (None, None)
        wait_until(lambda: run.lives == [1, 2], "it goes on in the generation that is current now")
        assert lease.paused_holder(store.root, QUERY) is None
        assert not resume(store, QUERY, wait=SHORT).changed
    assert run.failed is None
    assert run.last is not None
    assert run.last.ran.pauses == 1, "what it counts is since then"
    assert state(store, QUERY).state == "stopped"
    told = [one for one in verbs(store) if one[0] != "create"]
    assert sorted(told[:2]) == [("pause", "done"), ("paused", "done")]
    assert sorted(told[2:]) == [("resume", "done"), ("resumed", "done")]


def test_without_a_run_the_request_stays_in_force(store: Store, live: Location) -> None:
    now = pause(store, QUERY, reason="no start tonight", wait=LONG)
    assert (now.state, now.wanted, now.run, now.changed) == ("stopped", "paused", None, True)

    with Run(store) as run:
        now = run.is_in("paused")
        assert (now.savepoint_id, now.batch_id, now.generation) == (None, newest(live), 1)
        wait_until(lambda: "no start tonight" in run.said[-1], "it says why it waits")
        assert run.lives == []
        resume(store, QUERY, wait=LONG)
        wait_until(lambda: run.lives == [1], "it runs")
    assert run.failed is None


def newest(checkpoint: Location) -> int:
    return max(int(one.path.rpartition("/")[2]) for one in checkpoint.list("commits"))


def test_a_run_that_is_started_anew_stays_paused_with_the_first_answer(
    store: Store, live: Location
) -> None:
    """As when a pod is moved to another node."""
    with Run(store) as first:
        first.is_in("running")
        before = pause(store, QUERY, wait=LONG)
    assert state(store, QUERY) == dataclasses.replace(before, run=None, changed=False)

    with Run(store) as second:
        wait_until(lambda: second.said != [], "it says that it waits")
        assert "to resume it yourself: savepoints resume totals" in second.said[0]
        assert state(store, QUERY) == dataclasses.replace(before, changed=False)
        resume(store, QUERY, wait=LONG)
        wait_until(lambda: second.lives == [1], "it runs")
    assert [verb for verb, _ in verbs(store)].count("paused") == 1


@ON_LOCAL
def test_a_signal_ends_a_run_that_waits(store: Store, live: Location) -> None:
    pause(store, QUERY)
    with Run(store) as run:
        run.is_in("paused")
        run.stop()
        run.ends()
    assert (run.failed, run.lives) == (None, [])
    assert state(store, QUERY).run is None


@ON_LOCAL
@pytest.mark.parametrize("when", ["at its start", "in the middle"])
def test_a_run_with_an_end_of_its_own_ends_instead_of_waiting(
    when: str, store: Store, live: Location
) -> None:
    if when == "at its start":
        pause(store, QUERY)
    with Run(store, idles=False) as run:
        if when == "in the middle":
            run.is_in("running")
            now = pause(store, QUERY, wait=LONG)
            assert now.savepoint_id == run.taken[0].id
        run.ends()
    assert run.failed is None
    assert run.lives == ([] if when == "at its start" else [1])
    now = state(store, QUERY)
    assert (now.state, now.run, now.batch_id) == ("paused", None, newest(live))
    # The next of cron's does nothing, also beside a run that waits.
    with Run(store, idles=False) as run:
        run.ends()
    with Run(store) as waiting:
        wait_until(lambda: lease.paused_holder(store.root, QUERY) is not None, "one waits")
        with Run(store, idles=False) as run:
            run.ends()
        assert (run.failed, run.lives, waiting.failed) == (None, [], None)


@ON_LOCAL
def test_a_resumed_run_waits_for_another_verb_and_says_so(store: Store, live: Location) -> None:
    with Run(store) as run:
        run.is_in("running")
        pause(store, QUERY, wait=LONG)
        with lease.hold(store.root, QUERY, "rollback"):
            with pytest.raises(
                PartlyDoneError, match="is not running after 300ms; it is still resuming"
            ):
                resume(store, QUERY, wait=SHORT)
            wait_until(
                lambda: "the command rollback is working on totals" in run.said[-1], "it says so"
            )
            assert run.lives == [1]
            # Paused again before it could go on: the savepoint is still the one of where it stands.
            again = pause(store, QUERY, wait=LONG)
            assert again.savepoint_id == run.taken[0].id
            resume(store, QUERY)
        run.is_in("running")
        wait_until(lambda: run.lives == [1, 1], "it goes on")
    assert run.failed is None


@ON_LOCAL
def test_a_resumed_run_waits_for_an_operation_that_was_killed_to_be_finished(
    store: Store, live: Location
) -> None:
    """A promotion that was killed after it had let the run go on; the run must not die of that."""
    with Run(store) as run:
        run.is_in("running")
        pause(store, QUERY, wait=LONG)
        with lease.hold(store.root, QUERY, "promote"):
            operation = Operation(
                "op-20261121-101530-k3f9ab", "promote", QUERY, {}, "savepoints promote fork",
                "2026-11-21T10:15:30.000Z",
            )  # fmt: skip
            log = Journal.begin(store.root, operation)
            resume(store, QUERY)
            wait_until(lambda: "promote is working on totals" in run.said[-1], "it says who works")
        wait_until(lambda: "finish it first: savepoints promote" in run.said[-1], "it says why")
        assert run.lives == [1]
        with lease.hold(store.root, QUERY, "promote"):
            log.finish()
        wait_until(lambda: run.lives == [1, 1], "it goes on")
    assert run.failed is None


@ON_LOCAL
def test_a_savepoint_of_before_a_rollback_is_not_told_of_after_it(
    store: Store, live: Location
) -> None:
    with Run(store) as run:
        run.is_in("running")
        first = pause(store, QUERY, wait=LONG)
        with lease.hold(store.root, QUERY, "rollback"):
            store.generations.begin(QUERY, 2, live, by="rollback")
            resume(store, QUERY)
            second = pause(store, QUERY, wait=LONG)
        assert first.savepoint_id is not None
        assert (second.generation, second.savepoint_id) == (2, None)


@ON_LOCAL
def test_a_query_has_one_run_paused_or_not(store: Store, live: Location) -> None:
    with Run(store) as run:
        run.is_in("running")
        with Run(store) as second:
            second.ends()
        assert isinstance(second.failed, QueryRunningError)

        pause(store, QUERY, wait=LONG)
        with Run(store) as second:
            second.ends()
        assert isinstance(second.failed, QueryRunningError)
        assert "already has a run, which is paused" in str(second.failed)
        assert run.is_in("paused")

        # Resumed, but kept from it for a moment: another that starts must not overtake it.
        with lease.hold(store.root, QUERY, "rollback"):
            resume(store, QUERY)
            with pytest.raises(LockedError):
                Supervisor(store, QUERY).supervise(no_segment)
        run.is_in("running")
        wait_until(lambda: run.lives == [1, 1], "it goes on")
    assert run.failed is None


@ON_LOCAL
def test_a_run_that_begins_gives_way_to_one_that_waits_to_go_on(
    store: Store, live: Location
) -> None:
    with (
        lease.hold_paused(store.root, QUERY),
        pytest.raises(QueryRunningError, match="already has a run, which is paused"),
    ):
        Supervisor(store, QUERY).supervise(no_segment)
    assert lease.holder(store.root, QUERY) is None


@ON_LOCAL
def test_a_run_that_begins_while_another_pauses_does_not_answer_for_it(
    store: Store, live: Location
) -> None:
    request = pause_requests.ask(store.root, QUERY, "paused", by="me")
    assert request is not None
    with lease.hold(store.root, QUERY, "run"):
        for idles in (True, False):
            with Run(store, idles=idles) as second:
                second.ends()
            assert isinstance(second.failed, QueryRunningError)
        assert state(store, QUERY).state == "pausing"
    assert pause_requests.answer_to(store.root, request) is None
    assert lease.paused_holder(store.root, QUERY) is None


@ON_LOCAL
def test_a_pause_without_its_savepoint_is_partly_done(store: Store, live: Location) -> None:
    with Run(store, save=False) as run:
        run.is_in("running")
        with pytest.raises(PartlyDoneError, match="but no savepoint was taken: the disk is full"):
            pause(store, QUERY, wait=LONG)
        now = pause(store, QUERY)
        assert (now.state, now.savepoint_id, now.error) == ("paused", None, "the disk is full")
        resume(store, QUERY, wait=LONG)


RUN = """
with lease.hold(Location.of(uri), "totals", "run"):
    say(os.getpid())
    wait_for_end()
"""


def test_a_run_that_dies_while_it_is_to_pause_is_not_said_to_pause(
    store: Store, live: Location
) -> None:
    with at_once(RUN, str(store.root), 1) as processes:
        pid = int(processes.say())
        with pytest.raises(PartlyDoneError, match=r"it is still pausing \(process"):
            pause(store, QUERY, wait=SHORT)
        now = state(store, QUERY)
        assert (now.state, str(now.run).split(" on ")[0]) == ("pausing", f"process {pid}")

        said: list[str] = []
        waits = lambda: pause(store, QUERY, wait=LONG, progress=said.append)  # noqa: E731
        with called(waits) as waiting:
            wait_until(lambda: said != [], "it is waited for")
            os.kill(pid, signal.SIGKILL)
        processes.end()
    assert said[0].startswith(f"waiting for {QUERY}, which is pausing (process {pid} on ")
    assert isinstance(waiting[0], PartlyDoneError)
    assert f"the run (process {pid} on" in str(waiting[0])
    now = state(store, QUERY)
    assert (now.state, now.wanted, now.run) == ("stopped", "paused", None)


@contextmanager
def called(call: Callable[[], object]) -> Iterator[list[object]]:
    """Call a function in a thread; at the end its result, or what it raised, is in the list."""
    result: list[object] = []

    def work() -> None:
        try:
            result.append(call())
        except Exception as error:  # noqa: BLE001
            result.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    yield result
    thread.join(120)
    assert result


@ON_LOCAL
@pytest.mark.parametrize(("ttl", "told"), [(30, "pausing"), (-4, "pausing"), (-6, "stopped")])
def test_a_run_on_another_machine_is_believed_until_its_lease_ends(
    ttl: float, told: str, store: Store, live: Location
) -> None:
    now = utc_now()
    record = LeaseRecord(
        QUERY, "run", ELSEWHERE, 7, rfc3339(now - timedelta(hours=1)),
        rfc3339(now + timedelta(seconds=ttl)), "n",
    )  # fmt: skip
    store.root.put(f"leases/{QUERY}.json", record.to_bytes())

    assert pause(store, QUERY).state == told
    resumed = resume(store, QUERY)
    assert resumed.state == ("running" if told == "pausing" else "stopped")


def test_two_who_pause_at_once_are_told_the_same(store: Store, live: Location) -> None:
    with Run(store) as run:
        run.is_in("running")
        with (
            called(lambda: pause(store, QUERY, reason="one", wait=LONG)) as one,
            called(lambda: pause(store, QUERY, reason="two", wait=LONG)) as two,
        ):
            pass
    first, second = one[0], two[0]
    assert isinstance(first, PauseState)
    assert isinstance(second, PauseState)
    assert first.changed != second.changed
    assert dataclasses.replace(first, changed=False) == dataclasses.replace(second, changed=False)
    assert len(run.taken) == 1
    assert [verb for verb, _ in verbs(store)].count("pause") == 1


@ON_LOCAL
def test_who_waits_is_told_of_another_who_wants_the_opposite(store: Store, live: Location) -> None:
    with (
        lease.hold(store.root, QUERY, "run"),
        called(lambda: pause(store, QUERY, wait=LONG)) as waiting,
    ):
        wait_until(lambda: state(store, QUERY).state == "pausing", "it is asked for")
        resume(store, QUERY)
    assert isinstance(waiting[0], PartlyDoneError)
    assert "has since requested that it be running" in str(waiting[0])


def test_pause_and_resume_at_once_end_in_what_was_asked_last(store: Store, live: Location) -> None:
    """Whatever the run sees of it, it ends where the request in force says."""
    with Run(store) as run:
        run.is_in("running")
        for _ in range(5):
            with called(lambda: pause(store, QUERY)), called(lambda: resume(store, QUERY)):
                pass
        wanted = state(store, QUERY).wanted
        run.is_in(wanted)
        resume(store, QUERY, wait=LONG)
        assert run.failed is None
    assert run.failed is None


@ON_LOCAL
def test_a_query_with_an_unfinished_operation_is_not_resumed(store: Store, live: Location) -> None:
    pause(store, QUERY)
    begun = Operation(
        "op-20261121-101530-k3f9ab", "rollback", QUERY, {}, "savepoints rollback x",
        "2026-11-21T10:15:30.000Z",
    )  # fmt: skip
    Journal.begin(store.root, begun)

    with pytest.raises(UnfinishedOperationError):
        resume(store, QUERY)

    assert state(store, QUERY).wanted == "paused"


@ON_LOCAL
def test_a_damaged_checkpoint_is_recovered_without_the_lease_and_run_again(
    store: Store, live: Location
) -> None:
    damage = CheckpointDamagedError("it is gone", hint="recover it")
    ran = Ran(QUERY, 1, None, None, 0, 0, 0.0, "drained")
    holders: list[LeaseRecord | None] = []

    def segment(_supervisor: Supervisor, _held: Lease) -> Segment:
        holders.append(lease.holder(store.root, QUERY))
        if len(holders) == 1:
            raise damage
        return Segment(ran, None)

    def recover(error: CheckpointDamagedError) -> None:
        assert error is damage
        holders.append(lease.holder(store.root, QUERY))

    with pytest.raises(CheckpointDamagedError, match="it is gone"):
        Supervisor(store, QUERY).supervise(segment)
    assert lease.holder(store.root, QUERY) is None

    holders.clear()
    last = Supervisor(store, QUERY).supervise(segment, damaged=recover)
    assert last == Segment(ran, None)
    assert [holder is None for holder in holders] == [False, True, False]
    assert lease.holder(store.root, QUERY) is None


@ON_LOCAL
def test_a_store_that_cannot_be_asked_does_not_end_a_run(
    store: Store, live: Location, caplog: pytest.LogCaptureFixture
) -> None:
    """A damaged request is told in the log; what runs goes on."""
    with Run(store) as run:
        run.is_in("running")
        store.root.put(f"requests/{QUERY}.json", b"{}")
        wait_until(lambda: "is damaged" in caplog.text, "it is told")
        assert run._thread.is_alive()
        store.root.delete([f"requests/{QUERY}.json"])
        assert pause(store, QUERY, wait=LONG).state == "paused"
    assert run.failed is None


@ON_LOCAL
def test_a_run_that_waited_for_the_query_does_not_run_once_it_is_paused(
    store: Store, live: Location
) -> None:
    """As under cron with `--wait`: the run before was paused, and gave the lease to this one."""
    said: list[str] = []
    waiting = Supervisor(store, QUERY, idles=False, wait=LONG, progress=said.append)

    with ExitStack() as before:
        before.enter_context(lease.hold(store.root, QUERY, "run"))
        with called(lambda: waiting.supervise(no_segment)) as result:
            wait_until(lambda: said != [], "it waits")
            pause_requests.ask(store.root, QUERY, "paused", by="me")
            before.close()
    assert result == [None]
    assert lease.holder(store.root, QUERY) is None
