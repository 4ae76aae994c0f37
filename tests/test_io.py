"""Places and bytes: one contract for the local file system and S3."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints import aws
from savepoints.errors import (
    CredentialsError,
    IncompatibleError,
    MissingExtraError,
    SavepointsError,
    StoreNotFoundError,
    UsageError,
)
from savepoints.io import Location, in_parallel, storage_options
from savepoints.spark.session import s3a_conf
from savepoints.spark.versions import SparkVersion
from savepoints.uri import Uri
from tests import second_s3
from tests.denied import denied
from tests.faults import s3_proxy
from tests.faults.s3_proxy import Fault, proxy_of

# Here the differences between the kinds of store are the point.
pytestmark = pytest.mark.s3

place = second_s3.place

AZURE = "lake@account1.dfs.core.windows.net"
# Names that Spark, Delta and people use.
NAMES = [
    "plain",
    "a/b/c.txt",
    "k=a%20b/x",
    "sp ace",
    "50%",
    "ümlaut",
    "a+b=c",
    "x#y",
    "_under",
    "q?",
]


@pytest.mark.parametrize(
    ("text", "uri", "written"),
    [
        ("s3://b/p/q", Uri("s3", "b", "p/q"), "s3://b/p/q"),
        ("s3a://b/p/q/", Uri("s3", "b", "p/q"), "s3://b/p/q"),
        ("s3n://b//p", Uri("s3", "b", "p"), "s3://b/p"),
        ("s3://b", Uri("s3", "b", ""), "s3://b/"),
        ("/a/b", Uri("file", "", "a/b"), "/a/b"),
        ("file:/a/b", Uri("file", "", "a/b"), "/a/b"),
        ("file:///a/b", Uri("file", "", "a/b"), "/a/b"),
        (f"abfss://{AZURE}/p/q", Uri("abfss", AZURE, "p/q"), f"abfss://{AZURE}/p/q"),
        (f"abfs://{AZURE}/p", Uri("abfss", AZURE, "p"), f"abfss://{AZURE}/p"),
        ("hdfs://node-1:8020/p/q", Uri("hdfs", "node-1:8020", "p/q"), "hdfs://node-1:8020/p/q"),
        ("hdfs://service/p", Uri("hdfs", "service", "p"), "hdfs://service/p"),
    ],
)
def test_a_uri_is_read(text: str, uri: Uri, written: str) -> None:
    assert Uri.parse(text) == uri
    assert str(uri) == written
    assert Uri.parse(str(uri)) == Uri.parse(uri.hadoop) == uri


def test_a_relative_path_is_below_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert str(Uri.parse("a/b")) == f"{tmp_path}/a/b"


def test_hadoop_gets_its_own_names() -> None:
    assert Uri.parse("s3://b/p").hadoop == "s3a://b/p"
    assert Uri.parse("s3://b/p").for_spark == "s3a://b/p"
    assert Uri.parse("/data/p").for_spark == "/data/p"
    assert Uri.parse("/p").hadoop == "file:/p"


@pytest.mark.parametrize("text", ["", " "])
def test_trap_an_empty_uri_is_the_working_directory(text: str) -> None:
    """As a variable that is not set leaves it; a container forgets what is there."""
    with pytest.raises(UsageError, match="location is empty"):
        Location.of(text)


@pytest.mark.parametrize("text", ["s3://", "s3:///p", "s3a://", "s3://b/../c", "s3://b/./c"])
def test_a_uri_without_bucket_or_with_dots_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Uri.parse(text)


@pytest.mark.parametrize("text", ["gs://b/p", "viewfs://h/p", "dbfs://p", "S3://b", "http://h/p"])
def test_another_scheme_is_refused_and_named(text: str) -> None:
    with pytest.raises(IncompatibleError, match=text) as refused:
        Uri.parse(text)

    assert "s3://" in refused.value.hint


PART = st.text("abz09-_.=%", min_size=1, max_size=5).filter(lambda part: part not in {".", ".."})


@given(st.lists(PART, max_size=4), PART)
def test_a_child_is_below_its_parent(parts: list[str], child: str) -> None:
    parent = Uri.parse("s3://b/" + "/".join(parts))

    assert Uri.parse(str(parent / child)) == parent / child
    assert (parent / child).path.split("/") == [*parts, child]


def test_what_is_written_is_read(place: Location) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)

    for name in NAMES:
        place.put(name, name.encode())

    assert [info.path for info in place.list()] == sorted(NAMES)
    for name in NAMES:
        assert place.get(name) == name.encode()
        assert place.exists(name)
        info = place.head(name)
        assert (info.path, info.size) == (name, len(name.encode()))
        assert before <= info.last_modified <= datetime.now(UTC) + timedelta(seconds=2)
    assert place.list() == [place.head(name) for name in sorted(NAMES)]


def test_writing_again_replaces(place: Location) -> None:
    place.put("a", b"first")
    first = place.head("a").etag
    place.put("a", b"second!")

    assert place.get("a") == b"second!"
    assert place.head("a").etag not in {"", first}


def test_a_missing_file_is_a_file_not_found_error_that_names_it(place: Location) -> None:
    for ask in (place.get, place.head, place.sha256):
        with pytest.raises(FileNotFoundError, match="a/missing"):
            ask("a/missing")
    assert not place.exists("a/missing")
    with pytest.raises(FileNotFoundError, match="a/missing"):
        place.copy_from(place, "a/missing", "b")


def test_a_directory_is_listed_by_whole_names(place: Location) -> None:
    for name in ("a/1", "a/b/2", "ab/3", "a.txt"):
        place.put(name, b"x")

    assert [info.path for info in place.list("a")] == ["a/1", "a/b/2"]
    assert [info.path for info in (place / "a").list()] == ["1", "b/2"]
    assert place.list("nothing") == []
    assert (place / "nothing").list() == []


def test_markers_of_directories_are_not_listed(place: Location) -> None:
    place.put("a/1", b"x")
    place.put("marker", b"")

    assert [info.path for info in place.list()] == ["a/1"]


def test_a_document_that_was_emptied_is_listed(place: Location) -> None:
    for name in ("a/1.json", "a/1.checkpoint.parquet"):
        place.put(name, b"")

    assert [info.path for info in place.list()] == ["a/1.checkpoint.parquet", "a/1.json"]


def test_only_the_first_creates(place: Location) -> None:
    tag = place.create("lease", b"first")

    with pytest.raises(FileExistsError):
        place.create("lease", b"second")

    assert place.get("lease") == b"first"
    assert place.head("lease").etag == tag


def test_of_many_that_create_at_once_one_does(place: Location) -> None:
    def create(number: int) -> bool:
        try:
            place.create("lease", str(number).encode())
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))

    assert won.count(True) == 1
    assert place.get("lease") == str(won.index(True)).encode()


def test_a_file_is_replaced_only_over_the_version_that_was_seen(place: Location) -> None:
    first = place.create("lease", b"1")
    second = place.replace("lease", b"2", first)

    with pytest.raises(FileExistsError):
        place.replace("lease", b"3", first)

    assert place.get("lease") == b"2"
    assert place.head("lease").etag == second != first


def test_of_many_that_replace_at_once_one_does(place: Location) -> None:
    tag = place.create("lease", b"-")

    def replace(number: int) -> bool:
        try:
            place.replace("lease", str(number).encode(), tag)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(replace, range(8)))

    assert won.count(True) == 1
    assert place.get("lease") == str(won.index(True)).encode()


def test_a_file_that_was_removed_is_not_replaced(place: Location) -> None:
    tag = place.create("lease", b"1")
    place.delete(["lease"])

    with pytest.raises((FileExistsError, FileNotFoundError)):
        place.replace("lease", b"2", tag)

    assert not place.exists("lease")


def test_deleting_is_no_error_when_there_is_nothing(place: Location) -> None:
    place.put("a", b"x")

    place.delete(["a", "b", "c/d"])

    assert place.list() == []


def test_a_copy_has_the_same_bytes_and_outlives_the_original(place: Location) -> None:
    place.put("a/original", b"data")

    (place / "b").copy_from(place / "a", "original", "copy")
    place.delete(["a/original"])

    assert place.get("b/copy") == b"data"


def test_a_copy_replaces_what_is_there(place: Location) -> None:
    place.put("a", b"new")
    place.put("b", b"old")

    place.copy_from(place, "a", "b")

    assert place.get("b") == b"new"


def test_a_copy_between_systems_has_the_same_bytes(on_local: Location, on_s3: Location) -> None:
    data = bytes(range(256)) * 5000
    on_local.put("a", data)

    on_s3.copy_from(on_local, "a", "b")
    on_local.copy_from(on_s3, "b", "c")

    assert on_s3.get("b") == on_local.get("c") == data
    for there, here in ((on_local, on_s3), (on_s3, on_local)):
        with pytest.raises(FileNotFoundError, match="missing"):
            here.copy_from(there, "missing", "x")


def test_trap_no_hard_link_reaches_another_mount(
    on_local: Location, on_other_mount: Location
) -> None:
    on_local.put("a", b"data")

    on_other_mount.copy_from(on_local, "a", "b/c")
    on_local.copy_from(on_other_mount, "b/c", "d")

    assert on_other_mount.get("b/c") == on_local.get("d") == b"data"
    with pytest.raises(FileNotFoundError, match="missing"):
        on_other_mount.copy_from(on_local, "missing", "x")


def test_trap_a_copy_that_cannot_be_written_blames_the_file_that_is_read(
    on_local: Location, on_other_mount: Location
) -> None:
    """Of two disks, the one that is full was not named."""
    on_local.put("a", b"data")
    on_other_mount.put("b/c", b"in a directory that a file cannot replace")

    with pytest.raises(SavepointsError, match=rf"^{on_other_mount}/b cannot be read or written"):
        on_other_mount.copy_from(on_local, "a", "b")


def test_trap_s3_copies_no_file_of_more_than_5_gib(
    on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it says so of any file."""
    on_s3.put("a", b"data")
    said = "InvalidRequest</Code><Message>The specified copy source is larger than the maximum "
    said += "allowable size for a copy source: 5368709120</Message><Code>"

    with denied(s3_endpoint, lambda _method, _path, copies: copies, 400, said) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        on_s3.copy_from(on_s3, "a", "b")

        assert on_s3.get("b") == b"data"


