"""What `verify` looks at: the files of savepoints, their rows, and a restore of them.

Damage is a finding. What says nothing about a savepoint (a store that does not answer, refused
credentials, a Spark that cannot start) is raised: nothing is called damaged because of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING

from savepoints.checkpoint import damage_patterns
from savepoints.checkpoint.cut import read_cut
from savepoints.errors import (
    CheckpointNotFoundError,
    IncompatibleError,
    NoCommittedBatchError,
    NotAlignedError,
    PrivateApiError,
    SavepointsError,
    VerificationError,
)
from savepoints.io import Location, in_parallel
from savepoints.model import Form, OutputVersion, Savepoint, hashes_agree
from savepoints.moments import utc_now
from savepoints.operations.inspect.findings import Finding
from savepoints.operations.inspect.sampling import ReadSubset
from savepoints.operations.savepoint import restore
from savepoints.outputs.delta import retention
from savepoints.outputs.delta.missing_files import unreadable_files
from savepoints.outputs.delta.retention import Lifetime
from savepoints.store.root import Store
from savepoints.store.savepoint import canonical, labels, manifest
from savepoints.store.savepoint.labels import labels_path
from savepoints.store.savepoint.manifest import Manifest, StoredFile
from savepoints.texts import count_text

if TYPE_CHECKING:
    from savepoints.state.storage.canonical_table import Contents

_PROBLEM_LENGTH = 300
# What these say of a savepoint is that it cannot become the checkpoint that it was.
_DAMAGE = (NotAlignedError, CheckpointNotFoundError, NoCommittedBatchError)


@dataclass(frozen=True)
class Looked:
    """What was found out about files, each of which was looked at once."""

    problems: Mapping[StoredFile, str]
    read: Mapping[str, int]

    def of(self, stored: Manifest) -> list[Finding]:
        """Return what is wrong with the files of one savepoint."""
        return [
            Finding("broken", file.stored_at, self.problems[file])
            for file in stored.files
            if file in self.problems
        ]

    def bytes_read(self, stored: Manifest) -> int:
        """Return how much was read of the files of one savepoint."""
        return sum(self.read.get(path, 0) for path in {file.stored_at for file in stored.files})


def check_files(root: Location, manifests: Sequence[Manifest], subset: ReadSubset | None) -> Looked:
    """Look whether every file is there with its size, and read and hash a share of them.

    Args:
        subset: Of which files the SHA-256 is compared, None for none. Logs of Delta tables are
            among them always: the rest of a table cannot be found without.
    """
    files = {file: None for one in manifests for file in one.files}
    homes = {manifest.directory(one.savepoint.id) for one in manifests}
    homes |= {f"files/{one.savepoint.query_id}" for one in manifests}
    sizes: dict[str, int] = {}
    for found in in_parallel(root.list, sorted(homes)):
        sizes.update({info.path: info.size for info in found})
    chosen: frozenset[str] = frozenset()
    if subset is not None:
        paths = {file.stored_at for file in files}
        chosen = subset.of(paths) | {path for path in paths if "/_delta_log/" in path}

    def look(file: StoredFile) -> str | None:
        try:
            size = sizes.get(file.stored_at)
            # Listings leave out what is empty.
            size = root.head(file.stored_at).size if size is None else size
            if size != file.size:
                return f"has {size} bytes instead of {file.size}"
            if file.stored_at in chosen and root.sha256(file.stored_at) != file.sha256:
                return "its SHA-256 does not match the recorded one"
        except FileNotFoundError:
            return "is missing"
        return None

    looked = zip(files, in_parallel(look, list(files)), strict=True)
    return Looked(
        {file: problem for file, problem in looked if problem is not None},
        {
            file.stored_at: sizes[file.stored_at]
            for file in files
            if file.stored_at in chosen & sizes.keys()
        },
    )


def compare_with_catalog(root: Location, row: Savepoint, stored: Manifest) -> list[Finding]:
    """Compare the row with the manifest and the labels, which together say the same."""
    findings, known = [], row.labels
    path = labels_path(row.id)
    try:
        known = labels.read(root, row.id) or stored.savepoint.labels
    except VerificationError as error:
        # State and offsets can be restored without; the catalog still has what it said.
        findings.append(Finding("warning", path, error.message))
    if changed := _differences(row.with_labels(known), row):
        problem = (
            f"and the catalog differ in {changed}; rebuild it: savepoints check --rebuild-catalog"
        )
        findings.append(Finding("warning", path, problem))
    if changed := _differences(stored.savepoint.with_labels(row.labels), row):
        path = manifest.manifest_path(row.id)
        if set(stored.savepoint.forms) > set(row.forms):
            unfinished = f"has an unfinished export; finish it: savepoints export {row.id}"
            findings.append(Finding("warning", path, unfinished))
        else:
            problem = f"does not match the catalog in {changed}"
            findings.append(Finding("broken", path, problem))
    return findings


def _differences(one: Savepoint, other: Savepoint) -> str:
    left, right = one.to_json(), other.to_json()
    return ", ".join(key for key in left if left[key] != right[key])


def compare_rows(store: Store, savepoint: Savepoint) -> tuple[int, list[Finding]]:
    """Compare the row counts in the canonical table's log with those of the savepoint; no JVM."""
    from deltalake.exceptions import DeltaError

    try:
        counts = canonical.row_counts(store.root, savepoint.id)
    except (DeltaError, OSError) as error:
        raise SavepointsError(
            f"the rows in {canonical.table(store.root, savepoint.id)} could not be counted: "
            f"{str(error)[:500]}",
            hint="run the command again: the log of the table is complete, so the error may "
            "be temporary",
            savepoint=savepoint.id,
        ) from None
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


