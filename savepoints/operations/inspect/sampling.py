"""Which share of the files `verify` reads, in restic's words: `10%` or `2/7`; or `day/7`."""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from savepoints.errors import UsageError
from savepoints.moments import EPOCH, utc_now

_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%", re.ASCII)
_PART = re.compile(r"(\d{1,6}|day)/(\d{1,6})", re.ASCII)
_HUNDRED = 100


@dataclass(frozen=True)
class ReadSubset:
    """A share of files: all of it, a random sample, or one of several fixed parts.

    Attributes:
        text: As it is typed to read the same files again.
        percent: Size of a random sample, None for a fixed part.
        part: Number of the fixed part, from 1.
        parts: How many there are; together they are all files.
    """

    text: str
    percent: float | None = None
    part: int = 1
    parts: int = 1

    @classmethod
    def parse(cls, text: str, *, now: datetime | None = None) -> ReadSubset:
        """Read `10%`, `2/7`, or `day/7`: one of seven parts each day (UTC), all in seven days."""
        if match := _PERCENT.fullmatch(text):
            percent = float(match[1])
            if 0 < percent <= _HUNDRED:
                return cls(text, percent)
        elif match := _PART.fullmatch(text):
            parts = int(match[2])
            days = ((now or utc_now()) - EPOCH).days
            part = days % max(parts, 1) + 1 if match[1] == "day" else int(match[1])
            if 1 <= part <= parts:
                return cls(f"{part}/{parts}", None, part, parts)
        raise UsageError(
            f"{text!r} is not a valid fraction of the files",
            hint="use 10% for a random sample, 2/7 for the second of seven fixed parts, or day/7 "
            "for another of them each day",
        )

    @property
    def is_all(self) -> bool:
        """Return True if it means all files."""
        return self.percent == _HUNDRED or (self.percent is None and self.parts == 1)

    def of(self, paths: Collection[str]) -> frozenset[str]:
        """Choose from paths; at least one of a random sample, if there are any."""
        if self.percent is not None:
            count = math.ceil(len(paths) * self.percent / _HUNDRED)
            return frozenset(random.sample(sorted(paths), count))
        return frozenset(path for path in paths if _number(path) % self.parts == self.part - 1)


ALL = ReadSubset("100%", 100.0)


def _number(path: str) -> int:
    """Number a path, for ever the same and whatever else is in the store."""
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:8], "big")
