"""Bindings: what a generation is bound to where the settings say nothing of it, or not yet.

A fork is a query that no settings file names; a promoted query goes on with the program of its
fork while the file still names the old one. `bindings/<query>/<generation>.json` says so, is
written before the generation begins, and never changes. See ADR 15.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from savepoints.config.settings import QuerySettings, Settings
from savepoints.io import Location
from savepoints.json_values import from_json
from savepoints.model import Placed, checked_name
from savepoints.store.root import Store
from savepoints.store.savepoint.sealed import Document
from savepoints.uri import spelled

DIRECTORY = "bindings"
_PROGRAM = frozenset({"app", "app_name"})
# Fields with places, each of which has several spellings: to change that changes nothing.
_PLACES = frozenset({"archives", "checkpoints", "outputs", "tables"})


@dataclass(frozen=True)
class CloneOf:
    """What a shallow clone needs.

    Attributes:
        uri: The table whose files it reads.
        version: At which version.
    """

    uri: str
    version: int


@dataclass(frozen=True)
class Binding(Placed):
    """What one generation of a query is bound to.

    Attributes:
        query: Name of the query.
        generation: The number of the generation.
        bound: The table `[queries.NAME]` of that generation, written in the settings or not, as
            JSON values.
        instead_of: Values of the settings when it was written that those of `bound` replace, each
            for as long as the settings still have it. Empty for a query that the settings did not
            name: then all of `bound` applies until they do.
        clone_of: By output, the table and version whose files it reads; VACUUM there breaks it.
    """

    query: str
    generation: int
    bound: Mapping[str, Any]
    instead_of: Mapping[str, Any]
    clone_of: Mapping[str, CloneOf] = field(default_factory=dict)

    @property
    def has_outputs(self) -> bool:
        """Whether the tables are its own: a fork's, and those of a query pointed at a fork's."""
        return not self.instead_of or "outputs" in self.instead_of

    def settings(self) -> QuerySettings:
        """Return it as settings."""
        return QuerySettings.model_validate(dict(self.bound))


def fresh(
    query: str, generation: int, bound: QuerySettings, clone_of: Mapping[str, CloneOf] | None = None
) -> Binding:
    """Return the binding of a query that the settings do not name."""
    return Binding(query, generation, _json(bound), {}, clone_of or {})


def overriding(
    query: str, generation: int, given: QuerySettings, changes: Mapping[str, Any]
) -> Binding:
    """Return a binding that holds until the settings are changed."""
    was = _json(given)
    bound = _json(given.model_copy(update=dict(changes)))
    return Binding(query, generation, bound, {name: was[name] for name in changes})


def write(root: Location, query: str, generation: int, binding: Binding | None) -> None:
    """Write the binding of a generation that is about to begin, None for the settings alone.

    Who holds the query's lease writes it, in place of what an undone operation may have left.
    """
    if binding is None:
        root.delete([_path(query, generation)])
        return
    own = replace(binding, query=query, generation=generation)
    _document(root, query, generation).put(own)


def find(root: Location, query: str, generation: int) -> Binding | None:
    """Return the binding of a generation, None when the settings alone hold."""
    return _document(root, query, generation).read()


def every(root: Location) -> list[Binding]:
    """Return what each generation is bound to that is bound to anything."""
    paths = [info.path for info in root.list(DIRECTORY) if info.path.endswith(".json")]
    found = []
    for path in paths:
        query, name = path.split("/")[1:]
        binding = find(root, query, int(name.removesuffix(".json")))
        found += [] if binding is None else [binding]
    return found


def complete(store: Store, *, generations: Mapping[str, int] | None = None) -> Settings:
    """Return the store's settings with what the current generations are bound to.

    The settings win wherever somebody has changed them since a binding was written; so to complete
    them twice changes nothing.

    Args:
        generations: Generations of some queries to take instead of their current ones; for these
            queries the settings must not be completed already.
    """
    settings = store.settings
    if not store.root.list(DIRECTORY):
        return settings
    current = {one.query: one.generation for one in store.generations.living()}
    for query, generation in {**current, **(generations or {})}.items():
        settings = apply(settings, query, find(store.root, query, generation))
    return settings


def apply(settings: Settings, query: str, binding: Binding | None) -> Settings:
    """Return the settings with what a generation of a query is bound to."""
    if binding is None:
        return settings
    given, bound = settings.queries.get(query), binding.settings()
    if given is not None:
        holding = {name: getattr(bound, name) for name in _holding(binding, given)}
        bound = given.model_copy(update=holding)
    return settings.model_copy(update={"queries": {**settings.queries, query: bound}})


def taken_back(
    query: str, generation: int, binding: Binding, given: QuerySettings
) -> Binding | None:
    """Return the binding of a generation that goes back to before another one's binding.

    Somebody may have written into the settings since what that binding stood for; then what they
    had before holds again.

    Returns:
        None when the settings were not changed so.
    """
    now = _json(given)
    written = {
        name: was
        for name, was in binding.instead_of.items()
        if not _same(name, now[name], was) and _same(name, now[name], binding.bound[name])
    }
    before = QuerySettings.model_validate({**now, **written})
    changes = {name: getattr(before, name) for name in written}
    return overriding(query, generation, given, changes) if changes else None


def _holding(binding: Binding, given: QuerySettings) -> list[str]:
    """Return the fields of a binding that hold: what the settings said of them is still there."""
    now = _json(given)
    replaced = binding.instead_of.items()
    same = [name for name, value in replaced if _same(name, now[name], value)]
    # A program and the name in it belong together.
    changed = binding.instead_of.keys() - set(same)
    return [name for name in same if not (name in _PROGRAM and changed & _PROGRAM)]


def _same(name: str, one: object, other: object) -> bool:
    return _spelled(name, one) == _spelled(name, other)


def _spelled(name: str, value: object) -> object:
    if name in _PLACES and isinstance(value, Mapping):
        return {key: spelled(str(uri)) for key, uri in value.items()}
    return spelled(value) if name in _PLACES and isinstance(value, str) else value


def _json(bound: QuerySettings) -> dict[str, Any]:
    return bound.model_dump(mode="json")


def _document(root: Location, query: str, generation: int) -> Document[Binding]:
    hint = (
        f"write the program, outputs and topics of generation {generation} of {query} into "
        f"[queries.{query}] of savepoints.toml, then delete the file"
    )
    return Document(root, _path(query, generation), partial(from_json, Binding), hint)


def _path(query: str, generation: int) -> str:
    return f"{DIRECTORY}/{checked_name(query, 'query')}/{generation}.json"
