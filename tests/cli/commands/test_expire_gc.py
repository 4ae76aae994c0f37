"""What `expire` and `gc` print, and their exit codes."""

from __future__ import annotations

from typing import Any

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.store.locks import lease
from savepoints.store.savepoint.manifest import manifest_path
from tests.samples import take, unpack
from tests.templates import made_once

pytestmark = pytest.mark.drawn(3)

# From conftest.py: the function that calls the command line.
Call = Any
SCRATCH = "scratch/op-20260101-000000-aaaaaa/metadata"


@pytest.fixture
def taken(on_local: Location, local_store: Store) -> list[Savepoint]:
    """Take three savepoints, the oldest first."""
    return three(local_store, on_local)


@made_once
def three(store: Store, place: Location) -> list[Savepoint]:
    checkpoint = unpack("rocksdb", place / "live")
    return [take(store, checkpoint, batch_id=batch) for batch in range(3)]


def test_expire_says_what_it_would_do_and_does_it_with_yes(
    call: Call, local_store: Store, taken: list[Savepoint]
) -> None:
    command = ("expire", "--keep-last", "1", "--store", str(local_store.root))

    said = call(*command, "--dry-run")
    assert said.code == 0
    lines = {one.id: next(x for x in said.out.splitlines() if one.id in x) for one in taken}
    assert "remove" in lines[taken[0].id]
    assert "not kept by any rule" in lines[taken[1].id]
    assert "keep" in lines[taken[2].id]
    assert "the last good one, the newest of generation 1, last" in lines[taken[2].id]
    assert "totals: 1 last" in said.out
    assert "2 of 3 savepoints would be removed" in said.out
    assert "dry run: nothing was changed" in said.err
    assert len(local_store.catalog.all()) == 3

    done = call(*command, "--yes")
    assert done.code == 0
    assert f"removed {taken[0].id}" in done.out
    assert "2 savepoints removed" in done.out
    assert local_store.catalog.all() == [taken[2]]


def test_execute_is_another_word_for_yes_and_without_either_nothing_happens(
    call: Call, local_store: Store, taken: list[Savepoint]
) -> None:
    command = ("expire", "--keep-last", "1", "--store", str(local_store.root))

    asked = call(*command)
    assert asked.code == 2, "nobody can be asked"
    assert "would be removed" in asked.out
    assert "then pass --yes" in asked.err
    assert len(local_store.catalog.all()) == 3

    assert call(*command, "--execute").code == 0
    assert local_store.catalog.all() == [taken[2]]


def test_expire_as_json(call: Call, local_store: Store, taken: list[Savepoint]) -> None:
    command = (
        "expire", "--keep-within", "1ms", "--keep-tag", "x", "--store", str(local_store.root),
        "-o", "json",
    )  # fmt: skip

    said = call(*command, "--dry-run").document
    done = call(*command, "--yes").document

    assert said["dry_run"] is True
    assert said["plan"]["policies"]["totals"]["keep_within_seconds"] == 0.001
    assert said["plan"]["policies"]["totals"]["keep_tags"] == ["x"]
    assert {one["savepoint_id"]: one["kept"] for one in said["plan"]["savepoints"]} == {
        taken[0].id: False, taken[1].id: False, taken[2].id: True,
    }  # fmt: skip
    assert set(done["expired"]["removed"]) == {taken[0].id, taken[1].id}
    assert done["expired"]["bytes"] == said["plan"]["bytes"]


def test_expire_takes_its_rules_from_the_settings(
    call: Call, local_store: Store, taken: list[Savepoint], tmp_path: Any
) -> None:
    settings = tmp_path / "savepoints.toml"
    settings.write_text(f'store = "{local_store.root}"\n[retention]\nkeep_last = 2\n')

    assert call("expire", "--yes").code == 0
    assert local_store.catalog.all() == [taken[2], taken[1]]


def test_expire_without_rules_and_with_wrong_ones(
    call: Call, local_store: Store, taken: list[Savepoint]
) -> None:
    at = ("--store", str(local_store.root), "-o", "json")

    refused = call("expire", "--yes", *at)
    wrong = [
        call("expire", *words, *at)
        for words in (
            ("--keep-last", "-2"),
            ("--keep-within", "soon"),
            ("--keep-last", "1", "--query", "x"),
        )
    ]

    assert (refused.code, refused.error["name"]) == (2, "UsageError")
    assert [one.code for one in wrong] == [2, 2, 10]
    assert len(local_store.catalog.all()) == 3


def test_expire_partly_done_and_locked(
    call: Call, local_store: Store, taken: list[Savepoint]
) -> None:
    command = ("expire", "--keep-last", "1", "--yes", "--store", str(local_store.root))

    with lease.hold_files(local_store.root, taken[0].query_id, "totals", "create"):
        assert call(*command).code == 11
    local_store.root.delete([manifest_path(taken[2].id)])
    partly = call(*command)

    assert partly.code == 3
    assert f"note: {taken[2].id} has no manifest; the shared files of" in partly.out


def test_gc_says_what_it_would_do_and_does_it_with_yes(
    call: Call, local_store: Store, taken: list[Savepoint]
) -> None:
    local_store.catalog.remove([taken[0].id])
    local_store.root.put(SCRATCH, b"left")
    command = ("gc", "--grace", "1ms", "--store", str(local_store.root))

    said = call(*command, "--dry-run")
    young = call("gc", "--dry-run", "--store", str(local_store.root))
    as_json = call(*command, "--dry-run", "-o", "json").document
    assert local_store.root.exists(SCRATCH)
    done = call(*command, "--yes")

    assert (said.code, young.code, done.code) == (0, 0, 0)
    assert "is complete but has no row in the catalog" in said.out
    assert f"add {taken[0].id} to the catalog" in said.out
    assert "2 leftovers, 4 B would be freed; 0 younger than 1ms would be kept" in said.out
    assert "dry run: nothing was changed" in said.err
    assert "0 leftovers, 0 B would be freed; 2 younger than 1d would be kept" in young.out
    assert as_json["dry_run"] is True
    assert {one["action"] for one in as_json["plan"]["orphans"]} == {"adopt", "delete"}
    assert f"added {taken[0].id} to the catalog" in done.out
    assert "4 B in 1 file freed" in done.out
    assert local_store.catalog.all() == taken[::-1]


def test_gc_as_json_and_partly_done(call: Call, local_store: Store, taken: list[Savepoint]) -> None:
    local_store.catalog.remove([taken[0].id])
    command = ("gc", "--grace", "1ms", "--yes", "--store", str(local_store.root), "-o", "json")

    with lease.hold_files(local_store.root, taken[0].query_id, "totals", "create"):
        partly = call(*command)
    done = call(*command)

    assert (partly.code, done.code) == (3, 0)
    assert set(partly.document["collected"]["locked"]) == {taken[0].query_id}
    assert done.document["collected"]["adopted"] == [taken[0].id]


def test_gc_refuses_a_lost_catalog(call: Call, local_store: Store, taken: list[Savepoint]) -> None:
    local_store.catalog.remove([one.id for one in taken])

    refused = call("gc", "--yes", "--store", str(local_store.root), "-o", "json")

    assert refused.code == 13
    assert "rebuild-catalog" in refused.error["hint"]
