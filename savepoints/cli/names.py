"""Completion of names from the store, so that no one has to type an id.

On any error nothing is suggested: a shell shows what is printed here in the middle of a line.
For a store on a local disk neither a JVM nor the network is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from savepoints.store.root import Store

Suggest = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _suggesting(find: Callable[[Store], Iterable[tuple[str, str]]]) -> Suggest:
    """Turn a function that yields names and their meanings into a completion."""

    def suggest(
        context: click.Context, _parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            found = dict(find(_store(context)))
        except Exception:  # noqa: BLE001  (no settings, no store, no rights: nothing to suggest)
            return []
        return [
            CompletionItem(name, help=meaning)
            for name, meaning in found.items()
            if name.startswith(incomplete)
        ]

    return suggest


def _store(context: click.Context) -> Store:
    from savepoints.config import settings
    from savepoints.store.root import Store

    given: dict[str, Any] = {}
    here: click.Context | None = context
    while here is not None:
        given = {name: value for name, value in here.params.items() if value is not None} | given
        here = here.parent
    known = settings.load(
        file=given.get("config"),
        profile=given.get("profile"),
        flags={"store": given.get("store_uri")},
    )
    return Store.open(str(known.store))


def _savepoints(store: Store) -> Iterable[tuple[str, str]]:
    found = store.catalog.all()
    if found:
        yield "latest", "the newest good savepoint"
    for one in found:
        for tag in one.tags:
            yield tag, f"{one.query}, batch {one.cut.batch_id}: {one.id}"
    for one in found:
        yield one.id, f"{one.query}, batch {one.cut.batch_id}"


def _queries(store: Store) -> Iterable[tuple[str, str]]:
    for one in store.generations.living():
        yield one.query, f"generation {one.generation}"


def _operations(store: Store) -> Iterable[tuple[str, str]]:
    from savepoints.store.locks import journal

    for one in journal.all_operations(store.root):
        yield one.id, f"{one.verb} of {one.query}, {one.state}"


savepoint_names = _suggesting(_savepoints)
query_names = _suggesting(_queries)
operation_ids = _suggesting(_operations)
