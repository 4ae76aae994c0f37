"""Read the state in a savepoint as typed rows."""

from __future__ import annotations

import json

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import Invocation, common, of_operator, of_query
from savepoints.cli.output import SCHEMA_VERSION
from savepoints.cli.render import row_text
from savepoints.errors import UsageError
from savepoints.texts import count_text

_ROWS_SHOWN = 20


@click.command("state")
@click.argument("name", shell_complete=savepoint_names)
@of_operator
@click.option(
    "--variable",
    metavar="NAME",
    help="With transformWithState: the state variable to read, or timers. With a join: the side to "
    "read, left or right.",
)
@click.option(
    "--state-store",
    metavar="NAME",
    help="With a join: read this Spark state store instead of the rows of one side.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Show only rows with this value in this field of the key, written as it is shown; may be "
    "repeated.",
)
@click.option("--where", metavar="SQL", help="Show only rows for which this expression is true.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="ROWS",
    help=f"Read at most this many rows; {_ROWS_SHOWN} by default, all with --to.",
)
@click.option(
    "--to", metavar="URI", help="Write the rows to this location as Parquet; it must not exist yet."
)
@click.option("--jsonl", is_flag=True, help="Print one JSON object per row instead of a table.")
@of_query
@common
def command(
    call: Invocation,
    name: str,
    operator: int | None,
    variable: str | None,
    state_store: str | None,
    keys: tuple[str, ...],
    where: str | None,
    limit: int | None,
    to: str | None,
    query: str | None,
    *,
    jsonl: bool,
) -> None:
    """Read the state in savepoint NAME as typed rows.

    Each row has a key, a value and its partition_id; rows of transformWithState may also have
    map_key, position, expires_at_ms or fires_at_ms. Fields are named key.x and value.y, in the
    table and in --where. In JSON, decimals are strings, binary values are base64, and times are
    RFC 3339 in UTC. Rows are in no particular order.

    \b
    Examples:
      savepoints state latest
      savepoints state latest --operator 0 --key customer_id=42
      savepoints state before-release --variable timers --where 'fires_at_ms < 1795281359000'
      savepoints state latest --where 'value.count > 1' --to s3://bucket/counts.parquet
      savepoints state latest --limit 1000 --jsonl | jq .value
    """
    from savepoints.operations.inspect import read_state
    from savepoints.state.typed import to_json

    if jsonl and (to or call.output.format == "json"):
        raise UsageError(
            "--jsonl cannot be combined with --to or -o json",
            hint="omit --jsonl, or omit --to and -o json",
        )
    target = read_state.free_target(to) if to else None
    savepoint = call.store.catalog.find(name, query=query)
    chosen = read_state.choose(
        savepoint,
        read_state.variables(call.store, savepoint),
        operator,
        state_store=state_store,
        variable=variable,
    )
    about = {
        "savepoint": savepoint.id,
        "query": savepoint.query,
        "batch_id": savepoint.cut.batch_id,
        "variable": vars(chosen),
    }
    with read_state.rows(
        call.store, savepoint, chosen, key=_fields(keys), where=where, progress=call.output.progress
    ) as frame:
        if target is not None:
            count = to_json.write_parquet(frame.limit(limit) if limit else frame, target)
            said = f"{count_text(count, 'row')} written to {target}"
            call.output.said(said, **about, written={"uri": str(target), "rows": count})
            return
        wanted = limit or _ROWS_SHOWN
        lines = to_json.json_lines(frame, wanted + 1)
        columns = to_json.columns(frame)
    more, lines = len(lines) > wanted, lines[:wanted]
    if jsonl:
        call.output.out.raw("".join(f"{line}\n" for line in lines))
    elif call.output.format == "json":
        rows = [json.loads(line) for line in lines]
        document = {"schema_version": SCHEMA_VERSION, **about, "columns": columns}
        text = json.dumps({**document, "more": more, "rows": rows}, indent=2)
        call.output.out.raw(f"{text}\n")
    else:
        spread = [
            dict(row_text.spread(json.loads(line, parse_float=str), columns)) for line in lines
        ]
        call.output.table(columns, [[row.get(name, "null") for name in columns] for row in spread])
    if more:
        call.output.err.print(
            f"there are more than the {count_text(wanted, 'row')} shown; to read others, use "
            "--limit, --where or --to"
        )


def _fields(keys: tuple[str, ...]) -> dict[str, str]:
    """Read `field=value`."""
    for text in keys:
        if "=" not in text:
            raise UsageError(
                f"--key {text!r} is not in the form FIELD=VALUE",
                hint="write, for example, --key customer_id=42",
            )
    return {name: value for name, _, value in (text.partition("=") for text in keys)}
