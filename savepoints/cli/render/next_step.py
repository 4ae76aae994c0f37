"""The program of a query that has a new generation, and the next command for it."""

from __future__ import annotations

from savepoints.cli.options import Invocation
from savepoints.uri import Uri


def program(call: Invocation, query: str) -> list[tuple[str, str]]:
    """Return which program goes on, as a pair; nothing for a query in your own driver."""
    from savepoints.store import bindings

    bound = bindings.complete(call.store).queries.get(query)
    return [("program", bound.app)] if bound is not None else []


def next_step(call: Invocation, query: str) -> str:
    """Return the command with which a query goes on, or how to start its own driver."""
    from savepoints.store import bindings
    from savepoints.store.locks import lease

    if lease.paused_holder(call.store.root, query):
        return f"savepoints resume {query}"
    if query in bindings.complete(call.store).queries:
        return f"savepoints run {query}"
    checkpoint = Uri.parse(call.store.generations.current(query).checkpoint).for_spark
    return f"start your own driver for {query} with the checkpointLocation {checkpoint}"
