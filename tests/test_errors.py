"""The errors: one tree, each with an exit code, as its docstring draws it."""

from __future__ import annotations

import inspect
import json
import re

import pytest

from savepoints import errors
from savepoints.errors import SavepointsError

CLASSES: dict[str, type[SavepointsError]] = {
    name: one
    for name, one in inspect.getmembers(errors, inspect.isclass)
    if issubclass(one, SavepointsError)
}


def drawn() -> dict[str, tuple[str | None, int]]:
    """Read the tree in the docstring: parent and exit code of each class."""
    found: dict[str, tuple[str | None, int]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^([│├└─ ]*)([A-Z]\w+Error)\s+(\d+)?", line)
        if match:
            depth = len(match.group(1)) // 4
            path[depth:] = [match.group(2)]
            parent = path[depth - 1] if depth else None
            code = int(match.group(3)) if match.group(3) else found[str(parent)][1]
            found[match.group(2)] = (parent, code)
    return found


def test_the_docstring_draws_every_class_with_parent_and_exit_code() -> None:
    real = {
        name: (None if one is SavepointsError else one.mro()[1].__name__, one.exit_code)
        for name, one in CLASSES.items()
    }

    assert drawn() == real


@pytest.mark.parametrize("error", CLASSES.values(), ids=CLASSES)
def test_every_error_is_one_json_object(error: type[SavepointsError]) -> None:
    made = error("what happened", hint="what to do", batch_id=7)

    data = json.loads(json.dumps(made.to_json()))

    assert data == {
        "schema_version": 1,
        "code": error.exit_code,
        "name": error.__name__,
        "message": "what happened",
        "hint": "what to do",
        "retryable": error.retryable,
        "batch_id": 7,
    }
    assert str(made) == "what happened"
    assert error.__doc__


def test_only_what_may_pass_by_itself_can_be_tried_again() -> None:
    assert {name for name, one in CLASSES.items() if one.retryable} == {
        "LockedError",
        "QueryRunningError",
        "UnreachableError",
    }
