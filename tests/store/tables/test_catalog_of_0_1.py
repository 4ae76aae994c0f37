"""A catalog that version 0.1 made is read, added to and changed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from savepoints.io import storage_options
from savepoints.model import FORMS, OperatorState, Savepoint
from savepoints.operations.maintain import rebuild_catalog
from savepoints.store.root import Store
from savepoints.store.savepoint.manifest import manifest_path
from tests.samples import savepoint

TEXT: pa.DataType = pa.string()
MOMENT: pa.DataType = pa.timestamp("us", tz="UTC")
# As in version 0.1, column by column.
SCHEMA = pa.schema(
    [
        ("id", TEXT),
        ("query", TEXT),
        ("query_id", TEXT),
        ("generation", pa.int64()),
        ("batch_id", pa.int64()),
        ("committed_at", MOMENT),
        ("created_at", MOMENT),
        ("watermark_ms", pa.int64()),
        ("positions", pa.list_(TEXT)),
        (
            "offsets",
            pa.list_(
                pa.struct(
                    [
                        ("source", pa.int32()),
                        ("topic", TEXT),
                        ("partition", pa.int32()),
                        ("offset", pa.int64()),
                    ]
                )
            ),
        ),
        (
            "outputs",
            pa.list_(
                pa.struct(
                    [
                        ("name", TEXT),
                        ("uri", TEXT),
                        ("table_id", TEXT),
                        ("version", pa.int64()),
                        ("app_id", TEXT),
                        ("app_version", pa.int64()),
                    ]
                )
            ),
        ),
        ("forms", pa.list_(TEXT)),
        (
            "operators",
            pa.list_(
                pa.struct(
                    [
                        ("operator_id", pa.int32()),
                        ("name", TEXT),
                        ("stores", pa.list_(TEXT)),
                        ("partitions", pa.int32()),
                        ("rows", pa.int64()),
                        ("state_bytes", pa.int64()),
                        ("content_hash", TEXT),
                    ]
                )
            ),
        ),
        (
            "cost",
            pa.struct(
                [
                    ("pin_seconds", pa.float64()),
                    ("checksum_seconds", pa.float64()),
                    ("export_seconds", pa.float64()),
                    ("objects_copied", pa.int64()),
                    ("bytes_copied", pa.int64()),
                    ("objects_shared", pa.int64()),
                    ("bytes_shared", pa.int64()),
                    ("export_bytes", pa.int64()),
                    ("attempts", pa.int64()),
                ]
            ),
        ),
        ("provider", TEXT),
        ("partitions", pa.int32()),
        ("spark_version", TEXT),
        ("application", TEXT),
        ("code_version", TEXT),
        ("settings", pa.list_(pa.struct([("key", TEXT), ("value", TEXT)]))),
        ("parent", TEXT),
        ("tags", pa.list_(TEXT)),
        ("description", TEXT),
        ("state", TEXT),
    ]
)
COST = {
    "pin_seconds": 0.25,
    "checksum_seconds": 0.125,
    "export_seconds": 0.0,
    "objects_copied": 14,
    "bytes_copied": 20_000,
    "objects_shared": 0,
    "bytes_shared": 0,
    "export_bytes": 0,
    "attempts": 1,
}
# A sum by key, and one without keys, whose state was one partition.
KEYED, KEYLESS = (
    {
        "operator_id": number,
        "name": "stateStoreSave",
        "stores": ["default"],
        "partitions": partitions,
        "rows": None,
        "state_bytes": None,
        "content_hash": None,
    }
    for number, partitions in ((1, 2), (0, 1))
)


def row(number: int) -> dict[str, Any]:
    """Make the row of a savepoint as version 0.1 did."""
    return {
        "id": f"sp-20261120-1{number}0000-aaaaa{number}",
        "query": "orders",
        "query_id": "c8a54052-ae64-4515-a59b-49b09fc453cb",
        "generation": 1,
        "batch_id": number,
        "committed_at": datetime(2026, 11, 20, 9, number, tzinfo=timezone.utc),
        "created_at": datetime(2026, 11, 20, 10, number, tzinfo=timezone.utc),
        "watermark_ms": 94_000,
        "positions": ['{"orders":{"0":7}}', None],
        "offsets": [{"source": 0, "topic": "orders", "partition": 0, "offset": 7}],
        "outputs": [
            {
                "name": "totals",
                "uri": "s3://bucket/totals",
                "table_id": "id",
                "version": number,
                "app_id": "orders/totals/1",
                "app_version": number,
            }
        ],
        "forms": ["native"],
        "operators": [KEYLESS, KEYED],
        "cost": COST,
        "provider": "RocksDB",
        "partitions": 2,
        "spark_version": None,
        "application": "app:orders",
        "code_version": "v1",
        "settings": [{"key": "spark.sql.shuffle.partitions", "value": "2"}],
        "parent": None,
        "tags": ["before"] if number == 1 else [],
        "description": "written by 0.1",
        "state": "complete",
    }


@pytest.fixture
def old(store: Store) -> Store:
    """Give a store with the savepoints 1 and 2 in a catalog that version 0.1 made."""
    table = store.root / "catalog"
    options = storage_options(table.uri)
    DeltaTable.create(str(table), SCHEMA, storage_options=options)
    for number in (1, 2):
        data = pa.Table.from_pylist([row(number)], schema=SCHEMA)
        write_deltalake(str(table), data, mode="append", storage_options=options)
    return store


def expected(number: int) -> Savepoint:
    """Describe the savepoint of a row, with what 0.1 did not say."""
    return dataclasses.replace(
        Savepoint.from_json(json_of(number)),
        operators=(
            OperatorState(0, "stateStoreSave", ("default",), 1, keyless=True),
            OperatorState(1, "stateStoreSave", ("default",), 2),
        ),
    )


def json_of(number: int) -> dict[str, Any]:
    """Make the savepoint in the manifest of version 0.1."""
    one = row(number)
    in_cut = ("batch_id", "watermark_ms", "provider", "partitions")
    moments = {
        name: one[name].isoformat(timespec="milliseconds").replace("+00:00", "Z")
        for name in ("committed_at", "created_at")
    }
    left_out = {*in_cut, *moments, "positions", "offsets", "settings"}
    return {
        **{name: value for name, value in one.items() if name not in left_out},
        "created_at": moments["created_at"],
        "settings": {pair["key"]: pair["value"] for pair in one["settings"]},
        "cut": {
            **{name: one[name] for name in in_cut},
            "committed_at": moments["committed_at"],
            "offsets": one["positions"],
        },
    }


def test_what_0_1_wrote_is_read(old: Store) -> None:
    assert old.catalog.all() == [expected(2), expected(1)]
    assert old.catalog.find("before") == expected(1)
    assert expected(1).cut.checkpoint_format == 1
    assert expected(1).outputs[0].app_version == 1


def new(number: int) -> Savepoint:
    """Describe a savepoint that has everything that 0.1 had no columns for."""
    one = savepoint(number)
    cut = dataclasses.replace(one.cut, checkpoint_format=2)
    operators = (
        OperatorState(0, "globalLimit", ("default",), 1, native_only="no rows", keyless=True),
        OperatorState(1, "transformWithState", ("default",), 2, column_families=True),
    )
    return dataclasses.replace(one, cut=cut, operators=operators, topics={"orders": "topic-id"})


def test_savepoints_are_added_to_it_and_the_old_ones_stay(old: Store) -> None:
    added = [new(5), new(6)]
    for one in added:
        old.catalog.add(one)

    assert old.catalog.all() == [added[1], added[0], expected(2), expected(1)]


def test_an_old_savepoint_gets_its_rows_and_nothing_else_changes(old: Store) -> None:
    before = expected(2)
    exported = dataclasses.replace(
        before,
        forms=FORMS,
        operators=tuple(
            dataclasses.replace(one, rows=5, state_bytes=100, content_hash="0" * 32)
            for one in before.operators
        ),
        cost=dataclasses.replace(before.cost, export_seconds=2.5, export_bytes=4_000),
        spark_version="4.2.0",
    )

    old.catalog.exported(exported)

    assert old.catalog.all() == [exported, expected(1)]
    old.catalog.add(new(7))
    assert old.catalog.all() == [new(7), exported, expected(1)]


def test_a_new_savepoint_in_an_old_catalog_gets_its_rows(old: Store) -> None:
    added = new(5)
    old.catalog.add(added)
    exported = dataclasses.replace(added, forms=FORMS, spark_version="4.2.0")

    old.catalog.exported(exported)
    old.catalog.exported(exported)

    assert old.catalog.all() == [exported, expected(2), expected(1)]


def test_any_delta_reader_sees_the_columns_that_were_added(local_store: Store) -> None:
    table = local_store.root / "catalog"
    DeltaTable.create(str(table), SCHEMA)
    write_deltalake(str(table), pa.Table.from_pylist([row(1)], schema=SCHEMA), mode="append")

    local_store.catalog.add(new(5))

    rows = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    found = {one["id"]: one for one in rows}
    assert found[new(5).id]["checkpoint_format"] == 2
    assert found[new(5).id]["operators"][0]["native_only"] == "no rows"
    assert found[new(5).id]["topics"] == [{"topic": "orders", "id": "topic-id"}]
    assert found[row(1)["id"]]["checkpoint_format"] is None
    assert found[row(1)["id"]]["operators"][0]["native_only"] is None


def test_a_manifest_of_0_1_says_the_same_as_its_row(old: Store) -> None:
    name = row(1)["id"]
    body = {"schema_version": 1, "savepoint": json_of(1), "native": [], "canonical": []}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    data = json.dumps({**body, "sha256": digest}, indent=1, sort_keys=True).encode()
    old.root.put(manifest_path(name), data)

    assert old.manifest(name).savepoint == expected(1) == old.catalog.find(name)
    assert rebuild_catalog.plan(old).changed == ()
