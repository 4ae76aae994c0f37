"""`savepoints verify`: grades as text and JSON, exit codes, options that exclude each other."""

from __future__ import annotations

from typing import Any

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from tests.samples import take, unpack
from tests.templates import made_once

pytestmark = pytest.mark.drawn(3)

# From conftest.py: the function that calls the command line.
Call = Any


@pytest.fixture
def taken(local_store: Store, on_local: Location) -> list[Savepoint]:
    """Take two savepoints, the newest first."""
    return two(local_store, on_local)


@made_once
def two(store: Store, place: Location) -> list[Savepoint]:
    checkpoint = unpack("changelog", place / "checkpoint")
    return [take(store, checkpoint, batch_id=batch) for batch in (2, 3)][::-1]


def lose(store: Store, savepoint: Savepoint) -> str:
    """Delete a file of a savepoint, and return its path."""
    (path,) = [
        file.stored_at
        for file in store.manifest(savepoint.id).files
        if file.path == f"commits/{savepoint.cut.batch_id}"
    ]
    store.root.delete([path])
    return path


def test_a_whole_one_in_words_and_as_json(
    call: Call, local_store: Store, taken: list[Savepoint]
) -> None:
    at = ("--checksums", "--store", str(local_store.root))

    text, json = call("verify", "latest", *at), call("verify", "latest", *at, "-o", "json")

    assert (text.code, json.code) == (0, 0)
    assert text.out.startswith(f"ok: {taken[0].id}, ")
    report = json.document["report"]
    assert (report["grade"], report["state"], report["depth"]) == ("ok", "complete", "checksums")
    assert (report["savepoint_id"], report["query"]) == (taken[0].id, "totals")
    assert report["findings"] == report["outputs"] == []


def test_a_broken_one_is_named_and_passed_over_by_latest(
    call: Call, local_store: Store, taken: list[Savepoint]
) -> None:
    at = ("--store", str(local_store.root))
    path = lose(local_store, taken[0])

    text = call("verify", "latest", "--structure", *at)
    json = call("verify", taken[0].id, "--structure", *at, "-o", "json")

    assert (text.code, json.code) == (13, 13)
    assert text.out.splitlines()[0] == f"broken: {path} is missing"
    assert text.out.splitlines()[-1].startswith(f"broken: {taken[0].id}, ")
    assert json.document["report"]["findings"] == [
        {"grade": "broken", "what": path, "problem": "is missing"}
    ]
    assert json.document["report"]["state"] == "broken"
    assert taken[1].id in call("show", "latest", *at).out
    assert path in call("list", "--state", "broken", *at, "-o", "json").out


def test_all_of_them(call: Call, local_store: Store, taken: list[Savepoint]) -> None:
    at = ("--all", "--store", str(local_store.root))
    whole = call("verify", *at)
    path = lose(local_store, taken[1])

    text, json = call("verify", *at), call("verify", *at, "-o", "json")

    assert (whole.code, text.code, json.code) == (0, 13, 13)
    assert whole.out.splitlines()[-1].startswith("ok: 2 savepoints, ")
    assert f"broken: {path} is missing" in text.out
    assert text.out.splitlines()[-1].startswith("broken: 2 savepoints, ")
    document = json.document
    assert document["grade"] == "broken"
    assert [one["grade"] for one in document["reports"]] == ["ok", "broken"]
    assert set(document) == {"schema_version", "grade", "reports", "bytes_read", "seconds"}
    assert call("verify", *at, "--query", "nobody").code == 10


def test_a_share_of_the_data(call: Call, local_store: Store, taken: list[Savepoint]) -> None:
    at = ("--store", str(local_store.root), "-o", "json")

    parts = [call("verify", "--all", "--read-data", f"{one}/2", *at) for one in (1, 2)]
    some = call("verify", taken[0].id, "--read-data", "10%", *at)

    assert [one.code for one in (*parts, some)] == [0, 0, 0]
    read = sum(one.document["bytes_read"] for one in parts)
    assert read == call("verify", "--all", *at).document["bytes_read"]
    report = some.document["report"]
    assert (report["share"], report["depth"]) == ("10%", "checksums")
    assert 0 < report["bytes_read"] < read / 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "verify needs either a savepoint or --all"),
        (("latest", "--all"), "verify needs either a savepoint or --all"),
        (("--all", "--read-data", "lots"), "not a valid fraction"),
        (("--all", "--read-data", "10%", "--deep"), "--deep cannot be combined with --read-data"),
        (("latest", "--read-data", "1/2", "--structure"), "--structure cannot be combined"),
    ],
)
def test_what_makes_no_sense_is_refused(
    words: tuple[str, ...], message: str, call: Call, local_store: Store, taken: list[Savepoint]
) -> None:
    assert taken

    called = call("verify", *words, "--store", str(local_store.root), "-o", "json")

    assert called.code == 2
    assert message in called.error["message"]


def test_a_catalog_that_cannot_be_read_is_an_error_with_the_way_out(
    call: Call, local_store: Store, taken: list[Savepoint]
) -> None:
    assert taken
    local_store.root.put(f"catalog/_delta_log/{1:020}.json", b"{")

    called = call("verify", "--all", "--store", str(local_store.root), "-o", "json")

    assert called.code == 13
    assert called.error["name"] == "VerificationError"
    assert "check --rebuild-catalog" in called.error["hint"]
