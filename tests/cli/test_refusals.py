"""What the command line refuses: exit code, message, hint, JSON; and nothing is written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.store.savepoint.manifest import manifest_path
from tests.samples import contents, savepoint, unpack
from tests.templates import first_of

pytestmark = pytest.mark.drawn(4)

# From conftest.py: the function that calls the command line.
Call = Any


def refused(call: Call, store: Store, *arguments: str) -> Any:
    """Call the command line twice, as text and as JSON, and see that nothing was written."""
    command = [*arguments, "--store", str(store.root)]
    before = contents(store.root)

    text, json = call(*command), call(*command, "-o", "json")

    assert contents(store.root) == before
    assert text.out == json.out == ""
    error = json.error
    assert json.err.count("\n") == 1
    assert (error["schema_version"], error["code"]) == (1, json.code)
    assert text.code == json.code
    plain = " ".join(text.err.split())
    assert f"error: {' '.join(error['message'].split())}" in plain
    assert error["hint"]
    assert f"hint: {' '.join(error['hint'].split())}" in plain
    return error


@pytest.mark.parametrize("verb", ["create", "tag"])
def test_trap_text_that_is_not_utf8_was_found_out_in_the_middle(
    verb: str, call: Call, on_local: Location, local_store: Store
) -> None:
    """After the files had been copied, and as an unexpected error; a terminal wrote Latin-1."""
    taken = first_of(local_store, on_local, "rocksdb")
    given = {"create": ["create", taken.query, "--format", "native"], "tag": ["tag", taken.id]}
    latin_1 = os.fsdecode("caf\u00e9".encode("latin-1"))

    error = refused(call, local_store, *given[verb], "--description", latin_1, "--yes")

    assert (error["code"], error["name"]) == (2, "UsageError")
    assert error["message"] == r"the argument 'caf\udce9' is not UTF-8"


@pytest.mark.parametrize(
    "verb",
    [
        ["show"],
        ["verify", "--checksums"],
        ["export"],
        ["restore", "--to", "/tmp/none"],
        ["rollback"],
    ],
)
def test_an_unknown_savepoint_is_not_found(
    verb: list[str], call: Call, on_local: Location, local_store: Store
) -> None:
    first_of(local_store, on_local, "rocksdb")

    error = refused(call, local_store, *verb, "sp-nothing")

    assert (error["code"], error["name"]) == (10, "SavepointNotFoundError")
    assert "sp-nothing" in error["message"]
    assert error["savepoint"] == "sp-nothing"


@pytest.mark.parametrize(
    ("option", "given", "lacks"),
    [
        ("--exact", ["x", "--exact"], "--at TIME"),
        ("--app", ["x", "--app", "a:b"], "--at TIME --exact"),
        ("--at-by", ["--at", "2026-11-20T10:00:00Z", "--at-by", "commit"], "--at TIME --exact"),
    ],
)
def test_an_option_of_an_exact_time_alone_names_what_it_lacks(
    option: str, given: list[str], lacks: str, call: Call, local_store: Store
) -> None:
    error = refused(call, local_store, "rollback", *given)

    assert error["message"] == f"{option} has no effect without {lacks}"
    assert error["hint"] == f"omit {option}, or choose the point with --at TIME --exact"


def test_an_ambiguous_prefix_lists_the_candidates(call: Call, local_store: Store) -> None:
    for number in range(3):
        local_store.catalog.add(savepoint(number))

    error = refused(call, local_store, "show", "sp-2026")

    assert (error["code"], error["name"]) == (10, "AmbiguousNameError")
    assert len(error["candidates"]) == 3
    assert all(candidate in error["message"] for candidate in error["candidates"])


def test_latest_of_several_queries_asks_which(call: Call, local_store: Store) -> None:
    for number, query in enumerate(("orders", "clicks")):
        local_store.catalog.add(savepoint(number, query=query))

    error = refused(call, local_store, "show", "latest")

    assert (error["code"], error["candidates"]) == (10, ["clicks", "orders"])
    assert "--query clicks" in error["hint"]


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("s3://", 2),
        ("s3:///path", 2),
        ("s3://bucket/a/../b", 2),
        ("gs://bucket/path", 16),
        ("hdfs://host/path", 1),
        ("S3://bucket", 16),
        ("/does/not/exist", 10),
        ("s3:/bucket/path", 2),
        ("hdfs:/path", 2),
    ],
)
def test_a_wrong_store_is_refused(uri: str, code: int, call: Call) -> None:
    called = call("list", "--store", uri, "-o", "json")

    assert (called.code, called.error["code"]) == (code, code)
    assert called.error["hint"]
    assert called.out == ""


@pytest.mark.parametrize("verb", ["create", "restore"])
def test_a_wrong_uri_of_a_checkpoint_is_refused(
    verb: str, call: Call, on_local: Location, local_store: Store
) -> None:
    first_of(local_store, on_local, "rocksdb")
    arguments = {
        "create": ["create", "--format", "native", "--checkpoint"],
        "restore": ["restore", "latest", "--yes", "--to"],
    }[verb]

    assert refused(call, local_store, *arguments, "wasb://container/path")["code"] == 16
    assert refused(call, local_store, *arguments, "s3://")["code"] == 2


def test_a_missing_bucket_is_not_found(call: Call, s3_environment: None) -> None:
    called = call("list", "--store", "s3://there-is-no-such-bucket/x", "-o", "json")

    assert (called.code, called.error["name"]) == (10, "StoreNotFoundError")
    assert "there-is-no-such-bucket" in called.error["message"]


def test_a_checkpoint_in_a_missing_bucket_is_not_found(
    call: Call, local_store: Store, s3_environment: None
) -> None:
    error = refused(
        call, local_store, "create", "--format", "native", "--checkpoint", "s3://no-such-one/c"
    )

    assert (error["code"], error["name"]) == (10, "StoreNotFoundError")


def test_without_credentials_the_store_is_refused(tmp_path: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "HOME": str(tmp_path),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    command = [sys.executable, "-c", "from savepoints.cli.main import main; main()"]

    done = subprocess.run(
        [*command, "list", "--store", "s3://bucket/x", "-o", "json"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert '"name": "CredentialsError"' in done.stderr
    assert "AWS_PROFILE" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("sample", "code", "name", "says"),
    [
        ("uncommitted", 10, "NoCommittedBatchError", "no committed batch"),
        (None, 10, "CheckpointNotFoundError", "no Spark checkpoint"),
    ],
)
def test_a_checkpoint_that_cannot_be_saved_is_refused(
    sample: str | None, code: int, name: str, says: str, call: Call, on_local: Location,
    local_store: Store,
) -> None:  # fmt: skip
    checkpoint = on_local / "checkpoint"
    if sample:
        unpack(sample, checkpoint)

    error = refused(
        call, local_store, "create", "--checkpoint", str(checkpoint), "--format", "native"
    )

    assert (error["code"], error["name"]) == (code, name)
    assert says in error["message"]


@pytest.mark.parametrize("sample", ["limit", "join_4"])
def test_trap_rows_that_there_cannot_be_are_refused_when_they_are_asked_for(
    sample: str, call: Call, on_local: Location, local_store: Store
) -> None:
    checkpoint = str(unpack(sample, on_local / "checkpoint"))

    error = refused(
        call, local_store, "create", "--checkpoint", checkpoint, "--format", "canonical"
    )

    assert (error["code"], error["name"]) == (16, "NativeOnlyError")
    assert len(error["operators"]) == 1
    assert "--format native" in error["hint"]


def test_trap_a_checkpoint_that_lost_a_state_partition_is_refused(
    call: Call, on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("hdfs", on_local / "checkpoint")
    checkpoint.delete([info.path for info in checkpoint.list("state/0/1")])

    error = refused(
        call, local_store, "create", "--checkpoint", str(checkpoint), "--format", "native"
    )

    assert (error["code"], error["name"]) == (13, "PartitionCountError")
    assert (error["operator_id"], error["partitions"]) == (0, 2)


@pytest.mark.parametrize(
    ("sample", "wanted", "code", "name", "hint"),
    [
        ("rocksdb", ["--partitions", "0"], 2, "UsageError", "1 or more"),
        ("rocksdb", ["--format", "native", "--partitions", "3"], 2, "UsageError", "--format"),
        ("rocksdb", ["--format", "canonical"], 2, "UsageError", "savepoints export sp-"),
        ("grand_total", ["--partitions", "3"], 16, "RescaleError", "--partitions"),
        ("two_sources", ["--partitions", "3"], 16, "RescaleError", "--partitions"),
        ("join_4", ["--partitions", "3"], 16, "NativeOnlyError", "--provider"),
        ("limit", ["--provider", "hdfs"], 16, "NativeOnlyError", "--provider"),
        ("transform_with_state", ["--provider", "hdfs"], 16, "ProviderError", "--provider"),
        ("format_2", ["--provider", "hdfs"], 16, "ProviderError", "--provider"),
    ],
)
def test_what_cannot_be_restored_is_refused(
    sample: str,
    wanted: list[str],
    code: int,
    name: str,
    hint: str,
    call: Call,
    on_local: Location,
    local_store: Store,
) -> None:
    taken = first_of(local_store, on_local, sample)
    target = on_local / "target"

    error = refused(call, local_store, "restore", taken.id, "--to", str(target), "--yes", *wanted)

    assert (error["code"], error["name"]) == (code, name)
    assert hint in error["hint"]
    assert target.list() == []


def test_an_export_of_what_has_no_rows_is_refused(
    call: Call, on_local: Location, local_store: Store
) -> None:
    taken = first_of(local_store, on_local, "join_4")

    error = refused(call, local_store, "export", "latest")

    assert (error["code"], error["name"]) == (16, "NativeOnlyError")
    assert error["savepoint"] == taken.id


def test_a_batch_that_is_not_kept_is_refused(
    call: Call, on_local: Location, local_store: Store
) -> None:
    checkpoint = str(unpack("rocksdb", on_local / "checkpoint"))

    error = refused(
        call, local_store, "create", "--checkpoint", checkpoint, "--format", "native",
        "--at-batch", "9",
    )  # fmt: skip

    assert (error["code"], error["first"], error["last"]) == (10, 0, 3)


def test_no_store_is_a_usage_error(call: Call) -> None:
    called = call("list", "-o", "json")

    assert (called.code, called.error["name"]) == (2, "UsageError")
    assert "--store" in called.error["hint"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--colour"],
        ["nonsense"],
        ["show"],
        ["restore", "latest"],
        ["create", "--format", "xml"],
        ["restore", "latest", "--to", "/tmp/none", "--provider", "leveldb"],
        ["restore", "latest", "--to", "/tmp/none", "--partitions", "many"],
        ["export"],
        ["list", "-o", "yaml"],
        ["create", "--checkpoint", "/tmp", "--table", "no-equals-sign"],
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_hint(
    arguments: list[str], call: Call, local_store: Store
) -> None:
    called = call(*arguments, "--store", str(local_store.root))

    assert called.code == 2
    assert called.out == ""
    assert "error:" in called.err
    assert "hint:" in called.err


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["expire", "--keep-last", "1", "--keep-within", "", "--yes"], "--keep-within"),
        (["expire", "--keep-last", "1", "--keep-tag=", "--yes"], "--keep-tag"),
        (["run", "totals", "--until", ""], "--until"),
        (["run", ""], "QUERY"),
        (["fork", "latest", "a", ""], "NAME"),
        (["tag", "latest", ""], "TAG"),
    ],
)
def test_trap_a_variable_that_is_not_set_leaves_an_option_out(
    arguments: list[str], name: str, call: Call, local_store: Store
) -> None:
    """What was to be kept for a week was removed, and what was to end somewhere ended elsewhere."""
    error = refused(call, local_store, *arguments)

    assert (error["code"], error["message"]) == (2, f"{name} is empty")


def test_trap_an_output_that_is_named_twice_is_one(call: Call, local_store: Store) -> None:
    """The first of two tables was not in the savepoint, and no rollback would rewind it."""
    tables = ["--table", "totals=/tmp/a", "--table", "totals=/tmp/b"]

    error = refused(call, local_store, "create", "--checkpoint", "/tmp", *tables)

    assert error["message"] == "--table totals is given twice: /tmp/a and /tmp/b"


@pytest.mark.parametrize("command", ["lineage", "list", "events"])
def test_a_query_as_an_argument_is_answered_with_the_option(command: str, call: Call) -> None:
    called = call(command, "totals")

    assert called.code == 2
    assert f"to choose a query: savepoints {command} --query totals" in called.err


@pytest.mark.parametrize(
    "form", [["-o", "json"], ["--output", "json"], ["--output=json"], ["-ojson"]]
)
def test_wrong_usage_is_json_where_asked_for(form: list[str], call: Call) -> None:
    called = call("list", "--colour", *form)

    assert called.code == 2
    assert called.error["code"] == 2
    assert "--help" in called.error["hint"]


def test_an_unknown_log_level_is_a_usage_error(call: Call, local_store: Store) -> None:
    called = call("list", "--log-level", "LOUD", "--store", str(local_store.root))

    assert called.code == 2


@pytest.mark.parametrize("name", ["latest~", "latest~x", "latest~-1", "latest~99", "latest~~1"])
def test_a_wrong_count_after_latest_is_not_found(name: str, call: Call, local_store: Store) -> None:
    local_store.catalog.add(savepoint(1))

    assert refused(call, local_store, "show", name)["code"] == 10


def test_a_count_that_int_cannot_read_is_not_found(call: Call, local_store: Store) -> None:
    local_store.catalog.add(savepoint(1))

    assert refused(call, local_store, "show", "latest~\N{SUPERSCRIPT TWO}")["code"] == 10


def test_a_naive_time_is_a_usage_error_that_shows_how(call: Call, local_store: Store) -> None:
    local_store.catalog.add(savepoint(1))

    error = refused(call, local_store, "show", "@2026-11-20T10:00:00")

    assert error["code"] == 2
    assert "2026-11-20T10:00:00Z" in error["hint"]


@pytest.mark.parametrize("more", [[], ["--no-input"]])
def test_a_mutation_that_nobody_can_be_asked_about_needs_yes(
    more: list[str], call: Call, on_local: Location, local_store: Store
) -> None:
    first_of(local_store, on_local, "rocksdb")
    target = on_local / "target"

    called = call("restore", "latest", "--to", str(target), "--store", str(local_store.root), *more)

    assert called.code == 2
    assert "--yes" in called.err
    assert "copy 14 files" in called.err  # the plan is shown before it asks
    assert target.list() == []


def test_an_existing_target_is_refused_and_left_alone(
    call: Call, on_local: Location, local_store: Store
) -> None:
    first_of(local_store, on_local, "rocksdb")
    target = on_local / "target"
    target.put("precious", b"data")
    before = contents(local_store.root)

    called = call(
        "restore", "latest", "--to", str(target), "--yes", "--store", str(local_store.root),
        "-o", "json", "--progress", "none",
    )  # fmt: skip

    assert (called.code, called.error["name"]) == (15, "TargetExistsError")
    assert called.error["target"] == str(target)
    assert contents(target) == {"precious": b"data"}
    assert contents(local_store.root) == before


@pytest.mark.parametrize("damage", ["flipped", "deleted", "manifest"])
def test_verify_of_a_damaged_savepoint_is_exit_code_13(
    damage: str, call: Call, on_local: Location, local_store: Store
) -> None:
    taken = first_of(local_store, on_local, "rocksdb")
    file = local_store.manifest(taken.id).files[-1]
    path = manifest_path(taken.id) if damage == "manifest" else file.stored_at
    local_store.root.delete([path])
    if damage == "flipped":
        local_store.root.put(path, b"x" * file.size)
    command = ("verify", taken.id, "--checksums", "--store", str(local_store.root))

    text, json = call(*command), call(*command, "-o", "json")

    assert text.code == json.code == 13
    assert path in text.out
    assert json.document["report"]["grade"] == "broken"
    assert [one["what"] for one in json.document["report"]["findings"]] == [path]


def test_restore_of_a_savepoint_that_lacks_a_file_is_exit_code_13(
    call: Call, on_local: Location, local_store: Store
) -> None:
    taken = first_of(local_store, on_local, "rocksdb")
    path = local_store.manifest(taken.id).files[-1].stored_at
    local_store.root.delete([path])

    error = refused(call, local_store, "restore", "latest", "--to", str(on_local / "t"), "--yes")

    assert (error["code"], error["files"]) == (13, [path])
    assert (on_local / "t").list() == []


def test_an_unknown_setting_is_refused_with_a_suggestion(
    call: Call, tmp_path: Path, local_store: Store
) -> None:
    (tmp_path / "savepoints.toml").write_text('[kafka]\nbootstrap_server = "x"\n')

    error = refused(call, local_store, "list")

    assert error["code"] == 2
    assert "kafka.bootstrap_server" in error["message"]
    assert error["hint"] == "did you mean bootstrap_servers?"


def test_an_unknown_profile_is_refused(call: Call, tmp_path: Path, local_store: Store) -> None:
    (tmp_path / "savepoints.toml").write_text("[profiles.test]\n[profiles.prod]\n")

    error = refused(call, local_store, "list", "--profile", "live")

    assert error["code"] == 2
    assert "prod, test" in error["hint"]


@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("merge", ("--batch", "late.parquet")),
        ("merge", ("--since", "1d")),
        ("merge", ("--policy", "exact")),
        ("merge", ("--wait", "1m")),
        ("promote", ("--outputs", "replace")),
        ("promote", ("--no-checks",)),
    ],
)
def test_undo_refuses_the_options_that_it_would_ignore(
    verb: str, given: tuple[str, ...], call: Call, local_store: Store
) -> None:
    arguments = (verb, "clicks", "--undo", *given)

    error = refused(call, local_store, *arguments, "--dry-run")

    assert (error["code"], error["name"]) == (2, "UsageError")
    assert error["message"] == f"--undo cannot be combined with {given[0]}"
    assert error["hint"] == f"omit {given[0]}: savepoints {verb} clicks --undo"
