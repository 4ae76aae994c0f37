"""Processes of their own: a command that is killed, several that do the same at one moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

# A hang ends here; eight processes on a busy machine with two cores take a minute at times.
_SECONDS = 300


# Importing everything takes longer than most commands do; pyarrow alone imports pandas as soon as
# it makes an array. The process does it once and is forked for each command, before anything has
# started threads.
_COMMANDS = """
import importlib, json, os, pkgutil, sys, traceback
import boto3, botocore.session, deltalake, obstore.store, pandas, pyarrow
import savepoints.cli, savepoints.operations
from savepoints.cli.main import main

for package in (savepoints.cli, savepoints.operations):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)

for line in sys.stdin:
    words, environment = json.loads(line)
    child = os.fork()
    if child == 0:
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(nothing, descriptor)
            os.environ.clear()
            os.environ.update(environment)
            sys.argv[1:] = words
            main()
        finally:
            os._exit(70)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class _Commands:
    """Runs commands, each in a process of its own; ends with this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _COMMANDS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
            text=True,
        )

    def run(self, words: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run one to its end; its exit code."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps([words, dict(environment)]) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())
        except BaseException:
            # As when the test's time is over: an answer that comes later is for nobody.
            self._process.kill()
            _commands.cache_clear()
            raise


@cache
def _commands() -> _Commands:
    return _Commands()


def killed_at(point: str, *words: str) -> int:
    """Call the command line, to be killed at a crash point if there is one; its exit code."""
    return _commands().run(words, {**os.environ, "SAVEPOINTS_CRASH_AT": point})


# Heavy imports are done once; the processes are forked before anything has started threads. Each
# waits for the gate, which opens for all of them at once when its last writer closes it.
_SCRIPT = """
import os, sys, traceback
import boto3, botocore.session, deltalake, obstore.store, pandas, pyarrow
from savepoints.errors import SavepointsError
from savepoints.io import Location
from savepoints.store.locks import lease
from savepoints.store.root import Store
from tests.samples import savepoint

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
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, uri, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
            text=True,
        )

    def say(self) -> str:
        """Return the next line that one of them says."""
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def end(self) -> tuple[int, str]:
        """Let them end, and return how many failed and what they wrote on stderr."""
        _, errors = self._process.communicate(timeout=_SECONDS)
        return self._process.returncode, errors


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
