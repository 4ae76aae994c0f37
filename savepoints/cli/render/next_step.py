"""The next command for a query that has a new generation."""

from __future__ import annotations

from savepoints.cli.options import Invocation


def next_step(call: Invocation, query: str) -> str:
    """Return the command that starts a query, or how to start its own driver."""
    from savepoints.store import bindings

    if query in bindings.complete(call.store).queries:
        return f"savepoints run {query}"
    checkpoint = call.store.generations.current(query).checkpoint
    return f"start your own driver of {query} with the checkpointLocation {checkpoint}"
