"""Leases: at most one process mutates a query, or the savepoints of one.

`leases/<query>.json` (who may mutate the query) and `leases/files/<query id>.json` (who may add or
delete files that its savepoints share) are taken by conditional PUT, and so are
`leases/paused/<query>.json` (which paused run waits to go on), `leases/merging/<query>.json` (who
works a late batch in beside the running query) and `leases/exporting/<savepoint id>.json` (who
writes the rows of a savepoint). A lease names its holder and when it expires,
and is renewed in the background. A holder that is dead on this very machine is
recognised at once; any other is waited for until its lease expires, by the clock of the store: that
of a machine may be wrong by minutes. Each taking raises the fencing number, and every step of a
verb calls `check` first, so a process that was paused past its lease stops by itself.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from savepoints.errors import (
    LockedError,
    QueryRunningError,
    SavepointsError,
    UsageError,
    VerificationError,
)
from savepoints.io import Location
from savepoints.json_values import from_json
from savepoints.model import checked_name, new_id
from savepoints.moments import parse_rfc3339, rfc3339, utc_now

_LOG = logging.getLogger(__name__)

# A holder that dies on another machine blocks the query for this long; renewed at a third of it,
# so two renewals may fail before anything happens.
TTL = timedelta(seconds=30)
# The verbs of those who run the query: `savepoints run`, and a driver of the user's own.
RUN, ATTACH = "run", "attach"
# Clocks of two machines differ by less than this, both by what the store says of its own.
CLOCK_SKEW = timedelta(seconds=5)
# Object stores give times in whole seconds; a smaller difference is none.
_RESOLUTION = timedelta(seconds=2)


@dataclass(frozen=True)
class Holder:
    """The process that holds a lease.

    Attributes:
        machine: Host, and on Linux boot and process namespace: equal only within one machine.
        started: Start time of the process in the kernel's ticks, which tells a reused pid apart.
    """

    machine: str
    pid: int
    started: str

    def is_dead_here(self) -> bool:
        """Say whether the holder was a process of this machine that is gone."""
        if not self.started or self.machine != _this_process().machine:
            return False
        started = _process_start(self.pid)
        # Where /proc hides the processes of other users, it is only known whether there is one.
        return not _exists(self.pid) if started is None else started != self.started


@dataclass(frozen=True)
class LeaseRecord:
    """What the lease file says; of one that is given up, who had it last.

    `stopped_after` is the batch after which the holder has stopped the query, None if it did not.
    """

    query: str
    verb: str
    holder: Holder
    fence: int
    acquired_at: str
    expires_at: str
    nonce: str
    stopped_after: int | None = None

    def to_bytes(self) -> bytes:
        """Write it as JSON. The nonce makes equal leases differ, as tags are hashes of bytes."""
        data = {**vars(self), "holder": vars(self.holder), "nonce": secrets.token_hex(8)}
        return json.dumps(data, indent=1).encode()

    @classmethod
    def parse(cls, data: bytes, path: str) -> LeaseRecord:
        """Read a lease file."""
        try:
            record = from_json(cls, json.loads(data))
            parse_rfc3339(record.expires_at)
        except (ValueError, TypeError, KeyError, AttributeError, UsageError) as error:
            raise VerificationError(
                f"the lease {path} is damaged: {error!r}",
                hint="make sure that neither the query nor a savepoints command for it is "
                "running, then delete the file from the store",
                file=path,
            ) from None
        return record

    @property
    def who(self) -> str:
        """Name the holder for people."""
        return f"process {self.holder.pid} on {self.holder.machine.partition('/')[0]}"

    @property
    def runs(self) -> bool:
        """Whether the holder runs the query."""
        return self.verb in (RUN, ATTACH)

    def is_free(self) -> bool:
        """Say whether another may take the lease: it was released, has expired, or is dead here.

        By the clock of this machine; who takes it asks the store, too.
        """
        return self.has_expired(utc_now()) or self.is_given_up()

    def is_given_up(self) -> bool:
        """Say whether it was released, or its holder is dead here: no clock is needed for that."""
        return self.expires_at == self.acquired_at or self.holder.is_dead_here()

    def has_expired(self, now: datetime) -> bool:
        """Say whether its time is over."""
        # The holder goes by the bare expiry and its own clock (`Lease.check`); who takes over waits
        # for the skew as well, so the holder's checks fail first if the clocks differ by less.
        return parse_rfc3339(self.expires_at) + CLOCK_SKEW < now


class Lease:
    """A lease that this process holds; made by `hold`."""

    def __init__(self, root: Location, path: str, record: LeaseRecord, etag: str) -> None:
        """Keep what is needed to renew and release."""
        self._root = root
        self._path = path
        self._record = record
        self._etag = etag
        self._lost: str | None = None
        self._behind = _behind(root, path, parse_rfc3339(record.expires_at) - TTL)
        self._stop = threading.Event()
        # `_keep` renews beside the verb, and each write needs the tag of the one before it.
        self._mutex = threading.Lock()
        if self._behind:
            self.renew()  # Others would take it for expired, or wait for it in vain.
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Stop the verb if the lease was lost; called before each step.

        Raises:
            LockedError: If another process has taken the lease meanwhile.
        """
        if self._has_expired():
            # It may be ours still: the conditional write succeeds only if nobody took it.
            self.renew()
        if self._lost is None and self._has_expired():
            self._lost = "it could not be renewed, so it expired"
        if self._lost is not None:
            raise LockedError(
                f"the lease on {self._record.query} was lost while the command ran: {self._lost}",
                hint="check whether another process took the lease (savepoints events --query "
                f"{self._record.query}), then run the command again",
                query=self._record.query,
            )

    def confirm(self) -> None:
        """Check by the store that the lease is held, whatever the clocks of two machines say.

        Raises:
            LockedError: As for `check`.
        """
        self.renew()
        self.check()

    def moment(self) -> datetime:
        """Return when the lease was last written, by the clock of the store.

        Machines that take savepoints in turn need not agree on the time; what they write to does.
        """
        return self._root.head(self._path).last_modified

    def renew(self) -> None:
        """Extend the lease by its time to live; `check` reports what fails here."""
        with self._mutex:
            expires_at = rfc3339(utc_now() + self._behind + TTL)
            renewed = replace(self._record, expires_at=expires_at)
            try:
                self._etag = self._root.replace(self._path, renewed.to_bytes(), self._etag)
                self._record = renewed
            except (FileExistsError, FileNotFoundError):
                self._lost = "another process took it"
            except SavepointsError as error:
                # The next renewal tries again; `check` refuses once the lease has expired.
                _LOG.info("could not renew the lease on %s: %s", self._record.query, error)

    def stopped(self, batch: int) -> None:
        """Record, for the release, that the query was stopped after a batch."""
        with self._mutex:
            self._record = replace(self._record, stopped_after=batch)

    def release(self) -> None:
        """Give the lease up, unless somebody else has it by now."""
        # The thread first: a renewal after the release would find the lease changed, and say lost.
        self._stop.set()
        self._thread.join()
        with self._mutex:
            if self._lost is None:
                # The file stays: the next fencing number counts on from this one.
                expired = replace(self._record, expires_at=self._record.acquired_at)
                try:
                    self._root.replace(self._path, expired.to_bytes(), self._etag)
                except (FileExistsError, FileNotFoundError):
                    _LOG.warning("the lease on %s was taken by another process", self._record.query)
                except SavepointsError as error:
                    # What was done under the lease is done; it ends by itself.
                    _LOG.warning("could not release the lease on %s: %s", expired.query, error)

    def _has_expired(self) -> bool:
        return parse_rfc3339(self._record.expires_at) < utc_now() + self._behind

    def _keep(self) -> None:
        while not self._stop.wait(TTL.total_seconds() / 3):
            self.renew()


