"""Requests: somebody asks that the run of a query pauses or goes on, and the run answers.

Those who ask write `requests/<query>.json`, the run writes `requests/answers/<query>.json`; so
neither can overwrite the other. Both are replaced by conditional PUT only: of several who ask at
one moment the later ones see what the first has asked. A request stays in force until another
takes its place, also when no run is there to see it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Literal, TypeVar

from savepoints.io import Location
from savepoints.json_values import from_json
from savepoints.model import checked_name, new_id
from savepoints.moments import utc_now
from savepoints.store.savepoint.sealed import Document

Wanted = Literal["paused", "running"]
T = TypeVar("T")
_HINT = "delete the file; if the query should stay paused, pause it again: savepoints pause QUERY"


@dataclass(frozen=True)
class Request:
    """What was asked of the run of a query.

    Attributes:
        id: `op-…`, as the event of asking has it.
        wanted: `paused` or `running`.
    """

    id: str
    query: str
    wanted: Wanted
    asked_at: datetime
    asked_by: str
    reason: str = ""


@dataclass(frozen=True)
class PauseAnswer:
    """How a run obeyed a request to pause: no batch runs, and the lease of the query is free.

    Attributes:
        error: Why there is no savepoint although one was to be taken; empty otherwise.
    """

    request: str
    query: str
    paused_at: datetime
    by: str
    generation: int | None = None
    batch_id: int | None = None
    savepoint_id: str | None = None
    error: str = ""


def current(root: Location, query: str) -> Request | None:
    """Return what is asked of the run of a query; None when nothing ever was."""
    return _request(root, query).read()


def pause_in_force(root: Location, query: str) -> Request | None:
    """Return the request that keeps a query paused, None when it may run; one GET."""
    request = current(root, query)
    return request if request is not None and request.wanted == "paused" else None


def ask(root: Location, query: str, wanted: Wanted, *, by: str, reason: str = "") -> Request | None:
    """Ask for something of the run of a query.

    Args:
        wanted: `paused` or `running`.

    Returns:
        The new request; None when just that is in force already, which is left as it is.

    Raises:
        VerificationError: If the request before is damaged.
    """
    now = utc_now()
    request = Request(new_id("op", now), query, wanted, now, by, reason)

    def decide(before: Request | None) -> bool:
        return wanted != (before.wanted if before else "running")

    return request if _written(_request(root, query), request, decide) else None


def answer_to(root: Location, request: Request) -> PauseAnswer | None:
    """Return how a run obeyed a request, None when none has yet."""
    found = _answer(root, request.query).read()
    return found if found is not None and found.request == request.id else None


def answer(root: Location, given: PauseAnswer) -> bool:
    """Write how a run obeyed a request; the first answer to a request stays.

    Only who holds the paused lease (`lease.hold_paused`) writes it.
    """

    def decide(before: PauseAnswer | None) -> bool:
        return before is None or before.request != given.request

    return _written(_answer(root, given.query), given, decide)


def _written(document: Document[T], new: T, decide: Callable[[T | None], bool]) -> bool:
    """Put a document in place of the one before if `decide` says so of that; return if it did."""
    while True:
        before, etag = document.read_version()
        if not decide(before):
            return False
        if document.replace(new, etag):
            return True  # Otherwise another was faster: look at what it wrote.


def _request(root: Location, query: str) -> Document[Request]:
    path = f"requests/{checked_name(query, 'query')}.json"
    return Document(root, path, partial(from_json, Request), _HINT)


def _answer(root: Location, query: str) -> Document[PauseAnswer]:
    path = f"requests/answers/{checked_name(query, 'query')}.json"
    return Document(root, path, partial(from_json, PauseAnswer), _HINT)
