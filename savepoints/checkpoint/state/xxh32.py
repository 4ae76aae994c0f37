"""XXH32 of many blocks, by `xxhash` where it is installed and by numpy where it is not.

lz4-java's frames have it as their checksum. They are read and written on executors, too, whose
Python has what Spark itself needs for pandas functions and may have nothing else: no compiled
package can be sent there. Source: the XXH32 algorithm description (xxHash fast digest algorithm).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_P1, _P2, _P3, _P4, _P5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
_MASK = 0xFFFFFFFF
_STRIPE = 16


def digests(blocks: Sequence[bytes | memoryview], seed: int) -> list[int]:
    """Return the hash of each block."""
    try:
        from xxhash import xxh32_intdigest
    except ModuleNotFoundError:
        return digests_by_numpy(blocks, seed)
    return [xxh32_intdigest(one, seed) for one in blocks]


def digests_by_numpy(blocks: Sequence[bytes | memoryview], seed: int) -> list[int]:
    """Return the hash of each block; those of one length are computed side by side."""
    import numpy as np

    by_length: dict[int, list[int]] = defaultdict(list)
    for number, block in enumerate(blocks):
        by_length[len(block)].append(number)
    found = [0] * len(blocks)
    for length, numbers in by_length.items():
        data = np.frombuffer(b"".join(blocks[one] for one in numbers), np.uint8)
        for number, digest in zip(
            numbers, _side_by_side(data.reshape(len(numbers), length), seed), strict=True
        ):
            found[number] = int(digest)
    return found


def _side_by_side(data: NDArray[np.uint8], seed: int) -> NDArray[np.uint32]:
    """Return the hash of each row."""
    import numpy as np

    def word(value: int) -> Any:  # noqa: ANN401  (a scalar of numpy)
        return np.uint32(value & _MASK)

    count, length = data.shape
    stripes = length // _STRIPE
    with np.errstate(over="ignore"):
        if stripes:
            lanes = np.ascontiguousarray(data[:, : stripes * _STRIPE]).view("<u4")
            state = np.tile(
                np.array([seed + _P1 + _P2, seed + _P2, seed, seed - _P1]).astype(np.uint32),
                (count, 1),
            )
            for at in range(0, stripes * 4, 4):
                state = _rotated(state + lanes[:, at : at + 4] * word(_P2), 13) * word(_P1)
            turned = [_rotated(state[:, lane], by) for lane, by in enumerate((1, 7, 12, 18))]
            found = turned[0] + turned[1] + turned[2] + turned[3]
        else:
            found = np.full(count, word(seed + _P5))
        found = found + word(length)
        words = stripes * _STRIPE
        while words + 4 <= length:
            rest = np.ascontiguousarray(data[:, words : words + 4]).view("<u4")[:, 0]
            found = _rotated(found + rest * word(_P3), 17) * word(_P4)
            words += 4
        for at in range(words, length):
            found = _rotated(found + data[:, at].astype(np.uint32) * word(_P5), 11) * word(_P1)
        found = (found ^ (found >> word(15))) * word(_P2)
        found = (found ^ (found >> word(13))) * word(_P3)
        return np.asarray(found ^ (found >> word(16)), np.uint32)


def _rotated(value: NDArray[np.uint32], by: int) -> NDArray[np.uint32]:
    import numpy as np

    return np.asarray((value << np.uint32(by)) | (value >> np.uint32(32 - by)), np.uint32)
