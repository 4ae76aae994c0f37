"""Threads that run Spark jobs beside each other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def pool() -> Iterator[Executor]:
    """Yield threads for which an error or a signal that ends the block does not wait."""
    found = ThreadPoolExecutor()
    try:
        yield found
    finally:
        found.shutdown(wait=False, cancel_futures=True)
