"""Names that changed, as the user gives them: `--map old=new`.

| written       | means                                                                  |
| max=most      | the column or variable `max` is called `most` now                      |
| max=          | `max` is gone, although something else of its type is new              |
| =most         | `most` is new, although something else of its type is gone             |
| buf=buf       | it is the same, where the state does not show it                              |
| 1=0           | operator 1 of the savepoint is operator 0 of the program               |
| 0:max=most    | the same of a column, in operator 0 of the program only                |

Columns of keys are `key.NAME`, those of a variable or of a side of a join `VARIABLE.NAME`; of
several columns with one name the second is `NAME_2`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from savepoints.errors import UsageError

_SCOPED = re.compile(r"(?:(\d+):)?(.*)", re.DOTALL)


@dataclass(frozen=True)
class Rename:
    """One `--map`.

    Attributes:
        operator_id: The program's operator that it applies to; None for any.
        old: Name in the savepoint; None for something new.
        new: Name in the program; None for something that is gone.
    """

    text: str
    operator_id: int | None
    old: str | None
    new: str | None

    @property
    def is_of_operators(self) -> bool:
        """Whether it maps operators."""
        return bool(self.old and self.new and self.old.isdigit() and self.new.isdigit())


def parse(texts: Sequence[str]) -> tuple[Rename, ...]:
    """Parse `--map` options: each is `old=new`, and no two name the same thing."""
    found = []
    for text in texts:
        old, separator, new = text.partition("=")
        match = _SCOPED.fullmatch(old)
        assert match is not None
        if not separator or not (match.group(2) or new):
            raise UsageError(
                f"--map {text!r} is not in the form OLD=NEW",
                hint="write, for example, --map max=most or --map 1=0",
            )
        scope = None if match.group(1) is None else int(match.group(1))
        found.append(Rename(text, scope, match.group(2) or None, new or None))
    for side in ("old", "new"):
        named = [(one.operator_id, getattr(one, side)) for one in found if getattr(one, side)]
        if twice := [name for name in named if named.count(name) > 1]:
            raise UsageError(
                f"--map names {twice[0][1]!r} twice",
                hint="map each name only once, or prefix the mapping with an operator number, "
                "as in 0:old=new",
            )
    return tuple(found)


def require_used(given: Sequence[Rename], used: Sequence[Rename], known: Sequence[str]) -> None:
    """Check that each matches exactly one thing."""
    for one in given:
        fits = used.count(one)
        if fits == 0:
            raise UsageError(
                f"--map {one.text} matches nothing in the savepoint or the program",
                hint=f"use one of the known names: {', '.join(known)}"
                if known
                else "omit --map, because the savepoint has no state",
            )
        if fits > 1:
            raise UsageError(
                f"--map {one.text} matches several operators",
                hint="prefix the mapping with the operator's number in the program, for example "
                f"--map 0:{one.text}",
            )
