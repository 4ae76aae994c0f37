"""Decide whether a program can continue with a savepoint's state, and how to convert it.

Operators are matched by name and position, their columns by name. No JVM is needed: the program's
layout is read from a checkpoint that it made on empty inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from savepoints.checkpoint.evolution import operator_pairs, renames, variables
from savepoints.checkpoint.evolution.findings import Dropped, Reason, UpgradeVerdict, Words, worst
from savepoints.checkpoint.evolution.operator_pairs import Functions, OperatorPair, Transfer
from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.evolution.renames import Rename
from savepoints.result import Result
from savepoints.texts import count_text


@dataclass(frozen=True)
class OperatorVerdict:
    """What happens to the state of an operator.

    Attributes:
        operator_id: Its number in the program; None for one that is gone.
        was_operator_id: Its number in the savepoint; None for one that is new.
        name: Spark's name of it.
        verdict: The worst of the reasons.
        reasons: What was found.
        rows: Its state rows in the savepoint; None when it is new, or where they were not counted.
        dropped: Columns, variables and so on whose state is dropped.
    """

    operator_id: int | None
    was_operator_id: int | None
    name: str
    verdict: UpgradeVerdict
    reasons: tuple[Reason, ...]
    rows: int | None = None
    dropped: tuple[Dropped, ...] = ()


@dataclass(frozen=True)
class Upgrade(Result):
    """What a comparison of a program with a savepoint found.

    Attributes:
        savepoint_id: The savepoint.
        app: The program.
        verdict: The worst of all.
        operators: By operator; those that are gone come last.
        sources: Findings about the sources.
        notes: Further remarks for people.
    """

    savepoint_id: str
    app: str
    verdict: UpgradeVerdict
    operators: tuple[OperatorVerdict, ...]
    sources: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def dropped(self) -> tuple[Dropped, ...]:
        """All state that is not taken along."""
        return tuple(each for one in self.operators for each in one.dropped)


@dataclass(frozen=True)
class OperatorComparison:
    """What becomes of all operators."""

    operators: tuple[OperatorVerdict, ...]
    transfers: tuple[Transfer, ...]


def compare_operators(
    was: Sequence[OperatorShape],
    now: Sequence[OperatorShape],
    *,
    given: Sequence[Rename] = (),
    defaults: Mapping[str, str] | None = None,
    functions: Functions | None = None,
) -> OperatorComparison:
    """Compare the operators of a savepoint with those of a program.

    Args:
        defaults: What new columns begin with, as text by address.

    Raises:
        UsageError: If an option matches nothing, or several things.
    """
    matched = _match(was, now, given)
    verdicts: list[OperatorVerdict] = []
    transfers: list[Transfer] = []
    used, known = list(matched.used), list[str]()
    for new in now:
        old = matched.pairs.get(new.operator_id)
        words = Words(_scoped(given, new), defaults or {}, new.starts, new.is_aggregate)
        if old is None:
            verdicts.append(_added(new, matched.unclear.get(new.operator_id)))
            transfers += operator_pairs.empty(new)
            continue
        found = OperatorPair(old, new, words, functions or Functions())
        (variables if new.has_variables else operator_pairs).compare_states(found)
        used += dict.fromkeys(found.compared.used)
        known += found.compared.known
        transfers += found.transfers
        moved = _moved(old, new, found.transfers)
        reasons = (*found.compared.reasons, *moved)
        verdicts.append(
            OperatorVerdict(
                new.operator_id,
                old.operator_id,
                new.name,
                worst(one.verdict for one in reasons),
                reasons,
                old.rows,
                tuple(found.dropped),
            )
        )
    kept = {old.operator_id for old in matched.pairs.values()}
    verdicts += [_removed(old) for old in was if old.operator_id not in kept]
    if not matched.unclear:
        # Otherwise not all columns they may name have been compared yet.
        renames.require_used(given, used, known)
        operator_pairs.require_new(defaults or {}, transfers)
    return OperatorComparison(tuple(verdicts), tuple(transfers))


@dataclass
class _Matched:
    """Matched operators."""

    pairs: dict[int, OperatorShape] = field(default_factory=dict)
    unclear: dict[int, Reason] = field(default_factory=dict)
    used: list[Rename] = field(default_factory=list)


def _match(
    was: Sequence[OperatorShape], now: Sequence[OperatorShape], given: Sequence[Rename]
) -> _Matched:
    found = _Matched()
    by_id = {str(one.operator_id): one for one in was}
    for one in given:
        new = next((new for new in now if str(new.operator_id) == one.new), None)
        if one.is_of_operators and one.old in by_id and new is not None:
            found.used.append(one)
            old = by_id[one.old]
            if old.name == new.name:
                found.pairs[new.operator_id] = old
            else:
                text = (
                    f"--map {one.old}={one.new} pairs different operators: {old.name} in the "
                    f"savepoint, {new.name} in the program"
                )
                found.unclear[new.operator_id] = Reason("incompatible", str(new), text)
    for name in dict.fromkeys(one.name for one in now):
        kept = {id(one) for one in found.pairs.values()}
        olds = [one for one in was if one.name == name and id(one) not in kept]
        news = [
            one
            for one in now
            if one.name == name and one.operator_id not in {*found.pairs, *found.unclear}
        ]
        in_order = len(olds) == len(news) and (
            len(olds) == 1
            or (
                all(_keys(old) == _keys(new) for old, new in zip(olds, news, strict=True))
                # With the same key they could have swapped places.
                and not any(_keys(one) == _keys(other) for one, other in combinations(olds, 2))
            )
        )
        if in_order:
            found.pairs |= {new.operator_id: old for old, new in zip(olds, news, strict=True)}
        elif olds and news:
            listed = " and ".join(str(one.operator_id) for one in olds)
            for place, new in enumerate(news):
                old = olds[min(place, len(olds) - 1)]
                found.unclear[new.operator_id] = Reason(
                    "unknown",
                    str(new),
                    f"the state does not show which operator of the savepoint this is: {listed} "
                    f"{'is' if len(olds) == 1 else 'are'} also {name}",
                    f"map this operator: --map {old.operator_id}={new.operator_id}",
                )
    return found


def _keys(one: OperatorShape) -> list[object]:
    return [
        [(field.name, field.type) for field in schema.key]
        for _, schemas in sorted(one.stores.items())
        for schema in schemas
    ]


def _scoped(given: Sequence[Rename], new: OperatorShape) -> tuple[Rename, ...]:
    return tuple(
        one
        for one in given
        if not one.is_of_operators and one.operator_id in {None, new.operator_id}
    )


def _added(new: OperatorShape, unclear: Reason | None) -> OperatorVerdict:
    text = (
        "it is new and starts without state: it counts, compares or joins only rows after the "
        "savepoint"
    )
    reason = unclear or Reason("needs_migration", str(new), text)
    if new.native_only and not unclear:
        text = f"it is new, and cannot start next to existing state: {new.native_only}"
        reason = Reason("incompatible", str(new), text)
    return OperatorVerdict(new.operator_id, None, new.name, reason.verdict, (reason,))


def _removed(old: OperatorShape) -> OperatorVerdict:
    counted = "its state" if old.rows is None else f"its {count_text(old.rows, 'row')} of state"
    reason = Reason(
        "needs_migration",
        str(old),
        f"it was removed, and {counted} would be dropped",
        "allow this with --allow-dropped-state",
    )
    dropped = Dropped(f"all state of {old}", (), old.rows)
    return OperatorVerdict(
        None, old.operator_id, old.name, reason.verdict, (reason,), old.rows, (dropped,)
    )


def _moved(
    old: OperatorShape, new: OperatorShape, transfers: Sequence[Transfer]
) -> tuple[Reason, ...]:
    """Return the findings for another number, and for rows that cannot be written."""
    moved = old.operator_id != new.operator_id
    changed = moved or any(not one.is_untouched for one in transfers)
    if new.native_only and changed:
        text = f"its state must be rewritten, but {new.native_only}"
        return (Reason("incompatible", str(new), text),)
    if not moved:
        return ()
    text = f"it was operator {old.operator_id}: operators are numbered from the sink"
    return (Reason("needs_migration", str(new), text),)