def test_trap_a_full_disk_of_temporary_files_is_blamed_on_the_store(
    on_s3: Location, on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_s3.put("a", b"data" * 10_000)

    def full(*_: object, **__: object) -> IO[bytes]:
        return Path("/dev/full").open("wb")

    monkeypatch.setattr("savepoints.io.TemporaryFile", full)

    with pytest.raises(SavepointsError, match="No space left on device") as refused:
        on_local.copy_from(on_s3, "a", "b")

    assert "TMPDIR" in refused.value.hint


def test_a_local_copy_takes_no_space(on_local: Location, tmp_path: Path) -> None:
    on_local.put("a", b"data")
    on_local.copy_from(on_local, "a", "b")

    first, second = (Path(f"{on_local}/{name}") for name in "ab")
    assert first.stat().st_ino == second.stat().st_ino


def test_writing_over_a_local_copy_leaves_the_original(on_local: Location) -> None:
    on_local.put("a", b"data")
    on_local.copy_from(on_local, "a", "b")
    on_local.put("b", b"other")

    assert on_local.get("a") == b"data"


@given(size=st.integers(1, 3_000_000))
def test_a_checksum_is_that_of_all_bytes(
    size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = Location.of(str(tmp_path_factory.getbasetemp() / "checksums"))
    data = (size.to_bytes(4, "big") * (size // 4 + 1))[:size]
    place.put("a", data)

    assert place.sha256("a") == hashlib.sha256(data).hexdigest()


def test_a_checksum_of_a_file_on_s3_is_that_of_all_bytes(on_s3: Location) -> None:
    data = bytes(range(256)) * 20_000
    on_s3.put("a", data)

    assert on_s3.sha256("a") == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x"])
def test_a_path_does_not_leave_its_place(path: str, on_local: Location) -> None:
    for ask in (on_local.get, on_local.head, on_local.sha256):
        with pytest.raises(UsageError):
            ask(path)
    with pytest.raises(UsageError):
        on_local.put(path, b"x")


def test_a_bucket_that_does_not_exist_is_not_found(s3_environment: None) -> None:
    nowhere = Location.of("s3://there-is-no-such-bucket/x")

    for ask in (
        nowhere.list,
        lambda: nowhere.get("a"),
        lambda: nowhere.put("a", b"x"),
    ):
        with pytest.raises(StoreNotFoundError, match="there-is-no-such-bucket") as refused:
            ask()
        assert "aws s3 mb" in refused.value.hint


def test_without_credentials_s3_is_refused(
    monkeypatch: pytest.MonkeyPatch, s3_environment: None, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(CredentialsError):
        Location.of("s3://another-bucket/x").get("a")


def test_a_server_that_is_down_is_an_error_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, s3_environment: None
) -> None:
    from savepoints.local.service import free_ports

    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_ports(1)[0]}")

    with pytest.raises(SavepointsError, match="s3://b/x") as refused:
        Location.of("s3://b/x").list()

    assert "AWS_ENDPOINT_URL" in refused.value.hint


def test_an_endpoint_is_set_once_for_all(
    monkeypatch: pytest.MonkeyPatch, s3_environment: None, s3_endpoint: str
) -> None:
    options = storage_options(Uri.parse("s3a://b/p"))

    assert options["aws_endpoint"] == s3_endpoint
    assert options["allow_http"] == "true"
    assert options["aws_region"] == "us-east-1"
    assert storage_options(Uri.parse("/p")) == {}


@pytest.mark.parametrize(
    ("given", "region"),
    [
        ({"AWS_REGION": "eu-west-1"}, "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "eu-north-1"}, "eu-north-1"),
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-north-1"}, "eu-west-1"),
        ({}, "us-east-1"),
    ],
    ids=["AWS_REGION", "AWS_DEFAULT_REGION", "both", "none"],
)
def test_trap_boto3_does_not_read_aws_region(
    given: dict[str, str],
    region: str,
    monkeypatch: pytest.MonkeyPatch,
    s3_environment: None,
    tmp_path: Path,
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))

    assert storage_options(Uri.parse("s3://b/p"))["aws_region"] == region


def test_trap_a_region_beside_the_keys_is_that_of_the_profile(
    monkeypatch: pytest.MonkeyPatch, s3_environment: None, tmp_path: Path
) -> None:
    """Files of keys may name a region, too, where there is no other file of profiles."""
    (tmp_path / "credentials").write_text("[default]\nregion = eu-north-1\n")
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))

    assert storage_options(Uri.parse("s3://b/p"))["aws_region"] == "eu-north-1"


def test_a_changed_s3_endpoint_is_used(
    monkeypatch: pytest.MonkeyPatch, bucket: str, s3_endpoint: str
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    with pytest.raises(SavepointsError):
        Location.of(f"s3://{bucket}").list()

    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_endpoint)

    assert Location.of(f"s3://{bucket}").list() == []


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ("[profile ceph]\nregion = eu-north-1\nendpoint_url = {here}\n", True),
        ("[profile ceph]\nservices = own\n[services own]\ns3 =\n  endpoint_url = {here}\n", True),
        ("[profile ceph]\nendpoint_url = {here}\nignore_configured_endpoint_urls = true\n", False),
        ("[default]\nendpoint_url = {here}\n[profile ceph]\nregion = eu-north-1\n", False),
    ],
)
def test_trap_a_profile_that_names_its_endpoint_was_taken_for_amazons(
    config: str,
    found: bool,
    monkeypatch: pytest.MonkeyPatch,
    bucket: str,
    s3_endpoint: str,
    tmp_path: Path,
) -> None:
    """The keys of the server there went to Amazon, which does not know them."""
    (tmp_path / "config").write_text(config.format(here=s3_endpoint))
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "ceph")

    assert aws.endpoint() == (s3_endpoint if found else None)
    assert aws.region() == ("eu-north-1" if "region" in config else None)
    if found:
        Location.of(f"s3://{bucket}").put("a", b"1")
        assert Location.of(f"s3://{bucket}").get("a") == b"1"
        conf = s3a_conf(SparkVersion.of("4.0.1"))
        assert conf["spark.hadoop.fs.s3a.endpoint"] == s3_endpoint


