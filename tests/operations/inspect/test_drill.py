"""What a drill says of state that it could compare with nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.cli.main import _run
from savepoints.cli.output import Terminal
from savepoints.handle import Store
from savepoints.io import Location
from tests.data import make_older
from tests.samples import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("sample", "why"),
    [("3.5_hdfs_totals", "operator metadata is missing"), ("rocksdb", "recorded nothing")],
)
def test_trap_state_that_was_compared_with_nothing_passed_for_compared(
    sample: str,
    why: str,
    spark: SparkSession,
    local_store: Store,
    on_local: Location,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whoever runs it from cron sees the exit code alone."""
    live = on_local / "live"
    if sample.startswith("3.5"):
        make_older.unpack(sample, live, Path("/in"))
    else:
        unpack(sample, live)
    saved = local_store.create(query="q", checkpoint=str(live), forms=("native",)).execute()

    capsys.readouterr()
    code = _run(Terminal(), ["drill", saved.id, "--store", str(local_store.root), "-o", "json"])

    done = json.loads(capsys.readouterr().out)["drill"]
    assert (code, done["verdict"]) == (3, "restored")
    assert [one["operator_id"] for one in done["not_compared"]] == [0]
    assert why in done["not_compared"][0]["why"]
    (event,) = (one for one in local_store.events.all() if one.verb == "drill")
    assert "but for the state of operator 0" in event.message
    assert event.parameters == {"not_compared": "0"}
