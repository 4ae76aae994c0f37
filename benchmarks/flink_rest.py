"""Flink's REST API, as far as it is needed here: savepoints, and what a job has done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any, Literal, TypeAlias, TypeVar

SavepointFormat: TypeAlias = Literal["CANONICAL", "NATIVE"]

_ANSWER_SECONDS = 30.0
_POLL_SECONDS = 0.01
_DEADLINE_SECONDS = 900.0
_ERROR = 400
_ENDED = ("CANCELED", "FINISHED", "FAILED")

_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Rest:
    """The REST API of a JobManager on this machine.

    Attributes:
        port: Where it listens.
    """

    port: int

    def slots(self) -> int:
        """Return how many slots its TaskManagers have registered.

        Raises:
            OSError: If it does not answer, or not yet.
        """
        return int(self._ask("GET", "/overview")["slots-total"])

    def savepoint(self, job: str, directory: str, form: SavepointFormat) -> str:
        """Take a savepoint of a running job and wait until it is complete.

        Args:
            job: Its id.
            directory: Below it, the savepoint gets a directory of its own.

        Returns:
            Where it is, as Flink names it.

        Raises:
            RuntimeError: If Flink cannot take it.
        """
        wanted = {"target-directory": directory, "formatType": form, "cancel-job": False}
        asked = self._ask("POST", f"/jobs/{job}/savepoints", wanted)
        path = f"/jobs/{job}/savepoints/{asked['request-id']}"
        return self._wait(job, f"savepoint {path}", lambda: location(self._ask("GET", path)))

    def wait_for_records(self, job: str, count: int) -> None:
        """Wait until the last operator of a job has read so many records.

        Raises:
            RuntimeError: If the job ends, or this takes too long.
        """
        self._wait(job, f"{count} records", lambda: records_read(self._about(job)) >= count or None)

    def wait_until_running(self, job: str) -> None:
        """Wait until all tasks of a job run: before, no savepoint can be taken.

        Raises:
            RuntimeError: If the job ends, or this takes too long.
        """
        self._wait(job, "running tasks", lambda: is_running(self._about(job)) or None)

    def restored_seconds(self, job: str) -> float:
        """Return how long the tasks of a job, which run now, were restoring their state."""
        vertices = self._about(job)["vertices"]
        return initializing_seconds(
            self._ask("GET", f"/jobs/{job}/vertices/{vertex['id']}/subtasktimes")
            for vertex in vertices
        )

    def cancel(self, job: str) -> None:
        """Cancel a job and wait until it has ended."""
        self._ask("PATCH", f"/jobs/{job}?mode=cancel")
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while self._about(job)["state"] not in _ENDED:
            if time.monotonic() > deadline:
                raise RuntimeError(f"Flink's job {job} does not end")
            time.sleep(_POLL_SECONDS)

    def check(self, job: str) -> None:
        """Make sure that a job has not ended.

        Raises:
            RuntimeError: If it has, with the reason.
        """
        if (state := self._about(job)["state"]) in _ENDED:
            reasons = "; ".join(causes(self._ask("GET", f"/jobs/{job}/exceptions")))
            raise RuntimeError(f"Flink's job {job} is {state}: {reasons or 'no reason is known'}")

    def _about(self, job: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._ask("GET", f"/jobs/{job}")
        return found

    def _wait(self, job: str, what: str, find: Callable[[], _Found | None]) -> _Found:
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while (found := find()) is None:
            self.check(job)
            if time.monotonic() > deadline:
                raise RuntimeError(f"Flink's job {job}: no {what} after {_DEADLINE_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        return found

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_SECONDS)) as connection:
            given = None if body is None else json.dumps(body)
            connection.request(method, path, given, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
            if answer.status >= _ERROR:
                raise OSError(f"{method} {path}: {answer.status} {text}")
            return json.loads(text)


def location(answer: Mapping[str, Any]) -> str | None:
    """Return where a savepoint is, by the answer about its request; `None` while it is taken.

    Raises:
        RuntimeError: If it failed.
    """
    if answer["status"]["id"] != "COMPLETED":
        return None
    if cause := answer["operation"].get("failure-cause"):
        raise RuntimeError(f"Flink cannot take the savepoint: {cause['stack-trace']}")
    return str(answer["operation"]["location"])


def records_read(answer: Mapping[str, Any]) -> int:
    """Return how many records the last operators of a job have read, by the answer about it."""
    return int(answer["vertices"][-1]["metrics"]["read-records"])


def causes(answer: Mapping[str, Any]) -> list[str]:
    """Return why a job failed, the root last, by the answer about its exceptions."""
    entries = answer["exceptionHistory"]["entries"]
    lines = entries[0]["stacktrace"].splitlines() if entries else []
    return [line.removeprefix("Caused by: ") for line in lines if not line.startswith("\t")]


def is_running(answer: Mapping[str, Any]) -> bool:
    """Return whether all tasks of a job run, by the answer about it."""
    return all(one["tasks"]["RUNNING"] == one["parallelism"] for one in answer["vertices"])


def initializing_seconds(answers: Iterable[Mapping[str, Any]]) -> float:
    """Return the time from the first task that restored state to the last that had it.

    Args:
        answers: For each operator of a job, the times of its tasks, in milliseconds since 1970.
    """
    tasks = [task["timestamps"] for answer in answers for task in answer["subtasks"]]
    begun = min(int(times["INITIALIZING"]) for times in tasks)
    return (max(int(times["RUNNING"]) for times in tasks) - begun) / 1000
