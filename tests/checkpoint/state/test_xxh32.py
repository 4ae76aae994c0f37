"""XXH32 without its library, against the library."""

from __future__ import annotations

import random

import pytest
import xxhash

from savepoints.checkpoint.state import xxh32

SEED = 0x9747B28C


@pytest.mark.parametrize("seed", [0, 1, SEED, 0xFFFFFFFF])
def test_numpy_gives_what_the_library_gives(seed: int) -> None:
    drawn = random.Random(seed)
    lengths = [*range(70), 64, 64, 1000, 65_535, 65_536, 65_536, 65_536]
    blocks = [drawn.randbytes(length) for length in lengths]

    assert xxh32.digests_by_numpy(blocks, seed) == [
        xxhash.xxh32_intdigest(one, seed) for one in blocks
    ]


def test_known_answers() -> None:
    """Of the algorithm's own description and its reference implementation."""
    known = {b"": 0x02CC5D05, b"a": 0x550D7456, b"abc": 0x32D153FF}
    assert xxh32.digests_by_numpy(list(known), 0) == list(known.values())
