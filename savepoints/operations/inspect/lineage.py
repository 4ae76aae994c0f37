"""`lineage`: which savepoint was taken of which generation, and which generation began from it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from savepoints.json_values import to_json
from savepoints.model import Generation, Place, Savepoint
from savepoints.moments import rfc3339
from savepoints.operations.inspect.mermaid import quoted
from savepoints.result import Result
from savepoints.store import bindings
from savepoints.store.bindings import Binding, CloneOf
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store
from savepoints.store.tables import catalog

NodeKind = Literal["generation", "savepoint"]
EdgeKind = Literal["taken", "began", "parent"]

# What is drawn between two nodes, in the language of each kind of picture.
_MERMAID = {"taken": "-->", "began": "==>", "parent": "-.->"}
_DOT = {"taken": "solid", "began": "bold", "parent": "dotted"}


@dataclass(frozen=True)
class Node:
    """A generation or a savepoint.

    Attributes:
        id: Id of the savepoint, or query and number of the generation: `orders/2`.
        kind: `savepoint` or `generation`.
        query: Name of the query; None for a savepoint that is gone.
        at: When the cut was committed, or when the generation began; None when it is gone.
        batch_id: Batch of a savepoint.
        status: `complete` or `broken` of a savepoint, `current` or `ended` of a generation; `gone`
            when something still refers to it but it no longer exists.
        note: Tags and description of a savepoint, or the verb that began a generation.
        needs: Of a generation whose outputs are shallow clones, the tables and versions whose
            files they read.
    """

    id: str
    kind: NodeKind
    query: str | None = None
    at: datetime | None = None
    batch_id: int | None = None
    status: str = "gone"
    note: str = ""
    needs: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Describe it in a line."""
        what = self.id if self.kind == "savepoint" else f"generation {self.id}"
        batch = [] if self.batch_id is None else [f"batch {self.batch_id}"]
        at = [] if self.at is None else [rfc3339(self.at)]
        status = [] if self.status == "complete" else [self.status]
        note = [self.note] if self.note else []
        return ", ".join([what, *batch, *at, *status, *note, *(f"needs {n}" for n in self.needs)])


@dataclass(frozen=True)
class Edge:
    """How one node is related to another.

    Attributes:
        source: Id of a node.
        target: Id of a node.
        kind: `taken`: the savepoint was taken from the generation; `began`: the generation began
            from the savepoint; `parent`: the savepoint was the newest one when this was taken.
    """

    source: str
    target: str
    kind: EdgeKind


