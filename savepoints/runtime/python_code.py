"""What Python functions of a program do, as text: Spark's plan has only their names.

The text has the instructions of a function, and of all that it uses: constants, functions and
classes of the user's, values in closures and of global names. It stays the same when comments,
docstrings or line numbers change, and is another one in another version of Python.
"""

from __future__ import annotations

import datetime as dt
import decimal
import dis
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TypeAlias, final

# Those whose `repr` says all, and says the same in each process.
_PLAIN = (
    *(type(None), type(...), bool, int, float, complex, str, bytes, bytearray, range),
    *(dt.date, dt.time, dt.timedelta, dt.tzinfo, decimal.Decimal),
)
_LIBRARIES = {*sys.stdlib_module_names, "pyspark", "savepoints"}
_INSTALLED = {"site-packages", "dist-packages"}
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME")
_Text: TypeAlias = "str | tuple[_Text, ...]"


def text(function: object, package: str) -> str:
    """Return what a function does, as text that differs where its code or values do.

    Not seen is what depends on installed packages other than its own, and on objects that are
    neither plain values nor of the user's classes.

    Args:
        package: Top-level package of the user's program, which may be installed.
    """
    reader = _Reader(package)
    reader.read(function)
    return repr(list(reader.texts()))


@final
class _Reader:
    """Reads each object once, one after the other: functions call each other, and may do so deep.

    A text has the numbers of the objects that it refers to.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._found: list[object] = []
        self._numbers: dict[int, int] = {}

    def texts(self) -> Iterator[_Text]:
        """Yield the text of each object that was found, among them those that this finds."""
        for one in self._found:
            yield self._object(one)

    def read(self, value: object) -> _Text:
        """Return the text of a value, or the number of an object that is still to be read."""
        if isinstance(value, _PLAIN):
            return repr(value)
        if isinstance(value, (tuple, list)):
            return (type(value).__name__, *map(self.read, value))
        if isinstance(value, (set, frozenset)):
            return (type(value).__name__, *sorted(map(self.read, value), key=repr))
        if isinstance(value, dict):
            pairs = [(self.read(key), self.read(one)) for key, one in value.items()]
            return ("mapping", *sorted(pairs, key=repr))
        if isinstance(value, re.Pattern):
            return ("pattern", repr(value.pattern), repr(value.flags))
        number = self._numbers.setdefault(id(value), len(self._found))
        if number == len(self._found):
            self._found.append(value)
        return f"object {number}"

    def _object(self, value: object) -> _Text:
        if isinstance(value, CodeType):
            return self._code(value)
        if isinstance(value, MethodType):
            # What it is a method of may be Spark's, around a processor of the user's.
            return ("method", self.read(value.__func__), *self._values(value.__self__))
        if isinstance(value, functools.partial):
            return ("partial", *map(self.read, (value.func, value.args, value.keywords)))
        if isinstance(value, (staticmethod, classmethod)):
            return (type(value).__name__, self.read(value.__func__))
        if isinstance(value, property):
            return ("property", *map(self.read, (value.fget, value.fset)))
        return self._named(value)

    def _named(self, value: object) -> _Text:
        named = value if hasattr(value, "__qualname__") else type(value)
        module = str(getattr(named, "__module__", None))
        if isinstance(value, ModuleType) or not self._is_own(module):
            return f"{module}.{getattr(named, '__qualname__', '')}"
        if isinstance(value, FunctionType):
            return ("function", *self._function(value))
        if isinstance(value, type):
            return ("class", self.read(value.__bases__), *self._members(value))
        return ("instance", *self._values(value))

    def _function(self, function: FunctionType) -> Iterator[_Text]:
        code = function.__code__
        closure = [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
        yield from map(self.read, (code, function.__defaults__, function.__kwdefaults__, closure))
        attributes = sorted({name for one in _codes(code) for name in one.co_names})
        for name in sorted(set(_globals(code)) & function.__globals__.keys()):
            found = function.__globals__[name]
            yield (name, self.read(found))
            if isinstance(found, ModuleType) and self._is_own(found.__name__):
                for attribute in attributes:
                    if attribute in vars(found):
                        yield (f"{name}.{attribute}", self.read(vars(found)[attribute]))

    def _code(self, code: CodeType) -> _Text:
        # With their arguments, for a docstring moves the numbers of the others.
        steps = tuple((one.opname, self.read(one.argval)) for one in dis.get_instructions(code))
        return ("code", *steps, repr(code.co_exceptiontable))

    def _members(self, owner: type) -> Iterator[_Text]:
        """Yield what a class defines, without what Python keeps in it."""
        for name, member in sorted(vars(owner).items()):
            if callable(member) or not name.startswith("__"):
                yield (name, self.read(member))

    def _values(self, owner: object) -> Iterator[_Text]:
        yield self.read(type(owner))
        yield self.read(getattr(owner, "__dict__", {}))

    def _is_own(self, module: str) -> bool:
        package = module.partition(".")[0]
        if package in (self._package, "__main__"):
            return True
        path = getattr(sys.modules.get(module), "__file__", None)
        return (
            path is not None
            and package not in _LIBRARIES
            and _INSTALLED.isdisjoint(Path(path).parts)
        )


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of those that are defined within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _globals(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function uses, also within itself."""
    for one in _codes(code):
        yield from (step.argval for step in dis.get_instructions(one) if step.opname in _LOADS)


def _is_full(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
