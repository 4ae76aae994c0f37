"""The functions of `applyInPandasWithState` that the queries keep state with, by their timeout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

HOURS_MS = 24 * 3600 * 1000


def _count(key: Any, pdfs: Iterator[Any], state: Any) -> Iterator[Any]:
    n, s = state.get if state.exists else (0, 0)
    for pdf in pdfs:
        n, s = n + len(pdf), s + int(pdf["v"].sum())
    state.update((n, s))
    yield pd.DataFrame({"k": [key[0]], "n": [n], "s": [s]})


def _count_event(key: Any, pdfs: Iterator[Any], state: Any) -> Iterator[Any]:
    if state.hasTimedOut:
        yield pd.DataFrame({"k": [key[0]], "n": [-state.get[0]], "s": [state.get[1]]})
        state.remove()
        return
    yield from _count(key, pdfs, state)
    # Before the end, or after it.
    wait = 15_000 if state.get[0] % 2 else 600_000
    state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + wait)


def _count_processing(key: Any, pdfs: Iterator[Any], state: Any) -> Iterator[Any]:
    if state.hasTimedOut:
        yield pd.DataFrame({"k": [key[0]], "n": [-state.get[0]], "s": [state.get[1]]})
        state.remove()
        return
    yield from _count(key, pdfs, state)
    # In the next batch, or never.
    state.setTimeoutDuration(1 if state.get[0] % 2 else HOURS_MS)


PANDAS = {
    "NoTimeout": _count,
    "EventTimeTimeout": _count_event,
    "ProcessingTimeTimeout": _count_processing,
}