@dataclass(frozen=True)
class Lineage(Result):
    """Generations and savepoints with their relations, oldest first.

    Attributes:
        nodes: The generations and savepoints, each once.
        edges: The relations, from the earlier to the later node.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return dict(to_json(self))

    def roots(self) -> list[Node]:
        """Return the nodes with which the trees begin."""
        targets = {child.id for children in self._children.values() for child in children}
        # A parent that is gone is no tree of its own.
        return [
            node
            for node in self.nodes
            if node.id not in targets and (node.status != "gone" or node.id in self._children)
        ]

    def children(self, node: Node) -> list[Node]:
        """Return what was taken of a generation, or began from a savepoint."""
        return self._children.get(node.id, [])

    @cached_property
    def _children(self) -> dict[str, list[Node]]:
        nodes = {node.id: node for node in self.nodes}
        found: dict[str, list[Node]] = {}
        for edge in self.edges:
            if edge.kind != "parent":
                found.setdefault(edge.source, []).append(nodes[edge.target])
        return found


def lineage(store: Store, *, query: str | None = None) -> Lineage:
    """Return how the generations and savepoints of a query, or of all, descend from each other.

    Raises:
        QueryNotFoundError: If the store does not know the query.
    """
    store = store.snapshot()
    found = graph(
        catalog.select(store.catalog.all()),
        store.generations.all(),
        query=query,
        bound=bindings.every(store.root),
        operations=journal.all_operations(store.root),
    )
    if query is not None and not found.nodes:
        raise store.generations.unknown(query)
    return found


def graph(
    savepoints: Sequence[Savepoint],
    generations: Sequence[Generation],
    *,
    query: str | None = None,
    bound: Sequence[Binding] = (),
    operations: Sequence[Operation] = (),
) -> Lineage:
    """Put savepoints and generations together; the operations say which began by an undo."""
    known = {one.id: _of_savepoint(one) for one in savepoints}
    mine = [one for one in savepoints if query is None or one.query == query]
    ids = {one.id for one in mine}
    shown = [one for one in generations if query in {None, one.query} or one.begun_from in ids]
    clones = {one.place: one.clone_of for one in bound}
    by_undo = {begun for one in operations if one.is_undo for begun in one.generations_begun}
    edges: dict[Edge, None] = {}
    nodes = {f"{one.query}/{one.generation}": _of_generation(one, clones, by_undo) for one in shown}
    for one in mine:
        nodes[one.id] = known[one.id]
        generation = f"{one.query}/{one.generation}"
        nodes.setdefault(generation, Node(generation, "generation", one.query))
        edges[Edge(generation, one.id, "taken")] = None
        if one.parent is not None:
            edges[Edge(one.parent, one.id, "parent")] = None
    for begun in shown:
        if begun.begun_from is not None:
            edges[Edge(begun.begun_from, f"{begun.query}/{begun.generation}", "began")] = None
    for edge in edges:
        if edge.source not in nodes:
            nodes[edge.source] = known.get(edge.source, Node(edge.source, "savepoint"))
    order = {node.id: number for number, node in enumerate(sorted(nodes.values(), key=_age))}
    return Lineage(
        tuple(sorted(nodes.values(), key=lambda node: order[node.id])),
        tuple(sorted(edges, key=lambda edge: (order[edge.source], order[edge.target], edge.kind))),
    )


def tree(lineage: Lineage) -> str:
    """Draw it as trees, of generations with what was taken of them and what began from that."""
    lines: list[str] = []
    # Without recursion: a query may be rolled back any number of times.
    waiting = [(node, "", "") for node in reversed(lineage.roots())]
    while waiting:
        node, first, rest = waiting.pop()
        lines.append(first + _one_line(node.label))
        for number, child in enumerate(reversed(lineage.children(node))):
            last = number == 0
            branch, below = ("└── ", "    ") if last else ("├── ", "│   ")
            waiting.append((child, rest + branch, rest + below))
    return "\n".join(lines)


def mermaid(lineage: Lineage) -> str:
    """Draw it in the language of Mermaid."""
    names = _names(lineage.nodes)
    lines = ["flowchart TD"]
    for node in lineage.nodes:
        left, right = "[]" if node.kind == "generation" else "()"
        lines.append(f"  {names[node.id]}{left}{quoted(node.label)}{right}")
    lines += [
        f"  {names[edge.source]} {_MERMAID[edge.kind]} {names[edge.target]}"
        for edge in lineage.edges
    ]
    return "\n".join(lines)


def dot(lineage: Lineage) -> str:
    """Draw it in the language of Graphviz."""
    names = _names(lineage.nodes)
    lines = ["digraph lineage {"]
    for node in lineage.nodes:
        text = _one_line(node.label).replace("\\", r"\\").replace('"', r"\"")
        shape = "box" if node.kind == "generation" else "ellipse"
        lines.append(f'  {names[node.id]} [label="{text}", shape={shape}];')
    lines += [
        f"  {names[edge.source]} -> {names[edge.target]} [style={_DOT[edge.kind]}];"
        for edge in lineage.edges
    ]
    return "\n".join([*lines, "}"])


def _of_savepoint(one: Savepoint) -> Node:
    note = " ".join([*(f"[{tag}]" for tag in one.tags), one.description]).strip()
    return Node(
        one.id, "savepoint", one.query, one.cut.committed_at, one.cut.batch_id, one.state, note
    )


def _of_generation(
    one: Generation,
    clones: Mapping[Place, Mapping[str, CloneOf]],
    by_undo: Collection[Place],
) -> Node:
    return Node(
        f"{one.query}/{one.generation}",
        "generation",
        one.query,
        one.begun_at,
        status=one.status,
        note=f"begun by {'undo' if one.place in by_undo else one.begun_by}",
        needs=tuple(
            f"version {it.version} of {it.uri}" for it in clones.get(one.place, {}).values()
        ),
    )


def _age(node: Node) -> tuple[bool, str, bool, str]:
    """Order by time, what is gone first; a generation before what was taken of it."""
    at = rfc3339(node.at) if node.at else ""
    return (node.at is not None, at, node.kind == "savepoint", node.id)


def _names(nodes: Sequence[Node]) -> dict[str, str]:
    """Give each node a name that no language of pictures stumbles over."""
    return {node.id: f"n{number}" for number, node in enumerate(nodes)}


def _one_line(text: str) -> str:
    return " ".join(text.split())
