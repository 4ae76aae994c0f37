"""Does what lies in the store fit together? Catalog, generations, events, leases, operations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from shlex import quote

from savepoints.errors import SavepointsError, VerificationError
from savepoints.io import Location, in_parallel
from savepoints.model import Generation, Savepoint, is_id
from savepoints.operations.check import histories
from savepoints.operations.inspect import verification
from savepoints.operations.inspect.findings import Seen
from savepoints.operations.maintain import gc
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.store.savepoint import inventory
from savepoints.store.savepoint.inventory import Directory
from savepoints.store.savepoint.manifest import manifest_path
from savepoints.store.tables import checksums
from savepoints.texts import count_text

_REBUILD = "savepoints check --rebuild-catalog"
_LOST_ROWS = "restore the files of the table from a backup, because rows were lost"
_REPEATED = "restore the table's files from a backup, because its Delta log is damaged"
# Files without which a table is not what it was; checksums and hints are beside it.
_READ = re.compile(r"\w+/(?:[^/]+\.parquet|_delta_log/\d+\.(?:json|checkpoint\.parquet))")
_TABLES = {
    "catalog": f"rebuild it: {_REBUILD}",
    "generations": (
        "compare `savepoints lineage` with your own records; to accept the table as it is, delete "
        "generations/_sums/, which the next commit writes again"
    ),
    "events": (
        "to accept the table as it is, delete events/_sums/, which the next commit writes again"
    ),
}


def check_contents(store: Store) -> list[Seen]:
    """Look at everything but the files of savepoints, which `verify` reads."""
    # Files first: reading damaged Parquet can end the process (a length that became a huge one).
    files = _table_files(store.root)
    unfit = {
        table: one.name
        for one in files
        if one.grade == "broken" and _READ.fullmatch(one.name)
        for table in [one.name.partition("/")[0]]
    }
    rows = _unread("catalog", unfit) or _catalog_rows(store)
    seen = []
    if not store.exists():
        what = f"there is no store at {store.root} yet"
        seen.append(
            Seen(
                "store",
                "warning",
                what,
                f"create it: savepoints init --store {quote(str(store.root))} (savepoints run also "
                "does this)",
            )
        )
    seen += [rows] if isinstance(rows, Seen) else _catalog(store, rows)
    seen += [one] if (one := _unread("generations", unfit)) else _generations(store)
    seen.append(_unread("events", unfit) or _events(store))
    seen += files
    seen += _operations(store.root)
    if not any(one.name == "generations" and one.grade == "broken" for one in seen):
        seen += histories.check_histories(store, [] if isinstance(rows, Seen) else rows)
    seen += _leases(store.root)
    if not isinstance(rows, Seen):
        seen += _leftovers(store, {one.name for one in seen})
    return seen


def _unread(table: str, unfit: Mapping[str, str]) -> Seen | None:
    """Report that a table is not read because one of its files is damaged; None when none is."""
    if table not in unfit:
        return None
    return Seen(table, "broken", f"was not read, because {unfit[table]} is damaged", _TABLES[table])


def _catalog_rows(store: Store) -> list[Savepoint] | Seen:
    try:
        rows = store.catalog.all()
    except VerificationError as error:
        return Seen("catalog", "broken", error.message, f"rebuild it: {_REBUILD}")
    hostile = [one.id for one in rows if not is_id(one.id)]
    if hostile:
        what = f"has rows with invalid ids, for example {hostile[0]!r}"
        return Seen("catalog", "broken", what, f"rebuild it: {_REBUILD}")
    return rows


def _catalog(store: Store, rows: Sequence[Savepoint]) -> list[Seen]:
    directories = inventory.list_directories(store.root, rows).directories
    found = in_parallel(
        lambda one: _compare(store, one, directories.get(one.id)),
        [one for one in rows if one.state != "expired"],
    )
    seen = [one for some in found for one in some]
    seen += _repeated("catalog", [one.id for one in rows])
    known = {one.id for one in rows}
    seen += [
        Seen(
            one.savepoint_id,
            "warning",
            "has a manifest but no row in the catalog, so it is invisible to all commands",
            f"add its row: {_REBUILD}",
        )
        for one in directories.values()
        if one.savepoint_id not in known and (one.manifest or one.is_newer)
    ]
    seen += [
        Seen(manifest_path(one.savepoint_id), "warning", one.problem, "remove it: savepoints gc")
        for one in directories.values()
        if one.savepoint_id not in known and "cannot be read" in one.problem
    ]
    names = {info.path.split("/")[1] for info in store.root.list("savepoints")}
    if foreign := sorted(name for name in names if not is_id(name)):
        what = (
            f"has {count_text(len(foreign), 'entry')} without a savepoint id, for example "
            f"{foreign[0]!r}"
        )
        seen.append(Seen("savepoints/", "warning", what, "inspect them and delete them by hand"))
    if not seen:
        what = (
            f"{count_text(len(rows), 'savepoint')}, all consistent with their manifests and labels"
        )
        seen.append(Seen("catalog", "ok", what))
    return seen


def _compare(store: Store, row: Savepoint, found: Directory | None) -> list[Seen]:
    if found is None or found.manifest is None:
        problem = found.problem if found else "has no manifest"
        advice = f"use another savepoint; to remove rows that have no manifest: {_REBUILD}"
        return [Seen(manifest_path(row.id), "broken", f"{row.id} {problem}", advice)]
    seen = [
        Seen(one.what, one.grade, one.problem, f"rebuild the row: {_REBUILD}")
        for one in verification.compare_with_catalog(store.root, row, found.manifest)
    ]
    if row.state == "broken":
        what = f"is broken: {row.state_reason}"
        advice = f"use another savepoint; to check this one again: savepoints verify {row.id}"
        seen.append(Seen(row.id, "warning", what, advice))
    return seen


def _repeated(table: str, keys: Iterable[object]) -> list[Seen]:
    """Find rows that are there twice, as when the removal of an old file was lost."""
    return [
        Seen(table, "broken", f"has {count} rows for {key} instead of one", _REPEATED)
        for key, count in Counter(keys).items()
        if count > 1
    ]


def _generations(store: Store) -> list[Seen]:
    try:
        known = store.generations.all()
    except VerificationError as error:
        return [Seen("generations", "broken", error.message, "restore its files from a backup")]
    seen = _repeated("generations", [f"{one.query} {one.generation}" for one in known])
    for query in sorted({one.query for one in known}):
        mine = [one for one in known if one.query == query]
        numbers = {one.generation for one in mine}
        lost = sorted(set(range(1, max(numbers) + 1)) - numbers)
        if lost:
            what = f"generation {lost[0]} of {query} is missing"
            seen.append(Seen("generations", "broken", what, _LOST_ROWS))
        current = [one for one in mine if one.status == "current"]
        # What superseded the newest that is known must be there; after `end` there is nothing.
        has_ended = not current and not mine[0].is_superseded
        if len(current) != 1 and not has_ended:
            what = f"{query} has {len(current)} current generations instead of one"
            seen.append(Seen("generations", "broken", what, _LOST_ROWS))
        seen += [one for one in map(_checkpoint, current) if one is not None]
    return seen or [Seen("generations", "ok", f"{len(known)}, with their checkpoints")]


def _checkpoint(generation: Generation) -> Seen | None:
    try:
        if Location.of(generation.checkpoint).exists("metadata"):
            return None
        what = "has no file 'metadata'"
    except SavepointsError as error:
        what = f"cannot be read: {error.message}"
    return Seen(
        f"checkpoint of {generation.query}",
        "warning",
        f"{generation.checkpoint} of generation {generation.generation} {what}",
        "ignore this if the query has not run a batch yet; otherwise roll back: savepoints "
        f"rollback latest --query {generation.query}",
    )


def _events(store: Store) -> Seen:
    try:
        return Seen("events", "ok", f"{count_text(len(store.events.all()), 'event')}")
    except VerificationError as error:
        advice = (
            "move the directory events/ elsewhere, which starts a new table; until then, all "
            "commands work without it"
        )
        return Seen("events", "broken", error.message, advice)


def _table_files(root: Location) -> list[Seen]:
    """Compare the files of the tables with their checksums: flipped bits need not show in rows."""
    seen = [
        Seen(
            f"{table}/{path}",
            "warning" if problem.startswith(checksums.UNKNOWN) else "broken",
            problem,
            "" if problem.startswith(checksums.UNKNOWN) else advice,
        )
        for table, advice in _TABLES.items()
        for path, problem in checksums.problems(root / table).items()
    ]
    return seen or [Seen("table files", "ok", "all unchanged since they were written")]


def _operations(root: Location) -> list[Seen]:
    paths = [info.path for info in root.list("operations") if info.path.endswith(".json")]
    looked = in_parallel(lambda path: _operation(root, path), paths)
    seen = [one for one in looked if one is not None]
    return seen or [Seen("operations", "ok", "no unfinished operations")]


def _operation(root: Location, path: str) -> Seen | None:
    try:
        operation = journal.document(root, path).read()
    except VerificationError as error:
        advice = (
            "make sure that neither the query nor a savepoints command for it is running, then "
            "delete the file"
        )
        return Seen(path, "broken", error.message, advice)
    # None: it was finished at this moment.
    if operation is None or operation.finished_at is not None or path.count("/") > 1:
        return None
    what = (
        f"{operation.verb} of {operation.query} was interrupted, or is running now; "
        f"done so far: {operation.done_text}"
    )
    return Seen(path, "warning", what, f"finish it: {operation.command}")


def _leases(root: Location) -> list[Seen]:
    paths = [
        info.path
        for directory in ("leases", "uses")
        for info in root.list(directory)
        if info.path.endswith(".json")
    ]
    seen, held = [], []
    for path, record in zip(paths, in_parallel(_reader(root), paths), strict=True):
        if isinstance(record, VerificationError):
            seen.append(Seen(path, "broken", record.message, record.hint))
        elif record is not None and not record.is_free():
            held.append(f"{record.verb} of {record.query} by {record.who}")
    free = len(paths) - len(held) - len(seen)
    summary = f"{len(held)} held, {free} free" + "".join(f"; {one}" for one in held)
    return [*seen, Seen("leases", "ok", summary)]


def _reader(root: Location) -> Callable[[str], lease.LeaseRecord | VerificationError | None]:
    def read(path: str) -> lease.LeaseRecord | VerificationError | None:
        try:
            return lease.read(root, path)
        except VerificationError as error:
            return error

    return read


def _leftovers(store: Store, named: set[str]) -> list[Seen]:
    """Ask `gc` what it would do; what was named already is not named twice."""
    try:
        plan = gc.plan(store)
    except SavepointsError as error:
        return [Seen("leftovers", "warning", error.message, error.hint)]
    seen = [
        Seen("leftovers", "warning", one, "inspect the manifest that it names")
        for one in plan.warnings
    ]
    seen += [
        Seen(one.place, "warning", one.why, f"{one.repair}: savepoints gc --yes")
        for one in plan.orphans
        if one.name not in named
    ]
    young = f"; too recent to judge: {plan.young}" if plan.young else ""
    return seen or [Seen("leftovers", "ok", f"none{young}")]
