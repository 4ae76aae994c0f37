"""Orphans: what lies in a store and no catalog row names. Only looked at here; see `gc`.

Nothing younger than a grace time counts. Age is this machine's time less the time at which the
store says that a file was written, which is why the grace should be long against the difference of
the two clocks. On a local file system copies are hard links, as old as what they are copies of: so
the time in an id counts too. What does not have the form of what savepoints writes is somebody
else's and left: a store may lie where others have files, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from savepoints.errors import VerificationError
from savepoints.io import ObjectInfo
from savepoints.io_errors import plain
from savepoints.model import is_id
from savepoints.moments import utc_now
from savepoints.operations.maintain import removal
from savepoints.store.locks import journal, readers
from savepoints.store.root import TABLES, Store
from savepoints.store.savepoint import inventory, labels
from savepoints.store.savepoint.inventory import Directory, Inventory
from savepoints.store.savepoint.manifest import directory, manifest_path
from savepoints.store.tables import checksums, dropped_files
from savepoints.texts import count_text

OrphanKind = Literal[
    "savepoint", "directory", "shared", "mounted", "rows", "scratch", "sign", "table"
]
# What an export leaves in a savepoint; deleted under its lease.
OF_EXPORT: tuple[OrphanKind, ...] = ("mounted", "rows")
RepairAction = Literal["adopt", "delete", "finish"]


@dataclass(frozen=True)
class Orphan:
    """Something in the store that no catalog row names.

    Attributes:
        place: Its place in the store.
        kind: `savepoint` is a whole one or one whose removal was interrupted, `directory` the
            remains of one, `shared` are files that savepoints could share, `mounted` and `scratch`
            temporary files, `rows` those of an export that was not finished, `sign` that of a
            reader that is gone, `table` files of a table of the store that no version has.
        action: What to do with it; `finish` means an interrupted removal.
        why: Why, for people.
        query_id: Spark's id of the query it belongs to, None when it belongs to none or if that is
            not known.
        files: Its files with their sizes.
        bytes: Their total size.
    """

    place: str
    kind: OrphanKind
    action: RepairAction
    why: str
    query_id: str | None
    files: Mapping[str, int]
    bytes: int

    @property
    def name(self) -> str:
        """The last part of its place, such as the savepoint's id."""
        return self.place.rpartition("/")[2]

    @property
    def repair(self) -> str:
        """What is done about it, for people."""
        if self.action == "adopt":
            return f"add {self.name} to the catalog"
        if self.action == "finish":
            return f"finish removing {self.name}"
        if self.kind == "table":
            return f"delete {count_text(len(self.files), 'file')} of {self.place}"
        return f"delete {self.place}"


@dataclass(frozen=True)
class FoundOrphans:
    """What was found."""

    orphans: tuple[Orphan, ...]
    young: int
    findings: tuple[str, ...]
    there: Inventory


class _Search:
    """One look at a store."""

    def __init__(self, store: Store, grace: timedelta) -> None:
        self.store = store
        self.oldest = utc_now() - grace
        self.rows = store.catalog.all()
        self.there = inventory.list_directories(store.root, self.rows)
        # Before the signs of who works there, which come before the files and go after them.
        self.scratch = store.root.list("scratch")
        self.needs = removal.needed(store)
        self.orphans: list[Orphan] = []
        self.findings: list[str] = []
        self.young = 0

    def add(
        self,
        place: str,
        kind: OrphanKind,
        action: RepairAction,
        why: str,
        query_id: str | None,
        files: Iterable[ObjectInfo],
        *,
        graced: bool = True,
    ) -> bool:
        """Keep what is old enough; say whether it is."""
        infos = tuple(files)
        times = [info.last_modified for info in infos] if graced else []
        made = [moment for part in place.split("/") if graced and (moment := _time_in(part))]
        if any(moment > self.oldest for moment in (*times, *made)):
            self.young += 1
            return False
        sizes = {info.path: info.size for info in infos}
        size = sum(sizes.values())
        self.orphans.append(Orphan(place, kind, action, why, query_id, sizes, size))
        return True


def find(store: Store, grace: timedelta) -> FoundOrphans:
    """Look at everything in a store; refuse one whose catalog was lost: manifests and no rows."""
    search = _Search(store, grace)
    with_manifest = [
        one.savepoint_id
        for one in search.there.directories.values()
        if any(info.path == manifest_path(one.savepoint_id) for info in one.files)
    ]
    if with_manifest and not search.rows:
        raise VerificationError(
            f"the catalog of {store.root} is empty, but the store has the manifests of "
            f"{count_text(len(with_manifest), 'savepoint')} (first: {min(with_manifest)})",
            hint="rebuild the catalog first: savepoints check --rebuild-catalog",
            savepoints=len(with_manifest),
        )
    shared = _shared(search)
    doomed = {
        one.savepoint_id
        for one in search.there.directories.values()
        if (_look_at_row(search, one) if one.row else _look_at_directory(search, one, shared))
    }
    for query_id, infos in shared.items():
        _look_at_shared(search, query_id, infos, doomed)
    _look_at_the_rest(search)
    _look_at_tables(search)
    return FoundOrphans(
        tuple(search.orphans), search.young, tuple(dict.fromkeys(search.findings)), search.there
    )


