"""What a reset does with the outputs: leaves, empties or takes them back, and with which ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from savepoints.checkpoint.logs import table_position
from savepoints.config.settings import QuerySettings
from savepoints.errors import FileSinkError, UsageError
from savepoints.model import Generation, Savepoint, kafka_offsets, kafka_position
from savepoints.operations.rollback import output_ids
from savepoints.operations.savepoint import history
from savepoints.outputs.delta.write import app_id, owner_prefix
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.rewind import BEFORE_FIRST_BATCH, Rewind
from savepoints.store.root import Store

Outputs = Literal["keep", "truncate", "rewind"]


def plan(
    store: Store,
    generation: Generation,
    wanted: Outputs,
    *,
    bound: QuerySettings | None,
    number: int,
    goes_on_after: int | None,
    begun: int | None,
    begin_at: tuple[str, ...],
) -> tuple[Rewind, ...]:
    """Find out what is done to each output.

    Args:
        begin_at: Where each source will go on, as Spark's JSON.
    """
    query, owner = generation.query, owner_prefix(generation.query)
    uris: Mapping[str, str] = bound.outputs if bound else {}
    own_rows: Mapping[str, str] = bound.own_rows if bound else {}
    own_ids: Mapping[str, str] = bound.app_ids if bound else {}
    spark_ids = output_ids.own_ids(store, query)
    if wanted == "truncate":
        emptied = tuple(
            rewind.plan_empty(
                name,
                uri,
                owner,
                (*spark_ids, *((own_ids[name],) if name in own_ids else ())),
                app_id(query, name, number),
                own_rows=own_rows.get(name),
            )
            for name, uri in uris.items()
        )
        if goes_on_after is not None:
            _refuse_file_sinks(emptied, "would start empty while batch numbers continue")
        return emptied
    if wanted == "rewind":
        saved = _saved_at(store, query, begin_at)
        rewound = tuple(
            rewind.plan(
                output,
                owner,
                output_ids.next_app_id(output, query, saved.generation, number),
                own_rows=own_rows.get(output.name),
                own_ids=spark_ids,
            )
            for output in saved.outputs
        )
        if goes_on_after is not None:
            return rewound
        _refuse_file_sinks(rewound, "would be kept while batches start from 0 again")
        return tuple(_from_0(one, query, number, own_ids) for one in rewound)
    _refuse_half_done(generation, begun, uris)
    kept = (
        output_ids.keep_output(
            name, uri, generation, number, own_id=own_ids.get(name), batch_id=goes_on_after
        )
        for name, uri in uris.items()
    )
    return tuple(one for one in kept if one is not None)


def _from_0(one: Rewind, query: str, number: int, own_ids: Mapping[str, str]) -> Rewind:
    """Let batches that are counted from 0 again be new to an output that has seen some.

    Spark's id of the query is another one after the reset.
    """
    name = one.output.name
    restarted = {app_id(query, name, number), own_ids.get(name, "")} & one.transactions.keys()
    return replace(
        one, transactions={**one.transactions, **dict.fromkeys(restarted, BEFORE_FIRST_BATCH)}
    )


def _refuse_file_sinks(outputs: Sequence[Rewind], what: str) -> None:
    for one in outputs:
        if one.output.kind == "files":
            raise FileSinkError(
                f"Spark's file sink at {one.output.uri} cannot continue: its log {what}",
                hint="reset state and outputs together (--state empty --outputs truncate), or "
                "give the query a new output directory",
                uri=one.output.uri,
            )


def _saved_at(store: Store, query: str, begin_at: tuple[str, ...]) -> Savepoint:
    for one in history.history(store, query):
        if tuple(map(_spelled, one.cut.offsets)) == begin_at:
            return one
    raise UsageError(
        f"no savepoint of {query} was taken at exactly {'; '.join(begin_at)}, so the matching "
        "version of the outputs is unknown",
        hint="use --outputs keep or truncate, or roll back to a savepoint with its outputs: "
        f"savepoints rollback NAME --query {query}",
        query=query,
    )


def _spelled(position: str | None) -> str:
    """Return a position as a reset writes it."""
    table = table_position.parse(position)
    return table.text if table else kafka_position(kafka_offsets(position) or {})


def _refuse_half_done(
    generation: Generation, begun: int | None, outputs: Mapping[str, str]
) -> None:
    """Refuse to keep outputs that may have rows of a batch that is not committed."""
    if outputs and begun is not None:
        raise UsageError(
            f"batch {begun} of {generation.query} was started but not committed, so the outputs "
            "may already have its rows and would receive them twice",
            hint=f"finish the batch (savepoints run {generation.query} --until latest), or use "
            "--outputs truncate",
            query=generation.query,
        )
