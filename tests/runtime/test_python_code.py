"""What a function does is told by all of the user's code that it reaches, and by no other."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from savepoints.runtime import python_code

PROGRAM = '''
import math
import re
import helpers

RATE = 2
KINDS = {"a", "b", "c"}
LETTERS = re.compile("[a-z]")

class Base:
    def scale(self, n):
        return n * 2

class Processor(Base):
    limit = 10

    def __init__(self, start):
        self.start = start

    def handle(self, n):
        return self.scale(n) + self.start

    @staticmethod
    def plain(n):
        return n + 1

    @property
    def half(self):
        return self.start / 2

def count(n, step=1, *, most=100):
    """Count."""
    def inner(m):
        return helped(m) + RATE
    try:
        return math.floor(inner(n)) + helpers.offset(n) + step
    except ValueError:
        return len(KINDS) + bool(LETTERS.match("a"))

def helped(n):
    return helped(n - 1) if n > 5 else n

def unused():
    return 1

def made(factor):
    return lambda n: n * factor

by_three = made(3)
processor = Processor(1)
'''
HELPERS = """
def offset(n):
    return n + 1

def not_used(n):
    return n
"""


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ModuleType]:
    def load(name: str, source: str) -> ModuleType:
        module = ModuleType(name)
        module.__file__ = f"/jobs/{name}.py"
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(source, module.__file__, "exec"), vars(module))
        return module

    return load


Load = Callable[[str, str], ModuleType]


def texts(modules: Load, program: str = PROGRAM, helpers: str = HELPERS) -> dict[str, str]:
    modules("helpers", helpers)
    loaded = modules("jobs", program)
    read: Any = {
        "count": loaded.count,
        "by_three": loaded.by_three,
        "handle": loaded.processor.handle,
        "plain": loaded.Processor.plain,
        "partial": functools.partial(loaded.helped, 3),
    }
    return {name: python_code.text(one, "jobs") for name, one in read.items()}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('    """Count."""\n', '    """Count, and say what for, in many words."""\n'),
        ('    """Count."""\n', ""),
        ("def unused():\n    return 1", "def unused():\n    return 2"),
        ("def helped(n):\n", "# Why.\n\n\ndef helped(n):\n    # Because.\n"),
        ("by_three = made(3)", "by_three = made(factor=3)"),
    ],
)
def test_what_a_function_does_not_do_is_not_read(modules: Load, old: str, new: str) -> None:
    assert old in PROGRAM
    assert texts(modules, PROGRAM.replace(old, new)) == texts(modules)


def test_functions_of_modules_are_read_if_they_are_used(modules: Load) -> None:
    other = HELPERS.replace("return n\n", "return -n\n")
    assert texts(modules, helpers=other) == texts(modules)
    changed = texts(modules, helpers=HELPERS.replace("n + 1", "n + 2"))
    assert changed["count"] != texts(modules)["count"]


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("RATE = 2", "RATE = 3", {"count"}),
        ('{"a", "b", "c"}', '{"a", "b"}', {"count"}),
        ('"[a-z]"', '"[A-Z]"', {"count"}),
        ("step=1", "step=2", {"count"}),
        ("most=100", "most=101", {"count"}),
        ("helped(m) + RATE", "helped(m) - RATE", {"count"}),
        ("except ValueError", "except KeyError", {"count"}),
        ("math.floor", "math.ceil", {"count"}),
        ("if n > 5", "if n >= 5", {"count", "partial"}),
        ("made(3)", "made(4)", {"by_three"}),
        ("n * factor", "n + factor", {"by_three"}),
        ("Processor(1)", "Processor(2)", {"handle"}),
        ("return n * 2", "return n * 3", {"handle"}),
        ("limit = 10", "limit = 11", {"handle"}),
        ("n + 1\n\n    @prop", "n + 2\n\n    @prop", {"handle", "plain"}),
        ("self.start / 2", "self.start / 3", {"handle"}),
    ],
)
def test_trap_a_change_inside_a_python_function_was_not_seen(
    modules: Load, old: str, new: str, changed: set[str]
) -> None:
    assert PROGRAM.count(old) == 1
    before, after = texts(modules), texts(modules, PROGRAM.replace(old, new))
    assert {name for name in before if before[name] != after[name]} == changed


def test_the_text_is_the_same_in_each_process() -> None:
    """Also of sets, whose order differs from process to process."""
    program = (
        f"from savepoints.runtime import python_code\nimport sys, types\n"
        f"sys.modules['helpers'] = helpers = types.ModuleType('helpers')\n"
        f"exec({HELPERS!r}, vars(helpers))\nexec({PROGRAM!r})\n"
        "print(python_code.text(count, 'jobs'), python_code.text(processor.handle, 'jobs'))"
    )
    first, second = (
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    )
    assert first == second
    assert "LETTERS" in first


def test_trap_the_environment_of_the_process_is_no_part_of_a_function(
    modules: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process has its own, and a merge would have warned of another program each time."""
    loaded = modules("jobs", "from os import environ\ndef get(n):\n    return environ['RATE']\n")
    monkeypatch.setenv("RATE", "1")
    first = python_code.text(loaded.get, "jobs")
    monkeypatch.setenv("RATE", "2")
    assert python_code.text(loaded.get, "jobs") == first


def test_many_functions_that_call_each_other_are_no_deep_recursion(modules: Load) -> None:
    source = "".join(f"def f{n}(x):\n    return f{n + 1}(x) + {n}\n" for n in range(3000))
    last = "def f3000(x):\n    return "
    first = python_code.text(modules("chain", f"{source}{last}1").f0, "chain")
    second = python_code.text(modules("chain", f"{source}{last}2").f0, "chain")
    assert first != second


def test_installed_packages_are_only_named(modules: Load) -> None:
    """Except the program's own."""
    modules("helpers", HELPERS).__file__ = "/venv/lib/python3.11/site-packages/helpers.py"
    program = "import helpers\ndef count(n):\n    return helpers.offset(n)\n"

    def read(package: str, offset: str) -> str:
        exec(f"def offset(n):\n    return n + {offset}\n", vars(sys.modules["helpers"]))
        return python_code.text(modules("jobs", program).count, package)

    assert read("jobs", "1") == read("jobs", "2")
    assert read("helpers", "1") != read("helpers", "2")
