"""Flink's client: a JVM with its Table API, which plans SQL and sends it to a cluster.

It stays up, so that what is measured has no start of a JVM in it, and no Python beside Java's API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import flink_libraries
from savepoints.local.jars import pyspark_directory
from savepoints.local.java import find_java

_HEAP_MB = 512


@dataclass(frozen=True)
class Client:
    """A client that runs.

    Attributes:
        options: Of Flink, for every job.
    """

    options: Mapping[str, str]
    _jvm: Any

    def submit(self, *statements: str, savepoint: str | None = None) -> str:
        """Run statements of SQL, of which the last one is a job.

        Args:
            statements: The tables of the job, and the job.
            savepoint: What it begins from; without it, from nothing.

        Returns:
            The job's id.
        """
        options = self._jvm.java.util.HashMap()
        for name, value in self.options.items():
            options.put(name, value)
        if savepoint is not None:
            options.put("execution.state-recovery.path", savepoint)
        known = self._jvm.org.apache.flink.configuration.Configuration.fromMap(options)
        api = self._jvm.org.apache.flink.table.api
        settings = api.EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(known)
        environment = api.TableEnvironment.create(settings.build())
        for statement in statements:
            done = environment.executeSql(statement)
        return str(done.getJobClient().get().getJobID().toString())


@contextmanager
def started(directory: Path, jars: Path, options: Mapping[str, str]) -> Iterator[Client]:
    """Start a client, and stop it in the end.

    Args:
        directory: An empty one, where it logs.
        jars: Flink's.
        options: Of Flink, for every job.
    """
    from py4j.java_gateway import JavaGateway

    with (directory / "client.log").open("w") as log:
        gateway = JavaGateway.launch_gateway(
            jarpath=str(next((pyspark_directory() / "jars").glob("py4j-*.jar"))),
            classpath=f"{jars}/*",
            javaopts=list(flink_libraries.java_options(directory, _HEAP_MB)),
            java_path=str(find_java().executable),
            die_on_exit=True,
            enable_auth=True,
            redirect_stderr=log,
        )
        try:
            yield Client(options, gateway.jvm)
        finally:
            gateway.shutdown()
            gateway.java_process.kill()
            gateway.java_process.wait()
