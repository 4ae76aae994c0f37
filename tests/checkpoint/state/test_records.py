"""The framing of the files of Spark's default state store."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.checkpoint.state import compression, records
from savepoints.errors import IncompatibleError
from tests.samples import files_of

PAIRS = st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40)), max_size=30)
CHANGES = st.lists(
    st.tuples(st.binary(max_size=40), st.one_of(st.none(), st.binary(max_size=40))), max_size=30
)


def framed(changes: list[tuple[bytes, bytes | None]]) -> bytes:
    """Frame as Java's DataOutputStream does."""
    out = io.BytesIO()
    for key, value in changes:
        out.write(struct.pack(">i", len(key)) + key)
        out.write(struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value)
    out.write(struct.pack(">i", -1))
    return out.getvalue()


class Dribble(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(7, size if size is not None and size >= 0 else 7))


def everything(data: bytes, *, row_checksums: bool = False) -> list[records.StateRecord]:
    batches = records.read(io.BytesIO(data), "9.delta", row_checksums=row_checksums)
    return [record for batch in batches for record in batch]


@given(changes=CHANGES)
def test_what_is_framed_is_read_in_its_order(changes: list[tuple[bytes, bytes | None]]) -> None:
    assert everything(framed(changes)) == changes


@given(changes=CHANGES)
def test_a_stream_may_give_less_than_it_is_asked_for(
    changes: list[tuple[bytes, bytes | None]],
) -> None:
    batches = list(records.read(Dribble(framed(changes)), "9.delta"))

    assert [record for batch in batches for record in batch] == changes
    assert all(batches)


@given(pairs=PAIRS, split=st.integers(0, 30))
def test_a_snapshot_is_framed_as_spark_frames_it(
    pairs: list[tuple[bytes, bytes]], split: int
) -> None:
    sink = io.BytesIO()

    assert records.write(sink, [pairs[:split], pairs[split:]]) == len(pairs)
    assert sink.getvalue() == framed(list(pairs))


def test_a_record_larger_than_a_batch_is_read() -> None:
    changes = [(b"k", b"v" * (5 << 20)), (b"K" * (3 << 20), None), (b"l", b"")]

    assert everything(framed(list(changes))) == changes


def test_batches_are_small_however_long_the_file() -> None:
    changes = [(number.to_bytes(8, "big"), bytes(1000)) for number in range(20_000)]

    batches = list(records.read(io.BytesIO(framed(list(changes))), "9.snapshot"))

    assert max(len(batch) for batch in batches) * 1016 < 3 << 20
    assert [record for batch in batches for record in batch] == changes


@given(changes=CHANGES)
def test_trap_a_file_without_its_end_is_refused_and_named(
    changes: list[tuple[bytes, bytes | None]],
) -> None:
    whole = framed(changes)
    for size in range(len(whole)):
        with pytest.raises(IncompatibleError, match=r"9\.delta.*end marker is missing") as refused:
            everything(whole[:size])
        assert refused.value.details == {"file": "9.delta"}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (framed([(b"k", b"v")]) + b"\0", "there is data after its end marker"),
        (framed([]) * 2, "there is data after its end marker"),
        (struct.pack(">i", -2) + bytes(8), "a key has -2 bytes"),
        (struct.pack(">i1si", 1, b"k", -2) + bytes(8), "a value has -2 bytes"),
        (struct.pack(">i", 1 << 30) + bytes(99), "end marker is missing"),
    ],
)
def test_damaged_files_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(IncompatibleError, match=why):
        everything(data)


def test_row_checksums_stand_before_values_and_removed_keys() -> None:
    data = framed([(b"key1", b"\1\2\3\4value"), (b"\5\6\7\x08key2", None)])

    assert everything(data, row_checksums=True) == [(b"key1", b"value"), (b"key2", None)]
    for too_short in ([(b"key1", b"123")], [(b"123", None)]):
        with pytest.raises(IncompatibleError, match="no room for its checksum"):
            everything(framed(list(too_short)), row_checksums=True)


@pytest.mark.parametrize("name", ["hdfs", "hdfs_snapshot"])
def test_files_that_spark_wrote_add_up_to_the_totals(name: str) -> None:
    """Four files with the rows (k, 100 * file + k), k from 0 to 4, summed by k."""
    files = files_of(name)
    state: dict[bytes, bytes | None] = {}
    for partition in (0, 1):
        for version in range(1, 5):
            path = f"state/0/{partition}/{version}.delta"
            stream = compression.open_reader(files[path], "lz4", path)
            for batch in records.read(stream, path):
                state.update(batch)

    assert state == {
        struct.pack("<qq", 0, k): struct.pack("<qqq", 0, 4, 600 + 4 * k) for k in range(5)
    }