def hold(root: Location, query: str, verb: str) -> AbstractContextManager[Lease]:
    """Hold the lease of a query.

    Raises:
        QueryRunningError: If a runner holds it.
        LockedError: If another verb holds it.
    """
    return _held_at(root, _path(query), query, verb)


def hold_files(
    root: Location, query_id: str, query: str, verb: str
) -> AbstractContextManager[Lease]:
    """Hold the lease of the files that savepoints of one query share.

    Taking a savepoint relies on files that earlier ones brought, and expiring one deletes them, so
    these exclude each other; a query can run meanwhile.

    Raises:
        LockedError: If another process holds it.
    """
    return _held_at(root, _path(query_id, "files/", "query id"), query, verb)


def hold_paused(root: Location, query: str) -> AbstractContextManager[Lease]:
    """Show that a paused run of a query waits; others can mutate the query meanwhile.

    Raises:
        LockedError: If another run waits already.
    """
    return _held_at(root, _path(query, "paused/"), query, "paused run")


def hold_merging(root: Location, query: str) -> AbstractContextManager[Lease]:
    """Be the one merge of a query, most of which happens while the query runs.

    Raises:
        LockedError: If another merge of the query is under way.
    """
    return _held_at(root, _path(query, "merging/"), query, "merge")


@contextmanager
def hold_exporting(root: Location, savepoint_id: str, query: str, verb: str) -> Iterator[Lease]:
    """Be the one who writes or clears the rows of a savepoint; the lease's file goes with it.

    Raises:
        LockedError: If another process does.
    """
    path = _path(savepoint_id, "exporting/", "savepoint")
    with _held_at(root, path, query, f"{verb} of {savepoint_id}") as lease:
        yield lease
    # Whoever has taken it since finds the rows, and has nothing to do.
    root.delete([path])


