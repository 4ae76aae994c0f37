"""`verify`: is a savepoint whole, and can everything it names still be read?

Depths: `structure` looks whether every file is there with its size; `checksums` reads and hashes
every file and compares row counts; `contents` also reads the canonical rows through Spark and
compares the content hash of every operator; `deep` also restores each form into a scratch directory
of the store, reads the state there as Spark would, and compares that.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from savepoints.checkpoint.layout import read_cut
from savepoints.config import Settings
from savepoints.errors import SavepointsError, VerificationError
from savepoints.io import in_parallel
from savepoints.model import Form, Savepoint
from savepoints.operations import restore
from savepoints.operations.plan import Progress, silent
from savepoints.outputs import rewind
from savepoints.store import canonical, manifest
from savepoints.store.manifest import Manifest, StoredFile
from savepoints.store.root import Store

if TYPE_CHECKING:
    from savepoints.state.contents import Contents

Depth = Literal["structure", "checksums", "contents", "deep"]
Grade = Literal["ok", "warning", "broken"]


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        grade: `broken` when the savepoint cannot be restored exactly; `warning` when only something
            around it suffers.
        what: The file, operator or output.
        problem: What is wrong with it.
    """

    grade: Grade
    what: str
    problem: str


@dataclass(frozen=True)
class Report:
    """What `verify` found out about one savepoint.

    Attributes:
        savepoint_id: The savepoint.
        grade: The worst of the findings.
        depth: How deep it was looked.
        files: Files that were looked at.
        bytes_read: Bytes that were read and hashed.
        operators: Operators whose rows and content hash were compared.
        rows: Their rows.
        seconds: How long it took.
        findings: Empty when all is well.
    """

    savepoint_id: str
    grade: Grade
    depth: Depth
    files: int
    bytes_read: int
    operators: int
    rows: int
    seconds: float
    findings: tuple[Finding, ...]


def verify(
    store: Store,
    name: str,
    *,
    query: str | None = None,
    depth: Depth = "contents",
    settings: Settings | None = None,
    progress: Progress = silent,
) -> Report:
    """Verify a savepoint. Nothing is changed.

    Args:
        store: Where it is.
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME`.
        query: Only savepoints of this query.
        depth: How deep to look.
        settings: How to start Spark, for `contents` and `deep`.
        progress: Told what happens.

    Returns:
        The report; a broken savepoint is a finding, not an error.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        AmbiguousNameError: If several fit.
    """
    begun = time.monotonic()
    savepoint = store.catalog.find(name, query=query)
    try:
        stored = store.manifest(savepoint.id)
    except VerificationError as error:
        path = manifest.manifest_path(savepoint.id)
        found = (Finding("broken", path, error.message),)
        return Report(savepoint.id, "broken", depth, 1, 0, 0, 0, time.monotonic() - begun, found)
    findings = _compare_with_catalog(savepoint, stored)
    progress(f"looking at {len(stored.files)} files")
    findings += _look_at_files(store, stored.files, read=depth != "structure")
    damaged = {finding.what for finding in findings}
    canonical_whole = not any(file.stored_at in damaged for file in stored.canonical)
    rows = 0
    if depth != "structure" and stored.canonical and canonical_whole:
        rows, more = _compare_rows(store, savepoint)
        findings += more
        if depth in {"contents", "deep"} and not more and savepoint.operators:
            progress(f"reading {rows} rows (starts Spark if it does not run yet)")
            findings += _compare_contents(store, savepoint, settings or Settings())
    if depth == "deep" and not any(one.grade == "broken" for one in findings):
        for form in savepoint.forms:
            progress(f"restoring the {form} form into a scratch directory")
            findings += _compare_restored(store, savepoint, form, settings or Settings())
    findings += _look_at_outputs(savepoint)
    grades = {finding.grade for finding in findings}
    grade: Grade = "broken" if "broken" in grades else "warning" if grades else "ok"
    return Report(
        savepoint.id,
        grade,
        depth,
        len(stored.files) + 1,
        sum(file.size for file in stored.files) if depth != "structure" else 0,
        len(savepoint.operators),
        rows,
        time.monotonic() - begun,
        tuple(findings),
    )


