"""Reading the compressed streams of Spark's state files."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.checkpoint.state import compression
from savepoints.errors import IncompatibleError
from tests.samples import files_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.drawn(3)

# What a state file may look like: long runs, and bytes that do not compress.
DATA = st.lists(
    st.one_of(
        st.binary(max_size=300),
        st.tuples(st.binary(min_size=1, max_size=20), st.integers(1, 400)).map(
            lambda run: run[0] * run[1]
        ),
    ),
    max_size=8,
).map(b"".join)


def xxhash32(data: bytes, seed: int) -> int:
    """Hash as the specification of xxHash says, step by step."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask = 0xFFFFFFFF

    def rotated(value: int, by: int) -> int:
        value &= mask
        return ((value << by) | (value >> (32 - by))) & mask

    position = 0
    if len(data) >= 16:
        lanes = [seed + p1 + p2, seed + p2, seed, seed - p1]
        while position <= len(data) - 16:
            for lane, word in enumerate(struct.unpack_from("<4I", data, position)):
                lanes[lane] = rotated(lanes[lane] + word * p2, 13) * p1 & mask
            position += 16
        found = sum(rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        found = seed + p5
    found += len(data)
    while position <= len(data) - 4:
        found = rotated(found + struct.unpack_from("<I", data, position)[0] * p3, 17) * p4
        position += 4
    for byte in data[position:]:
        found = rotated(found + byte * p5, 11) * p1
    found &= mask
    found = (found ^ (found >> 15)) * p2 & mask
    found = (found ^ (found >> 13)) * p3 & mask
    return found ^ (found >> 16)


def lz4(data: bytes, block: int = 1 << 15) -> bytes:
    """Frame as lz4-java's LZ4BlockOutputStream, whose smallest block is 64 bytes."""
    framed = b""
    level = max(0, block.bit_length() - 1 - 10)
    for start in range(0, len(data), block):
        raw = data[start : start + block]
        body, method = pa.Codec("lz4_raw").compress(raw, asbytes=True), 0x20
        if len(body) >= len(raw):
            body, method = raw, 0x10
        checksum = xxhash32(raw, 0x9747B28C) & 0x0FFFFFFF
        framed += struct.pack("<8sBIII", b"LZ4Block", method | level, len(body), len(raw), checksum)
        framed += body
    return framed + struct.pack("<8sBIII", b"LZ4Block", 0x10 | level, 0, 0, 0)


def snappy(data: bytes, block: int = 1 << 15) -> bytes:
    """Frame as snappy-java's SnappyOutputStream."""
    framed = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), block):
        body = pa.Codec("snappy").compress(data[start : start + block], asbytes=True)
        framed += struct.pack(">i", len(body)) + body
    return framed


def zstd(data: bytes) -> bytes:
    """Compress as everybody does."""
    return bytes(pa.compress(data, "zstd", asbytes=True))


WRITERS: dict[str, Callable[[bytes], bytes]] = {"lz4": lz4, "snappy": snappy, "zstd": zstd}


@pytest.mark.parametrize("codec", list(WRITERS))
@given(pieces=st.lists(st.binary(max_size=300_000), max_size=5))
def test_what_is_written_is_read(codec: str, pieces: list[bytes]) -> None:
    """The reader is held by streams that others wrote; Spark reads these in tests/state."""
    sink = io.BytesIO()
    with compression.open_writer(sink, codec, "1.snapshot") as writer:
        for piece in pieces:
            writer.write(piece)

    assert read(sink.getvalue(), codec) == b"".join(pieces)


def read(data: bytes, codec: str) -> bytes:
    return compression.open_reader(data, codec, "1.delta").read()


@pytest.mark.parametrize("codec", list(WRITERS))
@given(data=DATA)
def test_what_was_written_is_read(codec: str, data: bytes) -> None:
    assert read(WRITERS[codec](data), codec) == data


@given(data=DATA, block=st.sampled_from([64, 100, 1024, 4096]))
def test_blocks_may_have_any_size(data: bytes, block: int) -> None:
    assert read(lz4(data, block), "lz4") == data
    assert read(snappy(data, block), "snappy") == data


@pytest.mark.parametrize("codec", list(WRITERS))
def test_streams_may_follow_one_another(codec: str) -> None:
    one, two = b"one" * 100, b"two"

    assert read(WRITERS[codec](one) + WRITERS[codec](two), codec) == one + two


@pytest.mark.parametrize("codec", list(WRITERS))
def test_more_blocks_than_are_checked_at_once(codec: str) -> None:
    chance = random.Random(1)
    data = b"".join(chance.randbytes(1 << 19) + b"x" * (1 << 19) for _ in range(9))
    stream = compression.open_reader(WRITERS[codec](data), codec, "1.snapshot")

    assert stream.read(5) == data[:5]
    assert stream.read(7 << 20) == data[5 : 5 + (7 << 20)]
    assert stream.read() == data[5 + (7 << 20) :]
    assert stream.read(1) == b""


