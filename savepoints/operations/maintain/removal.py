"""Removing savepoints that are marked as expired: what `expire` begins and `gc` also finishes.

The lease of the files of the query id is held meanwhile, so no savepoint is added that shares them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from savepoints import faults
from savepoints.model import Labels, Savepoint, SavepointState
from savepoints.plan import Progress
from savepoints.store.locks import journal, readers
from savepoints.store.locks.lease import Lease
from savepoints.store.root import Store
from savepoints.store.savepoint import inventory
from savepoints.store.savepoint.inventory import Inventory
from savepoints.store.savepoint.labels import labels_path
from savepoints.store.savepoint.manifest import manifest_path


@dataclass(frozen=True)
class Removed:
    """What was removed of one query id."""

    ids: tuple[str, ...] = ()
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0


def needed(store: Store) -> dict[str, tuple[str, ...]]:
    """Return which savepoints something else needs now, with the reasons.

    Those are: what a current generation began from, what an unfinished operation names, and what a
    verb reads.
    """
    found: dict[str, list[str]] = {}
    for one in store.generations.living():
        if one.begun_from:
            reason = f"generation {one.generation} of {one.query} began from this savepoint"
            found.setdefault(one.begun_from, []).append(reason)
    for operation in journal.all_unfinished(store.root):
        reason = f"{operation.verb} {operation.id} of {operation.query} is unfinished"
        for name in set(_texts([operation.plan, operation.done])):
            found.setdefault(name, []).append(reason)
    for name, names in readers.holders(store.root).items():
        found.setdefault(name, []).extend(f"is being read: {one}" for one in names)
    return {name: tuple(reasons) for name, reasons in found.items()}


def freed(
    store: Store, there: Inventory, query_id: str, going: Collection[str]
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Find the shared files of a query id that nothing needs without some savepoints.

    Returns:
        The files with their sizes, and why there are none although there may be some: whoever
        cannot read a manifest cannot know which files it names.
    """
    staying = [name for name in there.directories if name not in going]
    problems = there.unknown(query_id, staying)
    if problems:
        left = f"the shared files of {query_id} are kept, because some may be needed"
        return {}, tuple(f"{problem}; {left}" for problem in problems)
    wanted = there.shared(staying)
    exist = inventory.shared_files(store.root, query_id)
    named = there.shared(going)
    return {path: exist[path].size for path in named if path in exist and path not in wanted}, ()


def remove(
    store: Store,
    query_id: str,
    ids: Sequence[str],
    held: Lease,
    *,
    whole: Collection[str] = (),
    progress: Progress,
) -> Removed:
    """Remove those of some savepoints that are marked as expired, unless something needs them.

    Args:
        whole: Those that were marked just now, of which nothing is deleted yet.
    """
    rows = store.catalog.all()
    expired = [one for one in rows if one.id in ids and one.state == "expired"]
    # Only now, after they were marked: a reader that came before has left its sign.
    needs = needed(store)
    there = inventory.list_directories(store.root, rows, {query_id})
    spared = [one for one in expired if one.id in needs]
    if spared:
        _spare(store, there, query_id, spared, whole)
    going = [one.id for one in expired if one.id not in needs]
    kept = {one.id: needs[one.id] for one in spared}
    if not going:
        return Removed(kept=kept)
    shared, findings = freed(store, there, query_id, going)
    deleted: list[int] = list(shared.values())
    for name in going:
        held.check()
        progress(f"deleting the savepoint {name}")
        found = there.directories[name]
        store.root.delete(info.path for info in found.own)
        deleted += [info.size for info in found.data]
    held.confirm()
    store.root.delete(shared)
    faults.reach("expire.files")
    held.check()
    store.catalog.remove(going)
    faults.reach("expire.row")
    held.check()
    store.root.delete(manifest_path(name) for name in going)
    faults.reach("expire.manifest")
    store.root.delete(labels_path(name) for name in going)
    return Removed(tuple(going), kept, findings, len(deleted), sum(deleted))


def _spare(
    store: Store,
    there: Inventory,
    query_id: str,
    spared: Sequence[Savepoint],
    whole: Collection[str],
) -> None:
    """Take the mark back from savepoints of which nothing is deleted yet."""
    sizes = {name: info.size for name, info in inventory.shared_files(store.root, query_id).items()}
    states: dict[SavepointState, list[str]] = {"complete": [], "broken": []}
    for one in spared:
        found = there.directories.get(one.id)
        if one.id in whole or (found and found.manifest and not there.missing(one.id, sizes)):
            states["broken" if one.state_reason else "complete"].append(one.id)
    for state, ids in states.items():
        if ids:
            store.catalog.relabel(ids, partial(_unmarked, state=state))


def _unmarked(labels: Labels, *, state: SavepointState) -> Labels:
    return replace(labels, state=state) if labels.state == "expired" else labels


def _texts(value: object) -> Iterator[str]:
    """Yield all texts within a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
