"""`operations` and `metrics` as commands: text, JSON, exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.cli.commands.operations_ import _RESULTS
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations import unfinished
from savepoints.operations.rollback import rollback
from savepoints.store.locks.journal import Journal, Operation
from tests.cli.conftest import Call
from tests.reference.documents import DOCUMENTS
from tests.samples import take, unpack

pytestmark = pytest.mark.drawn(3)


@pytest.fixture
def begun(local_store: Store, on_local: Location) -> str:
    """Begin a rollback and leave it: the id of the operation."""
    taken = take(local_store, unpack("rocksdb", on_local / "live"), batch_id=1)
    plan = rollback.plan(local_store, taken.id, to=str(on_local / "next"), rewind_outputs=False)
    Journal.begin(
        local_store.root,
        Operation(
            plan.operation_id, "rollback", plan.query, plan.to_json(),
            f"savepoints rollback {taken.id} --yes", "2026-11-21T10:00:00.000Z",
        ),
    )  # fmt: skip
    return plan.operation_id


def test_an_unfinished_operation_is_listed_and_shown(
    call: Call, local_store: Store, begun: str
) -> None:
    store = ("--store", str(local_store.root))

    listed = call("operations", "list", *store)
    assert begun in listed.out
    assert "unfinished" in listed.out
    document = call("operations", "list", "--query", "totals", "-o", "json", *store).document
    assert [(one["id"], one["verb"]) for one in document["operations"]] == [(begun, "rollback")]
    assert call("operations", "list", "--query", "other", *store).code == 10

    shown = call("operations", "show", begun[:14], *store)
    assert "not done" in shown.out
    assert "safety" in shown.out
    assert (
        call("operations", "show", begun, "-o", "json", *store)
        .document["operation"]["plan"]["savepoint_id"]
        .startswith("sp-")
    )


def test_it_is_resumed_after_its_plan_was_shown(call: Call, local_store: Store, begun: str) -> None:
    store = ("--store", str(local_store.root))

    planned = call("operations", "resume", begun, "--dry-run", "-o", "json", *store)
    assert planned.document["plan"]["operation_id"] == begun
    assert call("operations", "resume", begun, *store).code == 2, "nobody can be asked"

    resumed = call("operations", "resume", begun, "--yes", "-o", "json", *store)
    assert resumed.document["rolled_back"]["generation"] == 2
    assert "finished" in call("operations", "list", *store).out


def test_it_is_undone_after_its_plan_was_shown(call: Call, local_store: Store, begun: str) -> None:
    store = ("--store", str(local_store.root))

    assert "delete the checkpoint" in call("operations", "undo", begun, "--dry-run", *store).out

    undone = call("operations", "undo", begun, "--yes", "-o", "json", *store)
    assert undone.document["operation"]["undone"] is True
    again = call("operations", "undo", begun, "--yes", "-o", "json", *store)
    assert (again.code, again.error["name"]) == (2, "UsageError")


@pytest.mark.parametrize("words", [("show", "op-2"), ("resume", "op-2"), ("undo", "op-2")])
def test_an_operation_that_does_not_exist_is_not_found(
    call: Call, local_store: Store, words: tuple[str, ...]
) -> None:
    refused = call("operations", *words, "-o", "json", "--store", str(local_store.root))

    assert (refused.code, refused.error["operation"]) == (10, "op-2")
    assert "operations list" in refused.error["hint"]


def test_a_store_without_operations_says_so(call: Call, local_store: Store) -> None:
    assert "no operations" in call("operations", "list", "--store", str(local_store.root)).out


def test_trap_metrics_are_wrapped_at_the_width_of_a_terminal(
    call: Call, local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that some terminals export made lines of a half, which no scraper reads."""
    store = ("--store", str(local_store.root))
    wide = call("metrics", *store).out
    monkeypatch.setenv("COLUMNS", "40")

    assert call("metrics", *store).out == wide


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--to", "/proc/none/x.prom"], "cannot be written to /proc/none/x.prom: No such file"),
        (["--serve", "0", "--address", "256.0.0.1"], "cannot listen on 256.0.0.1:0"),
    ],
)
def test_metrics_that_cannot_be_given_there_say_why(
    words: list[str], says: str, call: Call, local_store: Store
) -> None:
    called = call("metrics", *words, "--store", str(local_store.root), "-o", "json")

    assert says in called.error["message"]
    assert "unexpected" not in called.err


def test_metrics_as_text_as_json_and_as_a_file(
    call: Call, local_store: Store, on_local: Location, tmp_path: Path
) -> None:
    take(local_store, unpack("rocksdb", on_local / "live"), query="clicks")
    store = ("--store", str(local_store.root))
    line = 'savepoints_catalog_size{query="clicks",state="complete"} 1.0'

    assert line in call("metrics", *store).out.splitlines()
    sizes = [
        (one["labels"], one["value"])
        for one in call("metrics", "-o", "json", *store).document["metrics"]
        if one["name"] == "savepoints_catalog_size"
    ]
    assert sizes == [({"query": "clicks", "state": "complete"}, 1)]
    path = tmp_path / "savepoints.prom"
    assert call("metrics", "--to", str(path), *store).code == 0
    assert line in path.read_text().splitlines()
    assert call("metrics", "--to", str(path), "--serve", "0", *store).code == 2


def test_trap_the_result_of_a_correction_that_was_resumed_had_no_name() -> None:
    """It was finished, and then the command failed; and plans were described as something else."""
    documents = DOCUMENTS["operations resume"]
    plans = {document.fields["plan"][0] for document in documents if "plan" in document.fields}
    results = {name for document in documents for name in document.fields} - {"dry_run", "plan"}

    assert plans == {one.plan for one in unfinished._VERBS.values()}
    assert {_RESULTS[verb] for verb in unfinished._VERBS} == results
