"""May the store be used, and does it keep its promises? Tried on an object of our own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from savepoints.errors import CredentialsError, SavepointsError
from savepoints.io import Location
from savepoints.model import new_id
from savepoints.moments import utc_now
from savepoints.operations.inspect.findings import Seen
from savepoints.store.locks import conditional
from savepoints.store.locks.lease import CLOCK_SKEW, TTL

# Which verbs fail without a permission; those that only look need the first two.
_NEEDED_BY = {
    "list": "every command",
    "get": "every command",
    "put": "run, create, export, restore, rollback, tag, expire, gc, copy, drill, verify --deep",
    "copy": "run, create, rollback, copy, and restore within the bucket",
    "delete": "expire, gc, drill, verify --deep; without it, other commands leave files for gc",
}
# Object stores give times in whole seconds.
_RESOLUTION = timedelta(seconds=1)


def check_access(root: Location) -> list[Seen]:
    """Try what verbs do, in `scratch/`, and take it away again."""
    directory = root / "scratch" / new_id("op", utc_now())
    clock: list[Seen] = []

    def put() -> None:
        before = utc_now()
        directory.put("probe", b"1")
        clock.append(_clock(directory.head("probe").last_modified, before, utc_now()))

    seen = [
        _try("list", lambda: root.list("scratch")),
        _try("put", put),
        _try("get", lambda: directory.get("probe")),
        _try("copy", lambda: directory.copy_from(directory, "probe", "copied")),
    ]
    if clock:
        seen += [_conditional(directory), *clock]
    seen.append(_try("delete", lambda: directory.delete(["probe", "copied", "condition"])))
    return seen


def _try(permission: str, do: Callable[[], object]) -> Seen:
    name, verbs = f"permission {permission}", _NEEDED_BY[permission]
    try:
        do()
    except CredentialsError as error:
        grade = "warning" if permission == "delete" else "broken"
        return Seen(name, grade, error.message, f"grant it to your role: it is needed by {verbs}")  # type: ignore[arg-type]
    except FileNotFoundError:
        return Seen(
            name,
            "warning",
            "not tried, because nothing could be written",
            "grant the permission put first",
        )
    return Seen(name, "ok", f"granted; needed by {verbs}")


def _conditional(directory: Location) -> Seen:
    """Find out whether two processes can be kept from overwriting each other's object."""
    name = "conditional PUT"
    try:
        ignored = conditional.problem(directory)
    except SavepointsError as error:
        ignored = error.message
    if ignored is None:
        return Seen(name, "ok", "works: the store honours If-None-Match and If-Match")
    advice = "use a store that supports conditional writes, such as S3: here, "
    return Seen(name, "broken", ignored, advice + conditional.CONSEQUENCE)


def _clock(stored: datetime, before: datetime, after: datetime) -> Seen:
    """Compare the store's clock with this machine's, as far as the answer's time allows."""
    ahead = stored - after
    behind = before - (stored + _RESOLUTION)
    skew = max(ahead, behind, timedelta())
    name = "clock"
    if skew <= CLOCK_SKEW:
        return Seen(name, "ok", f"within {CLOCK_SKEW.total_seconds():.0f} s of the store's clock")
    which = "behind" if ahead > behind else "ahead of"
    return Seen(
        name,
        "broken" if skew > TTL else "warning",
        f"this machine is {skew.total_seconds():.0f} s {which} the store",
        "synchronize it with NTP: leases go by the store's clock, but commands plan by this "
        "machine's whether a query runs, and gc what is old enough",
    )
