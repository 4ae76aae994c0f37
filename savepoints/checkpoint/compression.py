"""The compressed streams that Spark's state stores write: reading all but LZF, writing zstd.

`spark.sql.streaming.stateStore.compression.codec`, kept in `offsets/N`, names the codec of delta,
snapshot and changelog files. Each codec has a framing of its own around its blocks:

lz4     lz4-java's LZ4BlockOutputStream: "LZ4Block", token, compressed and raw length, checksum
        (little-endian), body; a block of length 0 ends the stream
snappy  snappy-java's SnappyOutputStream: a header of 16 bytes, then big-endian length and body
zstd    plain frames, as everybody writes them

Reading takes a few megabytes, however large the stream. Source: `org.apache.spark.io`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

from savepoints.checkpoint.offset_log import CODEC_KEY
from savepoints.errors import IncompatibleError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBIII")
_LZ4_STORED, _LZ4_COMPRESSED = 0x10, 0x20
# The lower half of the token says how large a block may be: 2**(10 + it) bytes.
_LZ4_SMALLEST_BLOCK = 10
_LZ4_SEED, _LZ4_CHECKSUM_BITS = 0x9747B28C, 0x0FFFFFFF

_SNAPPY_MAGIC = b"\x82SNAPPY\0"
_SNAPPY_HEADER = struct.Struct(">8sii")
_SNAPPY_LARGEST_BLOCK = 512 << 20

_PIECE = 1 << 20
# Checksums of many blocks are computed side by side.
_CHECKED_AT_ONCE = 4 << 20

_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_STRIPE = 16


def open_reader(source: bytes | BinaryIO, codec: str, name: str) -> BinaryIO:
    """Return the uncompressed bytes of a stream, to be read in pieces.

    Args:
        source: The compressed bytes, or something that reads them.
        codec: As Spark's setting has it: `lz4`, or a class of `org.apache.spark.io`.
        name: How to call the file in an error.

    Returns:
        A reader whose `read(n)` returns n bytes, fewer only at the end. Reading raises
        IncompatibleError when the data is damaged or ends early.

    Raises:
        IncompatibleError: If there is no reader for the codec.
    """
    short = codec.rpartition(".")[2].lower().removesuffix("compressioncodec")
    if short not in _PIECES:
        raise IncompatibleError(
            f"{name} is compressed with {codec!r}, which cannot be read outside of Spark",
            hint=f"save the native form with --format native, or run the query with {CODEC_KEY}="
            "zstd until none of its files are in the old codec",
            file=name,
            codec=codec,
        )
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    return io.BufferedReader(_Pieces(_PIECES[short](stream, name)))


def open_writer(sink: BinaryIO) -> BinaryIO:
    """Return a writer that compresses with zstd; closing it ends the stream, not the sink."""
    import pyarrow as pa

    return cast("BinaryIO", pa.CompressedOutputStream(pa.PythonFile(_Kept(sink), "w"), "zstd"))


class _Kept(io.RawIOBase):
    """A sink that stays open when what writes to it is closed."""

    def __init__(self, sink: BinaryIO) -> None:
        super().__init__()
        self._sink = sink

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401  (any readable buffer)
        return self._sink.write(data)


class _Pieces(io.RawIOBase):
    """A stream made of what an iterator yields."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        super().__init__()
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:  # noqa: ANN401  (any writable buffer)
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece.cast("B")
        wanted = min(len(target), len(self._rest))
        target[:wanted] = self._rest[:wanted]
        self._rest = self._rest[wanted:]
        return wanted


def _lz4_pieces(stream: BinaryIO, name: str) -> Iterator[memoryview]:
    ended = False
    while True:
        blocks: list[memoryview] = []
        checksums: list[int] = []
        size = 0
        while size < _CHECKED_AT_ONCE and (header := stream.read(_LZ4_HEADER.size)):
            if len(header) < _LZ4_HEADER.size:
                raise _damaged(name, "it ends within a block's header")
            magic, token, length, raw_length, checksum = _LZ4_HEADER.unpack(header)
            largest = 1 << (_LZ4_SMALLEST_BLOCK + (token & 0x0F))
            if magic != _LZ4_MAGIC or max(length, raw_length) > largest:
                raise _damaged(name, "there is no LZ4 block where one should begin")
            body = _exactly(stream, length, name)
            ended = raw_length == 0
            if not ended:
                blocks.append(_lz4_block(body, token & 0xF0, raw_length, name))
                checksums.append(checksum)
                size += raw_length
        if _lz4_checksums(blocks) != checksums:
            raise _damaged(name, "a block does not have its checksum")
        yield from blocks
        if size < _CHECKED_AT_ONCE:
            break
    if not ended:
        raise _damaged(name, "the block that ends it is missing")


def _lz4_block(body: bytes, method: int, raw_length: int, name: str) -> memoryview:
    if method == _LZ4_STORED and len(body) == raw_length:
        return memoryview(body)
    if method == _LZ4_COMPRESSED:
        return _decompressed("lz4_raw", body, raw_length, name)
    raise _damaged(name, f"a block has method {method:#x}, {len(body)} for {raw_length} bytes")


