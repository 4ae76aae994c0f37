"""A savepoint as text, for `create` and `show`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.cli.output import Terminal
from savepoints.cli.render import position_text
from savepoints.model import Cost, Edit, OperatorState, OutputTopic, OutputVersion, Savepoint
from savepoints.texts import (
    bytes_text,
    count_text,
    moment_text,
    offsets_text,
    or_dash,
    watermark_text,
)

if TYPE_CHECKING:
    from savepoints.operations.inspect.availability import Availability


def taken(output: Terminal, savepoint: Savepoint) -> None:
    """Print the savepoint that was taken, as one JSON document or with what it cost."""
    if output.format == "json":
        output.document(savepoint=savepoint.to_json())
    else:
        _summary(output, savepoint)


def _summary(output: Terminal, savepoint: Savepoint) -> None:
    """Print a savepoint with what it cost."""
    cut, cost = savepoint.cut, savepoint.cost
    output.pairs(
        [
            ("savepoint", savepoint.id),
            ("query", f"{savepoint.query}, generation {savepoint.generation}"),
            ("batch", f"{cut.batch_id}, committed {moment_text(cut.committed_at)}"),
            ("state", _state(savepoint)),
            ("copy", _copy(cost)),
            ("checksums", f"{cost.checksum_seconds:.2f} s"),
            ("export", _export(savepoint)),
            *([("export failed", savepoint.rows_missing)] if savepoint.rows_missing else []),
        ]
    )  # fmt: skip


def _export(savepoint: Savepoint) -> str:
    if "canonical" in savepoint.forms:
        cost = savepoint.cost
        return f"{cost.export_seconds:.2f} s, {bytes_text(cost.export_bytes)}"
    if all(one.native_only for one in savepoint.operators):
        return "none (native form only)"
    return f"none (native form only); to add rows for SQL: savepoints export {savepoint.id}"


def details(output: Terminal, savepoint: Savepoint) -> None:
    """Print everything the catalog knows about a savepoint."""
    _summary(output, savepoint)
    cut, cost = savepoint.cut, savepoint.cost
    output.pairs(
        [
            ("Spark's query id", savepoint.query_id),
            ("taken", f"{moment_text(savepoint.created_at)}, {savepoint.kind}"),
            ("parent", savepoint.parent or "none"),
            ("watermark", watermark_text(cut.watermark_ms)),
            ("provider", f"{cut.provider.rpartition('.')[2]}, format {cut.checkpoint_format}"),
            ("state partitions", cut.partitions if cut.partitions is not None else "none"),
            ("application", savepoint.application or "unknown"),
            (
                "code version",
                savepoint.code_version or "unknown (to record it, set SAVEPOINTS_CODE_VERSION)",
            ),
            ("Spark", savepoint.spark_version or "not started for this savepoint"),
            *(
                (f"Kafka topic id ({topic})", known)
                for topic, known in sorted(savepoint.topics.items())
            ),
            *([] if savepoint.edit is None else [("edited", _edit(savepoint.edit))]),
            ("tags", ", ".join(savepoint.tags) or "none"),
            ("description", savepoint.description or "none"),
            ("pinned", "yes: protected from retention" if savepoint.pinned else "no"),
            ("size", bytes_text(cost.bytes_copied + cost.bytes_shared + cost.export_bytes)),
            ("status", savepoint.state),
            *([("reason", savepoint.state_reason)] if savepoint.state_reason else []),
        ]
    )
    output.line("\nOffsets (next to read)")
    position_text.show(output, cut.offsets)
    if savepoint.operators:
        _show_operators(output, savepoint.operators)
    if savepoint.outputs:
        _show_outputs(output, savepoint.outputs)
    for topic in savepoint.output_topics:
        output.line(f"\nWrites topic {topic.topic}: {_held(topic)}")
    if not (savepoint.outputs or savepoint.output_topics):
        output.line("The output tables of the query are unknown: a rollback would not rewind them.")


def _held(topic: OutputTopic) -> str:
    """Say how much of a topic belongs to a savepoint."""
    if topic.ends is None:
        return "it is unknown which of its records belong to the savepoint"
    more = "" if topic.is_exact else ", and perhaps more"
    return f"records before offsets {offsets_text(topic.ends)} belong to the savepoint{more}"


def _show_operators(output: Terminal, operators: tuple[OperatorState, ...]) -> None:
    output.line("Operators")
    output.table(
        ("operator", "name", "stores", "partitions", "rows", "bytes", "content hash"),
        (
            (
                one.operator_id,
                one.name,
                ", ".join(one.stores),
                one.partitions,
                or_dash(one.rows),
                or_dash(one.state_bytes),
                one.content_hash or "-",
            )
            for one in operators
        ),
    )
    for one in operators:
        if one.native_only:
            output.line(f"Operator {one.operator_id} has only the native form: {one.native_only}.")


def _show_outputs(output: Terminal, outputs: tuple[OutputVersion, ...]) -> None:
    output.line("Outputs")
    output.table(
        ("name", "version", "transaction id", "batch", "table"),
        (
            (one.name, one.version, one.app_id or "-", or_dash(one.app_version), one.uri)
            for one in outputs
        ),
    )


def availability(output: Terminal, found: Availability) -> None:
    """Print whether a savepoint is restorable, and until when."""
    until = "no known limit" if found.until is None else f"at least {moment_text(found.until)}"
    output.line("Restorable")
    output.pairs(
        [
            ("restorable", f"{found.restorable}: {found.reason}"),
            *([("until", until), ("because", found.basis)] if found.basis else []),
            *(("note", one) for one in found.findings),
        ]
    )
    if found.partitions:
        output.table(
            ("topic", "partition", "next", "earliest", "end", "available", "until"),
            (
                (
                    one.topic,
                    one.partition,
                    "new" if one.wanted is None else one.wanted,
                    or_dash(one.earliest),
                    or_dash(one.end),
                    one.available,
                    "-" if one.until is None else moment_text(one.until),
                )
                for one in found.partitions
            ),
        )


def _edit(edit: Edit) -> str:
    counted = (
        f"{count_text(edit.rows_removed, 'row')} removed"
        if edit.rows_removed
        else f"{count_text(edit.rows_changed, 'row')} changed"
    )
    of = f"operator {edit.operator_id}" + (f", {edit.variable}" if edit.variable else "")
    how = [
        *([f"where {edit.where}"] if edit.where else []),
        *(f"set {one}" for one in edit.assignments),
        *([f"by {edit.function}"] if edit.function else []),
    ]
    return f"{counted} in {of}: {'; '.join(how)}; {edit.reason} ({edit.by})"


def _copy(cost: Cost) -> str:
    copied = f"{count_text(cost.objects_copied, 'file')} ({bytes_text(cost.bytes_copied)}) copied"
    shared = f"{cost.objects_shared} ({bytes_text(cost.bytes_shared)}) already in the store"
    return f"{cost.pin_seconds:.2f} s, {copied}, {shared}"


def _state(savepoint: Savepoint) -> str:
    rows = savepoint.rows
    counted = "" if rows is None else f"{count_text(rows, 'row')} in "
    operators = count_text(len(savepoint.operators), "operator")
    return f"{counted}{operators}, {' and '.join(savepoint.forms)} form"
