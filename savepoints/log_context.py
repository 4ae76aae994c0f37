"""What a log record is about: the query, savepoint and operation that a verb works on.

The library only logs; who runs it decides where to. `about` says what is worked on, and
`current` what that is now, for whoever formats records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_about: ContextVar[Mapping[str, str] | None] = ContextVar("about", default=None)


@contextmanager
def about(
    *, query: str | None = None, savepoint: str | None = None, operation: str | None = None
) -> Iterator[None]:
    """Set what log lines inside are about; whatever is not given keeps its outer value."""
    given = {"query": query, "savepoint": savepoint, "operation": operation}
    before = _about.get()
    token = _about.set({**(before or {}), **{k: v for k, v in given.items() if v is not None}})
    try:
        yield
    finally:
        _about.reset(token)


def current() -> Mapping[str, str]:
    """Return what is worked on now: names and ids by kind."""
    return _about.get() or {}
