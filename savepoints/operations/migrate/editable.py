"""Which state rows can be changed by hand without making the state of an operator inconsistent."""

from __future__ import annotations

import re
from collections.abc import Mapping

from savepoints.checkpoint.evolution.findings import unique_names
from savepoints.checkpoint.logs.offset_log import AGGREGATE_FORMAT_KEY
from savepoints.checkpoint.state import avro, layout
from savepoints.checkpoint.state.schema import StateSchema
from savepoints.errors import IncompatibleError, VerificationError
from savepoints.model import Savepoint
from savepoints.state.change.edit import Family
from savepoints.state.typed.typed import Variable
from savepoints.store.root import Store
from savepoints.store.savepoint import manifest

_AGGREGATE, _SESSIONS = "stateStoreSave", "sessionWindowStateStoreSaveExec"
# Operators that keep one row a key, and find it by nothing else.
_ONE_ROW_A_KEY = frozenset(
    {
        _AGGREGATE,
        "dedupe",
        "dedupeWithinWatermark",
        "applyInPandasWithState",
        "flatMapGroupsWithState",
        _SESSIONS,
    }
)
_DEFAULT = "default"


def family(store: Store, savepoint: Savepoint, variable: Variable, *, deletes: bool) -> Family:
    """Return where the rows of a variable lie and how they are laid out; no JVM.

    Raises:
        IncompatibleError: If a change would make the state inconsistent; it says why.
    """
    if avro.is_used(savepoint.settings):
        raise _refused(variable, "its values are encoded as Avro")
    if variable.kind in {"side", "store"}:
        raise _refused(
            variable,
            ("a join stores each row under a number, and finds and counts rows by their values"),
        )
    if variable.kind == "timers":
        raise _refused(variable, "each timer is stored twice, by key and by time")
    if variable.kind == "rows" and variable.operator_name not in _ONE_ROW_A_KEY:
        raise _refused(variable, "how this operator finds its rows is unknown")
    checkpoint = store.root / manifest.directory(savepoint.id) / "checkpoint"
    schemas = {
        one.column_family: one
        for one in layout.read(checkpoint).get((variable.operator_id, _DEFAULT), ())
    }
    name = _DEFAULT if variable.kind == "rows" else str(variable.name)
    if name not in schemas:
        raise VerificationError(
            f"savepoint {savepoint.id} is damaged: the schema of {variable} is missing",
            hint=f"list all damaged files: savepoints verify {savepoint.id}",
            savepoint=savepoint.id,
        )
    if deletes:
        _require_free(variable, schemas)
    schema = schemas[name]
    return Family(
        operator_id=variable.operator_id,
        store=_DEFAULT,
        column_family=name,
        kind=variable.kind,
        ttl=variable.ttl,
        key=schema.key,
        value=schema.value,
        frozen=fields_of_key(variable.operator_name, schema, savepoint.settings),
    )


def fields_of_key(
    operator_name: str, schema: StateSchema, settings: Mapping[str, str]
) -> frozenset[str]:
    """Return the fields of a value that the key has, too, by the names that `typed` gives them.

    A session has its whole key, and so has an aggregation in Spark's first format
    (`StreamingAggregationStateManagerImplV1`). Buffers of the same name come behind.
    """
    left = [one.name for one in schema.key]
    if operator_name == _SESSIONS:
        left.append("session_window")
    elif operator_name != _AGGREGATE or settings.get(AGGREGATE_FORMAT_KEY, "2") != "1":
        return frozenset()
    found = set()
    names = unique_names([one.name for one in schema.value])
    for name, one in zip(names, schema.value, strict=True):
        if one.name in left:
            left.remove(one.name)
            found.add(name)
    return frozenset(found)


def _require_free(variable: Variable, schemas: Mapping[str, StateSchema]) -> None:
    """Refuse to remove rows of which other rows know."""
    if variable.kind == "list":
        raise _refused(
            variable,
            "list elements cannot be addressed one by one and are counted elsewhere",
            "set",
        )
    # Such as `$ttl_total`, and not the `$ttl_sub_total` of another variable.
    of_variable = re.compile(rf"\$[A-Za-z]+_{re.escape(str(variable.name))}")
    known = [one for one in schemas if of_variable.fullmatch(one)]
    if variable.ttl or known:
        where = ", ".join(sorted(known)) or "the time index"
        raise _refused(variable, f"{where} would still contain the removed rows", "set")


def _refused(variable: Variable, why: str, instead: str | None = None) -> IncompatibleError:
    return IncompatibleError(
        f"the rows of {variable} cannot be {'removed' if instead else 'edited'} by hand: {why}",
        hint="change their values with --set"
        if instead
        else "edit other state, or rebuild this state by replaying the events",
        operator_id=variable.operator_id,
    )
