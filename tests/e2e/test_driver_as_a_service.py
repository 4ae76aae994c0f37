"""The service of docs/your-driver.md takes its last savepoint, whoever gets the signal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from savepoints.handle import Store
from tests.e2e.marks import NIGHTLY
from tests.e2e.pages import blocks
from tests.e2e.shop import environment
from tests.e2e.test_own_pages import driver_environment, savepoints, write_clicks
from tests.spark_session import wait_until

pytestmark = NIGHTLY


class Service:
    """The page's program in a process group of its own, as a shell or systemd starts it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {**environment(), **driver_environment(directory)}
        self.process: subprocess.Popen[str] | None = None
        (directory / "clicks").mkdir()

    def start(self, ending: str = "attached.stop()", every: str = "10m") -> subprocess.Popen[str]:
        """Start it, and wait until a first batch is committed."""
        program, _reader, service, *_ = blocks("your-driver.md", "python")
        program = program.replace('every="10m"', f'every="{every}"')
        begin, _, _ = program.partition("query.processAllAvailable()")
        text = begin + service.replace("attached.stop()", ending)
        (self.directory / "service.py").write_text(text)
        write_clicks(self.directory, 1, ("ada", "bob"))
        process = subprocess.Popen(
            [sys.executable, "service.py", str(self.directory)], cwd=self.directory,
            env=self.environment, text=True, start_new_session=True,
            stdout=(self.directory / "out").open("w"), stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.process = process
        commit = self.directory / "checkpoints" / "1" / "commits" / "0"
        wait_until(lambda: commit.exists() or process.poll() is not None, "a batch is committed")
        assert commit.exists(), self.said
        return process

    @property
    def said(self) -> str:
        return (self.directory / "out").read_text()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        os.killpg(made.process.pid, signal.SIGKILL)
        made.process.wait()


def test_a_service_saves_its_last_batch_when_python_alone_is_told(service: Service) -> None:
    process = service.start()

    process.send_signal(signal.SIGTERM)

    assert process.wait(120) == 0, service.said
    (taken,) = Store.open(service.environment["SAVEPOINTS_STORE"]).catalog.all()
    assert (taken.cut.batch_id, taken.kind, taken.rows_missing) == (0, "final", None)
    assert [one.uri for one in taken.outputs] == [str(service.directory / "counts")]
    rows = DeltaTable(str(service.directory / "counts")).to_pyarrow_table().to_pylist()
    assert {one["user"]: one["count"] for one in rows} == {"ada": 1, "bob": 1}


def test_a_service_is_saved_by_name_from_a_shell_while_it_runs(service: Service) -> None:
    process = service.start(every="1s")
    store = Store.open(service.environment["SAVEPOINTS_STORE"])
    wait_until(lambda: bool(store.catalog.all()), "a first savepoint is taken")

    words = ["savepoints", "create", "clicks", "--format", "native", "--tag", "before-release"]
    savepoints(words, service.directory, **service.environment)

    (taken,) = (one for one in store.catalog.all() if one.tags)
    assert (taken.tags, taken.cut.batch_id) == (("before-release",), 0)
    assert [one.uri for one in taken.outputs] == [str(service.directory / "counts")]
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0, service.said


def test_trap_a_signal_to_the_whole_group_ends_the_jvm_before_the_last_savepoint(
    service: Service,
) -> None:
    """As systemd and `timeout` send it: Python needs its JVM to save what it has."""
    process = service.start()

    os.killpg(process.pid, signal.SIGTERM)

    assert process.wait(120) == 0, service.said
    (taken,) = Store.open(service.environment["SAVEPOINTS_STORE"]).catalog.all()
    assert (taken.cut.batch_id, taken.kind, taken.rows_missing) == (0, "final", None)


def kill_jvm(process: subprocess.Popen[str]) -> None:
    """Kill the JVM of a driver, as a machine does that runs out of memory."""
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text() == "java\n":
            os.kill(int(child), signal.SIGKILL)


def test_the_end_of_the_jvm_is_told_with_what_saves_the_newest_batch(service: Service) -> None:
    """The error names what saves the batch, without a JVM; the query is known to have ended."""
    process = service.start()

    kill_jvm(process)

    assert process.wait(120) == 1
    found = re.search(
        r"the JVM of this driver has ended.*\nhint: save that batch: (.*);", service.said
    )
    assert found is not None, service.said
    store = Store.open(service.environment["SAVEPOINTS_STORE"])
    assert store.catalog.all() == []
    savepoints(found[1].split(), service.directory, **service.environment)
    (taken,) = store.catalog.all()
    assert (taken.query, taken.cut.batch_id) == ("clicks", 0)
    assert [one.uri for one in taken.outputs] == [str(service.directory / "counts")]
    to = str(service.directory / "checkpoints" / "2")
    words = ["savepoints", "rollback", "latest", "--query", "clicks", "--to", to, "--dry-run"]
    savepoints(words, service.directory, **service.environment)


def test_trap_a_savepoint_by_hand_without_a_jvm_blames_a_refused_connection(
    service: Service,
) -> None:
    process = service.start("print(attached.create().rows_missing)\n    attached.stop()")

    kill_jvm(process)

    assert process.wait(120) == 1
    (taken,) = Store.open(service.environment["SAVEPOINTS_STORE"]).catalog.all()
    assert taken.forms == ("native",)
    assert taken.rows_missing == "the JVM of this process has ended"
    assert f"the newest savepoint is {taken.id} (batch 0)" in service.said
    assert "hint: start the driver again" in service.said
