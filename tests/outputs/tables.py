"""Delta tables for the tests: some that only Spark can write, some that deltalake wrote."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.transaction import AddAction

from savepoints.io import Location, storage_options
from savepoints.outputs.delta.log import log_of

TABLES = Path(__file__).parents[1] / "data" / "tables"
# As data/make_tables.py writes them.
APP = "orders/totals/1"


def unpack(name: str, target: Location) -> str:
    """Put the files of a sample table into a directory and return its URI; see data/README.md."""
    with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
        for info in archive.infolist():
            target.put(info.filename, archive.read(info))
    return str(target)


def opened(uri: str, version: int | None = None) -> DeltaTable:
    """Open a table."""
    return DeltaTable(uri, version=version, storage_options=storage_options(Location.of(uri).uri))


def rows(uri: str, version: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of a table, sorted."""
    found = pa.table(opened(uri, version).scan()).to_pylist()
    return sorted(found, key=str)


def append(uri: str, data: dict[str, list[Any]], app: str | None, batch: int = 0) -> int:
    """Append rows in one commit and return its version."""
    write_deltalake(
        uri,
        pa.table(data),
        mode="append",
        storage_options=storage_options(Location.of(uri).uri),
        commit_properties=recorded(app, batch),
    )
    return int(opened(uri).version())


def append_as_spark(uri: str, rows: pa.Table, app: str, batch: int) -> None:
    """Append rows in a file as Spark writes it: times are INT96."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, use_deprecated_int96_timestamps=True, store_schema=False)
    name, data = f"{app.replace('/', '-')}-{batch}.parquet", sink.getvalue().to_pybytes()
    Location.of(uri).put(name, data)
    table = opened(uri)
    file = AddAction(name, len(data), {}, 0, True, json.dumps({"numRecords": rows.num_rows}))
    table.create_write_transaction(
        [file], "append", table.schema(), commit_properties=recorded(app, batch)
    )


def recorded(app: str | None, batch: int) -> CommitProperties:
    """Return what a commit needs to record a batch."""
    return CommitProperties(app_transactions=[Transaction(app, batch)] if app else None)


def clean_up(uri: str, below: int) -> None:
    """Remove the commits below a version from the log, as Delta does after a checkpoint."""
    log_of(uri).delete([f"{version:020}.json" for version in range(below)])


def write_checksum(uri: str, version: int) -> None:
    """Write the checksum file that Spark leaves beside a commit, from what commit 0 says."""
    first = [json.loads(line) for line in log_of(uri).get(f"{0:020}.json").splitlines()]
    known = {kind: one[kind] for one in first for kind in one}
    checksum = {
        "tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1,
        "metadata": known["metaData"], "protocol": known["protocol"],
    }  # fmt: skip
    log_of(uri).put(f"{version:020}.crc", json.dumps(checksum).encode())


def name_feature(uri: str, feature: str) -> None:
    """Let the newest version of a table have one more feature, in its protocol alone."""
    table = opened(uri)
    protocol, log = table.protocol(), log_of(uri)
    features = [*(protocol.writer_features or ()), feature]
    action: dict[str, Any] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": 7,
    }
    if protocol.reader_features:
        action["readerFeatures"] = protocol.reader_features
    line = json.dumps({"protocol": {**action, "writerFeatures": features}})
    log.create(f"{table.version() + 1:020}.json", line.encode())