def holder(root: Location, query: str) -> LeaseRecord | None:
    """Return who mutates a query now, None when nobody does."""
    return _holder(root, _path(query))


def files_holder(root: Location, query_id: str) -> LeaseRecord | None:
    """Return who takes or expires savepoints of a query now, None when nobody does."""
    return _holder(root, _path(query_id, "files/", "query id"))


def exporting_holder(root: Location, savepoint_id: str) -> LeaseRecord | None:
    """Return who writes or clears the rows of a savepoint now, None when nobody does."""
    return _holder(root, _path(savepoint_id, "exporting/", "savepoint"))


def paused_holder(root: Location, query: str) -> LeaseRecord | None:
    """Return which paused run of a query waits, None when none does."""
    return _holder(root, _path(query, "paused/"))


def last_holder(root: Location, query: str) -> LeaseRecord | None:
    """Return who mutates a query or was the last to, None when nobody ever was."""
    return read(root, _path(query))


def refuse_held(root: Location, query: str) -> None:
    """Refuse a query that somebody mutates now, before anything is planned for it.

    Raises:
        QueryRunningError: If a runner holds its lease.
        LockedError: If another verb does.
    """
    record = holder(root, query)
    if record is not None:
        raise _held(record)


def read(root: Location, path: str) -> LeaseRecord | None:
    """Read a lease, None when there is none."""
    try:
        return LeaseRecord.parse(root.get(path), path)
    except FileNotFoundError:
        return None


def mark(root: Location, path: str, what: str, verb: str) -> Lease:
    """Say in a file that nobody else writes that something is being done, until `release`."""
    record = _new(what, verb)
    return Lease(root, path, record, root.create(path, record.to_bytes()))


@contextmanager
def _held_at(root: Location, path: str, query: str, verb: str) -> Iterator[Lease]:
    lease = _take(root, path, query, verb)
    try:
        yield lease
    finally:
        lease.release()


def _new(query: str, verb: str) -> LeaseRecord:
    now = utc_now()
    return LeaseRecord(
        query, verb, _this_process(), 1, rfc3339(now), rfc3339(now + TTL), secrets.token_hex(8)
    )


def _take(root: Location, path: str, query: str, verb: str) -> Lease:
    while True:
        with suppress(FileNotFoundError):  # Its holder removes it just now: `hold_exporting`.
            return _taken(root, path, query, verb)


