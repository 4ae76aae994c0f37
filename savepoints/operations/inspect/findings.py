"""What `verify` and `check` find, with grades that scripts can rely on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Grade = Literal["ok", "warning", "broken"]

_BY_WEIGHT: tuple[Grade, ...] = ("broken", "warning", "ok")


@dataclass(frozen=True)
class Finding:
    """A problem that was found.

    Attributes:
        grade: `broken` when the savepoint cannot be restored exactly; `warning` when only something
            around it suffers.
        what: The file, operator or output.
        problem: What is wrong with it.
    """

    grade: Grade
    what: str
    problem: str


@dataclass(frozen=True)
class Seen:
    """One thing that `check` examined.

    Attributes:
        name: What was checked, such as `conditional PUT` or the path of an object.
        grade: `broken` when verbs fail or facts are lost because of it.
        seen: What was seen.
        advice: What to do about it, empty when all is well.
    """

    name: str
    grade: Grade
    seen: str
    advice: str = ""


def worst(grades: Iterable[Grade]) -> Grade:
    """Return the worst of some grades, `ok` of none."""
    there = set(grades)
    return next((grade for grade in _BY_WEIGHT if grade in there), "ok")
