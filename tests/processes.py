"""Processes of their own: a command that is killed, several that do the same at one moment."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile

# A hang ends here; eight processes on a busy machine with two cores take a minute at times.
_SECONDS = 300


# Importing everything takes longer than most commands do; pyarrow alone imports pandas as soon as
# it makes an array. So one process does it, and forks one for each command or script, before
# anything has started threads: they die for real, and begin in milliseconds. A job is a line of
# JSON with four descriptors: standard input, output and error, and where its exit code is wanted.
_FORKS = """
import importlib, json, os, pkgutil, socket, sys, traceback
import boto3, botocore.session, deltalake, obstore.store, pandas, pyarrow
import savepoints.cli, savepoints.operations
from savepoints.cli.main import main
from savepoints.errors import SavepointsError
from savepoints.io import Location
from savepoints.store.locks import lease
from savepoints.handle import Store
from tests.samples import savepoint

for package in (savepoints.cli, savepoints.operations):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)

NAMES = dict(globals())

def begin(job):
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.argv[1:] = job["words"]
    if job["script"] is None:
        main()
    else:
        exec(job["script"], {**NAMES, "__name__": "__main__"})

def supervise(job, descriptors):
    child = os.fork()
    if child == 0:
        try:
            for number in range(3):
                os.dup2(descriptors[number], number)
            for descriptor in descriptors:
                os.close(descriptor)
            begin(job)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else bool(ended.code)
        except BaseException:
            traceback.print_exc()
            code = 70
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    for descriptor in descriptors[:3]:
        os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.write(descriptors[3], str(code).encode())

waiting = socket.socket(fileno=os.dup(0))
while True:
    text, descriptors, _, _ = socket.recv_fds(waiting, 1 << 16, 4)
    while text and not text.endswith(b"\\n"):
        text += waiting.recv(1 << 16)
    if not text:
        break
    if os.fork() == 0:
        try:
            waiting.close()
            supervise(json.loads(text), descriptors)
        finally:
            os._exit(0)
    for descriptor in descriptors:
        os.close(descriptor)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
    waiting.send(b".")
"""


class _Forks:
    """Forks jobs from a process that has imported everything; ends with this process."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._ours, theirs = socket.socketpair()
        root = Path(__file__).parents[1]
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _FORKS],
                stdin=theirs.fileno(),
                cwd=root,
                env={**os.environ, "PYTHONPATH": str(root)},
            )
        self._ours.settimeout(_SECONDS)

    def begin(
        self,
        words: Sequence[str],
        descriptors: Sequence[int],
        environment: Mapping[str, str],
        script: str | None = None,
    ) -> None:
        job = {"words": list(words), "environment": dict(environment), "script": script}
        text = json.dumps(job).encode() + b"\n"
        with self._asking:
            sent = socket.send_fds(self._ours, [text], list(descriptors))
            self._ours.sendall(text[sent:])
            assert self._ours.recv(1) == b".", "the process that forks has ended"


@cache
def _forks() -> _Forks:
    return _Forks()


def killed_at(point: str, *words: str) -> int:
    """Call the command line, to be killed at a crash point if there is one; its exit code."""
    return _killed_at(point, words)


def script_killed_at(point: str, script: str, *words: str) -> int:
    """Run Python code, to be killed at a crash point; its exit code."""
    return _killed_at(point, words, script)


def _killed_at(point: str, words: Sequence[str], script: str | None = None) -> int:
    environment = {**os.environ, "SAVEPOINTS_CRASH_AT": point}
    ours, theirs = os.pipe()
    with os.fdopen(ours) as answer, Path(os.devnull).open("r+b", buffering=0) as nothing:
        try:
            _forks().begin(words, [*[nothing.fileno()] * 3, theirs], environment, script)
        finally:
            os.close(theirs)
        return int(answer.read())


# Each waits for the gate, which opens for all of them at once when its last writer closes it.
_SCRIPT = """
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def wait_for_end():
    sys.stdin.buffer.read()

def work(number, uri):
{work}

gate, opener = os.pipe()
children = []
for number in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        try:
            os.close(opener)
            os.read(gate, 1)
            work(number, sys.argv[1])
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    children.append(child)
os.close(opener)
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


class Processes:
    """Processes that run; they end when `end` is called."""

    def __init__(self, work: str, uri: str, count: int) -> None:
        """Start them; see `at_once`."""
        script = _SCRIPT.format(work="\n".join(f"    {line}" for line in work.splitlines()))
        pipes = [os.pipe() for _ in range(3)]
        self._errors = TemporaryFile("w+")  # noqa: SIM115
        (their_input, ours), (said, their_output), (code, their_code) = pipes
        self._input, self._said, self._code = (
            os.fdopen(ours, "wb"),
            os.fdopen(said),
            os.fdopen(code),
        )
        theirs = [their_input, their_output, their_code]
        try:
            descriptors = [their_input, their_output, self._errors.fileno(), their_code]
            _forks().begin([uri, str(count)], descriptors, os.environ, script)
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    def say(self) -> str:
        """Return the next line that one of them says."""
        return self._said.readline().strip()

    def end(self) -> tuple[int, str]:
        """Let them end, and return how many failed and what they wrote on stderr."""
        with suppress(BrokenPipeError):
            self._input.close()
        if not self._code.closed:
            with self._code, self._said, self._errors:
                self._failed = int(self._code.read())
                self._errors.seek(0)
                self._wrote = self._errors.read()
        return self._failed, self._wrote


@contextmanager
def at_once(work: str, uri: str, count: int) -> Iterator[Processes]:
    """Run Python code in several processes at once.

    Args:
        work: Body of a function with the parameters `number` and `uri`; may call `say(...)` and
            `wait_for_end()`.
        uri: What it works on.
        count: How many processes.
    """
    processes = Processes(work, uri, count)
    try:
        yield processes
    finally:
        processes.end()
