"""A Kafka broker: Apache Kafka in KRaft mode, one process, started from its jars."""

from __future__ import annotations

import base64
import shutil
import socket
import string
import struct
import subprocess
import uuid
from functools import partial
from pathlib import Path

from savepoints.errors import EnvironmentUnfitError
from savepoints.local.jars import Jars, pyspark_directory
from savepoints.local.java import Java
from savepoints.local.service import Launch, free_ports

_RESOURCES = Path(__file__).parent / "resources" / "local"

# Kafka's own jars cannot write a log, as no backend for SLF4J is among them. PySpark's
# have one, with an SLF4J and a Log4j that fit it, and must come first on the class path.
_LOGGING_JARS = ("slf4j-api-*", "log4j-slf4j2-impl-*", "log4j-api-*", "log4j-core-*")

# The compiler that starts fast, and the collector that needs no threads of its own.
_FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

# Kind and version of the request; the version is the oldest whose answer names the cluster.
_METADATA = (3, 2)
_HEAD = struct.Struct(">ii")  # of an answer: which request it is for, and how many brokers
_ANSWER_SECONDS = 2.0


def prepare_broker(java: Java, jars: Jars, directory: Path) -> Launch:
    """Give a new, empty broker its ports, its configuration and its data directory."""
    port, controller_port = free_ports(2)
    data = directory / "broker-data"
    shutil.rmtree(data, ignore_errors=True)
    configuration = directory / "server.properties"
    template = string.Template((_RESOURCES / "server.properties").read_text())
    values = {"port": port, "controller_port": controller_port, "data_directory": data}
    configuration.write_text(template.substitute(values))
    # A new identity each time: whoever answers to it is this broker and no other.
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    run_java = (
        str(java.executable),
        *_FAST_START,
        "-Xmx512m",
        f"-Dlog4j2.configurationFile={_RESOURCES / 'log4j2.properties'}",
        *("-cp", _class_path(jars)),
    )
    _format(run_java, configuration, cluster_id)
    return Launch(
        command=(*run_java, "kafka.Kafka", str(configuration)),
        endpoint=f"127.0.0.1:{port}",
        is_ready=partial(_is_ready, port, cluster_id),
    )


def _class_path(jars: Jars) -> str:
    spark_jars = pyspark_directory() / "jars"
    logging_jars = (jar for name in _LOGGING_JARS for jar in spark_jars.glob(f"{name}.jar"))
    return ":".join(str(jar) for jar in (*logging_jars, *jars.kafka))


def _format(run_java: tuple[str, ...], configuration: Path, cluster_id: str) -> None:
    """Write what a broker must find in its data directory when it first starts."""
    done = subprocess.run(
        [
            *(*run_java, "kafka.tools.StorageTool", "format"),
            *(f"--cluster-id={cluster_id}", "--config", str(configuration)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        message = f"Kafka cannot format its data directory: {done.stdout.strip()}"
        raise EnvironmentUnfitError(message, hint=f"check {configuration}")


def _is_ready(port: int, cluster_id: str) -> bool:
    """Ask for the metadata of no topics: the answer lists the brokers that can be used."""
    client = b"savepoints"
    header = struct.pack(f">hhih{len(client)}s", *_METADATA, 1, len(client), client)
    request = header + struct.pack(">i", 0)
    with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as reader:
            size = int.from_bytes(reader.read(4), "big")
            answer = reader.read(size)
    if len(answer) < _HEAD.size:
        return False
    _, brokers = _HEAD.unpack_from(answer)
    return brokers > 0 and cluster_id.encode() in answer
