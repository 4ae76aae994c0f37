"""`verify`: is a savepoint whole, and can everything it names still be read?

Depths: `structure` looks whether every file is there with its size; `checksums` reads and hashes
every file, or a share of them, and compares row counts; `contents` also reads the canonical rows
through Spark and compares the content hash of every operator; `deep` also restores each form into a
scratch directory of the store, reads the state there as Spark would, and compares that.

A savepoint that is found broken is called so in the catalog, with the reason, so that `latest`
passes it over; one that is found whole again by the same depth is complete again.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

from savepoints.errors import (
    CredentialsError,
    SavepointNotFoundError,
    UsageError,
    VerificationError,
    message_of,
)
from savepoints.io import in_parallel
from savepoints.model import Labels, Savepoint, SavepointState
from savepoints.observe.recorder import Recording, recording
from savepoints.operations.inspect import verification
from savepoints.operations.inspect.findings import Finding, Grade, worst
from savepoints.operations.inspect.sampling import ALL, ReadSubset
from savepoints.operations.inspect.verification import Looked
from savepoints.outputs.delta.retention import Lifetime
from savepoints.plan import Progress, silent
from savepoints.result import Result
from savepoints.store.locks import lease
from savepoints.store.root import Store
from savepoints.store.savepoint.manifest import Manifest, manifest_path
from savepoints.store.tables import catalog
from savepoints.store.tables.events import BROKEN
from savepoints.texts import count_text

_LOG = logging.getLogger(__name__)

Depth = Literal["structure", "checksums", "contents", "deep"]

DEPTHS: tuple[Depth, ...] = get_args(Depth)
# How the reason begins that `verify` gives; it says which depth must find the savepoint whole.
_REASON = re.compile(rf"verify \(({'|'.join(DEPTHS)})\): ")
_REASON_LENGTH = 400


@dataclass(frozen=True)
class Report(Result):
    """What `verify` found out about one savepoint.

    Attributes:
        savepoint_id: The savepoint.
        query: Name of its query.
        grade: The worst of the findings.
        state: Its state in the catalog afterwards.
        depth: How deep the check went.
        share: Which share of the files was read, None for all or without reading.
        files: Files that were checked.
        bytes_read: Bytes that were read and hashed.
        operators: Operators whose rows and content hash were compared.
        rows: Their rows; None where there is no canonical form, or where they were not counted.
        outputs: Until when the pinned versions of its outputs can be read.
        seconds: How long it took.
        findings: Empty when all is well.
    """

    savepoint_id: str
    query: str
    grade: Grade
    state: SavepointState
    depth: Depth
    share: str | None
    files: int
    bytes_read: int
    operators: int
    rows: int | None
    outputs: tuple[Lifetime, ...]
    seconds: float
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Reports(Result):
    """What `verify` found out about all savepoints of a store, or of a query.

    Attributes:
        grade: The worst of all.
        reports: One for each savepoint, the newest first.
        bytes_read: Bytes that were read; files that savepoints share are read once.
        seconds: How long it took.
    """

    grade: Grade
    reports: tuple[Report, ...]
    bytes_read: int
    seconds: float


def verify(
    store: Store,
    name: str,
    *,
    query: str | None = None,
    depth: Depth = "contents",
    share: str | None = None,
    progress: Progress = silent,
) -> Report:
    """Verify a savepoint, and record in the catalog whether it is broken.

    Args:
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME`.
        depth: How thorough the check is.
        share: Read only a share of the files: `10%` for a random sample, `2/7` for the second of
            seven fixed parts, `day/7` for another of them each day. For `checksums`.
        progress: Called with one line for each step.

    Returns:
        The report; a broken savepoint is a finding, not an error.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        AmbiguousNameError: If several fit.
        UsageError: If `share` is invalid, or given with a depth that reads every file.
    """
    chosen = _subset(share, depth)
    savepoint = store.catalog.find(name, query=query)
    with recording(
        store, "verify", query=savepoint.query, savepoint=savepoint.id,
        parameters={"depth": depth, "share": share},
    ) as noted:  # fmt: skip
        checking = _Verification(store, depth, chosen, progress)
        reports = checking.run([savepoint])
        if not reports.reports:
            raise SavepointNotFoundError(
                f"savepoint {savepoint.id} was removed while it was being verified",
                hint="list the savepoints: savepoints list",
                savepoint=savepoint.id,
            )
        _note(noted, reports)
    return reports.reports[0]


def verify_all(
    store: Store,
    *,
    query: str | None = None,
    depth: Depth = "checksums",
    share: str | None = None,
    progress: Progress = silent,
) -> Reports:
    """Verify all savepoints; files that several of them share are read once.

    Args:
        depth: As in `verify`.
        share: As in `verify`.

    Raises:
        QueryNotFoundError: If the store has no savepoint of the query.
        VerificationError: If the catalog cannot be read.
        UsageError: If `share` is invalid, or given with a depth that reads every file.
    """
    chosen = _subset(share, depth)
    if query is not None:
        store.catalog.require_query(query)
    with recording(
        store, "verify", query=query, parameters={"depth": depth, "share": share}
    ) as noted:
        wanted = catalog.select(store.catalog.all(), query=query)
        checking = _Verification(store, depth, chosen, progress)
        reports = checking.run(wanted)
        _note(noted, reports)
    return reports


def _subset(share: str | None, depth: Depth) -> ReadSubset | None:
    """Return of which files to read which share, None for none."""
    if share is not None and depth != "checksums":
        raise UsageError(
            f"--{depth} cannot be combined with --read-data, which reads only some of the files",
            hint="use --checksums with --read-data, or omit --read-data",
        )
    return None if depth == "structure" else ReadSubset.parse(share) if share else ALL


def _note(noted: Recording, reports: Reports) -> None:
    broken = [one for one in reports.reports if one.grade == "broken"]
    what = [f"{one.savepoint_id}: {_reason(one.findings)}" for one in broken]
    counted = f"{len(reports.reports)} checked, {len(broken)} broken"
    if queries := sorted({one.query for one in broken}):
        noted.note(parameters={**noted.event.parameters, BROKEN: ", ".join(queries)})
    noted.note(
        result="failed" if broken else "done",
        message="; ".join([f"{reports.grade}, {counted}", *what]),
        bytes=reports.bytes_read,
        rows=sum(one.rows or 0 for one in reports.reports),
    )


def _reason(findings: Sequence[Finding]) -> str:
    """Describe in one line why a savepoint is broken."""
    broken = [one for one in findings if one.grade == "broken"]
    more = f", and {len(broken) - 1} more" if len(broken) > 1 else ""
    return f"{broken[0].what} {broken[0].problem}"[:_REASON_LENGTH] + more


@dataclass(frozen=True)
class _Verification:
    """Looks at savepoints in one way."""

    store: Store
    depth: Depth
    share: ReadSubset | None
    progress: Progress

    def run(self, savepoints: Sequence[Savepoint]) -> Reports:
        """Look at savepoints; those that are removed meanwhile are left out."""
        begun = time.monotonic()
        manifests = in_parallel(self._manifest, savepoints)
        whole = [one for one in manifests if isinstance(one, Manifest)]
        count = len({file.stored_at for one in whole for file in one.files})
        self.progress(f"checking {count_text(count, 'file')}")
        looked = verification.check_files(self.store.root, whole, self.share)
        pairs = list(zip(savepoints, manifests, strict=True))
        if self.depth in {"structure", "checksums"}:
            looks = in_parallel(lambda pair: self._look(*pair, looked), pairs)
        else:  # Spark works on one after the other.
            looks = [self._look(*pair, looked) for pair in pairs]
        reports = [
            self._mark(one, report)
            for one, report in zip(savepoints, looks, strict=True)
            if report.grade != "broken" or not self._is_going(one)
        ]
        return Reports(
            worst(one.grade for one in reports),
            tuple(reports),
            sum(looked.read.values()),
            time.monotonic() - begun,
        )

    def _manifest(self, savepoint: Savepoint) -> Manifest | Finding:
        try:
            return self.store.manifest(savepoint.id)
        except VerificationError as error:
            return Finding("broken", manifest_path(savepoint.id), error.message)

    def _look(self, savepoint: Savepoint, stored: Manifest | Finding, looked: Looked) -> Report:
        begun = time.monotonic()
        share = None if self.share is None or self.share.is_all else self.share.text
        about = (savepoint.id, savepoint.query)
        report = partial(Report, *about, state=savepoint.state, depth=self.depth, share=share)
        if isinstance(stored, Finding):
            return report(
                grade="broken", files=1, bytes_read=0, operators=0, rows=0, outputs=(),
                seconds=0.0, findings=(stored,),
            )  # fmt: skip
        findings = self._compared(savepoint, stored) + looked.of(stored)
        rows: int | None = None
        damaged = {finding.what for finding in findings}
        if stored.canonical and not any(file.stored_at in damaged for file in stored.canonical):
            rows, more = self._look_at_rows(savepoint)
            findings += more
        if self.depth == "deep" and worst(one.grade for one in findings) != "broken":
            findings += self._look_at_restored(savepoint)
        more, outputs = verification.check_outputs(savepoint)
        findings += more
        return report(
            grade=worst(one.grade for one in findings),
            files=len(stored.files) + 1,
            bytes_read=looked.bytes_read(stored),
            operators=len(savepoint.operators),
            rows=rows,
            outputs=outputs,
            seconds=time.monotonic() - begun,
            findings=tuple(findings),
        )

    def _compared(self, savepoint: Savepoint, stored: Manifest) -> list[Finding]:
        """Compare with the catalog; once more where they differ, for one is written after another.

        As long as an export is at work it is not unfinished, although the manifest has its rows.
        """
        findings = verification.compare_with_catalog(self.store.root, savepoint, stored)
        if not findings:
            return []
        at_work = lease.exporting_holder(self.store.root, savepoint.id) is not None
        now = self.store.catalog.get(savepoint.id)
        again = self._manifest(savepoint)
        if now is None or isinstance(again, Finding):
            return findings
        findings = verification.compare_with_catalog(self.store.root, now, again)
        unfinished = ("warning", manifest_path(savepoint.id))
        return [one for one in findings if not (at_work and (one.grade, one.what) == unfinished)]

    def _look_at_rows(self, savepoint: Savepoint) -> tuple[int | None, list[Finding]]:
        if self.depth == "structure":
            return None, []
        rows, findings = verification.compare_rows(self.store, savepoint)
        if self.depth in {"contents", "deep"} and not findings and savepoint.operators:
            self.progress(f"reading {count_text(rows, 'row')} (starts Spark if it is not running)")
            with reading(self.store, savepoint.id, "verify"):
                findings += verification.compare_contents(self.store, savepoint)
        return rows, findings

    def _look_at_restored(self, savepoint: Savepoint) -> list[Finding]:
        findings = []
        with reading(self.store, savepoint.id, "verify"):
            for form in savepoint.forms:
                self.progress(f"restoring the {form} form into a temporary directory")
                findings += verification.compare_restored(self.store, savepoint, form)
        return findings

    def _is_going(self, savepoint: Savepoint) -> bool:
        """Return True if a savepoint lacks files because it is being removed right now."""
        now = self.store.catalog.get(savepoint.id)
        return now is None or now.state == "expired"

    def _mark(self, savepoint: Savepoint, report: Report) -> Report:
        """Record the finding in the catalog, unless it is there already."""
        if report.grade == "broken":
            reason = f"verify ({self.depth}): {_reason(report.findings)}"
            if (savepoint.state, savepoint.state_reason) == ("broken", reason):
                return report
            change = partial(_relabelled, state="broken", reason=reason)
        elif savepoint.state == "broken" and self._can_clear(savepoint):
            change = partial(_relabelled, state="complete", reason=None)
        else:
            return report
        try:
            changed = self.store.catalog.relabel([savepoint.id], change)
        except Exception as error:  # noqa: BLE001  (deltalake and obstore: whatever refuses to write)
            _LOG.debug("could not mark %s", savepoint.id, exc_info=True)
            problem = (
                f"still lists the old state of {savepoint.id}, although it is {report.grade} now: "
                f"{message_of(error)[:300]}"
            )
            findings = (*report.findings, Finding("warning", "the catalog", problem))
            return replace(report, grade=worst(one.grade for one in findings), findings=findings)
        return replace(report, state=changed[0].state if changed else report.state)

    def _can_clear(self, savepoint: Savepoint) -> bool:
        """Return True if this depth would have found what made the savepoint broken."""
        if self.share is None or not self.share.is_all:
            return False
        found = _REASON.match(savepoint.state_reason or "")
        needed = found[1] if found else "checksums"
        return DEPTHS.index(self.depth) >= [*DEPTHS].index(needed)  # type: ignore[arg-type]


def _relabelled(labels: Labels, *, state: SavepointState, reason: str | None) -> Labels:
    """Leave what is being removed as it is."""
    if labels.state == "expired":
        return labels
    return replace(labels, state=state, state_reason=reason)


@contextmanager
def reading(store: Store, savepoint_id: str, verb: str) -> Iterator[None]:
    """Keep a savepoint from being removed while it is read, if the store may be written."""
    with ExitStack() as stack:
        try:
            stack.enter_context(store.using(savepoint_id, verb))
        except CredentialsError as error:
            _LOG.warning("could not announce that %s is being read: %s", savepoint_id, error)
        yield
