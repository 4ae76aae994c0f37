"""The commands of docs/operating.md and runbook.md, as they stand there, on a store; no JVM."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.rollback import rollback
from savepoints.store.locks.journal import Journal, Operation
from tests.cli.conftest import Call
from tests.faults.test_rollback_killed import write_output
from tests.samples import query_id, take, unpack

pytestmark = pytest.mark.drawn(3)

DOCS = Path(__file__).parents[2] / "docs"
PAGES = "".join((DOCS / name).read_text() for name in ("operating.md", "runbook.md"))
COMMANDS = list(dict.fromkeys(re.findall(r"^\$ savepoints (.+)$", PAGES, re.MULTILINE)))
# These need Spark, or answer until they are stopped; tests/e2e and test_metrics.py run them.
ELSEWHERE = ("run ", "drill", "estimate", "metrics --serve")


def three(store: Store, place: Location) -> Savepoint:
    live, table = unpack("rocksdb", place / "live"), str(place / "totals")
    write_output(table, query_id("rocksdb"))
    for batch in (1, 2, 3):
        taken = take(
            store, live, batch_id=batch, query="order_totals", outputs={"totals": table},
            tags=("before-release",) if batch == 1 else (),
        )  # fmt: skip
    return taken


@pytest.mark.parametrize(
    "command", [one for one in COMMANDS if not one.startswith(ELSEWHERE)], ids=lambda one: one[:40]
)
def test_the_command_does_what_the_page_says(
    command: str, call: Call, local_store: Store, on_local: Location, tmp_path: Path
) -> None:
    taken = three(local_store, on_local)
    other = tmp_path / "other"
    other.mkdir()
    operation = "op-20261121-101530-k3f9ab"
    if operation in command:
        plan = rollback.plan(local_store, taken.id, to=str(on_local / "next"))
        begun = Operation(
            operation, "rollback", plan.query, {**plan.to_json(), "operation_id": operation},
            "savepoints rollback", "2026-11-21T10:15:30.000Z",
        )  # fmt: skip
        Journal.begin(local_store.root, begun)
        command += " --yes"
    if command.startswith(("copy", "rollback")):
        command += " --yes" if "--dry-run" not in command else ""
        command += f" --to {on_local / 'next'}" if command.startswith("rollback @") else ""
    for there, here in {
        "s3://other-bucket/savepoints": str(other),
        "/var/lib/node_exporter": str(tmp_path),
        "s3://bucket/checkpoints/clicks-2": str(on_local / "next"),
        "@2026-11-20T10:00:00Z": "latest",
        "--query clicks": "--query order_totals",
    }.items():
        command = command.replace(there, here)

    called = call(*shlex.split(command), "--store", str(local_store.root))

    assert called.code == 0, called.err


def test_all_commands_of_the_pages_are_found() -> None:
    assert len(COMMANDS) >= 25
