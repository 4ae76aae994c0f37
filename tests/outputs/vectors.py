"""Deleting a row from a Delta table with a deletion vector, as Spark would; no JVM needed."""

from __future__ import annotations

import json
import struct
import uuid
import zlib

from savepoints.io import Location

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC = 1681511377
_FEATURE = ["deletionVectors"]


def delete_row(table: Location, row: int, app_id: str) -> str:
    """Commit version 1 of a table of one file, without one row; returns the vector's file.

    Args:
        table: The table, at version 0.
        row: Number of the row.
        app_id: Transaction id, with which batch 0 is recorded.
    """
    lines = table.get(f"_delta_log/{0:020}.json").decode().splitlines()
    add = next(action["add"] for line in lines if "add" in (action := json.loads(line)))
    name, bitmap = uuid.uuid4(), _bitmap(row)
    path = f"deletion_vector_{name}.bin"
    checksum = struct.pack(">I", zlib.crc32(bitmap))
    table.put(path, b"\x01" + struct.pack(">I", len(bitmap)) + bitmap + checksum)
    vector = {
        "storageType": "u",
        "pathOrInlineDv": _z85(name.bytes),
        "offset": 1,
        "sizeInBytes": len(bitmap),
        "cardinality": 1,
    }
    features = {"readerFeatures": _FEATURE, "writerFeatures": _FEATURE}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**add, "deletionVector": vector}},
        {"txn": {"appId": app_id, "version": 0}},
    ]
    data = "\n".join(json.dumps(action) for action in actions)
    table.put(f"_delta_log/{1:020}.json", data.encode())
    return path


def _bitmap(row: int) -> bytes:
    """Write a set of one number as a 64-bit Roaring bitmap with one array container."""
    container = struct.pack("<IIHHIH", 12346, 1, 0, 0, 16, row)
    return struct.pack("<IQI", _MAGIC, 1, 0) + container


def _z85(data: bytes) -> str:
    text = ""
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        digits = [_DIGITS[number // 85**power % 85] for power in range(4, -1, -1)]
        text += "".join(digits)
    return text
