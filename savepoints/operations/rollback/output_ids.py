"""The outputs of a query's next generation: under which ids it writes them, from where on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from savepoints.checkpoint.cut import read_query_id
from savepoints.errors import FileSinkError, NotFoundError
from savepoints.io import Location
from savepoints.model import Generation, OutputVersion
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.write import app_id, owner_prefix
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.rewind import Rewind
from savepoints.plan import Step
from savepoints.store.locks import journal
from savepoints.store.root import Store


def own_ids(store: Store, query: str) -> tuple[str, ...]:
    """Return the application ids besides ours under which a query's own rows were written.

    Those are Spark's ids of all its lives, under which Delta's own sink writes: a reset to an empty
    state begins a life with another one. And those of forks in whose tables it has gone on.
    """
    found = {one.query_id for one in store.catalog.all() if one.query == query}
    for one in store.generations.all(query):
        if one.status == "current":
            try:
                found.add(read_query_id(Location.of(one.checkpoint)))
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                continue  # Not started yet, or damaged: its savepoints say it, if there are any.
    for done in journal.all_operations(store.root):
        if (done.query, done.state, done.plan.get("hand_over")) == (query, "finished", "point"):
            found |= {str(output["output"]["app_id"]) for output in done.plan["outputs"]}
    return tuple(sorted(found))


def next_app_id(output: OutputVersion, query: str, generation: int, number: int) -> str:
    """Return the application id under which a generation, by number, writes an output."""
    if output.app_id == app_id(query, output.name, generation):
        return app_id(query, output.name, number)
    return output.app_id


def keep_output(
    name: str,
    uri: str,
    generation: Generation,
    number: int,
    *,
    own_id: str | None,
    batch_id: int | None,
) -> Rewind | None:
    """Return what is done to an output whose rows stay: its transaction ids begin a new life.

    Else no version would belong to the first batch of the new generation; and batches that are
    counted from 0 again would be taken for written ones and silently dropped.

    Args:
        own_id: The id that the user writes it under, None for ours or Spark's.
        batch_id: The next generation goes on after this batch; None to begin with batch 0.

    Returns:
        None when nothing is to be done: it does not exist yet, or is written under Spark's id of
        the query, which an empty state changes.
    """
    query = generation.query
    try:
        was = batch_version.present(name, uri, own_id or app_id(query, name, generation.generation))
    except NotFoundError:
        return None
    if was.kind == "files":
        if batch_id is None and was.version >= 0:
            raise FileSinkError(
                f"{uri} is written by Spark's file sink, which silently drops batch numbers "
                "that it has already seen; with empty state, batch numbers start from 0 "
                "again",
                hint="use --outputs truncate, or give the query a new output directory",
                uri=uri,
            )
        return None
    if was.app_version is None or (own_id is not None and batch_id is not None):
        return None
    begins = own_id or app_id(query, name, number)
    there = replace(was, app_id=begins, app_version=batch_id)
    return rewind.plan(there, owner_prefix(query), begins)


def output_steps(outputs: Sequence[Rewind]) -> list[Step]:
    """Return what is done to the outputs as steps of a plan."""
    return [Step(f"output_{one.output.name}_rewound", rewind.what(one)) for one in outputs]
