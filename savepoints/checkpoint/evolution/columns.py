"""Compare the columns of one kind of state, and decide how the new ones are made.

Columns are matched by name, never by position alone: Spark compares only types, so two aggregates
of one type that swap places would continue with each other's state. What names and types do not
decide is `unknown` until `--map` decides it (`savepoints.checkpoint.evolution.renames`).
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
from savepoints.checkpoint.state.schema import (
    SparkType,
    StateField,
    exact_text,
    field_text,
    type_text,
)

_WHOLE = ("byte", "short", "integer", "long")
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_WATERMARK = "spark.watermarkDelayMs"
_SESSION = "session_window"
_WINDOW = "struct<start:timestamp,end:timestamp>"


def watermark_reason(was: StateField, now: StateField, place: str) -> Reason | None:
    """Return the finding for a changed watermark delay; None if a column has none."""
    before, after = was.metadata.get(_WATERMARK), now.metadata.get(_WATERMARK)
    if before == after:
        return None
    return Reason(
        "compatible",
        place,
        f"the watermark delay was {_ms(before)} and is now {_ms(after)}: the state is kept, and "
        "the watermark continues from its current value and never goes back",
    )


def compare_keys(
    was: Sequence[StateField], now: Sequence[StateField], prefix: str, words: Words
) -> ColumnFindings:
    """Compare key columns, whose bytes are kept unchanged or cannot be used at all."""
    found = ColumnFindings()
    names_was, names_now = addresses(was, f"{prefix}key"), addresses(now, f"{prefix}key")
    found.known = [*names_was, *names_now]
    if [kind_of(one) for one in was] != [kind_of(one) for one in now]:
        found.say(
            "incompatible",
            f"{prefix}key",
            f"the key was {_listed(was)} and is now {_listed(now)}: state is found by its key",
            _KEYS,
        )
        return found
    old_names, new_names = [one.name for one in was], [one.name for one in now]
    if old_names != new_names and sorted(old_names) == sorted(new_names):
        text = f"the key was {_listed(was)} and is now {_listed(now)}: its columns changed places"
        found.used += [
            one for one in words.renames if one.old in names_was and one.new in names_now
        ]
        found.say("incompatible", f"{prefix}key", text, _KEYS)
        return found
    for position, (old, new) in enumerate(zip(was, now, strict=True)):
        place = f"key column {names_now[position]}"
        found.add(_vouched(old, new, names_was[position], names_now[position], words))
        if old.name != new.name:
            found.add(_renamed_key(names_was[position], names_now[position], place, words))
        if reason := watermark_reason(old, new, place):
            found.reasons.append(reason)
        if exact_text(old.type) != exact_text(new.type):
            text = (
                f"its inner nullability was {exact_text(old.type)} and is now "
                f"{exact_text(new.type)}"
            )
            found.say("incompatible", place, text, _KEYS)
        if not old.nullable and new.nullable:
            text = "it was not nullable but is now, which Spark refuses without a migration"
            found.say("needs_migration", place, text)
    return found


def compare_values(
    was: Sequence[StateField], now: Sequence[StateField], prefix: str, words: Words
) -> ColumnFindings:
    """Compare value columns and decide how the new ones are made."""
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
            found.say(
                "needs_migration",
                f"value column {address}",
                f"it moved from column {source} to column {position}, which Spark does not "
                "notice when the types are the same",
            )
    for place in gone:
        text = f"it was removed ({type_text(was[place].type)}), together with its values"
        found.say("needs_migration", f"value column {names_was[place]}", text)
        found.dropped.append(names_was[place])
    found.columns = tuple(columns)
    return found


def is_untouched(columns: Sequence[Column], was: int) -> bool:
    """Return True if rows can be kept unchanged."""
    return len(columns) == was and all(
        one.source == position and not one.is_cast and not one.inner and not one.forbids_nulls
        for position, one in enumerate(columns)
    )


def widens(was: SparkType, now: SparkType) -> bool:
    """Return True if every value of one type fits the other without loss."""
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
    """Decide how a column is made from its old one."""
    place = f"value column {address}"
    column = Column(address, now, source, was)
    if is_said and was.name != now.name:
        text = f"renamed from {was.name} (--map); its values are kept"
        found.say("compatible", place, text)
    if words.is_aggregate:
        found.add(_aggregated(now, address, is_said=is_said))
    if reason := watermark_reason(was, now, place):
        found.reasons.append(reason)
    if was.metadata.get(COLLATIONS) != now.metadata.get(COLLATIONS):
        text = "its collation changed, and therefore how rows compare"
        found.say("incompatible", place, text, _FUNCTION)
    if column.forbids_nulls:
        text = "it was nullable but is not now: the migration refuses nulls in it"
        found.say("needs_migration", place, text)
    elif now.nullable and not was.nullable:
        text = "it was not nullable but is now, which Spark refuses without a migration"
        found.say("needs_migration", place, text)
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
    """Report what the state does not show of an aggregation's column."""
    found = ColumnFindings()
    place = f"value column {address}"
    if now.name == _SESSION:
        text = "the session gap is not in the state: open sessions keep their current end"
        found.say("compatible", place, text)
    if now.type == "binary" and now.name == "buf" and not is_said:
        found.say(
            "unknown",
            place,
            "it is the buffer of an aggregate such as collect_list, whose bytes only Spark "
            "understands: the state does not show whether it is the same aggregate of the "
            "same type",
            f"pass --map {address}={address} if it is",
        )
    return found


