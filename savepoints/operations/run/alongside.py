"""What a run does on the side: a context that is entered before the query runs, and left after."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Concatenate, ParamSpec, TypeAlias, TypeVar, cast

from savepoints.store.root import Store

P = ParamSpec("P")
R = TypeVar("R")

# Gets the store, the name of the query, and the keyword arguments of the run.
Side: TypeAlias = Callable[[Store, str, Mapping[str, object]], AbstractContextManager[object]]


def alongside(
    run: Callable[Concatenate[Store, str, P], R], side: Side
) -> Callable[Concatenate[Store, str, P], R]:
    """Return the same run of a query, within a context."""

    @functools.wraps(run)
    def wrapped(store: Store, query: str, *args: P.args, **kwargs: P.kwargs) -> R:
        with side(store, query, kwargs):
            return run(store, query, *args, **kwargs)

    return cast("Callable[Concatenate[Store, str, P], R]", wrapped)
