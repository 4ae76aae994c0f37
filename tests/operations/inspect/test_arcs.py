"""Who reaches whom, against all paths of a small graph tried one by one."""

from __future__ import annotations

from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from savepoints.operations.inspect import arcs

NAMES = "abcdefg"
Arc = tuple[str, str]
names = st.sampled_from(NAMES)
graphs = st.frozensets(st.tuples(names, names), max_size=14)


def reached(graph: frozenset[Arc]) -> set[Arc]:
    """Return all pairs between which there is a path: Warshall's algorithm."""
    found = set(graph)
    for middle, first, last in product(NAMES, repeat=3):
        if (first, middle) in found and (middle, last) in found:
            found.add((first, last))
    return found


@given(graphs, names)
def test_downstream_and_upstream_are_all_that_a_path_leads_to(
    graph: frozenset[Arc], name: str
) -> None:
    paths = reached(graph)

    assert arcs.downstream(graph, name) == {last for first, last in paths if first == name}
    assert arcs.upstream(graph, name) == {first for first, last in paths if last == name}


@given(graphs, names)
def test_what_hangs_together_does_so_whichever_way_the_arcs_point(
    graph: frozenset[Arc], name: str
) -> None:
    both = reached(graph | {(last, first) for first, last in graph})

    assert arcs.connected(graph, name) == {name, *(last for first, last in both if first == name)}


@given(graphs)
def test_a_cycle_is_a_group_in_which_each_reaches_each(graph: frozenset[Arc]) -> None:
    paths = reached(graph)
    found = arcs.cycles(graph)

    together = {frozenset(pair) for pair in paths if pair[::-1] in paths}
    assert {frozenset(pair) for group in found for pair in product(group, repeat=2)} == together
    members = [name for group in found for name in group]
    assert len(members) == len(set(members))
    assert list(found) == sorted(tuple(sorted(group)) for group in found)


@given(graphs)
def test_who_writes_comes_before_who_reads_but_for_cycles(graph: frozenset[Arc]) -> None:
    paths = reached(graph)

    order = arcs.topological_order(NAMES, graph)

    assert sorted(order) == list(NAMES)
    place = {name: number for number, name in enumerate(order)}
    for first, last in paths:
        if (last, first) not in paths:
            assert place[first] < place[last], (first, last)
    for group in arcs.cycles(graph):
        places = sorted(place[name] for name in group)
        assert places == list(range(places[0], places[0] + len(group)))


@given(graphs, st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_who_was_named_first(
    graph: frozenset[Arc], chance: Random
) -> None:
    mixed = [*NAMES]
    chance.shuffle(mixed)

    assert arcs.topological_order(mixed, sorted(graph, reverse=True)) == arcs.topological_order(
        NAMES, graph
    )


def test_queries_in_a_row_of_any_length_are_followed() -> None:
    row = [(f"q{number:04}", f"q{number + 1:04}") for number in range(500)]
    every = {name for arc in row for name in arc}

    assert arcs.downstream(row, "q0000") == every - {"q0000"}
    assert list(arcs.topological_order(every, row)) == sorted(every)