def test_results_come_in_the_order_of_the_items() -> None:
    assert in_parallel(lambda item: item * 2, list(range(50))) == list(range(0, 100, 2))
    assert in_parallel(lambda item: item, []) == []


def test_an_error_of_one_item_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        in_parallel(lambda item: 1 // item, [1, 0])


@pytest.mark.parametrize(
    "text",
    [
        "abfss://lake/path",
        "abfss://lake@account1/path",
        "abfss://lake@account1.dfs.core.chinacloudapi.cn/path",
        "abfss://me:very-secret@account1.dfs.core.windows.net/path",
    ],
)
def test_a_uri_of_azure_names_container_and_account(text: str) -> None:
    with pytest.raises(UsageError, match="does not name a container and an account") as refused:
        Uri.parse(text)

    assert "very-secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["hdfs:///user/me/store", "hdfs://me:very-secret@node-1:8020/x"])
def test_a_uri_of_hdfs_names_a_name_node(text: str) -> None:
    with pytest.raises(UsageError, match="does not name a NameNode") as refused:
        Uri.parse(text)

    assert "fs.defaultFS" in refused.value.hint
    assert "very-secret" not in str(refused.value)


def test_without_hdfs_native_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)

    with pytest.raises(MissingExtraError, match="hdfs-native is not installed") as refused:
        Location.of("hdfs://a-node-nobody-asked/x").get("a")

    assert "savepoints[hdfs]" in refused.value.hint


