"""Hooks: a command or a URL that is told what happens to a query.

Each call is one JSON document and one line in the log, whether or not a hook is set. A hook can
neither fail a verb nor hold it up for longer than its timeout: what goes wrong with one is a
warning in the log.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from tempfile import TemporaryFile
from typing import IO, Any

from savepoints.config.secrets import mask, mask_command, mask_url, masked
from savepoints.config.settings import HookSettings
from savepoints.config.values import HookEvent
from savepoints.errors import message_of
from savepoints.json_values import to_json

_LOG = logging.getLogger(__name__)

SCHEMA_VERSION = 1
# Of what a command says on stderr, the end: that is where the error stands.
_LONGEST = 500


@dataclass(frozen=True)
class Notice:
    """What a hook is told.

    Attributes:
        event: `paused`, `resumed`, `savepoint` or `failed`.
        query: Name of the query, None when a verb failed before it was known.
        generation: Generation of the query, None if unknown.
        savepoint_id: The savepoint that was taken, None without one.
        batch_id: Its batch; of a paused or resumed query the newest committed one.
    """

    event: HookEvent
    query: str | None
    at: datetime
    message: str
    generation: int | None = None
    savepoint_id: str | None = None
    batch_id: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the document, secrets masked."""
        return {"schema_version": SCHEMA_VERSION, **masked(to_json(self))}


def call(hooks: HookSettings, notice: Notice) -> None:
    """Tell the command and the URL, both at once, and wait for them; raises nothing."""
    document = json.dumps(notice.to_json())
    _LOG.info("hook %s: %s", notice.event, document)
    if notice.event not in hooks.on:
        return
    seconds = hooks.timeout.total_seconds()
    calls: list[tuple[str, Callable[[], None]]] = []
    if command := hooks.command:
        calls.append((mask_command(command), lambda: _run(command, document, seconds)))
    if url := hooks.url:
        calls.append((mask_url(url), lambda: _post(url, document, seconds)))
    # In threads: a server that answers one byte at a time never reaches the timeout of a socket.
    threads = [
        threading.Thread(target=_guarded, args=(name, one), name=f"hook {name}", daemon=True)
        for name, one in calls
    ]
    end = time.monotonic() + seconds
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            _LOG.warning("the %s has not finished after %g s", thread.name, seconds)


def _guarded(name: str, one: Callable[[], None]) -> None:
    try:
        one()
    except Exception as error:  # noqa: BLE001  (whatever it is, the query is more important)
        _LOG.warning(
            "the hook %s failed: %s", name, mask(message_of(error)) or type(error).__name__
        )


def _run(command: str, document: str, seconds: float) -> None:
    # stderr goes to a file: what the command leaves in the background would keep a pipe open.
    with TemporaryFile() as errors:
        process = subprocess.Popen(
            shlex.split(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        try:
            process.communicate(document.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise TimeoutError(f"it took more than {seconds:g} s") from None
        if process.returncode:
            raise ChildProcessError(
                f"the command exited with code {process.returncode}: {_end(errors)}".rstrip(": ")
            )


def _end(errors: IO[bytes]) -> str:
    errors.seek(0)
    return errors.read().decode(errors="replace").strip()[-_LONGEST:]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses to be sent elsewhere: a POST that is redirected arrives as a GET without a body."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


def _post(url: str, document: str, seconds: float) -> None:
    request = urllib.request.Request(  # noqa: S310  (the settings allow http and https only)
        url,
        data=document.encode(),
        headers={"Content-Type": "application/json", "User-Agent": "savepoints"},
        method="POST",
    )
    with urllib.request.build_opener(_NoRedirect).open(request, timeout=seconds):
        pass
