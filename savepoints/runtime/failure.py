"""Why a query failed, out of what Spark says of it."""

from __future__ import annotations

import re

from savepoints.checkpoint import damage_patterns
from savepoints.checkpoint.state import layout
from savepoints.errors import (
    CheckpointDamagedError,
    IncompatibleError,
    LayoutChangedError,
    SavepointsError,
)
from savepoints.io import Location

# As in `[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema …`, which ends with its
# SQLSTATE.
_CONDITION = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
_SQL_STATE = re.compile(r"SQLSTATE: \w{5}$")

# Error classes: a merge that lacks a column of its table, a state with another layout.
_LACKING = "DELTA_MERGE_UNRESOLVED_EXPRESSION"
# State files that are gone, or a program that keeps state for the first time: Spark cannot tell.
_NO_STATE = "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY"
# A stream of a table came to a commit that takes rows out.
_TAKEN_OUT = ("DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES")
_OTHER_STATE = re.compile(r"STATE_STORE_(KEY|VALUE)_SCHEMA_NOT_COMPATIBLE")


def error_of(text: str, query: str, app: str, checkpoint: Location) -> SavepointsError:
    """Return the error for a query that failed, with the way out.

    Args:
        text: What Spark says of it; see `report`.
        app: Reference of the program that ran.
    """
    what = f"the query {query} failed: {cause(text)}"
    if damage_patterns.is_in(text):
        return CheckpointDamagedError(
            what,
            hint="recover the checkpoint from the newest good savepoint: savepoints run "
            f"{query} --recover",
            query=query,
            checkpoint=str(checkpoint),
        )
    if _OTHER_STATE.search(text):
        hint = layout.way_out(app, f"latest --query {query}")
        return LayoutChangedError(what, hint=hint, query=query)
    if _NO_STATE in text:
        return SavepointsError(
            what,
            hint=f"if its state was deleted, recover it: savepoints run {query} --recover; if the "
            "program kept none before, see what becomes of it: savepoints upgrade check --app "
            f"{app} --from latest --query {query}",
            query=query,
        )
    if _LACKING in text:
        return IncompatibleError(
            what,
            hint="the table has a column that the program does not write: write it too, or "
            "take state and table back to before it was added: savepoints rollback latest "
            f"--query {query}",
            query=query,
        )
    if any(one in text for one in _TAKEN_OUT):
        return IncompatibleError(
            what,
            hint="a table that it reads was corrected or rewound: start over with the table as it "
            f"is: savepoints reset {query} --to-earliest --outputs truncate; or roll back the "
            f"query that writes the table as well: savepoints pipeline rollback {query} TAG --all",
            query=query,
        )
    return SavepointsError(
        what,
        hint="fix the cause and run the query again, or roll back: savepoints rollback latest "
        f"--query {query}",
        query=query,
    )


def report(error: BaseException) -> str:
    """Return what Spark says of a failure and of its causes, without its picture of the query."""
    texts: list[str] = []
    one: BaseException | None = error
    while one is not None:
        texts.append(str(one).partition("=== Streaming Query ===")[0])
        one = getattr(one, "_cause", None)  # Of PySpark's CapturedException, in no other way.
    return "\n".join(texts)


def cause(text: str) -> str:
    """Return what is at the bottom of Spark's nested stack traces, which is what went wrong.

    Exceptions that were suppressed, such as those of files that could not be closed afterwards, and
    what is indented below them, come of it and are not it.
    """
    others = ("at ", "File ", "...", "^", "Traceback", "JVM stacktrace", "hint: ")
    lines = []
    below: int | None = None
    for line in text.splitlines():
        indented = len(line) - len(line.lstrip())
        if below is not None and indented < below:
            below = None
        if below is None and line.lstrip().startswith("Suppressed: "):
            below = indented
        if below is None:
            lines.append(line.strip())
    telling = [line for line in lines if ": " in line and not line.startswith(others)]
    if not telling:
        return text[:500]
    # What Spark says of a condition can go on for lines, of which the first one names it.
    last = lines.index(telling[-1])
    named = [line for line in lines[:last] if _CONDITION.search(line)]
    is_its_end = _SQL_STATE.search(telling[-1]) and not _CONDITION.search(telling[-1])
    return (named[-1] if named and is_its_end else telling[-1])[:500]
