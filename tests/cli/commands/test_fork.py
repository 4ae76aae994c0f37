"""`savepoints fork`: plan, result, what `lineage`, `list` and `show` say of it, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from tests.faults.test_rollback_killed import write_output
from tests.samples import contents, query_id, take, unpack

pytestmark = pytest.mark.drawn(2)

# From conftest.py: the function that calls the command line.
Call = Any


@pytest.fixture
def saved(local_store: Store, on_local: Location, tmp_path: Path) -> Savepoint:
    """Take a savepoint of a query with an output, and name it in the settings."""
    checkpoint, table = unpack("rocksdb", on_local / "live"), str(on_local / "totals")
    write_output(table, query_id("rocksdb"))
    (tmp_path / "savepoints.toml").write_text(
        f'store = "{local_store.root}"\n[queries.order_totals]\n'
        f'app = "spark_jobs.order_totals:app"\ncheckpoints = "{on_local / "checkpoints"}"\n'
        f'outputs.totals = "{table}"\n'
    )
    return take(local_store, checkpoint, query="order_totals", outputs={"totals": table})


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_dry_run_shows_every_fork_and_writes_nothing(
    output: str, call: Call, saved: Savepoint, on_local: Location
) -> None:
    before = contents(on_local)

    called = call("fork", "latest", "a", "b", "--outputs", "clone", "--dry-run", "-o", output)

    assert called.code == 0
    assert contents(on_local) == before
    if output == "json":
        forks = called.document["plan"]["forks"]
        assert [one["query"] for one in forks] == ["a", "b"]
        assert {one["savepoint_id"] for one in forks} == {saved.id}
    else:
        assert "a: restore" in called.out
        assert "b: begin generation 1 of b" in called.out
        assert "VACUUM" in called.out


def test_forked_it_is_in_what_all_commands_show(
    call: Call, local_store: Store, saved: Savepoint, on_local: Location
) -> None:
    table = on_local / "totals"

    called = call("fork", "latest", "a", "b", "--outputs", "clone", "--yes")

    assert called.code == 0
    assert f"a, from savepoint {saved.id} of order_totals" in called.out
    assert "savepoints run b" in called.out
    again = call("fork", saved.id, "a", "--outputs", "clone", "-o", "json")
    assert again.code == 0, "without --yes: nothing is to be done"
    assert [one["already_forked"] for one in again.document["forked"]] == [True]
    tree = call("lineage", "--query", "order_totals").out
    assert tree.index(saved.id) < tree.index("generation a/1")
    assert f"needs version {saved.outputs[0].version} of {table}" in tree

    assert call("create", "a", "--format", "native").code == 0
    listed = call("list", "--query", "a", "-o", "json").document["savepoints"]
    assert [one["query"] for one in listed] == ["a"]
    shown = call("show", "latest", "--query", "a", "-o", "json").document
    assert shown["clone_of"]["totals"]["uri"] == str(table)
    text = call("show", "latest", "--query", "a").out
    assert f"files of version {saved.outputs[0].version} of {table}, and VACUUM" in text
    assert call("rollback", "latest", "--query", "a", "--yes").code == 0
    assert local_store.generations.current("a").generation == 2


def test_refusals_have_their_exit_codes(call: Call, saved: Savepoint, on_local: Location) -> None:
    del saved
    for words, code in {
        ("nothing", "a", "--yes"): 10,
        ("latest", "a"): 2,  # Nobody can be asked.
        ("latest", "order_totals", "--yes"): 15,
        ("latest", "a", "a", "--yes"): 2,
        ("latest", "a", "--table", f"totals={on_local}", "--yes"): 15,
        ("latest", "a", "--table", "totals", "--yes"): 2,
        ("latest", "../a", "--yes"): 2,
        ("latest", "a", "--query", "other", "--yes"): 10,
    }.items():
        called = call("fork", *words, "-o", "json")
        assert (called.code, called.error["code"]) == (code, code), (words, called.err)
        assert called.error["hint"]
