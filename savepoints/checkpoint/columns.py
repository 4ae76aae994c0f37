"""Comparing the columns of one kind of state: what became of each, and how the new ones are made.

Columns are matched by name, never by place alone: Spark looks at types only, so that two aggregates
of one type that changed places would go on with each other's state. What cannot be decided from
names and types is `unknown` until a person says it (`savepoints.checkpoint.renames`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from savepoints.checkpoint.findings import (
    COLLATIONS,
    Column,
    Compared,
    Reason,
    Words,
    addresses,
    kind_of,
)
from savepoints.checkpoint.matching import pairs_of
from savepoints.checkpoint.state_schema import SparkType, StateField, type_text

_WHOLE = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_WATERMARK = "spark.watermarkDelayMs"


def watermark_reason(was: StateField, now: StateField, place: str) -> Reason | None:
    """Say what a changed watermark delay means, where a column carries one."""
    before, after = was.metadata.get(_WATERMARK), now.metadata.get(_WATERMARK)
    if before == after:
        return None
    return Reason(
        "compatible",
        place,
        f"the watermark delay was {_ms(before)} and is {_ms(after)}: state stays, and the "
        "watermark goes on from where it is, never back",
    )


def compare_keys(
    was: Sequence[StateField], now: Sequence[StateField], prefix: str, words: Words
) -> Compared:
    """Compare key columns, whose bytes stay as they are or cannot be used at all."""
    found = Compared()
    names_was, names_now = addresses(was, f"{prefix}key"), addresses(now, f"{prefix}key")
    found.known = [*names_was, *names_now]
    if [kind_of(one) for one in was] != [kind_of(one) for one in now]:
        found.reasons.append(
            Reason(
                "incompatible",
                f"{prefix}key",
                f"the key was {_listed(was)} and is {_listed(now)}: state is found by its key",
                "give the program a KeyMigration for the operator, or start it without state",
            )
        )
        return found
    for position, (old, new) in enumerate(zip(was, now, strict=True)):
        place = f"key column {names_now[position]}"
        if old.name != new.name:
            found.add(_renamed_key(names_was[position], names_now[position], place, words))
        if reason := watermark_reason(old, new, place):
            found.reasons.append(reason)
        if old.nullable and not new.nullable:
            text = "it could be null and cannot now: state under a null key is never found again"
            found.reasons.append(Reason("compatible", place, text))
        if not old.nullable and new.nullable:
            text = "it could not be null and can now, which Spark refuses without a migration"
            found.reasons.append(Reason("needs_migration", place, text))
    return found


def compare_values(
    was: Sequence[StateField], now: Sequence[StateField], prefix: str, words: Words
) -> Compared:
    """Compare value columns and say how the new ones are made."""
    found = Compared()
    names_was, names_now = addresses(was, prefix), addresses(now, prefix)
    found.known = [*names_was, *names_now]
    matched = pairs_of(was, now, names_was, names_now, words, found)
    pairs = matched.sources
    kept = {*pairs.values(), *matched.unclear_was}
    gone = [place for place in range(len(was)) if place not in kept]
    in_order = [pairs[position] for position in sorted(pairs)]
    columns = []
    for position, one in enumerate(now):
        address = names_now[position]
        if position in matched.unclear_now:
            columns.append(Column(address, one, None))
            continue
        if position not in pairs:
            columns.append(_new_column(one, address, position - len(now), words, found))
            continue
        source = pairs[position]
        columns.append(
            _kept_column(
                was[source], one, source, address, words, found, is_said=position in matched.said
            )
        )
        if in_order.index(source) != sorted(in_order).index(source):
            found.reasons.append(
                Reason(
                    "needs_migration",
                    f"value column {address}",
                    f"it was column {source} and is column {position}, which Spark does not look "
                    "at where the types are the same",
                )
            )
    for place in gone:
        text = f"it is gone ({type_text(was[place].type)}), and its values with it"
        found.reasons.append(Reason("needs_migration", f"value column {names_was[place]}", text))
        found.dropped.append(names_was[place])
    found.columns = tuple(columns)
    return found


def is_untouched(columns: Sequence[Column], was: int) -> bool:
    """Say whether rows can stay as they are.

    Args:
        columns: How the new columns are made.
        was: How many there were.
    """
    return len(columns) == was and all(
        one.source == position and not one.is_cast and not one.inner and not one.forbids_nulls
        for position, one in enumerate(columns)
    )


def widens(was: SparkType, now: SparkType) -> bool:
    """Say whether each value of a type is one of the other, too, with nothing lost."""
    if not (isinstance(was, str) and isinstance(now, str)):
        return False
    if was in _WHOLE and now in _WHOLE:
        return _WHOLE.index(was) < _WHOLE.index(now)
    if (was, now) == ("float", "double"):
        return True
    before, after = _DECIMAL.fullmatch(was), _DECIMAL.fullmatch(now)
    if before is None or after is None:
        return False
    digits, scale = int(after[1]), int(after[2])
    return scale >= int(before[2]) and digits - scale >= int(before[1]) - int(before[2])


def _kept_column(
    was: StateField,
    now: StateField,
    source: int,
    address: str,
    words: Words,
    found: Compared,
    *,
    is_said: bool,
) -> Column:
    """Say how a column is made of the one that it was."""
    place = f"value column {address}"
    column = Column(address, now, source, was)
    if is_said and was.name != now.name:
        text = f"it was called {was.name}: renamed, as --map says; its values stay"
        found.reasons.append(Reason("compatible", place, text))
    if words.is_aggregate and now.type == "binary" and now.name == "buf" and not is_said:
        found.reasons.append(
            Reason(
                "unknown",
                place,
                "it is the buffer of an aggregate such as collect_list, whose bytes only Spark "
                "understands: whether it is the same aggregate of the same type cannot be seen",
                f"--map {address}={address} if it is",
            )
        )
    if reason := watermark_reason(was, now, place):
        found.reasons.append(reason)
    if was.metadata.get(COLLATIONS) != now.metadata.get(COLLATIONS):
        text = "it has another collation, by which rows are compared"
        found.reasons.append(Reason("incompatible", place, text, _FUNCTION))
    if column.forbids_nulls:
        text = "it could be null and cannot now: a migration refuses a null in it"
        found.reasons.append(Reason("needs_migration", place, text))
    elif now.nullable and not was.nullable:
        text = "it could not be null and can now, which Spark refuses without a migration"
        found.reasons.append(Reason("needs_migration", place, text))
    if not column.is_cast:
        return column
    before, after = type_text(was.type), type_text(now.type)
    if _is_struct(was.type) and _is_struct(now.type):
        inner = compare_values(
            _fields(was.type),
            _fields(now.type),
            f"{address}.",
            replace(words, starts=None, is_aggregate=False),
        )
        found.add(inner)
        return replace(column, inner=inner.columns)
    if widens(was.type, now.type):
        text = f"it was {before} and is {after}, which holds every value of it"
        found.reasons.append(Reason("needs_migration", place, text))
    else:
        text = f"it was {before} and is {after}: not every value can become one"
        found.reasons.append(Reason("incompatible", place, text, _FUNCTION))
    return column


def _new_column(
    one: StateField, address: str, from_end: int, words: Words, found: Compared
) -> Column:
    """Say what a new column begins with."""
    place = f"value column {address}"
    start: Any = None
    said = words.starts is not None and -from_end <= len(words.starts)
    if address in words.defaults:
        start = words.defaults[address]
        text = f"begins with {start}, as --default says"
    elif said:
        assert words.starts is not None
        start = words.starts[from_end].value
        text = f"begins with {_shown(start)}, as for a key that had no rows before the savepoint"
    elif one.nullable and not words.is_aggregate:
        text = "begins with NULL"
    else:
        text = f"what it is to begin with is not known ({type_text(one.type)})"
        found.reasons.append(
            Reason("incompatible", place, f"it is new: {text}", f"--default {address}=VALUE")
        )
        return Column(address, one, None)
    reason = f"it is new: for state from the savepoint it {text}"
    found.reasons.append(Reason("needs_migration", place, reason))
    return Column(address, one, None, start=start)


def _renamed_key(old: str, new: str, place: str, words: Words) -> Compared:
    found = Compared()
    for one in words.renames:
        if (one.old, one.new) == (old, new):
            found.used.append(one)
            text = f"it was called {old}: renamed, as --map says; its values stay"
            found.reasons.append(Reason("compatible", place, text))
            return found
    found.reasons.append(
        Reason(
            "unknown",
            place,
            f"it was called {old} and is of the same type: whether it is the same under another "
            "name cannot be seen",
            f"--map {old}={new} if it is",
        )
    )
    return found


_FUNCTION = "give the program a function for it: App(…, migrate={…})"


def _listed(fields: Sequence[StateField]) -> str:
    return f"({', '.join(f'{one.name} {type_text(one.type)}' for one in fields)})"


def _is_struct(one: SparkType) -> bool:
    return not isinstance(one, str) and one["type"] == "struct"


def _fields(one: SparkType) -> tuple[StateField, ...]:
    assert not isinstance(one, str)
    return tuple(StateField.from_json(inner) for inner in one["fields"])


def _shown(value: object) -> str:
    if value is None:
        return "NULL"
    return "nothing" if isinstance(value, bytes) else str(value)


def _ms(value: object) -> str:
    return "none" if value is None else f"{value} ms"
