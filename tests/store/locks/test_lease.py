"""Leases: at most one process mutates a query."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from savepoints.errors import LockedError, QueryRunningError, UsageError
from savepoints.io import Location
from savepoints.local import s3
from savepoints.moments import parse_rfc3339, rfc3339, utc_now
from savepoints.store.locks import lease
from savepoints.store.locks.lease import Holder, Lease, LeaseRecord
from tests import second_s3
from tests.processes import at_once

# Each lease is a conditional write.
pytestmark = pytest.mark.s3

place = second_s3.place

PATH = "leases/orders.json"
ELSEWHERE = Holder("another-host/boot/pid:[1]", 4711, "123")

TAKE = """
try:
    with lease.hold(Location.of(uri), "orders", "{verb}") as held:
        held.check()
        say("won", os.getpid())
        wait_for_end()
except SavepointsError as error:
    say(error.exit_code, error.details["holder"])
    wait_for_end()
"""


def record_of(root: Location) -> LeaseRecord:
    return LeaseRecord.parse(root.get(PATH), PATH)


def put(root: Location, *, verb: str = "rollback", by: Holder = ELSEWHERE, ttl: float = 30) -> None:
    """Write the lease that another process would have."""
    now = utc_now()
    record = LeaseRecord(
        "orders", verb, by, 7, rfc3339(now - timedelta(hours=1)),
        rfc3339(now + timedelta(seconds=ttl)), "n",
    )  # fmt: skip
    root.put(PATH, record.to_bytes())


def test_trap_a_process_that_proc_hides_is_not_taken_for_dead(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `hidepid`, users see their own processes only; there is still one of that number."""
    here = lease._this_process()
    put(place, by=dataclasses.replace(here, pid=os.getppid(), started="123"))
    monkeypatch.setattr(lease, "_process_start", lambda pid: None if pid != here.pid else "1")

    with pytest.raises(LockedError), lease.hold(place, "orders", "rollback"):
        pass
    put(place, by=dataclasses.replace(here, pid=2**22 - 1, started="123"))
    with lease.hold(place, "orders", "rollback") as held:
        held.check()


@pytest.mark.parametrize(("verb", "code"), [("rollback", "11"), ("run", "12")])
def test_of_eight_processes_one_wins_and_the_others_name_it(
    verb: str, code: str, place: Location
) -> None:
    with at_once(TAKE.format(verb=verb), str(place), 8) as processes:
        said = [processes.say() for _ in range(8)]
        failed, errors = processes.end()

    assert failed == 0, errors
    (winner,) = [line.partition(" ")[2] for line in said if line.startswith("won")]
    others = [line for line in said if not line.startswith("won")]
    assert len(others) == 7
    assert all(line.startswith(f"{code} process {winner} on ") for line in others)


def test_a_released_lease_can_be_taken_at_once(place: Location) -> None:
    for number in range(1, 4):
        with lease.hold(place, "orders", "rollback"):
            assert record_of(place).fence == number
        lease.refuse_held(place, "orders")


def test_trap_a_driver_was_told_to_kill_itself(on_local: Location) -> None:
    """In a notebook, where the cell with `attach` is run again."""
    with (
        lease.hold(on_local, "clicks", lease.ATTACH),
        pytest.raises(QueryRunningError) as refused,
        lease.hold(on_local, "clicks", "rollback"),
    ):
        pass

    assert "in this process with attached.stop(), on what attach returned" in refused.value.hint
    assert "kill" not in refused.value.hint


def test_leases_of_different_queries_are_independent(on_local: Location) -> None:
    with lease.hold(on_local, "orders", "rollback"), lease.hold(on_local, "clicks", "rollback"):
        pass