@pytest.mark.nightly
def test_trap_a_large_file_takes_longer_than_half_a_minute(
    on_s3: Location, on_local: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 50 MB a second that is one of 1.5 GB; obstore gives up a request after that time."""
    monkeypatch.setattr(s3_proxy, "_SLOW_SECONDS", 31)
    data = b"large" * 1000
    on_s3.put("large", data)
    acts: list[Callable[[], object]] = [
        lambda: on_s3.get("large"),
        lambda: on_s3.sha256("large"),
        lambda: on_local.copy_from(on_s3, "large", "copy"),
        lambda: on_s3.copy_from(on_s3, "large", "copy"),
    ]

    def call(act: Callable[[], object]) -> object:
        return act()

    with proxy_of(s3_endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        with proxy.faults(lambda one: Fault.SLOW if one.method in {"GET", "PUT"} else None):
            got, digest, *_ = in_parallel(call, acts)

    assert got == on_local.get("copy") == on_s3.get("copy") == data
    assert digest == hashlib.sha256(data).hexdigest()


def test_trap_a_process_that_was_forked_from_one_with_a_store_waits_for_ever(
    tmp_path: Path,
) -> None:
    """The threads that do what obstore is asked for are not forked with it."""
    code = f"""
import multiprocessing
from savepoints.io import Location

place = Location.of({str(tmp_path)!r})

def read():
    try:
        print(place.get("a"), flush=True)
    except Exception as error:
        print(f"{{type(error).__name__}}: {{error}}", flush=True)

for opened_before in (False, True):
    if opened_before:
        place.put("a", b"1")
    child = multiprocessing.get_context("fork").Process(target=read)
    child.start()
    child.join(timeout=20)
    child.kill()
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    first, second = done.stdout.split("EnvironmentUnfitError: ")
    assert first.startswith("FileNotFoundError")
    assert "it was forked from process" in second
    assert "get_context('spawn')" in second
