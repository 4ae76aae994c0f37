"""The errors: one tree, each with an exit code, as its docstring draws it."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import traceback

from savepoints import errors
from savepoints.errors import SavepointsError, message_of

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
    assert {name for name, one in CLASSES.items() if not one.__doc__} == set()


def test_a_traceback_ends_with_the_hint() -> None:
    error = errors.QueryNotFoundError("no query clicks", hint="savepoints list", query="clicks")

    shown = traceback.format_exception(error)

    assert "".join(shown).splitlines()[-2:] == [
        "savepoints.errors.QueryNotFoundError: no query clicks",
        "hint: savepoints list",
    ]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_error_within_a_text_has_no_hint() -> None:
    error = errors.LockedError("locked by another run", hint="wait")

    assert message_of(error) == "locked by another run"
    assert str(errors.LockedError("locked")) == message_of(ValueError("locked")) == "locked"


def test_only_what_may_pass_by_itself_can_be_tried_again() -> None:
    assert {name for name, one in CLASSES.items() if one.retryable} == {
        "LockedError",
        "QueryRunningError",
        "UnreachableError",
    }
