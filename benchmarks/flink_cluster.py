"""A Flink cluster on this machine: a JobManager and a TaskManager, as processes of their own.

Configuration, logs and data lie in one directory, and no process outlives this one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import flink_client, flink_libraries
from benchmarks.flink_client import Client
from benchmarks.flink_rest import Rest
from savepoints.local.java import find_java
from savepoints.local.service import Launch, Service, free_ports

SLOTS = 2

_LOCALHOST = "127.0.0.1"
_JOB_MANAGER = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
# In MB. A TaskManager gets together what Spark's driver gets.
_JOB_MANAGER_HEAP = 512
_TASK_HEAP, _FRAMEWORK_HEAP, _NETWORK, _FRAMEWORK_OFF_HEAP, _MANAGED = 1920, 128, 256, 128, 1664


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs.

    Attributes:
        rest: Its REST API.
        client: What sends it jobs.
        printed: The standard output of its TaskManager, where the sink `print` writes.
    """

    rest: Rest
    client: Client
    printed: Path


@contextmanager
def started(directory: Path) -> Iterator[Cluster]:
    """Start a cluster and its client, and stop both in the end.

    Args:
        directory: An empty one, for everything that they write.
    """
    jars = flink_libraries.jars()
    with ExitStack() as stack:

        def service(name: str, prepare: Callable[[], Launch]) -> Service:
            launched = Service(name, prepare, directory, detach=False)
            stack.callback(launched.stop)
            launched.wait_ready()
            return launched

        job_manager = service("jobmanager", partial(_job_manager, directory, jars))
        port = int(job_manager.endpoint.rpartition(":")[2])
        rest = Rest(port)
        task_manager = service("taskmanager", partial(_task_manager, directory, jars, rest))
        options = {
            "execution.target": "remote",
            "rest.address": _LOCALHOST,
            "rest.port": str(port),
            "parallelism.default": str(SLOTS),
        }
        client = stack.enter_context(flink_client.started(directory, jars, options))
        yield Cluster(rest, client, task_manager.log)


def configuration(directory: Path, rest_port: int, rpc_port: int) -> Mapping[str, str | int]:
    """Return the options of a cluster: RocksDB, two slots, everything it writes in one directory.

    Periodic checkpoints are off, so that none is taken while something is measured; a job that
    fails stays so.

    Args:
        directory: Where state, checkpoints and temporary files go.
        rest_port: Where the REST API listens.
        rpc_port: Where the JobManager listens for the TaskManager.
    """
    return {
        "jobmanager.rpc.address": _LOCALHOST,
        "jobmanager.rpc.port": rpc_port,
        "jobmanager.bind-host": _LOCALHOST,
        "rest.address": _LOCALHOST,
        "rest.bind-address": _LOCALHOST,
        "rest.port": rest_port,
        "taskmanager.host": _LOCALHOST,
        "taskmanager.bind-host": _LOCALHOST,
        "taskmanager.numberOfTaskSlots": SLOTS,
        "parallelism.default": SLOTS,
        "taskmanager.cpu.cores": SLOTS,
        "taskmanager.memory.task.heap.size": f"{_TASK_HEAP}m",
        "taskmanager.memory.framework.heap.size": f"{_FRAMEWORK_HEAP}m",
        "taskmanager.memory.task.off-heap.size": "0",
        "taskmanager.memory.framework.off-heap.size": f"{_FRAMEWORK_OFF_HEAP}m",
        "taskmanager.memory.network.min": f"{_NETWORK}m",
        "taskmanager.memory.network.max": f"{_NETWORK}m",
        "taskmanager.memory.managed.size": f"{_MANAGED}m",
        # No limits, but the TaskManager adds them up.
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "192m",
        "taskmanager.memory.jvm-overhead.max": "192m",
        "state.backend.type": "rocksdb",
        "execution.checkpointing.dir": (directory / "checkpoints").as_uri(),
        "io.tmp.dirs": str(directory / "tmp"),
        "restart-strategy.type": "none",
        # How often what the REST API says about records is brought up to date, in milliseconds.
        "metrics.fetcher.update-interval": 500,
    }


def write(options: Mapping[str, str | int], directory: Path) -> None:
    """Write options as the `config.yaml` of a directory, which is made if it is not there."""
    directory.mkdir(exist_ok=True)
    # In flow style, JSON is YAML.
    lines = (f"{name}: {json.dumps(value)}\n" for name, value in options.items())
    (directory / "config.yaml").write_text("".join(lines))


def _job_manager(directory: Path, jars: Path) -> Launch:
    rest_port, rpc_port = free_ports(2)
    write(configuration(directory, rest_port, rpc_port), directory / "conf")
    return Launch(
        command=(*_java(directory, jars, _JOB_MANAGER_HEAP), _JOB_MANAGER, *_configured(directory)),
        endpoint=f"{_LOCALHOST}:{rest_port}",
        is_ready=lambda: Rest(rest_port).slots() == 0,
    )


def _task_manager(directory: Path, jars: Path, rest: Rest) -> Launch:
    java = _java(directory, jars, _TASK_HEAP + _FRAMEWORK_HEAP)
    direct = f"-XX:MaxDirectMemorySize={_NETWORK + _FRAMEWORK_OFF_HEAP}m"
    return Launch(
        command=(*java, direct, _TASK_MANAGER, *_configured(directory)),
        endpoint=f"{_LOCALHOST}:{rest.port}",
        is_ready=lambda: rest.slots() == SLOTS,
    )


def _java(directory: Path, jars: Path, heap: int) -> tuple[str, ...]:
    options = flink_libraries.java_options(directory, heap)
    return (str(find_java().executable), *options, "-cp", f"{jars}/*")


def _configured(directory: Path) -> tuple[str, str]:
    return ("--configDir", str(directory / "conf"))
