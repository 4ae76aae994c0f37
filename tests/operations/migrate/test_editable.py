"""What of a state can be changed by hand, by its schema; no JVM."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from savepoints.checkpoint.state.schema import StateField, StateSchema
from savepoints.errors import IncompatibleError
from savepoints.operations.migrate import editable
from savepoints.state.typed.typed import Variable

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


@pytest.mark.parametrize(
    ("families", "knows"),
    [
        (("total", "sub_total", "$ttl_sub_total"), False),
        (("total", "$ttl_total"), True),
        (("total", "$rowCounter_total"), True),
    ],
)
def test_trap_the_index_of_a_variable_whose_name_ends_alike(
    families: tuple[str, ...], knows: bool
) -> None:
    variable = Variable(0, "transformWithStateExec", "value", name="total")
    schemas = {one: StateSchema(one, (), ()) for one in families}

    if not knows:
        editable._require_free(variable, schemas)
        return
    with pytest.raises(IncompatibleError, match="would still contain the removed rows"):
        editable._require_free(variable, schemas)
