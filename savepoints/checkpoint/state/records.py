"""The framing of `.delta` and `.snapshot` files of Spark's default state store.

A file is one stream of records, below its compression: key size, key, value size, value, sizes as
big-endian ints. A value size of -1 removes the key; a key size of -1 ends the file, a file without
it is incomplete. Keys and values are UnsafeRow bytes. With
`spark.sql.streaming.stateStore.rowChecksum.enabled` four bytes of checksum stand in front of each
value and of each removed key. Source: `HDFSBackedStateStoreProvider`, `KeyValueChecksumEncoder`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO, TypeAlias

from savepoints.errors import OTHER_BATCH, IncompatibleError

ROW_CHECKSUM_KEY = "spark.sql.streaming.stateStore.rowChecksum.enabled"

# A key with its value, None where the key is removed.
StateRecord: TypeAlias = tuple[bytes, bytes | None]

_SIZE = struct.Struct(">i")
_REMOVED = _END = -1
_CHECKSUM_BYTES = 4
# Bytes of records in one batch; a larger record makes a batch of its own.
_BATCH_BYTES = 2 << 20


def read(
    stream: BinaryIO, name: str, *, row_checksums: bool = False
) -> Iterator[list[StateRecord]]:
    """Read the records of a file in batches of a few megabytes, in the order they were written.

    Args:
        stream: The uncompressed bytes.
        row_checksums: The value of `ROW_CHECKSUM_KEY`; checksums are dropped, not compared.

    Raises:
        IncompatibleError: If the file is damaged or has no end marker.
    """
    rest, wanted = b"", _BATCH_BYTES
    while piece := stream.read(wanted):
        data = rest + piece
        records, used, missing = _parse(data, name)
        if row_checksums:
            records = [_without_checksum(record, name) for record in records]
        if records:
            yield records
        if not missing:
            if used < len(data) or stream.read(1):
                raise _damaged(name, "there is data after its end marker")
            return
        rest, wanted = data[used:], max(missing, _BATCH_BYTES)
    raise _damaged(name, "its end marker is missing")


def write(sink: BinaryIO, batches: Iterable[Iterable[tuple[bytes, bytes]]]) -> int:
    """Write a snapshot: the records and the end marker."""
    size, count = _SIZE.pack, 0
    for batch in batches:
        parts: list[bytes] = []
        for key, value in batch:
            parts += (size(len(key)), key, size(len(value)), value)
        count += len(parts) // 4
        sink.write(b"".join(parts))
    sink.write(size(_END))
    return count


def _parse(data: bytes, name: str) -> tuple[list[StateRecord], int, int]:
    """Return the complete records, their bytes, and how many more bytes the next one needs.

    It needs 0 only after the end marker.
    """
    size = _SIZE.unpack_from
    records: list[StateRecord] = []
    append = records.append
    position, end = 0, len(data)
    while True:
        if (after := position + 4) > end:
            break
        (key_size,) = size(data, position)
        if key_size == _END:
            return records, after, 0
        if key_size < 0:
            raise _damaged(name, f"a key has {key_size} bytes")
        value_at = after + key_size
        if (after := value_at + 4) > end:
            break
        (value_size,) = size(data, value_at)
        if value_size == _REMOVED:
            append((data[position + 4 : value_at], None))
        elif value_size < 0:
            raise _damaged(name, f"a value has {value_size} bytes")
        elif (after := after + value_size) > end:
            break
        else:
            append((data[position + 4 : value_at], data[value_at + 4 : after]))
        position = after
    return records, position, after - end


def _without_checksum(record: StateRecord, name: str) -> StateRecord:
    key, value = record
    checked = key if value is None else value
    if len(checked) < _CHECKSUM_BYTES:
        raise _damaged(name, "a record has no room for its checksum")
    if value is None:
        return key[_CHECKSUM_BYTES:], None
    return key, value[_CHECKSUM_BYTES:]


def _damaged(name: str, why: str) -> IncompatibleError:
    return IncompatibleError(
        f"{name} is not a state file in Spark's format: {why}", hint=OTHER_BATCH, file=name
    )
