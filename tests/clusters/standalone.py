"""Spark's standalone cluster on this machine: a master, and two workers with an executor each.

What executors share with the driver on one machine hides mistakes, so they have a Python of their
own without this package (`tests.spark.bare_python`) and, where this user may unshare mounts, a
`/tmp` of their own: files that the driver lays out are not there.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from savepoints.local.jars import pyspark_directory
from savepoints.local.service import Launch, Service, free_ports
from tests.spark import bare_python
from tests.spark_session import wait_until

EXECUTORS = 2
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_BACKEND = b"CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        master: What `spark.master` is.
        python: The interpreter of its executors.
        has_own_files: Whether executors have a `/tmp` of their own.
    """

    master: str
    python: Path
    has_own_files: bool

    @property
    def conf(self) -> Mapping[str, str]:
        """Settings of Spark for an application that has all of it."""
        return {
            "spark.executor.memory": "1g",
            "spark.executor.cores": "1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # Each is taken for the same host, but has a `/tmp` of its own.
            "spark.shuffle.readHostLocalDisk": "false",
        }


@contextmanager
def start(directory: Path, *, pinned: bool = False) -> Iterator[Cluster]:
    """Start a cluster; executors have this process' environment, with AWS' variables.

    Args:
        directory: For logs and the executors' Python; outside of `/tmp`, which they may not see.
        pinned: Give each worker a processor of its own. Spark's tasks are counted by cores, but the
            threads of RocksDB and of the JVM beside them take what there is.
    """
    own_files = _may_unshare()
    with ExitStack() as stack:
        port, page = free_ports(2)
        master = f"spark://127.0.0.1:{port}"
        names = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        _service(stack, "master", directory, _class(_MASTER, *names), partial(_has, page, 0))
        for number in range(1, EXECUTORS + 1):
            place = directory / f"worker-{number}"
            words = ("--host", "127.0.0.1", "--cores", "1", "--memory", "2g", "--webui-port", "0")
            command = _class(_WORKER, *words, "--work-dir", str(place), master)
            if own_files:
                script = 'mount -t tmpfs tmpfs /tmp && exec "$@"'
                command = ("unshare", "--mount", "sh", "-c", script, "worker", *command)
            if pinned:
                command = ("taskset", "--cpu-list", str(number - 1), *command)
            is_there = partial(_has, page, number)
            _service(stack, f"worker-{number}", directory, command, is_there)
        yield Cluster(master, bare_python.make(directory / "python", with_pandas=True), own_files)


def executors() -> list[int]:
    """Return the process ids of all executors on this machine."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if _BACKEND in command:
                found.append(int(entry.name))
    return sorted(found)


@contextmanager
def losing_an_executor(after_stages: int) -> Iterator[None]:
    """Kill an executor by SIGKILL while a task of a stage runs, after so many stages.

    Fails if the body ends before, or if there is no session yet.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None
    tracker = context.statusTracker()
    killed, over = threading.Event(), threading.Event()

    def kill() -> None:
        first: list[int] = []

        def is_time() -> bool:
            running = [
                stage
                for stage in tracker.getActiveStageIds()
                if (info := tracker.getStageInfo(stage)) is not None and info.numActiveTasks
            ]
            first.extend(running[:1])
            # They are numbered, so those that were over before they were seen count, too.
            return over.is_set() or any(one - first[0] >= after_stages for one in running)

        wait_until(is_time, f"{after_stages} stages have run")
        if not over.is_set():
            os.kill(executors()[0], signal.SIGKILL)
            killed.set()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert killed.is_set(), f"no task was seen to run after {after_stages} stages"


def _may_unshare() -> bool:
    command = ["unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /tmp"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _class(name: str, *arguments: str) -> tuple[str, ...]:
    spark = pyspark_directory()
    variables = (
        "env",
        f"SPARK_HOME={spark}",
        "SPARK_LOCAL_IP=127.0.0.1",
        "SPARK_DAEMON_MEMORY=256m",
    )
    return (*variables, str(spark / "bin" / "spark-class"), name, *arguments)


def _service(
    stack: ExitStack,
    name: str,
    directory: Path,
    command: tuple[str, ...],
    is_ready: Callable[[], bool],
) -> None:
    launch = Launch(command, endpoint=name, is_ready=is_ready)
    service = Service(name, lambda: launch, directory, detach=False)
    stack.callback(service.stop)
    service.wait_ready()


def _workers(page: int) -> int:
    """Return how many workers the master has."""
    connection = http.client.HTTPConnection("127.0.0.1", page, timeout=5)
    try:
        connection.request("GET", "/json/")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise ConnectionError(f"the master's page answers {answer.status}")
        return int(json.load(answer)["aliveworkers"])
    finally:
        connection.close()


def _has(page: int, workers: int) -> bool:
    return _workers(page) >= workers


def end_session() -> None:
    """End the application of this process, and with it its executors."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    if active is not None:
        active.stop()
    wait_until(lambda: not executors(), "the executors of the last application are gone")


def wait_for_executors() -> None:
    """Wait until the application has all its executors, as after the death of one."""
    wait_until(lambda: len(executors()) == EXECUTORS, f"there are {EXECUTORS} executors")
