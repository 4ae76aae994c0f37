"""The outputs of a query's next generation: taken back, emptied, or kept under new ids.

A rollback takes them to what its target has of them, a reset to where it begins. Under which ids
the generation writes them keeps Spark from taking its batches for ones that were written before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from savepoints.checkpoint.cut import read_query_id
from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.kafka_position import kafka_offsets, kafka_position
from savepoints.config.settings import QuerySettings
from savepoints.errors import (
    LEAVE_OUTPUTS,
    FileSinkError,
    IncompatibleError,
    NotAlignedError,
    NotFoundError,
    UsageError,
)
from savepoints.io import Location
from savepoints.model import OutputVersion, Savepoint
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.rollback.target import ResolvedTarget
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.write import app_id, owner_prefix
from savepoints.outputs.rewind import plan_text, rewind
from savepoints.outputs.rewind.planned_rewind import BEFORE_FIRST_BATCH, Rewind
from savepoints.plan import Step
from savepoints.store.locks import journal
from savepoints.store.root import Store

Outputs = Literal["keep", "truncate", "rewind"]


def of_reset(
    context: QueryContext,
    wanted: Outputs,
    *,
    goes_on_after: int | None,
    begun: int | None,
    begin_at: tuple[str, ...],
) -> tuple[Rewind, ...]:
    """Find out what a reset does to each output.

    Args:
        begin_at: Where each source will continue, as Spark's JSON.
    """
    bound, uris = context.bound, context.written_uris
    app_ids: Mapping[str, str] = bound.app_ids if bound else {}
    if wanted == "truncate":
        _refuse_unknown(context, uris)
        emptied = _emptied(context, uris, app_ids)
        if goes_on_after is not None:
            _refuse_file_sinks(emptied, "would start empty while batch numbers continue", "")
        return emptied
    if wanted == "rewind":
        saved = _saved_at(context, begin_at)
        _refuse_other_tables(context, saved.id, saved.outputs, bound)
        taken_back = _taken_back(context, saved.outputs, saved.generation, bound)
        if goes_on_after is not None:
            return taken_back
        _refuse_file_sinks(
            taken_back,
            "would be kept while batches start from 0 again",
            ", or give the query a new output directory",
        )
        return tuple(_from_0(one, context, app_ids) for one in taken_back)
    _refuse_half_done(context, begun, uris)
    kept = (
        _keep_output(context, name, uri, own_id=app_ids.get(name), batch_id=goes_on_after)
        for name, uri in uris.items()
    )
    return tuple(one for one in kept if one is not None)


def rewound(
    context: QueryContext, found: ResolvedTarget, bound: QuerySettings | None
) -> tuple[tuple[Rewind, ...], list[str]]:
    """Return what takes the outputs back, and what a person should know about that."""
    _refuse_unknown_outputs(found, context.output_uris)
    _refuse_other_tables(context, found.savepoint_id, found.outputs, bound)
    if not (found.outputs or context.output_uris or context.output_topics):
        raise NotAlignedError(
            f"the output tables of {found.query} are unknown, so rows written after batch "
            f"{found.batch_id} would stay in them and be written a second time",
            hint=f"add the tables to [queries.{found.query}.outputs] in the settings; or "
            "leave the outputs as they are: --outputs none",
            query=found.query,
        )
    outputs = _taken_back(context, found.outputs, found.generation, bound)
    return outputs, [note for one in outputs for note in plan_text.notes(one)]


def kept(
    context: QueryContext, found: ResolvedTarget, bound: QuerySettings | None
) -> tuple[tuple[Rewind, ...], list[str]]:
    """Return what makes a new life of outputs whose rows stay, and what becomes of them."""
    app_ids = bound.app_ids if bound else {}
    outputs: list[Rewind] = []
    notes: list[str] = []
    for one in found.outputs:
        following = _next_app_id(one, found.query, found.generation, context.number)
        notes += plan_text.kept(one, following)
        try:
            begun = _keep_output(
                context, one.name, one.uri,
                own_id=app_ids.get(one.name), batch_id=found.batch_id,
            )  # fmt: skip
        except IncompatibleError as error:
            notes.append(
                f"{error.message}; no savepoint can be taken until the first new batch is committed"
            )
            continue
        outputs += [] if begun is None else [begun]
    return tuple(outputs), notes


def _refuse_unknown_outputs(found: ResolvedTarget, uris: Mapping[str, str]) -> None:
    """Refuse tables whose version at the target nobody knows."""
    known = {one.name for one in found.outputs}
    for name in (one for one in uris if one not in known):
        try:
            batch_version.open_table(uris[name])
        except NotFoundError:
            continue  # Nothing to take back yet.
        except FileSinkError:
            pass
        raise NotAlignedError(
            f"the savepoint {found.savepoint_id} does not include the output {name}, "
            f"{uris[name]}, so it is unknown which version to rewind it to",
            hint="leave the outputs as they are (--outputs none), or remove this output from "
            "the settings",
            output=name,
        )


def _refuse_other_tables(
    context: QueryContext,
    savepoint_id: str,
    outputs: Sequence[OutputVersion],
    bound: QuerySettings | None,
) -> None:
    """Refuse to take one table back while the query writes another."""
    uris = {**context.output_uris, **(bound.outputs if bound else {})}
    for output in outputs:
        goes_on_in = uris.get(output.name)
        if goes_on_in is not None and str(Location.of(goes_on_in)) != output.uri:
            raise NotAlignedError(
                f"the savepoint {savepoint_id} has the output {output.name} at {output.uri}, but "
                f"by the settings or the newest savepoint, {context.query} now writes "
                f"{goes_on_in}, which would not be rewound",
                hint="to go on in the savepoint's table, name it in "
                f"[queries.{context.query}.outputs] in the settings; or {LEAVE_OUTPUTS}",
                output=output.name,
            )


def _taken_back(
    context: QueryContext,
    outputs: Sequence[OutputVersion],
    generation: int,
    bound: QuerySettings | None,
) -> tuple[Rewind, ...]:
    """Return what takes outputs back to versions that a generation of the query has written."""
    query = context.query
    own_rows = bound.own_rows if bound else {}
    spark_ids = own_ids(context.store, query)
    return tuple(
        rewind.plan(
            output,
            owner_prefix(query),
            _next_app_id(output, query, generation, context.number),
            own_rows=own_rows.get(output.name),
            own_ids=spark_ids,
        )
        for output in outputs
    )


def _emptied(
    context: QueryContext, uris: Mapping[str, str], app_ids: Mapping[str, str]
) -> tuple[Rewind, ...]:
    own_rows = context.bound.own_rows if context.bound else {}
    spark_ids = own_ids(context.store, context.query)
    return tuple(
        rewind.plan_empty(
            name,
            uri,
            owner_prefix(context.query),
            (*spark_ids, *((app_ids[name],) if name in app_ids else ())),
            app_id(context.query, name, context.number),
            own_rows=own_rows.get(name),
        )
        for name, uri in uris.items()
    )


def _from_0(one: Rewind, context: QueryContext, app_ids: Mapping[str, str]) -> Rewind:
    """Let batches that are counted from 0 again be new to an output that has seen some.

    Spark's id of the query is another one after the reset.
    """
    name = one.output.name
    begins = app_id(context.query, name, context.number)
    restarted = {begins, app_ids.get(name, "")} & one.transactions.keys()
    return replace(
        one, transactions={**one.transactions, **dict.fromkeys(restarted, BEFORE_FIRST_BATCH)}
    )


def _refuse_file_sinks(outputs: Sequence[Rewind], what: str, instead: str) -> None:
    for one in outputs:
        if one.output.kind == "files":
            raise FileSinkError(
                f"Spark's file sink at {one.output.uri} cannot continue: its log {what}",
                hint="reset state and outputs together (--state empty --outputs truncate)"
                + instead,
                uri=one.output.uri,
            )


def _saved_at(context: QueryContext, begin_at: tuple[str, ...]) -> Savepoint:
    query = context.query
    for one in context.history:
        if tuple(map(_spelled, one.cut.offsets)) == begin_at:
            return one
    raise UsageError(
        f"no savepoint of {query} was taken at exactly {'; '.join(begin_at)}, so it is unknown "
        "which version to rewind the outputs to",
        hint="use --outputs keep or --outputs truncate, or roll back to a savepoint instead: "
        f"savepoints rollback NAME --query {query}",
        query=query,
    )


def _spelled(position: str | None) -> str:
    """Return a position as a reset writes it."""
    table = table_position.parse(position)
    return table.text if table else kafka_position(kafka_offsets(position) or {})


def _refuse_unknown(context: QueryContext, uris: Mapping[str, str]) -> None:
    """Refuse to empty tables that nobody has named."""
    if not (uris or context.output_topics):
        raise NotAlignedError(
            f"the output tables of {context.query} are unknown, so their rows would stay and be "
            "written a second time",
            hint="take a savepoint that names them: savepoints create "
            f"{context.query} --table NAME=URI; or leave them as they are: --outputs keep",
            query=context.query,
        )


def _refuse_half_done(context: QueryContext, begun: int | None, outputs: Mapping[str, str]) -> None:
    """Refuse to keep outputs that may have rows of a batch that is not committed.

    Where batches go on being numbered, Delta would drop the next one, which has its number.
    """
    query = context.query
    if outputs and begun is not None:
        how = (
            "start its driver"
            if context.bound is None
            else f"savepoints run {query} --until latest"
        )
        raise UsageError(
            f"batch {begun} of {query} was started but not committed: the outputs may already "
            "have its rows, which would then be written a second time",
            hint=f"finish the batch ({how}), or use --outputs truncate",
            query=query,
        )


def own_ids(store: Store, query: str) -> tuple[str, ...]:
    """Return the application ids besides ours under which a query's own rows were written.

    Those are Spark's ids of all its lives, under which Delta's own sink writes: a reset to an empty
    state begins a life with another one. And those of forks in whose tables it has gone on.
    """
    found = {one.query_id for one in store.catalog.all() if one.query == query}
    if current := store.generations.find_current(query):
        # Not started yet, or damaged: its savepoints say it, if there are any.
        with suppress(FileNotFoundError, IncompatibleError):
            found.add(read_query_id(Location.of(current.checkpoint)))
    for done in journal.all_operations(store.root):
        if (done.query, done.state, done.plan.get("hand_over")) == (query, "finished", "point"):
            found |= {str(output["output"]["app_id"]) for output in done.plan["outputs"]}
    return tuple(sorted(found))


def _next_app_id(output: OutputVersion, query: str, generation: int, number: int) -> str:
    """Return the application id under which a generation, by number, writes an output."""
    if output.app_id == app_id(query, output.name, generation):
        return app_id(query, output.name, number)
    return output.app_id


def _keep_output(
    context: QueryContext, name: str, uri: str, *, own_id: str | None, batch_id: int | None
) -> Rewind | None:
    """Return what is done to an output whose rows stay: its transaction ids begin a new life.

    Else no version would belong to the first batch of the new generation; and batches that are
    counted from 0 again would be taken for written ones and silently dropped.

    Args:
        own_id: The id that the user writes it under, None for ours or Spark's.
        batch_id: The next generation continues after this batch; None to begin with batch 0.

    Returns:
        None when nothing is to be done: it does not exist yet, or is written under Spark's id of
        the query, which an empty state changes.
    """
    query, generation = context.query, context.current.generation
    try:
        was = batch_version.present(name, uri, own_id or app_id(query, name, generation))
    except NotFoundError:
        return None
    if was.kind == "files":
        if batch_id is None and was.version >= 0:
            raise FileSinkError(
                f"{uri} is written by Spark's file sink, which silently drops batches whose "
                "numbers it has seen before; with empty state, batch numbers start again at 0",
                hint="use --outputs truncate, or give the query a new output directory",
                uri=uri,
            )
        return None
    if was.app_version is None or (own_id is not None and batch_id is not None):
        return None
    begins = own_id or app_id(query, name, context.number)
    there = replace(was, app_id=begins, app_version=batch_id)
    return rewind.plan(there, owner_prefix(query), begins)


def output_steps(outputs: Sequence[Rewind]) -> list[Step]:
    """Return what is done to the outputs as steps of a plan."""
    return [Step(f"output_{one.output.name}_rewound", plan_text.what(one)) for one in outputs]