def _look_at_files(store: Store, files: tuple[StoredFile, ...], *, read: bool) -> list[Finding]:
    """Look at every file, and read and hash it if asked to."""

    def look(file: StoredFile) -> Finding | None:
        try:
            size = store.root.head(file.stored_at).size
            if size != file.size:
                problem = f"has {size} bytes instead of {file.size}"
                return Finding("broken", file.stored_at, problem)
            if read and store.root.sha256(file.stored_at) != file.sha256:
                return Finding("broken", file.stored_at, "its SHA-256 is not the recorded one")
        except FileNotFoundError:
            return Finding("broken", file.stored_at, "is missing")
        return None

    return [finding for finding in in_parallel(look, files) if finding is not None]


def _compare_with_catalog(savepoint: Savepoint, stored: Manifest) -> list[Finding]:
    """The catalog may have other tags and another state than the manifest, and nothing else."""
    changeable = replace(
        stored.savepoint,
        tags=savepoint.tags,
        state=savepoint.state,
        description=savepoint.description,
    )
    if changeable.to_json() == savepoint.to_json():
        return []
    path = manifest.manifest_path(savepoint.id)
    if set(stored.savepoint.forms) > set(savepoint.forms):
        unfinished = f"has an export that is unfinished: savepoints export {savepoint.id}"
        return [Finding("warning", path, unfinished)]
    return [Finding("broken", path, "does not say what the catalog says")]


def _compare_rows(store: Store, savepoint: Savepoint) -> tuple[int, list[Finding]]:
    """Compare the row counts in the canonical table's log with those of the savepoint; no JVM."""
    counts = canonical.row_counts(store.root, savepoint.id)
    findings = [
        Finding(
            "broken",
            f"operator {one.operator_id} ({one.name})",
            f"has {counts.get(one.operator_id, 0)} rows instead of {one.rows}",
        )
        for one in savepoint.operators
        if one.rows is not None and counts.get(one.operator_id, 0) != one.rows
    ]
    return sum(counts.values()), findings


def _compare_contents(store: Store, savepoint: Savepoint, settings: Settings) -> list[Finding]:
    from savepoints.spark import session
    from savepoints.state import contents

    spark = session(settings, f"savepoints verify {savepoint.id}")
    try:
        found = contents.of_table(spark, canonical.table(store.root, savepoint.id).uri)
    except Exception as error:  # noqa: BLE001  (Spark's errors have no common root)
        return [Finding("broken", "state/", f"Spark cannot read it: {str(error)[:300]}")]
    return _compare_hashes(savepoint, found, "")


def _compare_restored(
    store: Store, savepoint: Savepoint, form: Form, settings: Settings
) -> list[Finding]:
    """Restore a form into a scratch directory of the store and compare the state there."""
    from savepoints.spark import session
    from savepoints.state import contents

    where = f"the restored {form} form"
    try:
        with store.scratch() as scratch:
            plan = restore.plan(store, savepoint.id, str(scratch), form=form, owner="verify")
            restore.execute(plan, store, settings=settings)
            files = read_cut(scratch, savepoint.cut.batch_id)
            if not files.operators:
                return []
            spark = session(settings, f"savepoints verify {savepoint.id}")
            found = contents.of_checkpoint(spark, scratch, files)
    except Exception as error:  # noqa: BLE001  (Spark's errors have no common root)
        return [Finding("broken", where, str(error)[:300])]
    return _compare_hashes(savepoint, found, f" in {where}")


def _compare_hashes(
    savepoint: Savepoint, found: Mapping[int, Contents], where: str
) -> list[Finding]:
    """Compare what was read with what the savepoint recorded of each operator, if it did."""
    findings = []
    for one in savepoint.operators:
        there = found.get(one.operator_id)
        content_hash = there.content_hash if there else "0" * 32
        if one.content_hash not in {None, content_hash}:
            what = f"operator {one.operator_id} ({one.name})"
            problem = f"has the content hash {content_hash} instead of {one.content_hash}{where}"
            findings.append(Finding("broken", what, problem))
    return findings


def _look_at_outputs(savepoint: Savepoint) -> list[Finding]:
    """A pinned output version that is gone spoils a rollback, not the savepoint itself."""
    findings = []
    for output in savepoint.outputs:
        try:
            gone = rewind.unreadable_files(output)
        except SavepointsError as error:
            findings.append(Finding("warning", f"output {output.name}", error.message))
            continue
        if gone:
            problem = f"version {output.version} lacks {len(gone)} files, such as {gone[0]}"
            findings.append(Finding("warning", f"output {output.name}", problem))
    return findings
