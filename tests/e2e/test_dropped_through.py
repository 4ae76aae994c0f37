"""What a query dropped as late is merged back, and taken over by the reader of its table."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from savepoints.config.settings import QuerySettings
from savepoints.operations import unfinished
from savepoints.operations.cascade import cascade
from savepoints.operations.cascade.cascade import MergedThrough
from savepoints.operations.merge import late
from savepoints.operations.merge.prepare import MergeRequest, Prepared
from savepoints.operations.pipeline_rollback import pipeline_rollback
from savepoints.operations.rollback import last_operation
from savepoints.store.locks import journal
from tests.e2e.late_desk import LateDesk
from tests.e2e.marks import NIGHTLY
from tests.e2e.shop import environment
from tests.e2e.test_late import begun, in_time
from tests.e2e.test_merge_ways import chunk, in_order, model_of_windows

pytestmark = NIGHTLY
__all__ = ["begun"]

READER = "per_key"


@pytest.fixture
def desk(begun: LateDesk) -> LateDesk:
    """Give the query with a reader, which has not read all of its table yet."""
    own, directory = begun.desk, begun.desk.directory
    reader = QuerySettings(
        app="tests.e2e.table_apps:per_key",
        checkpoints=str(directory / "checkpoints"),
        outputs={"sums": str(directory / "sums")},
        tables={"windows": own.settings.queries[own.query].outputs["out"]},
    )
    queries = {**own.settings.queries, READER: reader}
    settings = own.settings.model_copy(update={"queries": queries})
    own.write_settings(
        f"[queries.{READER}]\napp = {json.dumps(reader.app)}\n"
        f"checkpoints = {json.dumps(reader.checkpoints)}\n"
        f"outputs = {{ sums = {json.dumps(reader.outputs['sums'])} }}\n"
        f"tables = {{ windows = {json.dumps(reader.tables['windows'])} }}\n"
    )
    begun.desk = dataclasses.replace(own, settings=settings)
    read(begun)
    begun.arrive(chunk(5))
    return begun


def read(desk: LateDesk) -> None:
    """Let the reader read its table to the end."""
    desk.desk.store.query(READER).run(until="latest", forms=("native",), final_savepoint=False)


def sums(windows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what the reader writes once it has read all of these."""
    counts = Counter(one["k"] for one in windows)
    totals = {k: sum(one["total"] for one in windows if one["k"] == k) for k in counts}
    return in_order([{"k": k, "windows": counts[k], "total": totals[k]} for k in counts])


def planned(desk: LateDesk) -> MergedThrough:
    request = MergeRequest(desk.desk.query, None)
    prepared = cascade.prepare(desk.desk.store, request, "plan")
    assert isinstance(prepared, Prepared)
    return cascade.execute(prepared, desk.desk.store, "plan")


def merge(desk: LateDesk, crash_at: str = "") -> subprocess.CompletedProcess[str]:
    """Merge by the command line, with an age, which is another time whenever it is given."""
    words = ["merge", desk.desk.query, "--dropped", "--since", "30d", "--downstream", "merge"]
    return subprocess.run(
        [sys.executable, "-m", "savepoints", *words, "--yes"],
        cwd=desk.desk.directory,
        env=environment(crash_at),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_what_was_dropped_counts_at_the_reader_too_and_can_be_taken_back(desk: LateDesk) -> None:
    store, query = desk.desk.store, desk.desk.query

    found = planned(desk)

    assert found.merged is None
    assert [(one.query, one.entities) for one in found.downstream] == [(READER, 3)]
    assert in_order(desk.desk.rows()) == in_order(model_of_windows(desk, []))
    assert desk.desk.rows("sums") == sums(model_of_windows(desk, []))

    for point in ("merge.checkpoint_written", "cascade.checkpoint_written"):
        killed = merge(desk, crash_at=point)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = merge(desk)

    assert done.returncode == 0, done.stderr
    assert not journal.all_unfinished(store.root)
    assert late.late(store, query).events == 0
    for number in (6, 7):
        assert in_order(desk.desk.rows()) == in_time(desk)
        assert desk.desk.rows("sums") == sums(in_time(desk))
        desk.arrive(chunk(number))
        read(desk)

    back = unfinished.undo_together_plan(store, last_operation.require(store, READER))
    assert back is not None
    pipeline_rollback.execute(back, store)
    desk.desk.run(until="latest")
    read(desk)

    assert in_order(desk.desk.rows()) == in_order(model_of_windows(desk, []))
    assert desk.desk.rows("sums") == sums(model_of_windows(desk, []))
    assert late.late(store, query).events == 3
