"""Work that may be begun in another thread before its result is needed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """A result that is computed once: ahead of time if somebody starts it, or when it is wanted."""

    def __init__(self, pool: Executor, work: Callable[[], T]) -> None:
        self._pool, self._work = pool, work
        self._future: Future[T] | None = None

    def start(self) -> None:
        """Begin to compute it in another thread."""
        if self._future is None:
            self._future = self._pool.submit(self._work)

    def result(self) -> T:
        """Return it, and wait for it where needed; raises what the work has raised."""
        self.start()
        assert self._future is not None
        return self._future.result()