def _taken(root: Location, path: str, query: str, verb: str) -> Lease:
    # Created, judged, replaced: no step can overwrite what this process has not read, so of two
    # that find the lease free one gets it and the other is told who has it.
    record = _new(query, verb)
    try:
        return Lease(root, path, record, root.create(path, record.to_bytes()))
    except FileExistsError:
        pass
    # The tag is that of the bytes judged here. A holder that renews meanwhile, or a faster taker,
    # changes it, and the replacement below fails.
    data, etag = root.get_version(path)
    other = LeaseRecord.parse(data, path)
    if not (other.is_given_up() or (other.is_free() and _has_expired(root, other))):
        raise _held(other)
    record = replace(record, fence=other.fence + 1)
    try:
        return Lease(root, path, record, root.replace(path, record.to_bytes(), etag))
    except FileExistsError:
        raise _held(LeaseRecord.parse(root.get(path), path)) from None


def _has_expired(root: Location, record: LeaseRecord) -> bool:
    """Say whether the time of a lease is over by the clock of the store, on which a file is put."""
    probe = f"scratch/{new_id('op', utc_now())}/clock"
    written = utc_now()
    root.put(probe, b"1")
    behind = _behind(root, probe, written)
    with suppress(SavepointsError):  # What may not be deleted is left for `gc`.
        root.delete([probe])
    return record.has_expired(utc_now() + behind)


def _behind(root: Location, path: str, written: datetime) -> timedelta:
    """Return how far this machine's clock is behind the store's, negative if it is ahead.

    Args:
        path: A file that this machine has just written.
        written: When it began to, by the clock of this machine: the answer may have taken long.
    """
    answered = utc_now()
    try:
        stored = root.head(path).last_modified
    except (SavepointsError, FileNotFoundError):
        return timedelta()
    if stored > answered + _RESOLUTION:
        return stored - answered
    return stored - written if stored + _RESOLUTION < written else timedelta()


def _held(record: LeaseRecord) -> SavepointsError:
    who = record.who
    details = {"query": record.query, "holder": who, "verb": record.verb}
    if record.verb == ATTACH:
        return QueryRunningError(
            f"the query {record.query} has been running in its own driver ({who}) since "
            f"{record.acquired_at}",
            hint="stop it in this process with attached.stop(), on what attach returned, which "
            "finishes the batch and takes a savepoint"
            if record.holder == _this_process()
            else "stop it in its driver with attached.stop(), which finishes the batch and "
            f"takes a savepoint; or end the driver: kill -TERM {record.holder.pid}",
            **details,
        )
    if record.verb == RUN:
        return QueryRunningError(
            f"the query {record.query} is running: {who}, since {record.acquired_at}",
            hint=f"pause it first: savepoints pause {record.query} --wait; or stop it, which "
            f"takes a savepoint: kill -TERM {record.holder.pid}",
            **details,
        )
    return LockedError(
        f"the command {record.verb} is working on {record.query}: {who}, since "
        f"{record.acquired_at}",
        hint="wait until it has finished; if its process has died, its lease expires at "
        f"{record.expires_at}",
        **details,
    )


def _holder(root: Location, path: str) -> LeaseRecord | None:
    record = read(root, path)
    return None if record is None or record.is_free() else record


def _path(name: str, kind: str = "", what: str = "query") -> str:
    return f"leases/{kind}{checked_name(name, what)}.json"


def _this_process() -> Holder:
    machine = socket.gethostname()
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine += f"/{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        pass  # Not Linux: the host's name, and no start time, so nothing is taken early.
    return Holder(machine, os.getpid(), _process_start(os.getpid()) or "")


def _process_start(pid: int) -> str | None:
    """Return the start time of a process in ticks since boot, empty of one that was killed.

    Returns:
        None when that cannot be known.
    """
    try:
        # Of the name of a program it has 15 bytes, which may end within a letter.
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    # A killed process whose parent has not noticed yet is dead, too.
    return "" if fields[0] in {"Z", "X"} else fields[19]


def _exists(pid: int) -> bool:
    """Return True if there is such a process, of whatever user."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
