"""Recording what verbs do in the store's events, and telling others; never makes a verb fail."""

from __future__ import annotations

import functools
import getpass
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec, TypeVar, cast

from savepoints import log_context
from savepoints.config.secrets import masked
from savepoints.config.settings import HookSettings
from savepoints.errors import LockedError, message_of
from savepoints.model import Savepoint, new_id
from savepoints.moments import utc_now
from savepoints.observe import hooks, openlineage
from savepoints.observe.hooks import Notice
from savepoints.plan import Plan
from savepoints.store.locks import journal
from savepoints.store.root import Store
from savepoints.store.tables.events import Event

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

# An event is a line in a log: of what is longer, its beginning.
_LONGEST = 2000
# Verbs whose end hooks are told.
_REPORTED_VERBS = ("create", "run")
# What an event has columns for, and what only repeats the verb in words.
_NOT_PARAMETERS = {"verb", "query", "steps", "warnings", "savepoint_id", "operation_id"}


@dataclass
class Recording:
    """An event that is not written yet; the verb notes on it what it finds out."""

    event: Event
    hooks: HookSettings
    made: Savepoint | None = None
    _begun: float = field(default_factory=time.monotonic)

    def note(self, **facts: object) -> None:
        """Set fields of the event, such as `savepoint`, `bytes` or `message`."""
        self.event = replace(self.event, **cast("Any", facts))

    def write(self, store: Store) -> None:
        """Write the event. An error to is logged: what was done is done."""
        seconds = self.event.seconds or time.monotonic() - self._begun
        message = masked(self.event.message)[:_LONGEST]
        event = replace(self.event, at=utc_now(), seconds=seconds, message=message)
        try:
            store.events.append(event)
        except Exception as error:  # noqa: BLE001  (whatever it is, the verb is more important)
            # Of a verb that failed by the same the user hears anyway.
            level = logging.DEBUG if type(error).__name__ == event.error else logging.WARNING
            _LOG.log(
                level,
                "%s of %s could not be recorded in the events: %s",
                event.verb,
                event.query,
                error,
            )
        if openlineage.is_configured():
            try:
                openlineage.emit(event, self.made)
            except Exception as error:  # noqa: BLE001  (likewise)
                _LOG.warning(
                    "%s of %s could not be reported to OpenLineage: %s",
                    event.verb,
                    event.query,
                    error,
                )
        notice = _notice(event, self.made)
        if notice is not None:
            hooks.call(self.hooks, notice)


@contextmanager
def recording(
    store: Store,
    verb: str,
    *,
    query: str | None = None,
    savepoint: str | None = None,
    operation: str | None = None,
    parameters: Mapping[str, object] | None = None,
) -> Iterator[Recording]:
    """Record what is done within, also when it fails."""
    given = {
        key: str(value)[:_LONGEST]
        for key, value in masked(dict(parameters or {})).items()
        if value not in (None, (), [], {}, "")
    }
    now = utc_now()
    operation_id = operation or new_id("op", now)
    event = Event(operation_id, now, verb, who(), "done", query, savepoint, given)
    recorded = Recording(event, hooks=store.settings.hooks)
    with log_context.about(query=query, savepoint=savepoint, operation=operation_id):
        try:
            yield recorded
        except BaseException as error:
            # Also a closed terminal or Ctrl-C: what was interrupted was not done.
            recorded.note(
                # Nothing was done because another process does it.
                result="skipped" if isinstance(error, LockedError) else "failed",
                error=type(error).__name__,
                message=message_of(error),
            )
            raise
        finally:
            recorded.write(store)


def recorded(execute: Callable[P, R]) -> Callable[P, R]:
    """Record a verb's `execute(plan, store, …)`: what was planned, and what came of it."""

    @functools.wraps(execute)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        plan, store = args[0], args[1]
        assert isinstance(plan, Plan)
        assert isinstance(store, Store)
        data = plan.to_json()
        with recording(
            store,
            plan.verb,
            query=plan.query or None,
            savepoint=data.get("savepoint_id"),
            operation=data.get("operation_id"),
            parameters={key: data[key] for key in data if key not in _NOT_PARAMETERS},
        ) as noted:
            if journal.is_undo(data):
                noted.note(message="undo of the last operation")
            result = execute(*args, **kwargs)
            noted.note(**_facts(result))
            noted.made = result if isinstance(result, Savepoint) else None
        return result

    return wrapped


def _facts(result: object) -> dict[str, object]:
    if isinstance(result, Savepoint):
        return {
            "savepoint": result.id,
            "seconds": result.cost.seconds,
            "bytes": result.cost.bytes_copied + result.cost.export_bytes,
            "rows": sum(one.rows or 0 for one in result.operators),
            "message": f"without the state rows: {result.rows_missing}"
            if result.rows_missing
            else "",
        }
    return {
        name: getattr(result, attribute)
        for name, attribute in {"seconds": "seconds", "bytes": "bytes_written"}.items()
        if hasattr(result, attribute)
    }


def _notice(event: Event, made: Savepoint | None) -> Notice | None:
    """Return what hooks are told of an event, None if it is nothing for them."""
    if event.verb not in _REPORTED_VERBS:
        return None
    if event.result == "failed":
        return Notice("failed", event.query, event.at, f"{event.verb} failed: {event.message}")
    if made is None:
        return None
    return Notice(
        "savepoint",
        made.query,
        event.at,
        f"savepoint {made.id} was taken at batch {made.cut.batch_id}",
        made.generation,
        made.id,
        made.cut.batch_id,
    )


def who() -> str:
    """Name user, host and process, as events do."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # In a container without a user database.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}, process {os.getpid()}"
