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
from typing import Any, Literal, TypeVar

from savepoints.errors import UsageError, VerificationError
from savepoints.io import Location
from savepoints.model import checked_name, new_id, parse_rfc3339, to_json, utc_now
from savepoints.store.savepoint import sealed

SCHEMA_VERSION = 1

Wanted = Literal["paused", "running"]
T = TypeVar("T", bound="Request | PauseAnswer")


@dataclass(frozen=True)
class Request:
    """What was asked of the run of a query.

    Attributes:
        id: `op-…`, as the event of asking has it.
        wanted: `paused` or `running`.
        reason: Why, for people; may be empty.
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
        generation: The generation that ran, None when the query has none yet.
        batch_id: Its newest committed batch, None before the first.
        savepoint_id: What was taken there, None without one.
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
    """Return what is asked of the run of a query; None when nothing ever was.

    Raises:
        VerificationError: If the file is damaged.
    """
    return _read(root, _request_path(query), Request)


def pause_in_force(root: Location, query: str) -> Request | None:
    """Return the request that keeps a query paused, None when it may run; one GET.

    Raises:
        VerificationError: If the file is damaged.
    """
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

    written = _write(root, _request_path(query), Request, request, decide)
    return request if written else None


def answer_to(root: Location, request: Request) -> PauseAnswer | None:
    """Return how a run obeyed a request, None when none has yet.

    Raises:
        VerificationError: If the file is damaged.
    """
    found = _read(root, _answer_path(request.query), PauseAnswer)
    return found if found is not None and found.request == request.id else None


def answer(root: Location, given: PauseAnswer) -> bool:
    """Write how a run obeyed a request; the first answer to a request stays.

    Only who holds the paused lease (`lease.hold_paused`) writes it.

    Returns:
        Whether it was written.

    Raises:
        VerificationError: If the answer before is damaged.
    """

    def decide(before: PauseAnswer | None) -> bool:
        return before is None or before.request != given.request

    return _write(root, _answer_path(given.query), PauseAnswer, given, decide)


def _read(root: Location, path: str, kind: type[T]) -> T | None:
    try:
        return _parse(root.get(path), path, kind)
    except FileNotFoundError:
        return None


def _write(
    root: Location, path: str, kind: type[T], new: T, decide: Callable[[T | None], bool]
) -> bool:
    """Put a document in place of the one before if `decide` says so of that; whether it did."""
    data = sealed.seal({"schema_version": SCHEMA_VERSION, **to_json(new)})
    while True:
        try:
            before, etag = root.get_version(path)
        except FileNotFoundError:
            before, etag = None, ""
        if not decide(None if before is None else _parse(before, path, kind)):
            return False
        try:
            if before is None:
                root.create(path, data)
            else:
                root.replace(path, data, etag)
        except (FileExistsError, FileNotFoundError):
            continue  # Another was faster: look at what it wrote.
        return True


def _parse(data: bytes, path: str, kind: type[T]) -> T:
    try:
        content: dict[str, Any] = sealed.unseal(data)
        if content.pop("schema_version") != SCHEMA_VERSION:
            raise ValueError("another schema_version")
        moment = "asked_at" if kind is Request else "paused_at"
        return kind(**{**content, moment: parse_rfc3339(content[moment])})
    except (ValueError, TypeError, KeyError, AttributeError, UsageError) as error:
        raise VerificationError(
            f"{path} is damaged: {error!r}",
            hint="delete it; pause the query again if it is to be paused",
            file=path,
        ) from None


def _request_path(query: str) -> str:
    return f"requests/{checked_name(query, 'query')}.json"


def _answer_path(query: str) -> str:
    return f"requests/answers/{checked_name(query, 'query')}.json"
