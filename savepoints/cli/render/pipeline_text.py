"""A pipeline as text for people, and as a diagram."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.cli.output import Terminal
from savepoints.moments import rfc3339
from savepoints.operations.inspect.mermaid import quoted
from savepoints.operations.pipeline.pipeline_graph import (
    ExternalInput,
    Pipeline,
    PipelineEdge,
    PipelineQuery,
)
from savepoints.texts import count_text

if TYPE_CHECKING:
    from savepoints.operations.pipeline.group_savepoint import Group
    from savepoints.operations.pipeline_rollback.pipeline_rollback import PipelineRolledBack


@dataclass(frozen=True)
class _Branch:
    """A query below what it reads."""

    name: str
    reads: str
    first: str
    rest: str


def show(output: Terminal, found: Pipeline) -> None:
    """Print a pipeline: the tree, who is before and after the query, what was found."""
    output.line(tree(found))
    output.pairs(
        [
            (f"upstream of {found.query}", ", ".join(found.upstream) or "none"),
            (f"downstream of {found.query}", ", ".join(found.downstream) or "none"),
        ]
    )
    for finding in found.findings:
        output.line(f"note: {finding.what}")


def tree(found: Pipeline) -> str:
    """Draw it as trees: what comes from outside, below it who reads that, and who reads them.

    A query that several others write for is drawn where it is first reached, with its readers, and
    from then on only named.
    """
    texts = {one.name: _query(one) for one in found.queries}
    readers = _readers(found)
    lines: list[str] = []
    drawn: set[str] = set()

    def draw(waiting: list[_Branch]) -> None:
        # Without recursion: queries may read one another in a row of any length.
        while waiting:
            one = waiting.pop()
            again = one.name in drawn
            text = f"{one.name}{one.reads}, see above" if again else texts[one.name] + one.reads
            lines.append(one.first + _one_line(text))
            if not again:
                drawn.add(one.name)
                waiting += _branches(readers.get(one.name, {}), one.rest)

    for outside in found.inputs:
        lines.append(_one_line(_input(outside)))
        below = {name: _reads_from_outside(found, outside, name) for name in outside.readers}
        draw(_branches(below, ""))
    for query in found.queries:
        if query.name not in drawn:
            draw([_Branch(query.name, "", "", "")])
    return "\n".join(lines)


def mermaid(found: Pipeline) -> str:
    """Draw it in the language of Mermaid."""
    names: dict[tuple[str, str], str] = {}
    lines = ["flowchart LR"]
    for outside in found.inputs:
        at = names[outside.kind, outside.name] = f"n{len(names)}"
        lines.append(f"  {at}([{quoted(_input(outside))}])")
    for query in found.queries:
        at = names["query", query.name] = f"n{len(names)}"
        lines.append(f"  {at}[{quoted(_query(query))}]")
    for outside in found.inputs:
        if outside.kind != "table":
            start = names[outside.kind, outside.name]
            lines += [f"  {start} --> {names['query', name]}" for name in outside.readers]
    for edge in found.edges:
        place = ("table", _table(edge)) if edge.writer is None else ("query", edge.writer)
        # Where the table stands at the beginning of the arrow, it is not repeated on it.
        said = _behind(edge) if edge.writer is None else f"{_table(edge)}, {_behind(edge)}"
        lines.append(f"  {names[place]} -->|{quoted(said)}| {names['query', edge.reader]}")
    for topic in found.topic_edges:
        start, end = names["query", topic.writer], names["query", topic.reader]
        lines.append(f"  {start} -->|{quoted(f'topic {topic.topic}')}| {end}")
    return "\n".join(lines)


def _readers(found: Pipeline) -> dict[str, dict[str, str]]:
    """Return by writer who reads it, with what is read as text."""
    readers: dict[str, dict[str, str]] = {}
    for edge in found.edges:
        if edge.writer is not None:
            mine = readers.setdefault(edge.writer, {})
            mine[edge.reader] = (
                f"{mine.get(edge.reader, '')}, reads {_table(edge)}: {_behind(edge)}"
            )
    for topic in found.topic_edges:
        mine = readers.setdefault(topic.writer, {})
        mine[topic.reader] = f"{mine.get(topic.reader, '')}, reads topic {topic.topic}"
    return readers


def _reads_from_outside(found: Pipeline, root: ExternalInput, reader: str) -> str:
    mine = [
        edge
        for edge in found.edges
        if edge.writer is None and edge.reader == reader and _table(edge) == root.name
    ]
    return "".join(f", {_behind(edge)}" for edge in mine) if root.kind == "table" else ""


def _branches(below: Mapping[str, str], before: str) -> list[_Branch]:
    """Return what is drawn below a node, the last first."""
    found = []
    for number, (name, reads) in enumerate(reversed(list(below.items()))):
        branch, rest = ("└── ", "    ") if number == 0 else ("├── ", "│   ")
        found.append(_Branch(name, reads, before + branch, before + rest))
    return found


def _input(outside: ExternalInput) -> str:
    if outside.kind in {"topic", "table"}:
        return f"{outside.kind} {outside.name}"
    return "files read by " + outside.name if outside.kind == "files" else outside.name


def _query(query: PipelineQuery) -> str:
    batch = "newest batch unknown" if query.batch_id is None else f"batch {query.batch_id}"
    return f"{query.name} (generation {query.generation}, {batch})"


def _table(edge: PipelineEdge) -> str:
    return edge.table_uri or edge.table_id


def _behind(edge: PipelineEdge) -> str:
    at = f"next version {edge.position.version}"
    if edge.version is None or edge.behind is None:
        return at
    if edge.behind == 0:
        return f"up to date at version {edge.version}"
    return f"{at}, {count_text(edge.behind, 'version')} behind version {edge.version}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def show_group(output: Terminal, group: Group) -> None:
    """Print savepoints that fit together, as one JSON document or with what each has read."""
    if output.format == "json":
        output.document(group=group)
        return
    output.table(
        ("query", "savepoint", "batch", "reads from", "read up to", "writer is at"),
        (
            (one.query, one.id, one.cut.batch_id, *read)
            for one in group.savepoints
            for read in _reads(group, one.query)
        ),
    )


def show_groups(output: Terminal, groups: Sequence[Group]) -> None:
    """Print groups, as one JSON document or a line each."""
    if output.format == "json":
        output.document(groups=list(groups))
        return
    output.table(
        ("group", "taken", "savepoints", "fit together"),
        (
            (
                one.tag,
                rfc3339(max(each.created_at for each in one.savepoints)),
                ", ".join(f"{each.query} batch {each.cut.batch_id}" for each in one.savepoints),
                "; ".join(one.problems) or "yes",
            )
            for one in groups
        ),
    )


def _reads(group: Group, reader: str) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = [
        (one.writer, one.read, one.version) for one in group.reads if one.reader == reader
    ]
    found += [
        (f"{one.writer}, topic {one.topic}", _offsets(one.read), _offsets(one.held))
        for one in group.topic_reads
        if one.reader == reader
    ]
    return found or [("-", "-", "-")]


def _offsets(offsets: Mapping[int, int] | Sequence[int] | None) -> str:
    """Say next offsets by partition: `0:12 1:7`."""
    if offsets is None:
        return "unknown"
    pairs = offsets.items() if isinstance(offsets, Mapping) else enumerate(offsets)
    return " ".join(f"{part}:{offset}" for part, offset in sorted(pairs)) or "-"


def show_rollback(output: Terminal, done: PipelineRolledBack) -> None:
    """Print what a rollback of several queries did, as one JSON document or a line a query."""
    if output.format == "json":
        output.document(pipeline_rolled_back=done)
        return
    output.table(
        ("query", "savepoint", "next batch", "generation", "outputs", "safety savepoint"),
        (
            (
                one.query,
                one.savepoint_id,
                one.batch_id + 1,
                one.generation,
                ", ".join(f"{name} at version {at}" for name, at in one.outputs.items()) or "-",
                one.safety_id or "none",
            )
            for one in done.members
        ),
    )
    output.line(f"{done.operation_id} took {done.seconds:.2f} s")
