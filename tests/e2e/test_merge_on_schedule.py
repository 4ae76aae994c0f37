"""`[merge] dropped` in a run without an end: what was dropped is merged beside it, by itself."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from savepoints.errors import NotAlignedError
from savepoints.observe import metrics
from savepoints.operations.cascade import on_schedule
from savepoints.operations.run import pause
from savepoints.store.locks import journal, lease
from savepoints.store.tables.merge_ledger import DROPPED, Ledger
from tests.e2e.late_desk import LateDesk
from tests.e2e.marks import NIGHTLY
from tests.e2e.shop import environment
from tests.e2e.test_late import begun, in_time  # noqa: F401  (a fixture)
from tests.e2e.test_merge_ways import chunk, in_order
from tests.spark_session import wait_until

pytestmark = NIGHTLY

# A whole Spark starts and merges, on a machine that does other work as well.
PATIENCE_SECONDS = 400.0
LAST = "savepoints_last_dropped_merge_timestamp_seconds"


@contextmanager
def running(desk: LateDesk, crash_at: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Run the query without an end, merging every second, in a process of its own."""
    desk.desk.write_settings('[merge]\ndropped = "1s"')
    process = subprocess.Popen(
        [sys.executable, "-m", "savepoints", "run", desk.desk.query, "--format", "native"],
        cwd=desk.desk.directory,
        env=environment(crash_at),
        stdout=subprocess.DEVNULL,
        stderr=(desk.desk.directory / "run.log").open("ab"),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_beside(
    desk: LateDesk, process: subprocess.Popen[bytes], condition: Callable[[], bool], what: str
) -> None:
    """Wait for a condition while the run goes on; fails with its log when it has ended."""
    wait_until(lambda: ended(process) or condition(), what, PATIENCE_SECONDS)
    assert not ended(process), (desk.desk.directory / "run.log").read_text()


def end(desk: LateDesk, process: subprocess.Popen[bytes]) -> None:
    """Stop a run in order, which it obeys once the query of the next generation runs."""
    log = desk.desk.directory / "run.log"
    wait_beside(desk, process, lambda: "windowed, generation 2" in log.read_text(), "it runs")
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 0


def ended(process: subprocess.Popen[bytes]) -> bool:
    return process.poll() is not None


def merges(desk: LateDesk) -> list[str]:
    return [one.batch for one in Ledger(desk.desk.store.root).all()]


def merged_and_running(desk: LateDesk) -> bool:
    return bool(merges(desk)) and pause.state(desk.desk.store, desk.desk.query).state == "running"


def test_it_is_merged_once_beside_the_run_which_goes_on(begun: LateDesk) -> None:  # noqa: F811
    desk, store = begun, begun.desk.store
    assert in_order(desk.desk.rows()) != in_time(desk)

    with running(desk) as process:
        wait_beside(desk, process, lambda: merged_and_running(desk), "it is merged")
        wait_beside(
            desk,
            process,
            lambda: any(one.message == "nothing to merge" for one in store.events.all()),
            "it is tried again, and nothing is found",
        )
        end(desk, process)

    assert merges(desk) == [DROPPED]
    assert in_order(desk.desk.rows()) == in_time(desk)
    found = metrics.values(store.catalog.all(), store.events.all())
    assert (desk.desk.query,) in found[LAST]
    desk.arrive(chunk(5))
    assert in_order(desk.desk.rows()) == in_time(desk)


@pytest.mark.parametrize("point", ["merge.corrected_out", "merge.paused"])
def test_trap_a_run_that_is_killed_while_it_merges_does_not_stay_paused(
    begun: LateDesk,  # noqa: F811
    point: str,
) -> None:
    """Nobody types the command again: the next run finishes the merge, or lets the query go on."""
    desk, query = begun, begun.desk.query
    with running(desk, point) as process:
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    assert pause.state(desk.desk.store, query).wanted == "paused"

    with running(desk) as process:
        wait_beside(desk, process, lambda: merged_and_running(desk), "it is merged, and runs")
        end(desk, process)

    assert journal.unfinished(desk.desk.store.root, query) is None
    assert merges(desk) == [DROPPED]
    assert in_order(desk.desk.rows()) == in_time(desk)


def test_of_two_merges_at_a_time_one_is_refused(begun: LateDesk) -> None:  # noqa: F811
    """Whichever comes second: by the lease while the first works, by the generation afterwards."""
    desk = begun
    store, query = desk.desk.store, desk.desk.query
    by_hand = desk.prepare(None)
    with lease.hold_merging(store.root, query):
        assert on_schedule.merge_dropped(store, query) is None
    newest = store.events.all()[0]
    assert (newest.verb, newest.result, newest.error) == ("merge", "skipped", "LockedError")
    assert in_order(desk.desk.rows()) != in_time(desk)

    done = on_schedule.merge_dropped(store, query)

    assert done is not None
    assert done.rows == 3
    with pytest.raises(NotAlignedError, match="generation"):
        desk.merge(by_hand)
    assert merges(desk) == [DROPPED]
    assert in_order(desk.desk.rows()) == in_time(desk)
    desk.arrive(chunk(5))
    assert in_order(desk.desk.rows()) == in_time(desk)
