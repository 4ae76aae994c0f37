"""The local world: it works, and nothing is left of it afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from savepoints.errors import NotFoundError, TargetExistsError
from savepoints.local import LocalWorld

pytestmark = [pytest.mark.kafka, pytest.mark.drawn(3)]

ROOT = Path(__file__).parents[2]
DEADLINE_SECONDS = 60.0

PARENT = """
import json, sys
from savepoints.local import LocalWorld
with LocalWorld.start() as world:
    print(json.dumps({"directory": str(world.directory)}), flush=True)
    sys.stdin.readline()
    if sys.argv[1] == "raise":
        raise ZeroDivisionError
"""


def process_table() -> dict[int, int]:
    """Return the parent of each process that runs; zombies do not run."""
    if Path("/proc/self/stat").exists():  # small images have no ps
        rows = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # ended meanwhile
                # The kernel cuts names after 15 bytes, in the midst of a letter, too.
                pid, rest = stat.read_text("utf-8", errors="replace").split(" ", 1)
                state, parent = rest.rpartition(")")[2].split()[:2]
                rows.append((pid, parent, state))
    else:
        command = ["ps", "-A", "-o", "pid=,ppid=,stat="]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [(pid, parent, state) for pid, parent, state in map(str.split, output.splitlines())]
    return {int(pid): int(parent) for pid, parent, state in rows if not state.startswith("Z")}


def descendants(pid: int) -> set[int]:
    """Return every process that a process has started, directly or not."""
    table = process_table()
    found: set[int] = set()
    while more := {child for child, parent in table.items() if parent in found | {pid}} - found:
        found |= more
    return found


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.05)


@contextmanager
def parent_of_a_world(how: str) -> Iterator[tuple[subprocess.Popen[str], set[int], Path]]:
    """Start a process that starts a world; yield it, the processes below it, and the directory."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, how],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        line = parent.stdout.readline()
        assert line, "the world did not start"
        directory = Path(json.loads(line)["directory"])
        below = descendants(parent.pid)
        assert len(below) >= 4, "two services, each with a guard"
        try:
            yield parent, below, directory
        finally:
            # What a failed test left behind, so that it fails in place of hanging.
            for pid in (below | {parent.pid}) & process_table().keys():
                os.kill(pid, signal.SIGKILL)
            shutil.rmtree(directory, ignore_errors=True)


def s3_client(world: LocalWorld) -> Any:
    """Return a client as the environment of the world makes it."""
    return boto3.client(
        "s3",
        endpoint_url=world.environment["AWS_ENDPOINT_URL"],
        region_name=world.environment["AWS_REGION"],
        aws_access_key_id=world.environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=world.environment["AWS_SECRET_ACCESS_KEY"],
    )


@pytest.fixture
def bucket(world: LocalWorld) -> str:
    name = f"bucket-{uuid.uuid4().hex}"
    world.create_bucket(name)
    return name


@pytest.fixture
def topic(world: LocalWorld) -> str:
    """Create a topic with one partition and the records 0 to 9."""
    name = f"topic-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": world.bootstrap_servers})
    admin.create_topics([NewTopic(name, num_partitions=1)])[name].result(DEADLINE_SECONDS)
    producer = Producer({"bootstrap.servers": world.bootstrap_servers})
    for number in range(10):
        # As old as the orders that the demo replays.
        producer.produce(name, value=str(number), timestamp=852_076_800_000 + number)
    assert producer.flush(DEADLINE_SECONDS) == 0
    return name


@contextmanager
def consumer_of(world: LocalWorld) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": world.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def test_records_go_through_the_broker_in_order(world: LocalWorld, topic: str) -> None:
    with consumer_of(world) as consumer:
        consumer.subscribe([topic])
        messages = consumer.consume(10, timeout=DEADLINE_SECONDS)

    assert [message.value() for message in messages] == [b"%d" % number for number in range(10)]


def test_records_can_be_deleted(world: LocalWorld, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": world.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(DEADLINE_SECONDS)

    with consumer_of(world) as consumer:
        watermarks = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)

    assert watermarks == (4, 10)


def test_a_topic_that_was_not_created_does_not_exist(world: LocalWorld) -> None:
    name = f"topic-{uuid.uuid4().hex}"
    failures = []
    producer = Producer({"bootstrap.servers": world.bootstrap_servers, "message.timeout.ms": 3000})
    producer.produce(name, value="lost", on_delivery=lambda error, _message: failures.append(error))
    producer.flush(DEADLINE_SECONDS)

    assert failures[0] is not None
    assert (
        name
        not in AdminClient({"bootstrap.servers": world.bootstrap_servers})
        .list_topics(timeout=10)
        .topics
    )


