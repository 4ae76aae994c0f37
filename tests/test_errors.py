"""The errors: one tree, each with an exit code, as its docstring draws it."""

from __future__ import annotations

import inspect
import json
import re

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


def test_every_error_is_one_json_object() -> None:
    made = {
        name: one("what happened", hint="what to do", batch_id=7) for name, one in CLASSES.items()
    }

    data = {name: json.loads(json.dumps(error.to_json())) for name, error in made.items()}

    assert data == {
        name: {
            "schema_version": 1,
            "code": one.exit_code,
            "name": name,
            "message": "what happened",
            "hint": "what to do",
            "retryable": one.retryable,
            "batch_id": 7,
        }
        for name, one in CLASSES.items()
    }
    assert {name for name, error in made.items() if str(error) != "what happened"} == set()
    assert {name for name, one in CLASSES.items() if not one.__doc__} == set()


def test_only_what_may_pass_by_itself_can_be_tried_again() -> None:
    assert {name for name, one in CLASSES.items() if one.retryable} == {
        "LockedError",
        "QueryRunningError",
        "UnreachableError",
    }
