"""Compare the variables of a `transformWithState` with those of a savepoint, by name.

A variable has further column families in which Spark indexes expiry times and counts elements;
they move with it. Timers are kept unchanged, or dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from savepoints.checkpoint.evolution.operator_pairs import OperatorPair, in_order
from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.state.schema import StateField, StateSchema, type_text

_TIMERS = re.compile(r"\$(?:event|proc)Timers_")
_BESIDE = re.compile(r"\$(?:ttl|count|min|rowCounter)_(.+)", re.DOTALL)
_WITHOUT_TIME = frozenset({"none", "notime"})
_ANOTHER_NAME = "give the new variable another name; the old one can be dropped"

# Kind, and whether values expire, by name.
_Declared: TypeAlias = Mapping[str, tuple[str, bool]]
# Store and schema by column family.
_Families: TypeAlias = Mapping[str, tuple[str, StateSchema]]


def compare_states(pair: OperatorPair) -> None:
    """Compare a `transformWithState` with its old self."""
    _modes(pair)
    before, after = _declared(pair.old), _declared(pair.new)
    olds, news = _families(pair.old), _families(pair.new)
    pairs, settled = _pairs(pair, before, after)
    gone = [name for name in before if name not in pairs.values()]
    for name in after:
        mine = [family for family in news if _variable(family) == name]
        if name not in pairs:
            _say_new(pair, name, [one for one in gone if _is_like(one, name, pair)], settled)
            for family in mine:
                pair.begin_empty(*news[family])
        elif _is_of_kind(pair, pairs[name], name, before, after):
            for family in mine:
                was = f"{family.removesuffix(name)}{pairs[name]}"
                _carry(pair, olds, was, news, family)
    for name in gone:
        lost = tuple((olds[one][0], one) for one in olds if _variable(one) == name)
        pair.drop(f"variable {name} of {pair.old}", f"variable {name}", lost)
    _timers(pair, olds, news)


def _timers(pair: OperatorPair, olds: _Families, news: _Families) -> None:
    for family in filter(_TIMERS.match, news):
        if family in olds:
            _carry(pair, olds, family, news, family)
        else:
            pair.begin_empty(*news[family])
    lost = tuple((olds[one][0], one) for one in olds if _TIMERS.match(one) and one not in news)
    if lost:
        pair.drop(f"timers of {pair.old}", "timers", lost)


def _pairs(
    pair: OperatorPair, before: _Declared, after: _Declared
) -> tuple[dict[str, str], set[str]]:
    """Match new variables with old ones; also return the names in `--map`."""
    pair.compared.known += [*before, *after]
    pairs: dict[str, str] = {}
    settled: set[str] = set()
    for one in pair.words.renames:
        if (one.old is None or one.old in before) and (one.new is None or one.new in after):
            pair.compared.used.append(one)
            settled |= {name for name in (one.old, one.new) if name}
            if one.old and one.new:
                pairs[one.new] = one.old
    pairs |= {name: name for name in after if name in before and name not in settled}
    return pairs, settled


def _say_new(pair: OperatorPair, name: str, like: list[str], settled: set[str]) -> None:
    """Report a new variable, which may be an old one renamed."""
    like = [one for one in like if one not in settled and name not in settled]
    place = f"variable {name}"
    if not like:
        pair.say("compatible", place, "it is new and starts empty")
        return
    pair.say(
        "unknown",
        place,
        f"{like[0]} was removed and {name} of the same kind is new: the state does not show "
        "whether it was renamed",
        f"pass --map {like[0]}={name} if it was renamed, --map {like[0]}= if it was not",
    )


def _carry(pair: OperatorPair, olds: _Families, was: str, news: _Families, family: str) -> None:
    if was not in olds:
        pair.say(
            "incompatible", family, f"the savepoint has no column family {was} for this variable"
        )
        return
    store, now = news[family]
    pair.carry(olds[was], store, now, family)


def _is_of_kind(
    pair: OperatorPair, old_name: str, name: str, before: _Declared, after: _Declared
) -> bool:
    """Report another kind, TTL or name; return False if the state cannot be kept."""
    (kind_was, expired), (kind, expires) = before[old_name], after[name]
    place = f"variable {name}"
    if kind_was != kind:
        pair.say("incompatible", place, f"it was a {kind_was} and is now a {kind}", _ANOTHER_NAME)
        return False
    if expired != expires:
        text = (
            "its values now expire, but did not before"
            if expires
            else "its values no longer expire"
        )
        pair.say("incompatible", place, text, _ANOTHER_NAME)
        return False
    if expires:
        text = "the length of the TTL is not in the state: existing values keep their expiry"
        pair.say("compatible", place, text)
    if old_name != name:
        text = f"renamed from {old_name} (--map); its state is kept"
        pair.say("needs_migration", place, text)
    return True


def _modes(pair: OperatorPair) -> None:
    """Report another output mode or time mode."""
    was, now = pair.old.properties, pair.new.properties
    if was.get("outputMode") != now.get("outputMode"):
        modes = f"its output mode was {was.get('outputMode')} and is now {now.get('outputMode')}"
        pair.say("needs_migration", str(pair.new), f"{modes}; its state is the same in both modes")
    if was.get("timeMode") == now.get("timeMode"):
        return
    text = f"its time mode was {was.get('timeMode')} and is now {now.get('timeMode')}"
    if str(was.get("timeMode")).lower() in _WITHOUT_TIME:
        pair.say("needs_migration", str(pair.new), f"{text}: it starts without timers")
    else:
        hint = "keep the time mode"
        text = f"{text}: existing timers and expiry times would mean different times"
        pair.say("incompatible", str(pair.new), text, hint)


def _declared(one: OperatorShape) -> dict[str, tuple[str, bool]]:
    listed: Iterable[Mapping[str, Any]] = one.properties.get("stateVariables", ())
    return {
        str(each["stateName"]): (str(each["stateVariableType"]), bool(each["ttlEnabled"]))
        for each in listed
        if each["stateVariableType"] != "TimerState"
    }


def _families(one: OperatorShape) -> dict[str, tuple[str, StateSchema]]:
    return {schema.column_family: (store, schema) for store, schema in in_order(one)}


def _variable(family: str) -> str | None:
    """Return the variable that a column family belongs to; None for timers."""
    if _TIMERS.match(family):
        return None
    match = _BESIDE.fullmatch(family)
    return match.group(1) if match else family


def _is_like(old_name: str, name: str, pair: OperatorPair) -> bool:
    """Return True if a variable could be another one renamed: same kind, and a field in common."""
    before, after = _declared(pair.old)[old_name], _declared(pair.new)[name]
    was, now = _families(pair.old).get(old_name), _families(pair.new).get(name)
    if before != after or was is None or now is None:
        return False
    old, new = was[1], now[1]
    if _types(old.user_key or ()) != _types(new.user_key or ()):
        return False
    named = {one.name for one in new.value}
    return _types(old.value) == _types(new.value) or any(one.name in named for one in old.value)


def _types(fields: Sequence[StateField]) -> list[str]:
    return [type_text(one.type) for one in fields]
