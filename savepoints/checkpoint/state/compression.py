"""The compressed streams of Spark's state stores, read and written: all but LZF.

`spark.sql.streaming.stateStore.compression.codec`, kept in `offsets/N`, names the codec of delta,
snapshot and changelog files. Each codec has a framing of its own around its blocks:

lz4     lz4-java's LZ4BlockOutputStream: "LZ4Block", token, compressed and raw length, checksum
        (little-endian), body; a block of length 0 ends the stream
snappy  snappy-java's SnappyOutputStream: a header of 16 bytes, then big-endian length and body
zstd    plain frames, as everybody writes them

Reading and writing take a few megabytes, however large the stream. Source: `org.apache.spark.io`.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Literal, cast

from savepoints.checkpoint.logs.offset_log import CODEC_KEY
from savepoints.checkpoint.state import xxh32
from savepoints.errors import OTHER_BATCH, IncompatibleError, UnsupportedFormatError

_LZ4_MAGIC = b"LZ4Block"
_LZ4_HEADER = struct.Struct("<8sBIII")
_LZ4_STORED, _LZ4_COMPRESSED = 0x10, 0x20
# The lower half of the token gives the largest block: 2**(10 + it) bytes.
_LZ4_SMALLEST_BLOCK = 10
_LZ4_SEED, _LZ4_CHECKSUM_BITS = 0x9747B28C, 0x0FFFFFFF

_SNAPPY_MAGIC = b"\x82SNAPPY\0"
_SNAPPY_HEADER = struct.Struct(">8sii")
_SNAPPY_LARGEST_BLOCK = 512 << 20

_PIECE = 1 << 20
# Raw bytes whose checksums are computed at once.
_GROUP = 4 << 20
# Bytes of a block that is written; lz4-java and snappy-java read any size up to their own.
_BLOCK = 1 << 16


def open_reader(source: bytes | BinaryIO, codec: str, name: str) -> BinaryIO:
    """Open a compressed stream, to read its uncompressed bytes in pieces.

    Args:
        source: The compressed bytes, or something that reads them.
        codec: As Spark's setting has it: `lz4`, or a class of `org.apache.spark.io`.

    Returns:
        A reader whose `read(n)` returns n bytes, fewer only at the end. Reading raises
        IncompatibleError when the data is damaged or ends early.
    """
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    return io.BufferedReader(_Pieces(_PIECES[_known(codec, name)](stream, name)))


def open_writer(sink: BinaryIO, codec: str, name: str) -> BinaryIO:
    """Return a writer that compresses; closing it ends the stream, not the sink."""
    import pyarrow as pa

    short = _known(codec, name)
    if short == "zstd":
        return cast("BinaryIO", pa.CompressedOutputStream(pa.PythonFile(_Kept(sink), "w"), "zstd"))
    if short == "lz4":
        return cast("BinaryIO", _Blocks(sink, _lz4_frames, end=_lz4_header(_LZ4_STORED, 0, 0, 0)))
    sink.write(_SNAPPY_HEADER.pack(_SNAPPY_MAGIC, 1, 1))
    return cast("BinaryIO", _Blocks(sink, _snappy_frames, end=b""))


def _known(codec: str, name: str) -> str:
    short = codec.rpartition(".")[2].lower().removesuffix("compressioncodec")
    if short not in _PIECES:
        raise UnsupportedFormatError(
            f"{name} is compressed with {codec!r}, which only Spark can read",
            hint="save the native form with --format native, or run the query with "
            f"{CODEC_KEY}=zstd until no files in the old codec remain",
            file=name,
            codec=codec,
        )
    return short


class _Blocks(io.RawIOBase):
    """Cuts what is written into blocks, and frames each."""

    def __init__(
        self, sink: BinaryIO, frames: Callable[[Sequence[bytes]], Iterable[bytes]], end: bytes
    ) -> None:
        super().__init__()
        self._sink, self._frames, self._end = sink, frames, end
        self._pending = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401  (any readable buffer)
        self._pending += data
        if len(self._pending) >= _GROUP:
            self._flush(len(self._pending) - len(self._pending) % _BLOCK)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._flush(len(self._pending))
            self._sink.write(self._end)
        super().close()

    def _flush(self, length: int) -> None:
        with memoryview(self._pending)[:length] as view:
            blocks = [bytes(view[at : at + _BLOCK]) for at in range(0, length, _BLOCK)]
        for frame in self._frames(blocks):
            self._sink.write(frame)
        del self._pending[:length]


def _lz4_frames(blocks: Sequence[bytes]) -> Iterator[bytes]:
    import pyarrow as pa

    for raw, digest in zip(blocks, xxh32.digests(blocks, _LZ4_SEED), strict=True):
        body, method = bytes(pa.compress(raw, "lz4_raw", asbytes=True)), _LZ4_COMPRESSED
        if len(body) >= len(raw):
            body, method = raw, _LZ4_STORED
        yield _lz4_header(method, len(body), len(raw), digest & _LZ4_CHECKSUM_BITS) + body


def _lz4_header(method: int, length: int, raw_length: int, checksum: int) -> bytes:
    level = _BLOCK.bit_length() - 1 - _LZ4_SMALLEST_BLOCK
    return _LZ4_HEADER.pack(_LZ4_MAGIC, method | level, length, raw_length, checksum)


def _snappy_frames(blocks: Sequence[bytes]) -> Iterator[bytes]:
    import pyarrow as pa

    for raw in blocks:
        body = bytes(pa.compress(raw, "snappy", asbytes=True))
        yield len(body).to_bytes(4, "big") + body


class _Kept(io.RawIOBase):
    """A sink that stays open when its writer is closed."""

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
    group: list[memoryview] = []
    checksums: list[int] = []
    while header := stream.read(_LZ4_HEADER.size):
        if len(header) < _LZ4_HEADER.size:
            raise _damaged(name, "it ends within a block's header")
        magic, token, length, raw_length, checksum = _LZ4_HEADER.unpack(header)
        largest = 1 << (_LZ4_SMALLEST_BLOCK + (token & 0x0F))
        if magic != _LZ4_MAGIC or max(length, raw_length) > largest:
            raise _damaged(name, "an LZ4 block is missing where one should start")
        body = _exactly(stream, length, name)
        ended = raw_length == 0
        if not ended:
            group.append(_lz4_block(body, token & 0xF0, raw_length, name))
            checksums.append(checksum)
        if ended or sum(map(len, group)) >= _GROUP:
            yield from _checked(group, checksums, name)
            group, checksums = [], []
    if not ended:
        raise _damaged(name, "its end block is missing")


def _checked(
    blocks: Sequence[memoryview], checksums: Sequence[int], name: str
) -> Sequence[memoryview]:
    # lz4-java drops four bits of the hash.
    found = [one & _LZ4_CHECKSUM_BITS for one in xxh32.digests(blocks, _LZ4_SEED)]
    if found != list(checksums):
        raise _damaged(name, "a block does not match its checksum")
    return blocks


def _lz4_block(body: bytes, method: int, raw_length: int, name: str) -> memoryview:
    if method == _LZ4_STORED and len(body) == raw_length:
        return memoryview(body)
    if method == _LZ4_COMPRESSED:
        return _decompressed("lz4_raw", body, raw_length, name)
    raise _damaged(name, f"a block has method {method:#x}, {len(body)} for {raw_length} bytes")


def _snappy_pieces(stream: BinaryIO, name: str) -> Iterator[memoryview]:
    beginning = stream.read(_SNAPPY_HEADER.size)
    if len(beginning) < _SNAPPY_HEADER.size or not beginning.startswith(_SNAPPY_MAGIC):
        raise _damaged(name, "it does not start like a snappy-java stream")
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
    raise _damaged(name, "a block has no valid length")


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
    """Read exactly this many bytes, in pieces: a damaged length must not exhaust memory."""
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
    return IncompatibleError(f"{name} cannot be decompressed: {why}", hint=OTHER_BATCH, file=name)