def _look_at_row(search: _Search, one: Directory) -> bool:
    """Look at a savepoint: what an export left in it, and whether its removal was interrupted."""
    assert one.row
    place = directory(one.savepoint_id)
    if one.row.state == "expired":
        why = "its removal was interrupted"
        search.add(place, "savepoint", "finish", why, one.query_id, one.files, graced=False)
        return False
    if one.savepoint_id not in search.needs:
        for kind, infos in left_by_export(one).items():
            why = f"{'rows' if kind == 'rows' else 'files'} of an interrupted export"
            search.add(_place_of(kind, place), kind, "delete", why, one.query_id, infos)
    return False


def left_by_export(one: Directory) -> dict[OrphanKind, list[ObjectInfo]]:
    """Return the files that an export left in a savepoint, unless one is at work there.

    Rows are left by one that did not get as far as to name them in the manifest.
    """
    kinds: list[OrphanKind] = ["mounted"]
    if one.manifest and "canonical" not in one.manifest.savepoint.forms:
        kinds.append("rows")
    place = directory(one.savepoint_id)
    found = {
        kind: [info for info in one.files if info.path.startswith(f"{_place_of(kind, place)}/")]
        for kind in kinds
    }
    return {kind: infos for kind, infos in found.items() if infos}


def _place_of(kind: OrphanKind, place: str) -> str:
    return f"{place}/{'state' if kind == 'rows' else kind}"


def _look_at_directory(
    search: _Search, one: Directory, shared: Mapping[str, Mapping[str, ObjectInfo]]
) -> bool:
    """Look at a directory without a row; say whether it is to be deleted."""
    if one.savepoint_id in search.needs:
        return False  # An interrupted operation that is run again goes on with it.
    said, unclear = None, one.problem if one.is_newer else ""
    try:
        said = labels.read(search.store.root, one.savepoint_id)
    except VerificationError as error:
        unclear = unclear or (error.message if one.manifest else "")
    if unclear:
        search.findings.append(f"{one.savepoint_id} is left as it is: {unclear}")
        return False
    place = directory(one.savepoint_id)
    removed = said is not None and said.state == "expired"
    sizes = {path: info.size for path, info in shared.get(one.query_id or "", {}).items()}
    missing = search.there.missing(one.savepoint_id, sizes)
    if one.manifest and not missing and not removed:
        why = "is complete but has no row in the catalog"
        search.add(place, "savepoint", "adopt", why, one.query_id, one.files)
        return False
    lacks = (
        f"is missing {len(missing)} of its files (first: {missing[0]})" if missing else one.problem
    )
    why = "its removal was interrupted" if removed else lacks
    return search.add(
        place, "directory", "delete", why, one.query_id, one.files, graced=not removed
    )


def _look_at_shared(
    search: _Search, query_id: str, infos: Mapping[str, ObjectInfo], doomed: Collection[str]
) -> None:
    """Find the shared files of a query id that no manifest names."""
    staying = [name for name in search.there.directories if name not in doomed]
    named = search.there.shared(staying)
    unnamed = [info for path, info in infos.items() if path not in named]
    if not unnamed:
        return
    if problems := search.there.unknown(query_id, staying):
        left = f"keeping {count_text(len(unnamed), 'shared file')} of {query_id} that it may need"
        search.findings += [f"{problem}; {left}" for problem in problems]
        return
    old = [info for info in unnamed if info.last_modified <= search.oldest]
    search.young += len(unnamed) - len(old)
    if old:
        place = f"{inventory.SHARED}/{query_id}"
        search.add(place, "shared", "delete", "no manifest refers to them", query_id, old)


def _look_at_the_rest(search: _Search) -> None:
    """Find what was laid out for a while, and signs of readers that are gone."""
    root = search.store.root
    laid_out: dict[str, list[ObjectInfo]] = {}
    for info in search.scratch:
        name = info.path.split("/")[1]
        if is_id(name):
            laid_out.setdefault(f"scratch/{name}", []).append(info)
    going_on = {f"scratch/{one.id}" for one in journal.all_unfinished(root)}
    for place, files in laid_out.items():
        if place in going_on or place.rpartition("/")[2] in search.needs:
            continue  # What a merge has made, which it is finished with, or what is in use.
        search.add(
            place,
            "scratch",
            "delete",
            "temporary files of a process that was interrupted",
            None,
            files,
        )
    gone = set(readers.leftovers(root))
    for info in root.list("uses"):
        if info.path in gone:
            search.add(info.path, "sign", "delete", "marks a reader that is gone", None, [info])


def _look_at_tables(search: _Search) -> None:
    """Find files of the store's own tables that compaction has replaced, or Delta cleaned up."""
    from deltalake.exceptions import DeltaError

    for name in TABLES:
        table = search.store.root / name
        try:
            found = dropped_files.find(table, search.oldest)
            found += checksums.outdated(table, search.oldest)
        except (DeltaError, OSError) as error:
            search.findings.append(f"{name} is left as it is: {plain(str(error))[:200]}")
            continue
        if found:
            files = [replace(one, path=f"{name}/{one.path}") for one in found]
            search.add(name, "table", "delete", "no version has these files any more", None, files)


def _shared(search: _Search) -> dict[str, dict[str, ObjectInfo]]:
    """List the shared files by query id."""
    found: dict[str, dict[str, ObjectInfo]] = {}
    for info in search.store.root.list(inventory.SHARED):
        if inventory.is_shared(info.path):
            found.setdefault(info.path.split("/")[1], {})[info.path] = info
    return found


def _time_in(name: str) -> datetime | None:
    """Return the time in an id, None when it is none."""
    if not is_id(name.removesuffix(".json")):
        return None
    try:
        return datetime.strptime(name[3:18], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
