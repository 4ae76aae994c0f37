"""Comparing the columns of one kind of state: what became of each, and how the new ones are made.

Columns are matched by name, never by place alone: Spark looks at types only, so that two aggregates
of one type that changed places would go on with each other's state. What cannot be decided from
names and types is `unknown` until a person says it (`savepoints.checkpoint.evolution.renames`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from savepoints.checkpoint.evolution import aggregate_buffers
from savepoints.checkpoint.evolution.column_matching import pairs_of
from savepoints.checkpoint.evolution.findings import (
    COLLATIONS,
    Column,
    ColumnFindings,
    Reason,
    Words,
    addresses,
    kind_of,
)
from savepoints.checkpoint.evolution.renames import Rename
from savepoints.checkpoint.state.schema import (
    SparkType,
    StateField,
    exact_text,
    type_text,
)

_WHOLE = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_WATERMARK = "spark.watermarkDelayMs"
_SESSION = "session_window"
_WINDOW = "struct<start:timestamp,end:timestamp>"


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
) -> ColumnFindings:
    """Compare key columns, whose bytes stay as they are or cannot be used at all."""
    found = ColumnFindings()
    names_was, names_now = addresses(was, f"{prefix}key"), addresses(now, f"{prefix}key")
    found.known = [*names_was, *names_now]
    if [kind_of(one) for one in was] != [kind_of(one) for one in now]:
        found.reasons.append(
            Reason(
                "incompatible",
                f"{prefix}key",
                f"the key was {_listed(was)} and is {_listed(now)}: state is found by its key",
                _KEYS,
            )
        )
        return found
    old_names, new_names = [one.name for one in was], [one.name for one in now]
    if old_names != new_names and sorted(old_names) == sorted(new_names):
        text = f"the key was {_listed(was)} and is {_listed(now)}: its columns changed places"
        found.used += [one for one in words.renames if _is_of(one, names_was, names_now)]
        found.reasons.append(Reason("incompatible", f"{prefix}key", text, _KEYS))
        return found
    for position, (old, new) in enumerate(zip(was, now, strict=True)):
        place = f"key column {names_now[position]}"
        found.add(_vouched(old, new, names_was[position], names_now[position], words))
        if old.name != new.name:
            found.add(_renamed_key(names_was[position], names_now[position], place, words))
        if reason := watermark_reason(old, new, place):
            found.reasons.append(reason)
        if exact_text(old.type) != exact_text(new.type):
            text = f"what may be null in it was {exact_text(old.type)}, is {exact_text(new.type)}"
            found.reasons.append(Reason("incompatible", place, text, _KEYS))
        if not old.nullable and new.nullable:
            text = "it could not be null and can now, which Spark refuses without a migration"
            found.reasons.append(Reason("needs_migration", place, text))
    return found


def compare_values(
    was: Sequence[StateField], now: Sequence[StateField], prefix: str, words: Words
) -> ColumnFindings:
    """Compare value columns and say how the new ones are made."""
    found = ColumnFindings()
    names_was, names_now = addresses(was, prefix), addresses(now, prefix)
    found.known = [*names_was, *names_now]
    matched = pairs_of(was, now, names_was, names_now, words, found)
    if words.is_aggregate:
        aggregate_buffers.require_whole(
            was, now, (names_was, names_now), words.starts, matched, found
        )
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
    found: ColumnFindings,
    *,
    is_said: bool,
) -> Column:
    """Say how a column is made of the one that it was."""
    place = f"value column {address}"
    column = Column(address, now, source, was)
    if is_said and was.name != now.name:
        text = f"it was called {was.name}: renamed, as --map says; its values stay"
        found.reasons.append(Reason("compatible", place, text))
    if words.is_aggregate:
        found.add(_aggregated(now, address, is_said=is_said))
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
    if _is_struct(was.type) and _is_struct(now.type):
        inner = compare_values(
            _fields(was.type),
            _fields(now.type),
            f"{address}.",
            replace(words, starts=None, is_aggregate=False),
        )
        found.add(inner)
        return replace(column, inner=inner.columns)
    found.reasons.append(_cast_reason(was.type, now.type, place))
    return column


def _aggregated(now: StateField, address: str, *, is_said: bool) -> ColumnFindings:
    """Say what cannot be seen of a column of an aggregation that goes on."""
    found = ColumnFindings()
    place = f"value column {address}"
    if now.name == _SESSION:
        text = "how long a gap ends a session cannot be seen: open sessions keep the end they have"
        found.reasons.append(Reason("compatible", place, text))
    if now.type == "binary" and now.name == "buf" and not is_said:
        found.reasons.append(
            Reason(
                "unknown",
                place,
                "it is the buffer of an aggregate such as collect_list, whose bytes only Spark "
                "understands: whether it is the same aggregate of the same type cannot be seen",
                f"--map {address}={address} if it is",
            )
        )
    return found


def _cast_reason(was: SparkType, now: SparkType, place: str) -> Reason:
    """Say what follows from another type, or from what may be null inside of it."""
    before, after = type_text(was), type_text(now)
    if before == after and exact_text(now) == before:
        text = "what is in it could not be null and can now, which Spark refuses without migration"
        return Reason("needs_migration", place, text)
    if before == after:
        text = f"what may be null in it was {exact_text(was)}, is {exact_text(now)}"
        return Reason("incompatible", place, text, _FUNCTION)
    if widens(was, now):
        text = f"it was {before} and is {after}, which holds every value of it"
        return Reason("needs_migration", place, text)
    text = f"it was {before} and is {after}: not every value can become one"
    return Reason("incompatible", place, text, _FUNCTION)


def _new_column(
    one: StateField, address: str, from_end: int, words: Words, found: ColumnFindings
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


def _is_of(one: Rename, was: Sequence[str], now: Sequence[str]) -> bool:
    return one.old in was and one.new in now


def _vouched(old: StateField, new: StateField, was: str, now: str, words: Words) -> ColumnFindings:
    """Say what cannot be seen of a key column, unless a person says that it is the same."""
    found = ColumnFindings()
    place, hint = f"key column {now}", f"--map {was}={now} if it is the same"
    if {"_groupingexpression", _SESSION} & {old.name, new.name}:
        text = f"it is computed by an expression, of which the state says only {new.name}"
        found.reasons.append(Reason("unknown", place, text, hint))
    elif type_text(new.type).replace("_ntz", "") == _WINDOW:
        text = "how long its windows are, and how far apart, cannot be seen"
        found.reasons.append(Reason("unknown", place, text, hint))
    if old.nullable and not new.nullable:
        found.reasons.append(
            Reason(
                "unknown",
                place,
                "it could be null and cannot now: what state under a null key would be taken for "
                "cannot be known",
                f"--map {was}={now} if no key is null, or a KeyMigration for the operator",
            )
        )
    said = [one for one in words.renames if (one.old, one.new) == (was, now)]
    if not found.reasons or not said:
        return found
    same = "it is the same, as --map says"
    # A renamed column counts what was said of it itself.
    used = said if old.name == new.name else []
    return ColumnFindings(reasons=[Reason("compatible", place, same)], used=used)


def _renamed_key(old: str, new: str, place: str, words: Words) -> ColumnFindings:
    found = ColumnFindings()
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


_KEYS = "give the program a KeyMigration for the operator, or start it without state"
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
