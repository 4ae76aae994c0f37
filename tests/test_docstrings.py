"""Docstrings name the arguments that a function has, and the fields that a value has."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path

import savepoints

ROOT = Path(__file__).parents[1]


def entries(text: str, section: str) -> list[str]:
    """Return the names that a section of a docstring explains."""
    found = re.search(
        rf"^{section}:\n((?:    .*\n|\n)+)", inspect.cleandoc(text) + "\n", re.MULTILINE
    )
    return re.findall(r"^    \**(\w+(?:, \w+)*): ", found.group(1), re.MULTILINE) if found else []


def test_no_docstring_explains_an_argument_that_the_function_has_not() -> None:
    wrong = {
        f"{path.relative_to(ROOT)}:{one.lineno} {one.name}": surplus
        for path in sorted((ROOT / "savepoints").rglob("*.py"))
        for one in ast.walk(ast.parse(path.read_text()))
        if isinstance(one, ast.FunctionDef)
        and (
            surplus := _explained(one)
            - {each.arg for each in ast.walk(one.args) if isinstance(each, ast.arg)}
        )
    }

    assert wrong == {}


def _explained(function: ast.FunctionDef) -> set[str]:
    text = ast.get_docstring(function) or ""
    return {name for names in entries(text, "Args") for name in names.split(", ")}


def test_each_field_of_what_is_returned_is_explained() -> None:
    """By the class or one that it inherits from."""
    exported = [getattr(savepoints, name) for name in savepoints.__all__]
    classes = [one for one in exported if inspect.isclass(one) and dataclasses.is_dataclass(one)]
    assert savepoints.RolledBack in classes

    missing = {
        f"{one.__name__}.{field.name}"
        for one in classes
        for field in dataclasses.fields(one)
        if not field.name.startswith("_") and field.name not in _attributes(one)
    }

    assert missing == set()


def _attributes(of: type) -> set[str]:
    texts = [each.__doc__ or "" for each in of.__mro__]
    return {
        name
        for text in texts
        for names in entries(text, "Attributes")
        for name in names.split(", ")
    }