def test_an_object_can_be_put_and_read(world: LocalWorld, bucket: str) -> None:
    client = s3_client(world)
    client.put_object(Bucket=bucket, Key="a/b", Body=b"content")

    assert client.get_object(Bucket=bucket, Key="a/b")["Body"].read() == b"content"


def test_creating_an_object_that_exists_is_refused(world: LocalWorld, bucket: str) -> None:
    client = s3_client(world)
    client.put_object(Bucket=bucket, Key="lease", Body=b"first", IfNoneMatch="*")

    with pytest.raises(ClientError) as raised:
        client.put_object(Bucket=bucket, Key="lease", Body=b"second", IfNoneMatch="*")

    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 412
    assert client.get_object(Bucket=bucket, Key="lease")["Body"].read() == b"first"


def test_many_objects_at_once(world: LocalWorld, bucket: str) -> None:
    client = s3_client(world)

    def round_trip(number: int) -> bool:
        body = number.to_bytes(4, "big") * 10_000
        client.put_object(Bucket=bucket, Key=f"{number}", Body=body)
        return bool(client.get_object(Bucket=bucket, Key=f"{number}")["Body"].read() == body)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(round_trip, range(200)))


def test_a_client_that_asks_before_it_sends_is_told_to_go_on_once(
    world: LocalWorld, bucket: str
) -> None:
    host, port = world.s3_endpoint.removeprefix("http://").split(":")
    request = (
        f"PUT /{bucket}/k HTTP/1.1\r\nHost: {host}\r\nContent-Length: 3\r\n"
        "Expect: 100-continue\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(request.encode())
        with connection.makefile("rb") as reader:
            assert reader.readline().startswith(b"HTTP/1.1 100")
            connection.sendall(b"abc")
            assert reader.readline() == b"\r\n"
            assert reader.readline().startswith(b"HTTP/1.1 200")


def test_the_jars_are_there(world: LocalWorld) -> None:
    assert len(world.spark_jars) == 84
    assert {jar.parent for jar in world.spark_jars} == {Path(world.environment["SAVEPOINTS_JARS"])}


@pytest.mark.parametrize("how", ["return", pytest.param("raise", marks=pytest.mark.nightly)])
def test_nothing_is_left_after_the_end(how: str) -> None:
    with parent_of_a_world(how) as (parent, below, directory):
        assert directory.is_dir()
        parent.communicate("\n", timeout=DEADLINE_SECONDS)

        # No waiting: when the block has ended, they are gone.
        assert not below & process_table().keys()
        assert not directory.exists()
        assert parent.returncode == (1 if how == "raise" else 0)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, marks=pytest.mark.nightly),
    ],
)
def test_nothing_is_left_after_a_signal(number: signal.Signals) -> None:
    with parent_of_a_world("signal") as (parent, below, _directory):
        parent.send_signal(number)
        parent.wait(DEADLINE_SECONDS)

        wait_until(lambda: not below & process_table().keys(), f"{below} to end")


def test_a_detached_world_stays_until_it_is_stopped(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from savepoints.local import LocalWorld;"
        "LocalWorld.start(pathlib.Path(sys.argv[1]), detach=True)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, check=True)
    try:
        content = json.loads((tmp_path / "world.json").read_text())
        pids = set(content["processes"].values())
        assert len(pids) == 2
        assert pids <= process_table().keys()
        admin = AdminClient({"bootstrap.servers": content["bootstrap_servers"]})
        assert admin.list_topics(timeout=30).brokers
        with pytest.raises(TargetExistsError, match=str(tmp_path)):
            LocalWorld.start(tmp_path)
    finally:
        LocalWorld.stop_detached(tmp_path)

    assert not pids & process_table().keys()
    with pytest.raises(NotFoundError):
        LocalWorld.stop_detached(tmp_path)


@pytest.mark.nightly
def test_the_command_prints_what_a_shell_needs(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "savepoints.local", "up", "--directory", str(tmp_path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as up:
        assert up.stdout is not None
        lines = iter(up.stdout.readline, "")
        exports = []
        for line in lines:
            if line.startswith("#"):
                break
            exports.append(line)
        below = descendants(up.pid)
        up.send_signal(signal.SIGINT)
        assert up.wait(DEADLINE_SECONDS) == 0

    assert "export AWS_REGION=us-east-1\n" in exports
    assert all(line.startswith("export ") for line in exports)
    assert len(below) >= 4
    assert not below & process_table().keys()
    assert (tmp_path / "broker.log").is_file()
