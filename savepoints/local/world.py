"""Broker, S3 server and jars together, as one thing to start and stop."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import final

from savepoints.errors import NotFoundError
from savepoints.local import classes, s3
from savepoints.local.broker import prepare_broker
from savepoints.local.jars import resolve_jars
from savepoints.local.java import find_java
from savepoints.local.service import Service, stop_detached

_FILE = "world.json"
# What spark-submit, and PySpark by it, gives Java beside what the program's settings say.
_SPARK_OPTIONS = "SPARK_SUBMIT_OPTS"


@final
@dataclass(frozen=True, eq=False)
class LocalWorld:
    """The local world while it runs; as a context manager it stops at the end of the block.

    Attributes:
        environment: What a process needs in its environment to use this world.
    """

    bootstrap_servers: str
    s3_endpoint: str
    spark_jars: tuple[Path, ...]
    directory: Path
    environment: dict[str, str]
    _services: tuple[Service, ...] = field(repr=False)
    _cleanup: ExitStack = field(repr=False)

    @classmethod
    def start(cls, directory: Path | None = None, *, detach: bool = False) -> LocalWorld:
        """Start the services, in parallel, and wait until they answer.

        The services end with this process, however it ends. If the start fails, what
        was started is stopped, and the logs stay.

        Args:
            directory: Where logs and data go. By default a temporary directory, which is
                removed when the world is stopped.

        Raises:
            EnvironmentUnfitError: If Java or a jar is missing, or a service does not start.
            TargetExistsError: If a local world runs in the directory.
        """
        java = find_java()
        jars = resolve_jars()
        with ExitStack() as cleanup:
            if directory is None:
                home = Path(tempfile.mkdtemp(prefix="savepoints-"))
            else:
                home = directory.absolute()
                home.mkdir(parents=True, exist_ok=True)
            services = []
            # The S3 server starts while the broker formats its data directory.
            for name, prepare in (
                ("s3", s3.prepare_s3),
                ("broker", partial(prepare_broker, java, jars, home)),
            ):
                service = Service(name, prepare, home, detach=detach)
                cleanup.callback(service.stop)
                services.append(service)
            options = (os.environ.get(_SPARK_OPTIONS), classes.java_option(java, jars))
            for service in services:
                service.wait_ready()
            s3_service, broker = services
            environment = {
                "AWS_ENDPOINT_URL": s3_service.endpoint,
                "AWS_ALLOW_HTTP": "true",
                "AWS_ACCESS_KEY_ID": s3.ACCESS_KEY_ID,
                "AWS_SECRET_ACCESS_KEY": s3.SECRET_ACCESS_KEY,
                "AWS_REGION": s3.REGION,
                "AWS_EC2_METADATA_DISABLED": "true",
                "SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS": broker.endpoint,
                "SAVEPOINTS_JARS": str(jars.spark_directory),
                _SPARK_OPTIONS: " ".join(one for one in options if one),
            }
            if not os.environ.get("JAVA_HOME"):
                environment["JAVA_HOME"] = str(java.home)
            world = cls(
                bootstrap_servers=broker.endpoint,
                s3_endpoint=s3_service.endpoint,
                spark_jars=jars.spark,
                directory=home,
                environment=environment,
                _services=tuple(services),
                _cleanup=ExitStack(),
            )
            if detach:
                world._leave_running()
                cleanup.pop_all()
            else:
                if directory is None:
                    world._cleanup.callback(shutil.rmtree, home)
                world._cleanup.push(cleanup.pop_all())
        return world

    @staticmethod
    def stop_detached(directory: Path) -> None:
        """Stop the world that was started in a directory with `detach`."""
        file = directory / _FILE
        if not file.is_file():
            message = f"no servers were left running in {directory}: the file {_FILE} is missing"
            raise NotFoundError(message, hint="pass the directory that has their logs and data")
        for name, pid in json.loads(file.read_text())["processes"].items():
            stop_detached(name, pid, directory)
        file.unlink()

    def create_bucket(self, name: str) -> None:
        """Create a bucket on the S3 server."""
        s3.create_bucket(self.s3_endpoint, name)

    def check(self) -> None:
        """Make sure that every service still runs."""
        for service in self._services:
            service.check()

    def stop(self) -> None:
        """Stop the services. Does nothing the second time, or if they are detached."""
        self._cleanup.close()

    def __enter__(self) -> LocalWorld:
        """Return the world itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the services."""
        self.stop()

    def _leave_running(self) -> None:
        content = {
            "schema_version": 1,
            "bootstrap_servers": self.bootstrap_servers,
            "s3_endpoint": self.s3_endpoint,
            "environment": self.environment,
            "processes": {service.name: service.pid for service in self._services},
        }
        (self.directory / _FILE).write_text(json.dumps(content, indent=2) + "\n")
        for service in self._services:
            service.let_go()