def _cast_reason(was: SparkType, now: SparkType, place: str) -> Reason:
    """Return the finding for another type or inner nullability."""
    before, after = type_text(was), type_text(now)
    if before == after and exact_text(now) == before:
        text = (
            "its inner values were not nullable but are now, which Spark refuses without a "
            "migration"
        )
        return Reason("needs_migration", place, text)
    if before == after:
        text = f"its inner nullability was {exact_text(was)} and is now {exact_text(now)}"
        return Reason("incompatible", place, text, _FUNCTION)
    if widens(was, now):
        text = f"it was {before} and is now {after}, which can hold all its values"
        return Reason("needs_migration", place, text)
    text = f"it was {before} and is now {after}: not every value fits"
    return Reason("incompatible", place, text, _FUNCTION)


def _new_column(
    one: StateField, address: str, from_end: int, words: Words, found: ColumnFindings
) -> Column:
    """Choose what a new column starts with."""
    place = f"value column {address}"
    start: Any = None
    said = words.starts is not None and -from_end <= len(words.starts)
    if address in words.defaults:
        start = words.defaults[address]
        text = f"starts with {start}, as --default says"
    elif said:
        assert words.starts is not None
        start = words.starts[from_end].value
        text = f"starts with {_shown(start)}, as for a key that had no rows before the savepoint"
    elif one.nullable and not words.is_aggregate:
        text = "starts with NULL"
    else:
        text = f"its initial value is unknown ({type_text(one.type)})"
        found.say("incompatible", place, f"it is new: {text}", f"set it: --default {address}=VALUE")
        return Column(address, one, None)
    reason = f"it is new: for state from the savepoint it {text}"
    found.say("needs_migration", place, reason)
    return Column(address, one, None, start=start)


def _vouched(old: StateField, new: StateField, was: str, now: str, words: Words) -> ColumnFindings:
    """Report what the state does not show of a key column, unless `--map` confirms it."""
    found = ColumnFindings()
    place, hint = f"key column {now}", f"pass --map {was}={now} if it is the same"
    if {"_groupingexpression", _SESSION} & {old.name, new.name}:
        text = f"it is computed by an expression that the state records only as {new.name}"
        found.say("unknown", place, text, hint)
    elif type_text(new.type).replace("_ntz", "") == _WINDOW:
        text = "its window length and slide are not in the state"
        found.say("unknown", place, text, hint)
    if old.nullable and not new.nullable:
        found.say(
            "unknown",
            place,
            "it was nullable but is not now, so it is unknown what should happen to "
            "state under a null key",
            f"pass --map {was}={now} if no key is null; otherwise give the program a "
            "KeyMigration for the operator",
        )
    said = [one for one in words.renames if (one.old, one.new) == (was, now)]
    if not found.reasons or not said:
        return found
    same = "it is the same, as --map says"
    # A renamed column counts its own --map.
    used = said if old.name == new.name else []
    return ColumnFindings(reasons=[Reason("compatible", place, same)], used=used)


def _renamed_key(old: str, new: str, place: str, words: Words) -> ColumnFindings:
    found = ColumnFindings()
    for one in words.renames:
        if (one.old, one.new) == (old, new):
            found.used.append(one)
            text = f"renamed from {old} (--map); its values are kept"
            found.say("compatible", place, text)
            return found
    found.say(
        "unknown",
        place,
        f"it has the type of {old} and may be the same column under another name: the state "
        "does not show whether it is",
        f"pass --map {old}={new} if it is",
    )
    return found


_KEYS = "give the program a KeyMigration for the operator, or start it without state"
_FUNCTION = "give the program a function for it: App(…, migrate={…})"


def _listed(fields: Sequence[StateField]) -> str:
    return f"({', '.join(map(field_text, fields))})"


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