class Counted(io.BytesIO):
    """Bytes that know how many of them were read."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.taken += len(found)
        return found


@pytest.mark.parametrize("codec", list(WRITERS))
def test_only_what_is_needed_is_decompressed(codec: str) -> None:
    data = random.Random(2).randbytes(24 << 20)
    source = Counted(WRITERS[codec](data) if codec == "zstd" else as_stored(codec, data))

    assert compression.open_reader(source, codec, "1.snapshot").read(100) == data[:100]
    assert source.taken < 6 << 20


def as_stored(codec: str, data: bytes) -> bytes:
    """Frame without computing checksums in Python: the first block, as often as needed."""
    head = WRITERS[codec](data[: 1 << 15])
    end = struct.pack("<8sBIII", b"LZ4Block", 0x15, 0, 0, 0) if codec == "lz4" else b""
    start = 16 if codec == "snappy" else 0
    block = head[start : len(head) - len(end)]
    return head[:start] + block * (len(data) >> 15) + end


@pytest.mark.parametrize("codec", list(WRITERS))
@pytest.mark.parametrize(
    "data", [b"", b"a", b"abcdefgh" * 3000, bytes(random.Random(3).randbytes(40_000))]
)
def test_a_file_that_ends_early_is_refused_and_named(codec: str, data: bytes) -> None:
    whole = WRITERS[codec](data)
    # Snappy has no end mark, so a cut between blocks shows in the records only.
    between = {16, 16 + 4 + int.from_bytes(whole[16:20], "big")} if codec == "snappy" else set()
    # Of zstd nothing is left to be missing when all of it is: that too shows in the records.
    first = 1 if codec == "zstd" else 0
    for size in {*range(first, len(whole), max(1, len(whole) // 97)), len(whole) - 1} - between:
        with pytest.raises(IncompatibleError, match=r"1\.delta cannot be decompressed") as refused:
            read(whole[:size], codec)
        assert refused.value.details == {"file": "1.delta"}


def test_a_flipped_bit_of_lz4_is_found_or_harmless() -> None:
    """Without its checksums, most of them would give other data."""
    data = b"0123456789abcdef" * 5 + random.Random(4).randbytes(50)
    whole, harmless = lz4(data), 0
    for position in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            with suppress(IncompatibleError):
                assert read(bytes(flipped), "lz4") == data
                harmless += 1
    # Such as the token's lower half, and what stands in the header of the block that ends it.
    assert harmless < len(whole)


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_raises_nothing_else(codec: str, position: int, bit: int) -> None:
    flipped = bytearray(WRITERS[codec](b"0123456789abcdef" * 50))
    flipped[position % len(flipped)] ^= 1 << bit
    with suppress(IncompatibleError):
        read(bytes(flipped), codec)


def test_a_length_that_cannot_be_true_takes_no_memory() -> None:
    claims_a_gigabyte = struct.pack("<8sBIII", b"LZ4Block", 0x25, 1 << 30, 1 << 30, 0) + b"x" * 99
    claims_in_snappy = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 1 << 30) + b"x" * 99

    for data, codec in ((claims_a_gigabyte, "lz4"), (claims_in_snappy, "snappy")):
        with pytest.raises(IncompatibleError):
            read(data, codec)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("org.apache.spark.io.LZ4CompressionCodec", "lz4"),
        ("org.apache.spark.io.SnappyCompressionCodec", "snappy"),
        ("org.apache.spark.io.ZStdCompressionCodec", "zstd"),
        ("ZSTD", "zstd"),
    ],
)
def test_codecs_have_the_names_that_spark_takes(name: str, codec: str) -> None:
    assert read(WRITERS[codec](b"abc"), name) == b"abc"


@pytest.mark.parametrize("codec", ["lzf", "org.apache.spark.io.LZFCompressionCodec", "com.acme.X"])
def test_trap_an_unreadable_codec_is_refused_with_a_way_out(codec: str) -> None:
    with pytest.raises(IncompatibleError, match=r"state/0/0/1\.delta") as refused:
        compression.open_reader(b"ZV", codec, "state/0/0/1.delta")

    assert refused.value.details["codec"] == codec
    assert "--format native" in refused.value.hint
    assert "compression.codec=zstd" in refused.value.hint


def test_the_source_may_fail_by_itself() -> None:
    class Gone(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def read(self, size: int = -1, /) -> bytes:
            raise FileNotFoundError(2, "gone")

    for codec in WRITERS:
        stream = compression.open_reader(cast("BinaryIO", Gone()), codec, "1.delta")
        with pytest.raises(FileNotFoundError):
            stream.read()


def test_deltas_that_spark_wrote_are_read() -> None:
    deltas = {path: data for path, data in files_of("hdfs").items() if path.endswith(".delta")}

    for path, data in deltas.items():
        raw = read(data, "lz4")
        assert raw.endswith(b"\xff\xff\xff\xff"), path
        # A long as key, two as value, each with a word for nulls, and two sizes.
        assert len(raw) % (4 + 16 + 4 + 24) == 4, path
    assert len(deltas) == 8


def java_codec(spark: SparkSession, name: str) -> Any:
    """Return Spark's own codec."""
    jvm: Any = spark.sparkContext._jvm
    codecs = getattr(getattr(jvm.org.apache.spark.io, "CompressionCodec$"), "MODULE$")
    return codecs.createCodec(spark.sparkContext._jsc.sc().conf(), name)


@pytest.mark.spark
@pytest.mark.parametrize("codec", list(WRITERS))
def test_what_sparks_own_codecs_write_is_read(spark: SparkSession, codec: str) -> None:
    chance = random.Random(5)
    data = b"".join(chance.randbytes(20_000) + bytes(30_000) for _ in range(60))
    jvm: Any = spark.sparkContext._jvm
    for size in (0, 1, len(data)):
        sink = jvm.java.io.ByteArrayOutputStream()
        stream = java_codec(spark, codec).compressedOutputStream(sink)
        stream.write(bytearray(data[:size]))
        stream.close()

        assert read(bytes(sink.toByteArray()), codec) == data[:size]


@pytest.mark.spark
def test_what_the_writer_writes_spark_reads(spark: SparkSession) -> None:
    data = random.Random(6).randbytes(100_000) * 3
    jvm: Any = spark.sparkContext._jvm
    source = jvm.java.io.ByteArrayInputStream(bytearray(zstd(data)))

    assert bytes(java_codec(spark, "zstd").compressedInputStream(source).readAllBytes()) == data
