"""How long a verb kept a running query from writing."""

from __future__ import annotations

from datetime import timedelta

from savepoints.config.duration import duration_text


def pause_pair(seconds: float | None) -> tuple[str, str]:
    """Return a line of a result; `seconds` is None for a query that was not running."""
    if seconds is None:
        return ("paused for", "0 s (the query was not running)")
    return ("paused for", duration_text(timedelta(seconds=round(seconds))))


def undo_pair(query: str, *, runs: bool) -> tuple[str, str]:
    """Return a line of a result: how to undo it, which a query that runs is paused for."""
    paused = f"savepoints pause {query} --wait, then " if runs else ""
    return ("undo", f"{paused}savepoints undo {query}")