def _snappy_pieces(stream: BinaryIO, name: str) -> Iterator[memoryview]:
    beginning = stream.read(_SNAPPY_HEADER.size)
    if len(beginning) < _SNAPPY_HEADER.size or not beginning.startswith(_SNAPPY_MAGIC):
        raise _damaged(name, "it does not begin as a stream of snappy-java")
    while start := stream.read(4):
        if start == _SNAPPY_MAGIC[:4]:  # The header of another stream that was appended.
            _exactly(stream, _SNAPPY_HEADER.size - 4, name)
            continue
        body = _exactly(stream, int.from_bytes(start, "big"), name)
        yield _decompressed("snappy", body, _snappy_length(body, name), name)


def _snappy_length(body: bytes, name: str) -> int:
    """Return the raw length that a block begins with, seven bits a byte."""
    length = 0
    for position, byte in enumerate(body[:5]):
        length |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:  # noqa: PLR2004  (the bit that says: more follows)
            if length <= _SNAPPY_LARGEST_BLOCK:
                return length
            break
    raise _damaged(name, "a block has no length")


def _zstd_pieces(stream: BinaryIO, name: str) -> Iterator[memoryview]:
    import pyarrow as pa

    file = pa.PythonFile(cast("io.IOBase", stream), mode="r")
    try:
        with pa.CompressedInputStream(file, "zstd") as reader:
            while piece := reader.read(_PIECE):
                yield memoryview(piece)
    except OSError as error:
        if error.errno is not None:  # Of the source, not of the decoder.
            raise
        raise _damaged(name, str(error)) from None


_PIECES: dict[str, Callable[[BinaryIO, str], Iterator[memoryview]]] = {
    "lz4": _lz4_pieces,
    "snappy": _snappy_pieces,
    "zstd": _zstd_pieces,
}


def _exactly(stream: BinaryIO, length: int, name: str) -> bytes:
    """Read so many bytes, in pieces: a damaged length must not take all memory."""
    parts: list[bytes] = []
    missing = length
    while missing:
        part = stream.read(min(missing, _PIECE))
        if not part:
            raise _damaged(name, "it ends within a block")
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompressed(
    codec: Literal["lz4_raw", "snappy"], body: bytes, raw_length: int, name: str
) -> memoryview:
    import pyarrow as pa

    try:
        raw = pa.Codec(codec).decompress(body, raw_length)
    except (OSError, ValueError) as error:
        raise _damaged(name, str(error)) from None
    if len(raw) != raw_length:
        raise _damaged(name, f"a block has {len(raw)} bytes instead of {raw_length}")
    return memoryview(raw)


def _damaged(name: str, why: str) -> IncompatibleError:
    return IncompatibleError(
        f"{name} cannot be decompressed: {why}",
        hint="the file is damaged: take the savepoint at another batch with --at-batch",
        file=name,
    )


def _lz4_checksums(blocks: Sequence[memoryview]) -> list[int]:
    """Return the checksum of each block: xxHash32, of which lz4-java drops four bits."""
    sizes: dict[int, list[int]] = {}
    for index, block in enumerate(blocks):
        sizes.setdefault(len(block), []).append(index)
    found = [0] * len(blocks)
    for indices in sizes.values():
        for index, value in zip(indices, _xxhash32([blocks[i] for i in indices]), strict=True):
            found[index] = value & _LZ4_CHECKSUM_BITS
    return found


def _xxhash32(blocks: Sequence[memoryview]) -> list[int]:
    """Hash blocks of one length side by side: each step of the hash needs the one before it."""
    import numpy as np

    first, second, third, fourth, fifth = (np.uint32(prime) for prime in _PRIMES)
    data = np.frombuffer(b"".join(blocks), np.uint8).reshape(len(blocks), -1)
    length = data.shape[1]
    stripes, words = length // _STRIPE, length // 4
    lanes = np.ascontiguousarray(data[:, : words * 4]).view("<u4")
    hashes = np.full(len(blocks), (_LZ4_SEED + _PRIMES[4]) & 0xFFFFFFFF, np.uint32)
    if stripes:
        starts = (_PRIMES[0] + _PRIMES[1], _PRIMES[1], 0, -_PRIMES[0])
        state = np.tile(
            np.array([(_LZ4_SEED + start) & 0xFFFFFFFF for start in starts], np.uint32),
            (len(blocks), 1),
        )
        steps = lanes[:, : stripes * 4].reshape(len(blocks), stripes, 4).transpose(1, 0, 2) * second
        shifted = np.empty_like(state)
        for step in steps:
            np.add(state, step, out=state)
            np.left_shift(state, 13, out=shifted)
            np.right_shift(state, 19, out=state)
            np.bitwise_or(state, shifted, out=state)
            np.multiply(state, first, out=state)
        rotated = [_rotate(state[:, lane], by) for lane, by in enumerate((1, 7, 12, 18))]
        hashes = rotated[0] + rotated[1] + rotated[2] + rotated[3]
    hashes = hashes + np.uint32(length)
    for word in range(stripes * 4, words):
        hashes = _rotate(hashes + lanes[:, word] * third, 17) * fourth
    for byte in range(words * 4, length):
        hashes = _rotate(hashes + data[:, byte] * fifth, 11) * first
    hashes = (hashes ^ (hashes >> 15)) * second
    hashes = (hashes ^ (hashes >> 13)) * third
    return [int(value) for value in hashes ^ (hashes >> 16)]


def _rotate(values: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    import numpy as np

    rotated: NDArray[np.uint32] = (values << np.uint32(by)) | (values >> np.uint32(32 - by))
    return rotated
