"""What takes a table back to another version besides its files, of snapshots as logs have them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from savepoints.outputs.delta.snapshot import Snapshot
from savepoints.outputs.rewind import version_difference

RETENTION = "delta.logRetentionDuration"


def version(
    properties: dict[str, str] | None = None,
    clustered_by: list[list[str]] | None = None,
    columns: tuple[str, ...] = ("n", "part"),
) -> Snapshot:
    fields: list[dict[str, Any]] = [
        {
            "name": name,
            "type": "long",
            "nullable": True,
            "metadata": {"delta.columnMapping.physicalName": f"col-{number}"},
        }
        for number, name in enumerate(columns)
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    domain = {
        "domain": "delta.clustering",
        "configuration": json.dumps({"clusteringColumns": clustered_by}),
    }
    domains = () if clustered_by is None else (domain,)
    metadata = {"schemaString": schema, "configuration": properties or {}}
    return Snapshot({}, metadata, (), domains)


@pytest.mark.parametrize(
    ("now", "then", "statements"),
    [
        (version(), version(), []),
        (version({RETENTION: "1 day"}), version(), [f"UNSET TBLPROPERTIES ('{RETENTION}')"]),
        (
            version({"b": "2", "c": "3"}),
            version({"a": "it's", "b": "1"}),
            ["SET TBLPROPERTIES ('a' = 'it\\'s', 'b' = '1')", "UNSET TBLPROPERTIES ('c')"],
        ),
        (version(clustered_by=[["col-0"]]), version(), ["CLUSTER BY NONE"]),
        (version(), version(clustered_by=[["col-1"], ["col-0"]]), ["CLUSTER BY (`part`, `n`)"]),
        # What no ALTER TABLE takes back as it was.
        (version(columns=("n",)), version(), []),
        (version({RETENTION: "1 day"}, columns=("n",)), version(), []),
        (version({"delta.rowTracking.materializedRowIdColumnName": "x"}), version(), []),
        (version({"delta.enableInCommitTimestamps": "true"}), version(), []),
    ],
)
def test_statements_take_properties_and_clustering_back(
    now: Snapshot, then: Snapshot, statements: list[str]
) -> None:
    assert version_difference.statements_back(now, then) == statements