def compare_contents(store: Store, savepoint: Savepoint) -> list[Finding]:
    """Read the canonical rows through Spark and compare the content hash of every operator."""
    from savepoints.spark.session import session
    from savepoints.state.storage import canonical_table

    spark = session(store.settings, f"savepoints verify {savepoint.id}")
    found: Mapping[int, Contents] = {}
    findings: list[Finding] = []
    with _damage_found(findings, "state/", savepoint):
        table = canonical.table(store.root, savepoint.id)
        found = canonical_table.of_table(spark, table, savepoint.operators)
    return findings or _compare_hashes(savepoint, found, "")


def compare_restored(store: Store, savepoint: Savepoint, form: Form) -> list[Finding]:
    """Restore a form into a scratch directory of the store and compare the state there."""
    where = f"the restored {form} form"
    found: Mapping[int, Contents] | None = None
    findings: list[Finding] = []
    with store.scratch() as scratch, _damage_found(findings, where, savepoint):
        plan = restore.plan(
            store, savepoint.id, str(scratch), form=form, owner="verify", asked=False
        )
        restore.execute(plan, store)
        files = read_cut(scratch, savepoint.cut.batch_id)
        if files.operators:
            from savepoints.spark.session import session
            from savepoints.state.storage import canonical_table

            spark = session(store.settings, f"savepoints verify {savepoint.id}")
            found = canonical_table.of_checkpoint(spark, scratch, files)
    if findings or found is None:
        return findings
    return _compare_hashes(savepoint, found, f" in {where}")


def check_outputs(savepoint: Savepoint) -> tuple[list[Finding], tuple[Lifetime, ...]]:
    """Look at every output; one that is gone spoils a rollback, not the savepoint itself."""
    looked = in_parallel(_look_at, savepoint.outputs)
    findings = [one for found, _ in looked for one in found]
    return findings, tuple(one for _, one in looked if one is not None)


def _look_at(output: OutputVersion) -> tuple[list[Finding], Lifetime | None]:
    what = f"output {output.name}"
    try:
        gone = unreadable_files(output)
        if gone:
            problem = f"version {output.version} of {output.uri} is missing "
            problem += f"{count_text(len(gone), 'file')} (first: {gone[0]})"
            return [Finding("warning", what, problem)], None
        known = retention.of_output(output)
    except SavepointsError as error:
        return [Finding("warning", what, error.message)], None
    problem = known.problem(utc_now()) or ""
    return ([Finding("warning", what, problem)] if problem else []), known


@contextmanager
def _damage_found(findings: list[Finding], what: str, savepoint: Savepoint) -> Iterator[None]:
    """Make a finding of an error that is about the savepoint; raise every other."""
    try:
        yield
    except PrivateApiError as error:
        findings.append(_not_checked(what, error.message))
    except SavepointsError as error:
        if isinstance(error, IncompatibleError):
            findings.append(_unreadable(what, error.message, savepoint))
        elif isinstance(error, _DAMAGE):
            findings.append(Finding("broken", what, error.message[:_PROBLEM_LENGTH]))
        else:
            raise
    except Exception as error:
        text = str(error)
        if any(pattern in text for pattern in damage_patterns.ELSEWHERE):
            raise SavepointsError(
                f"cannot read {what} of savepoint {savepoint.id}: {text[:300]}",
                hint="fix the cause and run the command again; the savepoint itself may be "
                "undamaged",
                savepoint=savepoint.id,
            ) from error
        findings.append(_unreadable(what, f"Spark cannot read it: {text}", savepoint))


def _unreadable(what: str, problem: str, savepoint: Savepoint) -> Finding:
    """Explain why contents cannot be read although all checksums match.

    That of the Spark which wrote the rows is a fact about the savepoint, and that of another one is
    none: a newer Spark writes what an older one does not know.
    """
    if savepoint.spark_version == metadata.version("pyspark"):
        return Finding("broken", what, problem[:_PROBLEM_LENGTH])
    return _not_checked(what, problem)


def _not_checked(what: str, problem: str) -> Finding:
    reason = f"was not checked with Spark {metadata.version('pyspark')}: {problem}"
    return Finding("warning", what, reason[:_PROBLEM_LENGTH])


def _compare_hashes(
    savepoint: Savepoint, found: Mapping[int, Contents], where: str
) -> list[Finding]:
    """Compare what was read with what the savepoint recorded of each operator, if it did."""
    findings = []
    for one in savepoint.operators:
        there = found.get(one.operator_id)
        content_hash = there.content_hash if there else "0" * 32
        if not hashes_agree(one.content_hash, content_hash):
            what = f"operator {one.operator_id} ({one.name})"
            problem = f"has the content hash {content_hash} instead of {one.content_hash}{where}"
            findings.append(Finding("broken", what, problem))
    return findings
