"""Work that is done in other threads, before its result is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


@contextmanager
def threads() -> Iterator[Executor]:
    """Yield threads for which an error or a signal that ends the block does not wait."""
    pool = ThreadPoolExecutor()
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


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
