"""UnsafeRow values that are measured but not yet written: their sizes, words and bytes.

A row and an array store the positions of values before the values, so a whole batch is measured
first, then written at once. Source: `UnsafeRowWriter`, `UnsafeArrayWriter`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.state.codec.decode import WORD, WORD_BITS, offsets_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from savepoints.state.codec.decode import Booleans, Integers


@dataclass(frozen=True, kw_only=True)
class FieldValues(ABC):
    """The values of one field, or the elements of arrays.

    Attributes:
        sizes: The bytes that each of them takes behind the words, a multiple of 8; None if none
            of them takes any.
    """

    nulls: Booleans | None
    sizes: Integers | None

    @abstractmethod
    def words(self, offsets: Integers) -> Integers:
        """Return the words, with values at offsets from their start."""

    @abstractmethod
    def put(self, out: Integers, starts: Integers) -> None:
        """Write what follows the words to its start, in bytes."""


@dataclass(frozen=True, kw_only=True)
class Fixed(FieldValues):
    """Values stored in their word."""

    values: Integers

    def words(self, offsets: Integers) -> Integers:
        """Return the values themselves."""
        return self.values

    def put(self, out: Integers, starts: Integers) -> None:
        """Write nothing."""


@dataclass(frozen=True, kw_only=True)
class Behind(FieldValues):
    """Values stored behind the words.

    Attributes:
        lengths: How many bytes each of them has, before padding.
        placed_nulls: Whether the word of a null has a position, too.
    """

    lengths: Integers
    placed_nulls: bool = False

    def words(self, offsets: Integers) -> Integers:
        """Return offset << 32 | size of each value."""
        import numpy as np

        words = offsets << 32 | self.lengths
        if self.nulls is None or self.placed_nulls:
            return words
        return np.where(self.nulls, 0, words)


@dataclass(frozen=True, kw_only=True)
class Bytes(Behind):
    """Strings and binary."""

    data: NDArray[np.uint8]

    def put(self, out: Integers, starts: Integers) -> None:
        """Write the values to where each of them starts, in bytes."""
        import numpy as np

        shift = starts - offsets_of(self.lengths)[:-1]
        place = np.repeat(shift, self.lengths)
        place += np.arange(len(place))
        out.view(np.uint8)[place] = self.data


@dataclass(frozen=True, kw_only=True)
class LargeDecimals(Behind):
    """Decimals of more than 18 digits, as big-endian integers of as few bytes as they need.

    Attributes:
        digits: 16 bytes each, of which the last ones are zero, as two words.
    """

    digits: Integers

    def put(self, out: Integers, starts: Integers) -> None:
        """Write the values to where each of them starts, in bytes."""
        import numpy as np

        assert self.sizes is not None
        for half in range(2):
            there = np.flatnonzero(self.sizes > half * WORD)
            out[starts[there] // WORD + half] = self.digits[there, half]


@dataclass(frozen=True, kw_only=True)
class Structs(Behind):
    """Rows in rows."""

    there: Integers
    row: MeasuredRows

    def put(self, out: Integers, starts: Integers) -> None:
        """Write the values to where each of them starts, in bytes."""
        self.row.put(out, starts[self.there])


@dataclass(frozen=True, kw_only=True)
class Arrays(Behind):
    """Arrays: their length, a bit per element that says it is null, the elements."""

    there: Integers
    counts: Integers
    width: int
    elements: FieldValues

    def put(self, out: Integers, starts: Integers) -> None:
        """Write the values to where each of them starts, in bytes."""
        import numpy as np

        starts, counts = starts[self.there], self.counts
        out[starts // WORD] = counts
        # For each element: the first byte of its array, and its position there.
        start = np.repeat(starts, counts)
        first = offsets_of(counts)
        position = np.arange(first[-1]) - np.repeat(first[:-1], counts)
        header = array_header(np.repeat(counts, counts))
        nulls = self.elements.nulls
        if nulls is not None:
            at = np.flatnonzero(nulls)
            bits = np.left_shift(1, position[at] % WORD_BITS)
            np.bitwise_or.at(out, start[at] // WORD + 1 + position[at] // WORD_BITS, bits)
        place = start
        if self.elements.sizes is not None:
            behind = offsets_of(self.elements.sizes)
            fixed = header + padded(np.repeat(counts, counts) * self.width)
            place = start + fixed + behind[:-1] - np.repeat(behind[first[:-1]], counts)
            self.elements.put(out, place)
        words = self.elements.words(place - start)
        slots = out.view(f"<i{self.width}")
        slots[(start + header) // self.width + position] = words.astype(slots.dtype)


@dataclass(frozen=True, kw_only=True)
class MeasuredRows:
    """Rows that are measured but not yet written."""

    columns: Sequence[FieldValues]
    sizes: Integers

    @property
    def header(self) -> int:
        """Return the words of null bits."""
        return -(-len(self.columns) // WORD_BITS)

    def put(self, out: Integers, starts: Integers) -> None:
        """Write the rows to where each of them starts, in bytes."""
        import numpy as np

        first = starts // WORD
        behind = starts + (self.header + len(self.columns)) * WORD
        for position, column in enumerate(self.columns):
            out[first + (self.header + position)] = column.words(behind - starts)
            if column.nulls is not None:
                at = first[column.nulls] + position // WORD_BITS
                out[at] |= np.int64(np.uint64(1 << position % WORD_BITS).view(np.int64))
            if column.sizes is not None:
                column.put(out, behind)
                behind = behind + column.sizes


def padded(sizes: Integers) -> Integers:
    """Return sizes as multiples of 8."""
    return (sizes + (WORD - 1)) & -WORD


def array_header(counts: Integers) -> Integers:
    """Return the bytes before the elements of arrays with this many elements."""
    return WORD * (1 + -(-counts // WORD_BITS))
