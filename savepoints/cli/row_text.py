"""State rows in words: structs spread out into `key.k` and `value.count`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any


def spread(
    row: Mapping[str, Any], columns: Collection[str] = (), prefix: str = ""
) -> Iterator[tuple[str, str]]:
    """Give each value that is no struct with its path.

    Args:
        row: From JSON.
        columns: Paths at which to stop; a map looks as a struct does.
        prefix: What the paths begin with.
    """
    for name, value in row.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and path not in columns:
            yield from spread(value, columns, f"{path}.")
        else:
            yield path, value if isinstance(value, str) else json.dumps(value)
