"""Fixtures for all tests."""

from __future__ import annotations

import gc
import logging
import os
import tempfile
import uuid
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import hypothesis
import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld, s3
from savepoints.local.service import Service
from tests import azure, draw, hdfs, second_s3, spark_session
from tests.fidelity import local_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.sources.broker import Broker

# A machine that does other things too is slow now and then; pytest's own timeout is enough. What
# failed is printed as something that can be pasted.
hypothesis.settings.register_profile("change", deadline=None, max_examples=25, print_blob=True)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=200, print_blob=True)
hypothesis.settings.load_profile("nightly" if draw.NIGHTLY else "change")


def on_s3_only_in_full(item: pytest.Item) -> bool:
    """Whether a test is one that runs in a `place` on S3 too, where S3 is not the point.

    All code reaches files through `savepoints.io` and deltalake, the same on both kinds of store.
    So each kind of thing that is different on S3 (a conditional write, a copy by the server, a
    listing, several writers) and most verbs have tests with the marker `s3`, which run there each
    time; the others do so with `-m nightly`, and on the local file system each time.
    """
    case = getattr(item, "callspec", None)
    where = case.params.get("place") if case else None
    return where == "s3" and item.get_closest_marker("s3") is None


def not_drawn(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return what the seed leaves to the night of modules with the marker `drawn`.

    Of the tests of such a module one in so many runs on each change, and what is known to go wrong,
    which has `trap` in its name, each time. Where some need a JVM the others run each time, too.
    """
    modules: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("drawn"):
            modules.setdefault(item.path, []).append(item)
    left = []
    for path, tests in modules.items():
        dear = list(filter(needs_jvm, tests)) or tests
        drawn = [one for one in dear if "trap" not in one.name and not is_nightly(one)]
        one_in = next(tests[0].iter_markers("drawn")).args[0]
        left += draw.chance(path.name).sample(drawn, len(drawn) - ceil(len(drawn) / one_in))
    return left


def needs_jvm(item: pytest.Item) -> bool:
    return any(map(item.get_closest_marker, ("spark", "kafka")))


def is_nightly(item: pytest.Item) -> bool:
    return item.get_closest_marker("nightly") is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a part of the nightly tier be one of several of about the same size."""
    parser.addoption("--shard", metavar="K/N", help="run the K-th of N parts of what is chosen")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep Python from looking through thousands of tests for garbage, now and again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_report_header() -> str:
    """Say what was drawn by, so that it can be drawn again."""
    return f"drawn by {draw.SEED}={draw.seed()}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Say what is for the night before `-m` chooses, and keep one part where parts are asked for.

    What belongs into one group of pytest-xdist belongs into one part.
    """
    for item in filter(on_s3_only_in_full, items):
        item.add_marker(pytest.mark.nightly)
    for item in not_drawn(items):
        item.add_marker(pytest.mark.nightly)
    if shard := config.getoption("--shard"):
        part, parts = map(int, shard.split("/"))
        items[:] = [one for one in items if crc32(_group(one).encode()) % parts == part - 1]


def _group(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return marker.args[0] if marker else item.nodeid


@pytest.fixture(scope="session")
def world() -> Iterator[LocalWorld]:
    """Broker and S3 server for the whole session; each worker of pytest-xdist has its own.

    Topics and buckets stay until the end, so name them uniquely.
    """
    with LocalWorld.start() as started:
        yield started


@pytest.fixture(scope="session")
def spark(world: LocalWorld) -> Iterator[SparkSession]:
    """Start the one small Spark session of the test run, with S3A bound to the local world."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in world.environment.items():
            patch.setenv(name, value)
        started = spark_session.start()
    local_files.make_cheap(started)
    yield started
    started.stop()


@pytest.fixture
def world_environment(world: LocalWorld, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Set what a process needs to use the local world, for this test and its child processes."""
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    return world.environment


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URL of an S3 server without the rest of the world, so without a JVM."""
    directory = tmp_path_factory.mktemp("s3")
    with _serving(Service("s3", s3.prepare_s3, directory, detach=False)) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def s3_bucket(s3_endpoint: str) -> str:
    """Make one bucket for the session, in which each test has a directory of its own."""
    s3.create_bucket(s3_endpoint, "tests")
    return "tests"


@pytest.fixture
def s3_environment(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set AWS' variables for this test and its child processes, and no others of AWS."""
    use_s3(s3_endpoint, monkeypatch)


def use_s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set AWS' variables for a server, and no others of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": s3.ACCESS_KEY_ID,
        "AWS_SECRET_ACCESS_KEY": s3.SECRET_ACCESS_KEY,
        "AWS_REGION": s3.REGION,
        "AWS_DEFAULT_REGION": s3.REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)


@contextmanager
def _serving(service: Service) -> Iterator[str]:
    """Give the URL of a service that runs within."""
    try:
        service.wait_ready()
        yield service.endpoint
    finally:
        service.stop()


@pytest.fixture(scope="session")
def second_s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URL of the second S3 server, with a bucket `tests`."""
    directory = tmp_path_factory.mktemp("second-s3")
    launch = partial(second_s3.prepare, second_s3.install(), directory)
    with _serving(Service("versitygw", launch, directory, detach=False)) as endpoint:
        s3.create_bucket(endpoint, "tests")
        yield endpoint


@pytest.fixture
def broker(world: LocalWorld) -> Broker:
    """Give the broker of the local world."""
    from tests.sources.broker import Broker

    return Broker.of(world)


@pytest.fixture(scope="session")
def azure_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URL of an emulator of Azure's blob storage, with a container `tests`."""
    directory = tmp_path_factory.mktemp("azure")
    launch = partial(azure.prepare, azure.install(), directory)
    with _serving(Service("azurite", launch, directory, detach=False)) as endpoint:
        azure.make_container(endpoint)
        yield endpoint


@pytest.fixture(scope="session")
def name_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give host and port of the NameNode of an HDFS."""
    directory = tmp_path_factory.mktemp("hdfs")
    launch = partial(hdfs.name_node, directory)
    with _serving(Service("namenode", launch, directory, detach=False)) as address:
        launch = partial(hdfs.data_node, directory)
        with _serving(Service("datanode", launch, directory, detach=False)):
            yield address


@pytest.fixture
def bucket(s3_endpoint: str, s3_environment: None) -> str:
    """Make a fresh bucket for a test that deletes it or looks at all of it."""
    name = f"test-{uuid.uuid4().hex}"
    s3.create_bucket(s3_endpoint, name)
    return name


@pytest.fixture
def on_local(tmp_path: Path) -> Location:
    """Give an empty directory on the local file system."""
    directory = tmp_path / "place"
    directory.mkdir()
    return Location.of(str(directory))


@pytest.fixture
def on_other_mount(on_local: Location) -> Iterator[Location]:
    """Give an empty directory on another file system of this machine than `on_local` is on."""
    shared_memory = Path("/dev/shm")
    if shared_memory.stat().st_dev == Path(str(on_local)).stat().st_dev:
        pytest.skip("needs two file systems")
    with tempfile.TemporaryDirectory(dir=shared_memory) as directory:
        yield Location.of(directory)


@pytest.fixture
def on_s3(s3_bucket: str, s3_environment: None) -> Location:
    """Give an empty directory on S3."""
    return Location.of(f"s3://{s3_bucket}/{uuid.uuid4().hex}")


@pytest.fixture
def on_second_s3(second_s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Location:
    """Give an empty directory on the second S3 server; see `tests.second_s3`."""
    use_s3(second_s3_endpoint, monkeypatch)
    return Location.of(f"s3://tests/{uuid.uuid4().hex}")


@pytest.fixture
def on_azure(azure_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Location:
    """Give an empty directory on Azurite; see `tests.azure`."""
    azure.use(azure_endpoint, monkeypatch)
    host = f"{azure.CONTAINER}@{azure.ACCOUNT}.dfs.core.windows.net"
    return Location.of(f"abfss://{host}/{uuid.uuid4().hex}")


@pytest.fixture
def on_hdfs(name_node: str) -> Location:
    """Give an empty directory on HDFS; see `tests.hdfs`."""
    return Location.of(f"hdfs://{name_node}/{uuid.uuid4().hex}")


@pytest.fixture(params=["local", "s3"])
def place(request: pytest.FixtureRequest) -> Location:
    """Give an empty directory on each kind of store in turn; on S3 see `on_s3_only_in_full`."""
    found: Location = request.getfixturevalue(f"on_{request.param}")
    return found


@pytest.fixture
def store(place: Location) -> Store:
    """Give an empty savepoint store on each kind of store in turn."""
    root = place / "store"
    if root.uri.scheme == "file":
        Path(str(root)).mkdir()
    return Store.at(str(root)).make()


@pytest.fixture
def local_store(on_local: Location) -> Store:
    """Give an empty savepoint store on the local file system."""
    root = on_local / "store"
    Path(str(root)).mkdir()
    return Store.at(str(root)).make()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Leave the loggers as they were: commands and jobs write their log to this test's stderr."""
    root, ours = logging.getLogger(), logging.getLogger("savepoints")
    level, handlers, our_level = root.level, list(root.handlers), ours.level
    yield
    ours.setLevel(our_level)
    root.setLevel(level)
    root.handlers[:] = handlers
