"""Verbs that need no JVM, with checkpoint, store and table on HDFS; see `tests.hdfs`."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys

import pytest

from savepoints.errors import CredentialsError, SavepointsError, TargetExistsError, UnreachableError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local.service import free_ports
from tests.operations import native_story

pytestmark = pytest.mark.nightly

_COUNTERS, _STEPS = 3, 8


@pytest.mark.parametrize("sample", ["rocksdb", "hdfs"])
def test_a_query_is_rolled_back_with_its_table_verified_and_copied(
    on_hdfs: Location, on_local: Location, sample: str
) -> None:
    native_story.require_exact(on_hdfs, on_local, sample)


def test_a_further_savepoint_shares_what_did_not_change(on_hdfs: Location) -> None:
    native_story.require_files_shared(on_hdfs)

    store = Store.at(str(on_hdfs / "store"))
    with pytest.raises(TargetExistsError):
        store.savepoint("latest", query="totals").restore(str(on_hdfs / "live"))


def count(directory: str, steps: int) -> None:
    """Add one to a number in a file, so many times, against all who do the same."""
    place = Location.of(directory)
    for _ in range(steps):
        while True:
            data, etag = place.get_version("number")
            try:
                # With who wrote it: no two write the same bytes, as `replace` asks.
                number = int(data.split()[0]) + 1
                place.replace("number", f"{number} {os.getpid()}".encode(), etag)
                break
            except FileExistsError:
                continue


def test_of_many_processes_that_replace_a_file_none_overwrites_what_it_has_not_read(
    on_hdfs: Location,
) -> None:
    on_hdfs.create("number", b"0 nobody")
    spawning = multiprocessing.get_context("spawn")
    processes = [
        spawning.Process(target=count, args=(str(on_hdfs), _STEPS)) for _ in range(_COUNTERS)
    ]
    for one in processes:
        one.start()
    for one in processes:
        one.join()

    assert [one.exitcode for one in processes] == [0] * _COUNTERS
    assert int(on_hdfs.get("number").split()[0]) == _COUNTERS * _STEPS
    assert [one.path for one in on_hdfs.list()] == ["number"]


def test_a_writer_that_is_slow_at_the_worst_moment_does_not_overwrite_a_faster_one(
    on_hdfs: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow one has read the tag, and is about to rename, when the other does all of it."""
    from hdfs_native import Client

    tag, rename = on_hdfs.create("number", b"0"), Client.rename

    def overtaken(self: Client, source: str, target: str, *, overwrite: bool) -> None:
        monkeypatch.setattr(Client, "rename", rename)
        on_hdfs.replace("number", b"faster", tag)
        rename(self, source, target, overwrite=overwrite)

    monkeypatch.setattr(Client, "rename", overtaken)
    with pytest.raises(FileExistsError):
        on_hdfs.replace("number", b"slow", tag)

    assert on_hdfs.get("number") == b"faster"


_KILLED = """
import os, signal, sys
from hdfs_native import Client
from savepoints.io import Location
Client.rename = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
place = Location.of(sys.argv[1])
place.replace("number", b"1", place.get_version("number")[1])
"""


def test_what_a_killed_writer_left_is_in_nobodys_way_and_goes(on_hdfs: Location) -> None:
    from hdfs_native import Client

    tag = on_hdfs.create("number", b"0")
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(on_hdfs)], check=False)
    assert killed.returncode == -9
    client = Client(f"hdfs://{on_hdfs.uri.bucket}")
    assert len(list(client.list_status(f"/{on_hdfs.uri.path}"))) == 2, "the killed one left a file"
    assert [one.path for one in on_hdfs.list()] == ["number"]
    assert on_hdfs.get("number") == b"0"

    on_hdfs.replace("number", b"2", tag)

    assert on_hdfs.get("number") == b"2"
    assert len(list(client.list_status(f"/{on_hdfs.uri.path}"))) == 1


def test_what_is_denied_or_not_there_is_named(on_hdfs: Location) -> None:
    from hdfs_native import Client

    Client(f"hdfs://{on_hdfs.uri.bucket}").mkdirs(f"/{on_hdfs.uri.path}", 0o700, create_parent=True)
    script = f"from savepoints.io import Location; Location.of({str(on_hdfs)!r}).put('a', b'1')"
    other = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "HADOOP_USER_NAME": "other"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert CredentialsError.__name__ in other.stderr
    assert "Permission denied: user=other" in other.stderr
    assert "\tat org.apache" not in other.stderr, "nobody reads Java's stack"

    (port,) = free_ports(1)
    with pytest.raises(UnreachableError, match="Connection refused") as refused:
        Location.of(f"hdfs://127.0.0.1:{port}/x").get("a")
    assert "NameNode" in refused.value.hint
    with pytest.raises(UnreachableError, match="No NameNode"):
        Location.of("hdfs://a-service-nobody-knows/x").get("a")
    with pytest.raises(SavepointsError, match="Invalid path name"):
        on_hdfs.put("a:b", b"1")
