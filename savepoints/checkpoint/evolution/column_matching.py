"""Match the columns of a savepoint with those of a program: by `--map`, by name, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from savepoints.checkpoint.evolution.findings import ColumnFindings, Words, kind_of
from savepoints.checkpoint.state.schema import StateField


@dataclass
class Pairs:
    """Matched columns, as positions in their rows from 0.

    Attributes:
        said: New columns that `--map` names, including as new.
        said_was: Old columns that `--map` names.
    """

    sources: dict[int, int] = field(default_factory=dict)
    said: set[int] = field(default_factory=set)
    said_was: set[int] = field(default_factory=set)
    unclear_was: set[int] = field(default_factory=set)
    unclear_now: set[int] = field(default_factory=set)


def pairs_of(
    was: Sequence[StateField],
    now: Sequence[StateField],
    names_was: Sequence[str],
    names_now: Sequence[str],
    words: Words,
    found: ColumnFindings,
) -> Pairs:
    """Match new columns with old ones; add what cannot be decided to the findings."""
    matched = Pairs()
    pairs = matched.sources
    settled_was: set[int] = set()
    settled_now: set[int] = set()
    for one in words.renames:
        old = names_was.index(one.old) if one.old in names_was else None
        new = names_now.index(one.new) if one.new in names_now else None
        if (one.old is None or old is not None) and (one.new is None or new is not None):
            found.used.append(one)
            settled_was |= set() if old is None else {old}
            settled_now |= set() if new is None else {new}
            if old is not None and new is not None:
                pairs[new] = old
    matched.said, matched.said_was = set(settled_now), set(settled_was)
    olds = [place for place in range(len(was)) if place not in settled_was]
    news = [place for place in range(len(now)) if place not in settled_now]
    for name in dict.fromkeys(now[place].name for place in news):
        mine = [place for place in news if now[place].name == name]
        theirs = [place for place in olds if was[place].name == name]
        _pair_of_name(was, now, theirs, mine, matched, (names_was, names_now, found))
    gone = [place for place in olds if place not in {*pairs.values(), *matched.unclear_was}]
    fresh = [place for place in news if place not in {*pairs, *matched.unclear_now}]
    for old in gone:
        like = [new for new in fresh if kind_of(was[old]) == kind_of(now[new])]
        if like and was[old].name != now[like[0]].name:
            a, b = names_was[old], names_now[like[0]]
            matched.unclear_was.add(old)
            matched.unclear_now.add(like[0])
            found.say(
                "unknown",
                f"value column {b}",
                f"{a} was removed and {b} of the same type is new: the state does not show "
                "whether it was renamed",
                f"pass --map {a}={b} if it was renamed, --map {a}= if it was not",
            )
    return matched


def _pair_of_name(
    was: Sequence[StateField],
    now: Sequence[StateField],
    theirs: list[int],
    mine: list[int],
    matched: Pairs,
    context: tuple[Sequence[str], Sequence[str], ColumnFindings],
) -> None:
    """Match columns of one name: directly if there is one, else by type and in order."""
    names_was, names_now, found = context
    pairs = matched.sources
    if len(mine) == len(theirs) == 1:
        pairs[mine[0]] = theirs[0]
        return
    for kind in dict.fromkeys(kind_of(now[place]) for place in mine):
        new = [place for place in mine if kind_of(now[place]) == kind]
        old = [place for place in theirs if kind_of(was[place]) == kind]
        if len(new) == len(old):
            _pair_of_kind(was, now, old, new, matched, context)
        if old and new and len(old) != len(new):
            matched.unclear_was |= set(theirs) - set(pairs.values())
            matched.unclear_now |= set(mine) - set(pairs)
            found.say(
                "unknown",
                f"value column {names_now[new[0]]}",
                f"the number of columns of this name and of type {kind} was {len(old)} and is "
                f"now {len(new)}: the state does not show which is which",
                f"map each column: --map {names_was[old[0]]}={names_now[new[0]]}",
            )
            return
    left = [place for place in mine if place not in pairs]
    free = [place for place in theirs if place not in pairs.values()]
    if len(left) == len(free) == 1:
        pairs[left[0]] = free[0]


def _pair_of_kind(
    was: Sequence[StateField],
    now: Sequence[StateField],
    old: list[int],
    new: list[int],
    matched: Pairs,
    context: tuple[Sequence[str], Sequence[str], ColumnFindings],
) -> None:
    """Match equally many columns of one name and type, by nullability first.

    The state does not show which of several is which: their order is only a guess to confirm.
    """
    by_null = [
        (
            [place for place in old if was[place].nullable == nullable],
            [place for place in new if now[place].nullable == nullable],
        )
        for nullable in (False, True)
    ]
    if any(len(theirs) != len(mine) for theirs, mine in by_null):
        by_null = [(old, new)]
    for theirs, mine in by_null:
        matched.sources.update(zip(mine, theirs, strict=True))
        if len(mine) > 1:
            _ask(now, mine, theirs, context)


def _ask(
    now: Sequence[StateField],
    new: list[int],
    old: list[int],
    context: tuple[Sequence[str], Sequence[str], ColumnFindings],
) -> None:
    """Report that columns of one name and type may have swapped places."""
    names_was, names_now, found = context
    pairs = list(zip(old, new, strict=True))[:-1]
    maps = " ".join(f"--map {names_was[a]}={names_now[b]}" for a, b in pairs)
    found.say(
        "unknown",
        f"value column {names_now[new[0]]}",
        f"{len(new)} columns are called {now[new[0]].name} and have the same type: the state "
        "does not show whether they swapped places",
        f"pass {maps} if they did not swap places",
    )
