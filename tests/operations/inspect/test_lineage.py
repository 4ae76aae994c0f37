"""The graph of generations and savepoints, and its pictures."""

from __future__ import annotations

import dataclasses
import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.errors import QueryNotFoundError
from savepoints.handle import Store
from savepoints.model import Generation, Savepoint
from savepoints.operations.inspect.lineage import (
    Edge,
    Lineage,
    Node,
    dot,
    graph,
    lineage,
    mermaid,
    tree,
)
from tests.samples import BEGINNING, savepoint


def taken(
    number: int, *, generation: int = 1, query: str = "orders", parent: Savepoint | None = None
) -> Savepoint:
    return dataclasses.replace(
        savepoint(number, query=query), generation=generation, parent=parent.id if parent else None
    )


def life(number: int, begun_from: str | None = None, query: str = "orders") -> Generation:
    return Generation(
        query,
        number,
        f"/checkpoints/{query}/{number}",
        "current",
        BEGINNING + timedelta(hours=number - 1),
        "run" if begun_from is None else "rollback",
        begun_from,
    )


ONE = taken(1)
TWO = taken(2, parent=ONE)
AFTER = taken(5, generation=2, parent=TWO)


def test_a_rollback_begins_a_generation_at_the_savepoint_that_it_went_back_to() -> None:
    found = graph([AFTER, TWO, ONE], [life(2, ONE.id), life(1)])

    assert [node.id for node in found.nodes] == ["orders/1", ONE.id, "orders/2", TWO.id, AFTER.id]
    assert set(found.edges) == {
        Edge("orders/1", ONE.id, "taken"),
        Edge("orders/1", TWO.id, "taken"),
        Edge("orders/2", AFTER.id, "taken"),
        Edge(ONE.id, "orders/2", "began"),
        Edge(ONE.id, TWO.id, "parent"),
        Edge(TWO.id, AFTER.id, "parent"),
    }
    (root,) = found.roots()
    assert root.id == "orders/1"
    assert [node.id for node in found.children(root)] == [ONE.id, TWO.id]
    began = found.children(found.children(root)[0])
    assert [node.id for node in began] == ["orders/2"]
    assert [node.id for node in found.children(began[0])] == [AFTER.id]


def test_what_is_there_no_longer_is_gone_and_stays_in_its_place() -> None:
    found = graph([AFTER], [life(2, ONE.id)])

    by_id = {node.id: node for node in found.nodes}
    assert by_id[ONE.id] == Node(ONE.id, "savepoint")
    assert by_id[ONE.id].label == f"{ONE.id}, gone"
    # What is only the parent of something is no tree of its own.
    assert [node.id for node in found.roots()] == [ONE.id]
    assert by_id[TWO.id].status == "gone"


def test_a_generation_that_is_not_in_the_table_is_gone() -> None:
    found = graph([ONE], [])

    assert [node.label for node in found.roots()] == ["generation orders/1, gone"]
    assert [node.id for node in found.children(found.roots()[0])] == [ONE.id]


def test_one_query_has_what_its_generations_began_from_also_of_another() -> None:
    other = taken(1, query="clicks")
    savepoints = [other, taken(3, query="clicks"), taken(4)]

    found = graph(savepoints, [life(1, other.id), life(1, query="clicks")], query="orders")

    assert {node.id for node in found.nodes} == {other.id, "orders/1", savepoints[2].id}
    assert next(node for node in found.nodes if node.id == other.id).status == "complete"


def test_the_lineage_of_a_store_leaves_out_what_is_being_removed(local_store: Store) -> None:
    for one in (ONE, dataclasses.replace(TWO, state="expired")):
        local_store.catalog.add(one)

    found = lineage(local_store)

    assert [node.id for node in found.nodes] == ["orders/1", ONE.id]


def test_labels_say_what_a_person_wants_to_know() -> None:
    marked = dataclasses.replace(
        ONE, tags=("golden",), description="before 2.0", state="broken", state_reason="x"
    )
    found = graph([marked], [life(1)])

    assert [node.label for node in found.nodes] == [
        "generation orders/1, 2026-11-20T10:00:00.000Z, current, begun by run",
        f"{ONE.id}, batch 1, 2026-11-20T10:59:00.000Z, broken, [golden] before 2.0",
    ]