def test_a_dead_holder_on_this_machine_is_succeeded_at_once(place: Location) -> None:
    with at_once(TAKE.format(verb="run"), str(place), 1) as processes:
        pid = int(processes.say().removeprefix("won "))
        with pytest.raises(QueryRunningError, match=f"process {pid}"):
            lease.refuse_held(place, "orders")
        os.kill(pid, signal.SIGKILL)
        processes.end()
    assert parse_rfc3339(record_of(place).expires_at) > utc_now()

    lease.refuse_held(place, "orders")
    with lease.hold(place, "orders", "rollback") as held:
        held.check()
        assert record_of(place).holder.pid == os.getpid()
        assert record_of(place).fence == 2


def test_trap_a_program_whose_name_is_cut_within_a_letter_gets_no_lease(tmp_path: Path) -> None:
    """Linux keeps 15 bytes of it; a script with an umlaut there could do nothing."""
    script = tmp_path / "kundenums\u00e4tze\u00f6.py"
    script.write_text(
        f"#!{sys.executable}\n"
        "from savepoints.io import Location\n"
        "from savepoints.store.locks import lease\n"
        f"with lease.hold(Location.of({str(tmp_path / 'store')!r}), 'clicks', 'attach'):\n"
        "    print(open('/proc/self/comm', 'rb').read())\n"
    )
    script.chmod(0o755)

    done = subprocess.run(
        [str(script)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stderr == ""
    assert done.stdout.strip() == repr("kundenums\u00e4tze\u00f6".encode()[:15] + b"\n")


def test_a_reused_process_id_is_not_taken_for_the_holder(on_local: Location) -> None:
    here = lease._this_process()
    put(on_local, by=dataclasses.replace(here, started="1"))

    lease.refuse_held(on_local, "orders")


@pytest.mark.parametrize(("verb", "error"), [("rollback", LockedError), ("run", QueryRunningError)])
def test_a_holder_on_another_machine_is_waited_for(
    verb: str, error: type[Exception], place: Location
) -> None:
    put(place, verb=verb)
    before = place.get(PATH)

    with pytest.raises(error, match="process 4711 on another-host"):
        lease.refuse_held(place, "orders")
    with (
        pytest.raises(error, match="process 4711 on another-host"),
        lease.hold(place, "orders", "run"),
    ):
        pass

    assert place.get(PATH) == before


@pytest.mark.parametrize(("ttl", "free"), [(-1, False), (-4, False), (-6, True), (-3600, True)])
def test_an_expired_lease_is_free_when_clocks_cannot_explain_it(
    ttl: float, free: bool, on_local: Location
) -> None:
    put(on_local, ttl=ttl)

    if free:
        with lease.hold(on_local, "orders", "run"):
            assert record_of(on_local).fence == 8
    else:
        with pytest.raises(LockedError):
            lease.refuse_held(on_local, "orders")


@pytest.mark.parametrize("wrong", [timedelta(minutes=-2), timedelta(hours=1)], ids=str)
def test_trap_a_wrong_clock_takes_a_lease_from_a_living_holder(
    wrong: timedelta, place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is ahead takes leases of all others, and all others take those of one behind."""
    holder, taker = (timedelta(), wrong) if wrong > timedelta() else (wrong, timedelta())
    monkeypatch.setattr(lease, "utc_now", lambda: utc_now() + holder)
    with lease.hold(place, "orders", "run") as held:
        monkeypatch.setattr(lease, "utc_now", lambda: utc_now() + taker)

        with pytest.raises(QueryRunningError), lease.hold(place, "orders", "rollback"):
            pass

        monkeypatch.setattr(lease, "utc_now", lambda: utc_now() + holder)
        held.confirm()
    with lease.hold(place, "orders", "rollback"):
        assert record_of(place).fence == 2
    assert place.list("scratch") == []


def test_the_lease_of_a_clock_that_is_ahead_lasts_no_longer(
    place: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as ahead:
        ahead.setattr(lease, "utc_now", lambda: utc_now() + timedelta(hours=1))
        with lease.hold(place, "orders", "run"):
            expires = parse_rfc3339(record_of(place).expires_at)

    assert expires - utc_now() <= lease.TTL + timedelta(seconds=2)


def test_a_slow_answer_is_no_wrong_clock(place: Location) -> None:
    """The probe of who wants to take a lease may be written after many attempts only."""
    put(place)

    assert lease._behind(place, PATH, utc_now() - timedelta(minutes=1)) == timedelta()


@dataclasses.dataclass(frozen=True)
class Removing(Location):
    """A place in which the holder of a lease removes it before another has read it."""

    def get_version(self, path: str) -> tuple[bytes, str]:
        if self.get(path) == b"of the other":
            self.delete([path])
        return super().get_version(path)


def test_trap_the_lease_of_an_export_goes_while_another_process_looks_at_it(
    place: Location,
) -> None:
    path = "leases/exporting/sp-1.json"
    place.put(path, b"of the other")

    with lease.hold_exporting(Removing(place.uri), "sp-1", "orders", "export") as held:
        held.check()

    assert not place.exists(path)


def test_a_lost_lease_is_noticed_and_not_given_away(place: Location) -> None:
    with lease.hold(place, "orders", "rollback") as held:
        held.check()
        put(place)
        taken = place.get(PATH)
        held.renew()

        with pytest.raises(LockedError, match="was lost") as refused:
            held.check()

    assert refused.value.details == {"query": "orders"}
    assert place.get(PATH) == taken


def test_a_lease_that_was_removed_is_lost(place: Location) -> None:
    with lease.hold(place, "orders", "rollback") as held:
        place.delete([PATH])
        held.renew()

        with pytest.raises(LockedError, match="was lost"):
            held.check()


def expire(held: Lease) -> None:
    """Make a lease believe that its process was paused for longer than it lasts."""
    past = rfc3339(utc_now() - timedelta(seconds=1))
    held._record = dataclasses.replace(held._record, expires_at=past)


def test_a_process_that_was_paused_notices_at_its_next_step(place: Location) -> None:
    with lease.hold(place, "orders", "rollback") as held:
        put(place)
        expire(held)

        with pytest.raises(LockedError, match="was lost"):
            held.check()


def test_a_process_that_was_paused_goes_on_when_nobody_took_the_lease(place: Location) -> None:
    with lease.hold(place, "orders", "rollback") as held:
        expire(held)

        held.check()

        assert parse_rfc3339(record_of(place).expires_at) > utc_now()


def test_a_lease_that_expired_and_cannot_be_renewed_is_lost(bucket: str, s3_endpoint: str) -> None:
    root = Location.of(f"s3://{bucket}/place")
    with lease.hold(root, "orders", "rollback") as held:
        root.delete([info.path for info in root.list()])
        remove_bucket(s3_endpoint, bucket)
        expire(held)
        try:
            with pytest.raises(LockedError):
                held.check()
        finally:
            s3.create_bucket(s3_endpoint, bucket)


def remove_bucket(endpoint: str, name: str) -> None:
    import boto3

    boto3.client("s3", endpoint_url=endpoint, region_name=s3.REGION).delete_bucket(Bucket=name)


def test_renewing_extends_the_lease(place: Location) -> None:
    with lease.hold(place, "orders", "rollback") as held:
        expire(held)
        for _ in range(3):
            before = place.get(PATH)
            held.renew()
            assert place.get(PATH) != before
        record = record_of(place)

    left = parse_rfc3339(record.expires_at) - utc_now()
    assert lease.TTL - timedelta(seconds=10) < left <= lease.TTL
    assert record.fence == 1


def test_a_lease_is_released_when_the_verb_fails(on_local: Location) -> None:
    with pytest.raises(ZeroDivisionError), lease.hold(on_local, "orders", "rollback"):
        raise ZeroDivisionError

    lease.refuse_held(on_local, "orders")


def test_a_query_without_lease_is_free(place: Location) -> None:
    lease.refuse_held(place, "orders")


def test_a_query_name_does_not_leave_the_directory(on_local: Location) -> None:
    with (
        pytest.raises(UsageError, match=re.escape("'../orders'")),
        lease.hold(on_local, "../orders", "run"),
    ):
        pass
