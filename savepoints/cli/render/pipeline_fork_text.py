"""The second version of a pipeline as text for people: forked, compared, promoted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from savepoints.cli.output import SCHEMA_VERSION, Terminal
from savepoints.cli.render import comparison_text

if TYPE_CHECKING:
    from savepoints.operations.pipeline_fork.pipeline_compare import PipelineComparison
    from savepoints.operations.pipeline_fork.pipeline_fork import PipelineForked
    from savepoints.operations.pipeline_fork.pipeline_promote import PipelinePromoted


def show_forked(output: Terminal, done: PipelineForked) -> None:
    """Print what was forked, as one JSON document or a line a fork."""
    if output.format == "json":
        output.document(pipeline_forked=done)
        return
    output.table(
        ("fork", "original", "savepoint", "next batch", "outputs"),
        (
            (
                one.query,
                one.origin,
                one.savepoint_id,
                one.batch_id + 1,
                ", ".join(f"{name} {uri}" for name, uri in one.outputs.items()) or "-",
            )
            for one in done.forks
        ),
    )
    if all(one.already_forked for one in done.forks):
        output.line("already existed: nothing was done")
    else:
        output.line(f"{done.operation_id} took {done.seconds:.2f} s")
    for one in done.forks:
        output.line(f"next: savepoints run {one.query}")


def show_compared(output: Terminal, found: PipelineComparison) -> None:
    """Print a comparison of a pipeline, as one JSON document or level by level."""
    if output.format == "json":
        document = {"schema_version": SCHEMA_VERSION, "pipeline_comparison": found.to_json()}
        output.write(json.dumps(document, indent=2))
        return
    for level in found.levels:
        comparison_text.show(output, level)
    comparison_text.show_metrics(output, found.metrics, "pipeline", "forks")
    for reason in found.reasons:
        output.line(f"  {reason}")
    output.line(f"the pipeline: {found.verdict}")


def show_promoted(output: Terminal, done: PipelinePromoted) -> None:
    """Print a promotion of a pipeline, as one JSON document or a line a query."""
    if output.format == "json":
        output.document(pipeline_promoted=done)
        return
    output.table(
        ("query", "replaced by", "generation", "program", "safety savepoint"),
        (
            (one.query, one.fork, one.generation, one.application, one.safety_id or "none")
            for one in done.members
        ),
    )
    for check in done.checks:
        output.line(f"check {check.name}: {check.found}")
    output.line(f"{done.operation_id} took {done.seconds:.2f} s")
    output.line(f"undo: savepoints undo {done.query}")
    starts = "; ".join(f"savepoints run {one.query}" for one in done.members)
    output.line(f"next, for each query that was not running: {starts}")