def test_pictures_have_all_nodes_and_edges() -> None:
    found = graph([AFTER, TWO, ONE], [life(2, ONE.id), life(1)])

    in_mermaid, in_dot = mermaid(found).splitlines(), dot(found).splitlines()

    assert in_mermaid[0] == "flowchart TD"
    assert re.fullmatch(r'  n0\["generation orders/1, .*"\]', in_mermaid[1])
    assert re.fullmatch(rf'  n1\("{ONE.id}, batch 1, .*"\)', in_mermaid[2])
    assert {"  n0 --> n1", "  n1 ==> n2", "  n1 -.-> n3"} <= set(in_mermaid)
    assert (in_dot[0], in_dot[-1]) == ("digraph lineage {", "}")
    assert {"  n0 -> n1 [style=solid];", "  n1 -> n2 [style=bold];"} <= set(in_dot)
    assert len(in_mermaid) == 1 + 5 + 6
    assert len(in_dot) == 1 + 5 + 6 + 1


def test_the_tree_shows_what_was_taken_and_what_began_from_it() -> None:
    drawn = tree(graph([AFTER, TWO, ONE], [life(2, ONE.id), life(1), life(1, query="z")]))

    assert [line.partition(",")[0] for line in drawn.splitlines()] == [
        "generation orders/1",
        f"├── {ONE.id}",
        "│   └── generation orders/2",
        f"│       └── {AFTER.id}",
        f"└── {TWO.id}",
        "generation z/1",
    ]


def test_a_query_that_was_rolled_back_any_number_of_times_has_a_tree() -> None:
    count = 1500
    lives = [dataclasses.replace(life(1), generation=n, begun_from=f"sp-{n}") for n in range(count)]
    taken = [
        dataclasses.replace(ONE, id=f"sp-{n + 1}", generation=n, parent=None) for n in range(count)
    ]

    lines = tree(graph(taken, lives)).splitlines()

    assert len(lines) == 2 * count + 1
    assert f"└── sp-{count}" in lines[-1]


HOSTILE = [
    'a"]; evil("',
    '"] --> n9["x',
    "`markdown`",
    "end\nn9 --> n0",
    "#quot;",
    "<script>alert(1)</script>",
    "\\",
    '\\"',
    "a\\\\b",
    "%%{init}%%\r\nx",
    '"; }\ndigraph evil {',
]


def of(text: str) -> Lineage:
    node = Node(text, "savepoint", text, status="complete", note=text)
    return Lineage((node,), (Edge(text, text, "began"),))


@given(st.sampled_from(HOSTILE) | st.text())
def test_no_text_can_leave_its_place_in_a_picture(text: str) -> None:
    in_mermaid, in_dot = mermaid(of(text)).split("\n"), dot(of(text)).split("\n")

    assert len(in_mermaid) == 3
    assert re.fullmatch(r'  n0\("[^"`<>\\]*"\)', in_mermaid[1])
    assert in_mermaid[2] == "  n0 ==> n0"
    assert len(in_dot) == 4
    assert re.fullmatch(r'  n0 \[label="([^"\\]|\\\\|\\")*", shape=ellipse\];', in_dot[1])


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_quoted_can_be_read_again(text: str) -> None:
    label = of(text).nodes[0].label

    shown = re.sub(r"#(\d+);", lambda code: chr(int(code[1])), mermaid(of(text)).split("\n")[1])
    assert shown == f'  n0("{" ".join(label.split())}")'
    drawn = re.sub(r"\\(.)", r"\1", dot(of(text)).split("\n")[1])
    assert drawn == f'  n0 [label="{" ".join(label.split())}", shape=ellipse];'


def test_trap_of_a_query_that_is_not_there_the_store_was_said_to_be_empty(
    local_store: Store,
) -> None:
    local_store.catalog.add(savepoint(1, query="orders"))
    local_store.generations.begin("orders", 1, local_store.root / "live", by="run")

    with pytest.raises(QueryNotFoundError, match="no query 'ordres'") as caught:
        lineage(local_store, query="ordres")

    assert "orders" in caught.value.hint
    assert lineage(local_store, query="orders").nodes
