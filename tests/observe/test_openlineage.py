"""OpenLineage events, as OpenLineage's own file transport writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from savepoints.errors import NoCommittedBatchError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.observe import openlineage
from savepoints.operations.savepoint import create
from tests.faults.test_rollback_killed import NEWEST, write_output
from tests.samples import query_id, take, unpack


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a function that returns what was sent so far."""
    file = tmp_path / "openlineage.json"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    for key, value in transport.items():
        monkeypatch.setenv(f"OPENLINEAGE__TRANSPORT__{key.upper()}", str(value).lower())

    def read() -> list[Any]:
        return [json.loads(line) for line in file.read_text().splitlines()]

    return read


def test_a_savepoint_is_a_run_with_the_versions_that_it_pins(
    on_local: Location, local_store: Store, told: Any
) -> None:
    table = str(on_local / "totals")
    write_output(table, query_id("rocksdb"))

    take(local_store, unpack("rocksdb", on_local / "live"), outputs={"totals": table})

    begun, done = told()
    assert (begun["eventType"], done["eventType"]) == ("START", "COMPLETE")
    assert begun["run"]["runId"] == done["run"]["runId"]
    assert begun["eventTime"] < done["eventTime"]
    assert done["job"] == {**done["job"], "namespace": "savepoints", "name": "totals.create"}
    (output,) = done["outputs"]
    assert "/" + output["name"] == table
    assert output["facets"]["version"]["datasetVersion"] == str(NEWEST)


def test_a_failure_is_a_run_that_failed(on_local: Location, local_store: Store, told: Any) -> None:
    live = unpack("rocksdb", on_local / "live")
    plan = create.plan(local_store, query="clicks", checkpoint=str(live), forms=("native",))
    live.delete(info.path for info in live.list("commits"))

    with pytest.raises(NoCommittedBatchError):
        create.execute(plan, local_store)

    failed = told()[-1]
    assert failed["eventType"] == "FAIL"
    assert "commit" in failed["run"]["facets"]["errorMessage"]["message"]


def test_without_its_settings_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    assert not openlineage.is_configured()

    monkeypatch.setenv("OPENLINEAGE_URL", "http://localhost:5000")
    assert openlineage.is_configured()

    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert not openlineage.is_configured()
