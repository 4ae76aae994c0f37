"""State rows as text: structs flattened into `key.k` and `value.count`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from savepoints.state.typed.compare import RowChange


def spread(
    row: Mapping[str, Any], columns: Collection[str] = (), prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield each value that is not a struct, with its path.

    Args:
        columns: Paths at which to stop; a map looks as a struct does.
    """
    for name, value in row.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and path not in columns:
            yield from spread(value, columns, f"{path}.")
        else:
            yield path, value if isinstance(value, str) else json.dumps(value)


def rows_title(name: object, differing: int, shown: int) -> str:
    """Say above sampled rows what they are rows of, and how many there are beside them."""
    if shown == differing:
        return f"Rows of {name}"
    return f"Rows of {name}: {shown} of {differing:,} that differ (--sample N shows more)"


def row_change(change: RowChange) -> tuple[str, ...]:
    """Format a row's key and the values that differ."""
    before, after = (dict(spread(one or {})) for one in (change.before, change.after))
    different = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return (
        change.difference,
        _text(spread(change.row)),
        *(_text((n, one[n]) for n in different if n in one) for one in (before, after)),
    )


def _text(pairs: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{name}={value}" for name, value in pairs)
