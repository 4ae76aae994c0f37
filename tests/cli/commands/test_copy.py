"""`savepoints copy`: plan, dry run, result, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from tests.samples import contents
from tests.templates import first_of

# From conftest.py: the function that calls the command line.
Call = Any


@pytest.fixture
def taken(local_store: Store, on_local: Location) -> Savepoint:
    """Take a savepoint."""
    return first_of(local_store, on_local, "changelog", tags=("golden",))


@pytest.fixture
def elsewhere(on_local: Location) -> Location:
    """Make an empty directory for another store."""
    place = on_local / "elsewhere"
    Path(str(place)).mkdir()
    return place


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_dry_run_shows_the_plan_and_copies_nothing(
    output: str, call: Call, local_store: Store, taken: Savepoint, elsewhere: Location
) -> None:
    at = ("--store", str(local_store.root), "-o", output)

    called = call("copy", "golden", str(elsewhere), "--dry-run", *at)

    assert called.code == 0
    assert contents(elsewhere) == {}
    if output == "json":
        plan = called.document["plan"]
        assert (plan["savepoint_id"], plan["destination"]) == (taken.id, str(elsewhere))
        assert [step["name"] for step in plan["steps"]] == ["files", "manifest", "catalog"]
        assert (plan["objects_there"], plan["done"]) == (0, False)
    else:
        assert f" to {elsewhere}\n  2. write the savepoint's labels and manifest" in called.out


def test_copied_in_words(
    call: Call, local_store: Store, taken: Savepoint, elsewhere: Location
) -> None:
    at = ("--store", str(local_store.root))
    files = len(local_store.manifest(taken.id).files)

    called = call("copy", "latest", str(elsewhere), "--yes", *at)
    again = call("copy", "latest", str(elsewhere), *at)

    assert (called.code, again.code) == (0, 0)
    assert f"{files} files (" in called.out
    assert "0 already there" in called.out
    assert f"savepoints verify {taken.id} --store {elsewhere}" in called.out
    assert "already has this savepoint: nothing to do" in again.err
    assert f"0 files (0 B) copied, {files} already there" in again.out
    assert call("verify", taken.id, "--checksums", "--store", str(elsewhere)).code == 0


def test_copied_as_json(
    call: Call, local_store: Store, taken: Savepoint, elsewhere: Location
) -> None:
    at = ("--yes", "--store", str(local_store.root), "-o", "json")

    done = call("copy", taken.id, str(elsewhere), *at).document["copied"]
    again = call("copy", taken.id, str(elsewhere), *at).document["copied"]

    files = local_store.manifest(taken.id).files
    assert (done["savepoint_id"], done["destination"]) == (taken.id, str(elsewhere))
    assert done["objects_copied"] == again["objects_there"] == len(files)
    assert done["bytes_written"] == sum(file.size for file in files)
    assert (done["already_copied"], again["already_copied"]) == (False, True)


def test_refusals(call: Call, local_store: Store, taken: Savepoint, elsewhere: Location) -> None:
    at = ("--store", str(local_store.root), "-o", "json")

    unasked = call("copy", taken.id, str(elsewhere), *at)
    itself = call("copy", taken.id, str(local_store.root), "--yes", *at)
    local_store.root.delete([local_store.manifest(taken.id).files[0].stored_at])
    damaged = call("copy", taken.id, str(elsewhere), "--yes", *at)

    assert [one.code for one in (unasked, itself, damaged)] == [2, 2, 13]
    assert "--yes" in unasked.error["hint"]
    assert "metadata is missing" in damaged.error["message"]
    assert contents(elsewhere) == {}
