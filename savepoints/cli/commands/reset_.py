"""Restart a query at chosen Kafka offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.cli.names import query_names
from savepoints.cli.options import (
    Consent,
    Invocation,
    common,
    executed,
    mutating,
    next_checkpoint,
    no_safety_savepoint,
    stopped_said,
)
from savepoints.cli.render.next_step import next_step
from savepoints.config.duration import parse_duration
from savepoints.errors import UsageError
from savepoints.moments import parse_rfc3339, utc_now

if TYPE_CHECKING:
    from datetime import datetime

    from savepoints.operations.rollback.next_outputs import Outputs
    from savepoints.operations.rollback.reset import ResetPlan, State
    from savepoints.sources.kafka.reset_targets import Target

_TARGETS = (
    "--to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration, "
    "--shift-by or --from-file"
)


@click.command("reset")
@click.argument("query", shell_complete=query_names)
@click.option(
    "--to-earliest", is_flag=True, help="Start at the first record in Kafka or the archive."
)
@click.option(
    "--to-latest", is_flag=True, help="Start at the end: read only records that arrive from now on."
)
@click.option("--to-current", is_flag=True, help="Start at the current position of the query.")
@click.option("--to-offset", type=int, help="Start at this offset in each partition.")
@click.option(
    "--to-datetime",
    metavar="TIME",
    help="Start at the first record whose timestamp is at or after this RFC 3339 time.",
)
@click.option(
    "--by-duration",
    metavar="DURATION",
    help="Start at the first record that is at most this old (7d, PT15M).",
)
@click.option(
    "--shift-by",
    type=int,
    help="Start this many records after the current position in each partition, or before it if "
    "negative.",
)
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Start at the offsets in this CSV file, with lines of the form topic,partition,offset.",
)
@click.option(
    "--group",
    help="With --from-file: use the offsets of this consumer group; needed if the lines have the "
    "form group,topic,partition,offset.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,1]",
    help="Change the position only in this topic, or only in these partitions of it; may be "
    "repeated.",
)
@click.option(
    "--intermediate-topic",
    "skipped",
    multiple=True,
    metavar="TOPIC",
    help="Skip to the end of this topic, which QUERY reads and which is written by another query "
    "that you also reset; may be repeated.",
)
@click.option(
    "--state",
    type=click.Choice(["empty", "keep"]),
    default="empty",
    help="empty: start with empty state; keep: keep the current state.",
)
@click.option(
    "--outputs",
    type=click.Choice(["keep", "truncate", "rewind"]),
    default="keep",
    help="keep: leave the output tables as they are; truncate: delete all their rows; rewind: "
    "rewind them to a savepoint at exactly the new offsets.",
)
@click.option(
    "--allow-data-loss",
    is_flag=True,
    help="If Kafka no longer has the records at the new offsets, start with the first ones that it "
    "still has, and without partitions and topics that were deleted.",
)
@next_checkpoint
@no_safety_savepoint("reset")
@click.option("--export", is_flag=True, help="Print the new offsets as CSV and change nothing.")
@mutating
@executed
@stopped_said
@common
def command(
    call: Invocation,
    query: str,
    topics: tuple[str, ...],
    skipped: tuple[str, ...],
    state: State,
    outputs: Outputs,
    to: str | None,
    *,
    allow_data_loss: bool,
    no_safety_savepoint: bool,
    stopped: bool,
    export: bool,
    consent: Consent,
    **targets: object,
) -> None:
    """Restart QUERY at chosen Kafka offsets.

    The options are those of kafka-consumer-groups, but the state is reset too, unless you pass
    --state keep, and so are the outputs with --outputs truncate or rewind. Offsets out of range are
    refused instead of clamped, and a reset is all or nothing. A safety savepoint is taken first;
    `savepoints undo QUERY` undoes the reset.

    --export and --from-file use the CSV format of kafka-consumer-groups. Records that Kafka no
    longer has are read from the archives of the query ([queries.NAME.archives] in the settings).
    Late events that were merged into the query are read again, so they are not lost.

    \b
    Examples:
      savepoints reset order_totals --to-earliest --outputs truncate --dry-run
      savepoints reset order_totals --to-datetime 2026-11-20T10:00:00Z --yes
      savepoints reset order_totals --shift-by -100 --topic orders:0 --state keep --dry-run
      savepoints reset order_totals --by-duration 7d --export
    """
    from savepoints.operations.rollback import reset
    from savepoints.sources.kafka.reset_targets import parse_scope

    # Offset 0 was given, too.
    given = {
        name: value for name, value in targets.items() if value is not None and value is not False
    }
    if "group" in given and "from_file" not in given:
        raise UsageError(
            "--group applies only to --from-file", hint="add --from-file FILE, or omit --group"
        )
    plan = reset.plan(
        call.store,
        query,
        _target(given),
        state=state,
        outputs=outputs,
        scope=parse_scope(topics) if topics else None,
        skipped=skipped,
        allow_data_loss=allow_data_loss,
        stopped=stopped,
        to=to,
        save_present=not no_safety_savepoint,
        words=(
            *_words(given, topics, skipped, state, outputs, allow_data_loss=allow_data_loss),
            *(("--no-safety-savepoint",) if no_safety_savepoint else ()),
        ),
    )
    if export:
        _export(call, plan.offsets)
        return
    call.say_resumed(plan)
    if not call.confirm(plan, consent, show=lambda: _show(call, plan)):
        return
    done = reset.execute(plan, call.store, progress=call.output.progress)
    call.output.result(
        lambda: [
            ("query", f"{done.query}, now generation {done.generation}"),
            ("checkpoint", done.checkpoint),
            *((f"output {name}", f"version {version}") for name, version in done.outputs.items()),
            ("safety savepoint", done.safety_id or "none"),
            ("took", f"{done.seconds:.2f} s"),
            ("next", next_step(call, done.query)),
        ],
        reset=done,
    )


def _target(given: Mapping[str, Any]) -> Target | datetime:
    from savepoints.sources.kafka.offsets import parse_group_csv, read_text
    from savepoints.sources.kafka.reset_targets import Target

    meanings: dict[str, Callable[[Any], Target | datetime]] = {
        "to_earliest": lambda _: Target("earliest"),
        "to_latest": lambda _: Target("latest"),
        "to_current": lambda _: Target("current"),
        "to_offset": lambda offset: Target("offset", offset),
        "to_datetime": parse_rfc3339,
        "by_duration": lambda text: utc_now() - parse_duration(text),
        "shift_by": lambda records: Target("shift", records),
        "from_file": lambda file: Target(
            "file", offsets=parse_group_csv(read_text(file), given.get("group"))
        ),
    }
    found = [meaning(given[name]) for name, meaning in meanings.items() if name in given]
    if len(found) != 1:
        raise UsageError(
            f"exactly one target is required, but {len(found)} were given",
            hint=f"use one of {_TARGETS}",
        )
    return found[0]


def _words(
    given: Mapping[str, object],
    topics: tuple[str, ...],
    skipped: tuple[str, ...],
    state: str,
    outputs: str,
    *,
    allow_data_loss: bool,
) -> tuple[str, ...]:
    """Write the request as arguments again; the same request gives the same words."""
    words: list[str] = []
    for name, value in given.items():
        words.append(f"--{name.replace('_', '-')}")
        words += [] if value is True else [str(value)]
    for topic in topics:
        words += ["--topic", topic]
    for topic in skipped:
        words += ["--intermediate-topic", topic]
    words += [] if state == "empty" else ["--state", state]
    words += [] if outputs == "keep" else ["--outputs", outputs]
    words += ["--allow-data-loss"] if allow_data_loss else []
    return tuple(words)


def _show(call: Invocation, plan: ResetPlan) -> None:
    call.output.table(
        ("topic", "partition", "current", "new", "records", "available", "note"),
        (
            (
                one.topic,
                one.partition,
                "new" if one.current is None else one.current,
                one.to,
                f"{one.records} again" if one.records >= 0 else f"{-one.records} skipped",
                f"{one.earliest} to {one.end}"
                + (f", {one.from_archive} of them archived" if one.from_archive else ""),
                one.why,
            )
            for one in plan.moves
        ),
    )
    call.output.plan(plan, is_result=True)


def _export(call: Invocation, offsets: KafkaOffsets) -> None:
    from savepoints.sources.kafka.offsets import group_csv

    if call.output.format == "json":
        call.output.document(offsets=offsets)
        return
    call.output.out.raw(group_csv(offsets))
