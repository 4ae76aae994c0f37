"""A topology as text: what the query is, then its sources, operators and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.cli.output import Terminal
from savepoints.cli.render import position_text
from savepoints.texts import bytes_text, count_text, moment_text, or_dash, watermark_text

if TYPE_CHECKING:
    from savepoints.operations.inspect.operator_places import (
        CountedRows,
        OperatorPlace,
        StateColumn,
    )
    from savepoints.operations.inspect.source_places import PartitionPlace, SourcePlace
    from savepoints.operations.inspect.topology import OutputPlace, Topology


def show(output: Terminal, found: Topology) -> None:
    """Print all of it."""
    output.pairs(
        [
            ("query", _query(found)),
            ("program", found.application or "unknown"),
            ("checkpoint", found.checkpoint),
            ("Spark's query id", found.query_id),
            ("batch", f"{found.batch_id}, committed {moment_text(found.committed_at)}"),
            ("watermark", watermark_text(found.watermark_ms)),
            ("provider", f"{found.provider.rpartition('.')[2]}, format {found.checkpoint_format}"),
            ("state partitions", found.partitions if found.partitions is not None else "none"),
            ("newest savepoint", found.savepoint_id or "none"),
            *(("note", one) for one in found.findings),
        ]
    )
    _sources(output, found.sources)
    if found.operators:
        _operators(output, found.operators)
    if found.outputs:
        _outputs(output, found.outputs)


def _query(found: Topology) -> str:
    if found.query is None:
        return "unknown"
    return f"{found.query}, generation {found.generation} ({found.generation_status})"


def _sources(output: Terminal, sources: tuple[SourcePlace, ...]) -> None:
    output.line("\nSources (next to read)")
    for source in sources:
        if source.problem:
            output.line(
                f"Lag and retention of source {source.number} are unknown: {source.problem}."
            )
        for one in source.partitions:
            if one.problem:
                output.line(
                    f"Lag of {one.topic} partition {one.partition} is unknown: {one.problem}."
                )
    others = [one for one in sources if not one.partitions]
    if others:
        output.table(
            ("source", "kind", "position"),
            ((one.number, one.kind, position_text.text(one.position)) for one in others),
        )
    if len(others) < len(sources):
        output.table(
            ("source", "topic", "partition", "position", "earliest", "end", "lag", "lost"),
            (_partition(source.number, one) for source in sources for one in source.partitions),
        )


def _partition(source: int, one: PartitionPlace) -> tuple[object, ...]:
    position = "new" if one.position is None else one.position
    asked = (or_dash(one.earliest), or_dash(one.end), or_dash(one.lag), or_dash(one.lost))
    return (source, one.topic, one.partition, position, *asked)


def _operators(output: Terminal, operators: tuple[OperatorPlace, ...]) -> None:
    stores = [(one, store) for one in operators for store in one.stores]
    output.line("Operators")
    for one in operators:
        output.line(f"Rows of operator {one.operator_id}: {_rows(one.rows)}.")
    output.table(
        ("operator", "name", "store", "partitions", "files", "size"),
        (
            (
                one.operator_id,
                one.name,
                store.name,
                one.partitions,
                store.files,
                bytes_text(store.bytes),
            )
            for one, store in stores
        ),
    )
    output.line("State columns")
    for one, store in stores:
        if store.problem:
            output.line(
                f"Columns of operator {one.operator_id}, store {store.name}, are unknown: "
                f"{store.problem}."
            )
    output.table(
        ("operator", "store", "family", "key", "value"),
        (
            (one.operator_id, store.name, family.name, _columns(family.key), _columns(family.value))
            for one, store in stores
            for family in store.families
        ),
    )


def _rows(counted: CountedRows | None) -> str:
    if counted is None:
        return "unknown: no savepoint has counted them"
    rows = count_text(counted.rows, "row")
    return f"{rows}, as of savepoint {counted.savepoint_id} (batch {counted.batch_id})"


def _columns(columns: tuple[StateColumn, ...]) -> str:
    return ", ".join(f"{one.name} {one.type}" for one in columns) or "-"


def _outputs(output: Terminal, outputs: tuple[OutputPlace, ...]) -> None:
    output.line("Outputs")
    for one in outputs:
        output.line(f"Version of {one.name}: {one.basis}.")
        if one.clone_of is not None:
            output.line(
                f"Output {one.name} is a shallow clone: it reads files of version "
                f"{one.clone_of.version} of {one.clone_of.uri}."
            )
        if one.readers:
            output.line(f"Output {one.name} is also read by {', '.join(one.readers)}.")
    output.table(
        ("name", "kind", "version", "batch", "table"),
        (
            (one.name, one.kind or "unknown", or_dash(one.version), or_dash(one.batch_id), one.uri)
            for one in outputs
        ),
    )
