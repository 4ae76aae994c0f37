"""`savepoints check`: what was seen, as text and JSON, and the catalog made anew."""

from __future__ import annotations

from typing import Any

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from tests.samples import lasting
from tests.templates import first_of

# From conftest.py: the function that calls the command line.
Call = Any


@pytest.fixture
def taken(local_store: Store, on_local: Location) -> Savepoint:
    """Take a savepoint."""
    return first_of(local_store, on_local, "changelog")


def test_a_healthy_store_in_words_and_as_json(
    call: Call, local_store: Store, taken: Savepoint
) -> None:
    assert taken
    at = ("--store", str(local_store.root))
    before = lasting(local_store)

    text, json = call("check", *at), call("check", *at, "-o", "json")

    assert (text.code, json.code) == (0, 0)
    assert "ok: conditional PUT: works" in text.out
    assert "ok: catalog: 1 savepoint, all consistent with their manifests and labels" in text.out
    assert text.out.splitlines()[-1].startswith(("ok: ", "warning: "))
    document = json.document
    assert set(document) == {"schema_version", "grade", "seen", "seconds"}
    names = [one["name"] for one in document["seen"]]
    for name in ("clock", "conditional PUT", "permission delete", "leases", "Java", "deltalake"):
        assert name in names
    assert all(set(one) == {"name", "grade", "seen", "advice"} for one in document["seen"])
    assert lasting(local_store) == before


def test_what_is_broken_exits_13_with_advice(
    call: Call, local_store: Store, taken: Savepoint
) -> None:
    assert taken
    local_store.root.put(f"catalog/_delta_log/{1:020}.json", b"{")
    at = ("--store", str(local_store.root))

    text, json = call("check", *at), call("check", *at, "-o", "json")

    assert (text.code, json.code) == (13, 13)
    assert "broken: catalog: " in text.out
    assert "    rebuild it: savepoints check --rebuild-catalog" in text.out
    assert json.document["grade"] == "broken"


def test_the_catalog_made_anew(call: Call, local_store: Store, taken: Savepoint) -> None:
    at = ("--rebuild-catalog", "--store", str(local_store.root))
    local_store.root.put(f"catalog/_delta_log/{1:020}.json", b"{")
    damaged = lasting(local_store)

    dry = call("check", *at, "--dry-run", "-o", "json")
    unasked = call("check", *at)
    assert lasting(local_store) == damaged
    done = call("check", *at, "--yes", "-o", "json")
    again = call("check", *at)

    assert [one.code for one in (dry, unasked, done, again)] == [0, 2, 0, 0]
    assert dry.document["plan"]["added"] == [taken.id]
    rebuilt = done.document["rebuilt"]
    assert (rebuilt["savepoints"], rebuilt["added"]) == (1, [taken.id])
    assert rebuilt["aside"].startswith("catalog-damaged-op-")
    assert "nothing to do" in again.err
    assert local_store.catalog.all() == [taken]


def test_rebuilding_in_words_names_what_was_done(
    call: Call, local_store: Store, taken: Savepoint
) -> None:
    local_store.catalog.remove([taken.id])

    called = call("check", "--rebuild-catalog", "--yes", "--store", str(local_store.root))

    assert called.code == 0
    assert f"1. add a row for the savepoint {taken.id}" in called.err
    assert taken.id in called.out


def test_there_is_no_dry_run_of_looking(call: Call, local_store: Store) -> None:
    assert call("check", "--dry-run", "--store", str(local_store.root)).code == 2
