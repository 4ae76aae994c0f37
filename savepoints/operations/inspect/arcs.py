"""Directed graphs of names: who reaches whom, who hangs together, who comes first.

An arc is a pair of names, such as that of who writes a table and that of who reads it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from graphlib import TopologicalSorter
from typing import TypeAlias

Arcs: TypeAlias = Collection[tuple[str, str]]


def downstream(arcs: Arcs, name: str) -> frozenset[str]:
    """Return whom one reaches by one arc or more; itself, too, when it is on a cycle."""
    readers: dict[str, set[str]] = {}
    for writer, reader in arcs:
        readers.setdefault(writer, set()).add(reader)
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = readers.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return frozenset(found)


def upstream(arcs: Arcs, name: str) -> frozenset[str]:
    """Return who reaches one by one arc or more; itself, too, when it is on a cycle."""
    return downstream([(reader, writer) for writer, reader in arcs], name)


def connected(arcs: Arcs, name: str) -> frozenset[str]:
    """Return one and everybody that hangs together with it, in whichever direction."""
    return downstream([*arcs, *((reader, writer) for writer, reader in arcs)], name) | {name}


def cycles(arcs: Arcs) -> tuple[tuple[str, ...], ...]:
    """Return the groups in which each reaches each, and so itself; sorted, as are their members."""
    reached = {name: downstream(arcs, name) for arc in arcs for name in arc}
    groups = {
        tuple(sorted(other for other in theirs if name in reached[other]))
        for name, theirs in reached.items()
        if name in theirs
    }
    return tuple(sorted(groups))


def topological_order(names: Iterable[str], arcs: Arcs) -> tuple[str, ...]:
    """Return the names, each after all that reach it; those of a cycle stand side by side.

    Names that nothing orders stand as they are sorted.

    Args:
        arcs: Only between these names.
    """
    group_of: dict[str, tuple[str, ...]] = {name: (name,) for name in names}
    group_of |= {name: group for group in cycles(arcs) for name in group}
    before: dict[tuple[str, ...], set[tuple[str, ...]]] = {one: set() for one in group_of.values()}
    for writer, reader in arcs:
        if group_of[writer] != group_of[reader]:
            before[group_of[reader]].add(group_of[writer])
    sorter = TopologicalSorter(before)
    sorter.prepare()
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order += [name for group in ready for name in group]
        sorter.done(*ready)
    return tuple(order)
