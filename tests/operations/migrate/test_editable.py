"""What of a state can be changed by hand, by its schema; no JVM."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from savepoints.checkpoint.state.schema import StateField, StateSchema
from savepoints.operations.migrate import editable

FIRST_FORMAT = {"spark.sql.streaming.aggregation.stateFormatVersion": "1"}
SESSION = "sessionWindowStateStoreSaveExec"


@pytest.mark.parametrize(
    ("operator", "settings", "key", "value", "of_key"),
    [
        (SESSION, {}, "k sessionStartTime", "session_window k sum", {"session_window", "k"}),
        # Expressions are all called alike, and the buffer of a count as a column may be.
        (SESSION, {}, "_groupingexpression _groupingexpression count sessionStartTime",
         "_groupingexpression _groupingexpression count session_window count",
         {"_groupingexpression", "_groupingexpression_2", "count", "session_window"}),
        ("stateStoreSave", {}, "k count", "count", set()),
        ("stateStoreSave", FIRST_FORMAT, "k count", "k count count", {"k", "count"}),
        ("dedupe", FIRST_FORMAT, "k", "k", set()),
    ],
)  # fmt: skip
def test_trap_what_of_a_value_belongs_to_the_key_stays(
    operator: str, settings: Mapping[str, str], key: str, value: str, of_key: set[str]
) -> None:
    """A query gives such a row under the key of its value, and keeps it under the other one."""
    keys, values = (
        tuple(StateField(one, "long") for one in names.split()) for names in (key, value)
    )
    schema = StateSchema("default", keys, values)

    assert editable.fields_of_key(operator, schema, settings) == of_key
