"""Readers that are ahead of what their writers have committed, so that an undo could not be exact.

A query that died between its table's commit and its own has written a batch that no savepoint of it
holds. A reader may have read that batch already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import read_cut
from savepoints.io import Location
from savepoints.operations.pipeline import group_check
from savepoints.operations.pipeline.pipeline_graph import Pipeline
from savepoints.operations.pipeline_rollback.pipeline_member import PipelineMember
from savepoints.operations.savepoint import output_versions
from savepoints.store import bindings
from savepoints.store.root import Store


def notes(store: Store, found: Pipeline, members: Sequence[PipelineMember]) -> Iterator[str]:
    """Say which readers have read rows that their writers have not committed."""
    settings = bindings.complete(store)
    inside = {one.query for one in members}
    for one in members:
        edges = [edge for edge in found.edges if edge.writer == one.query and edge.reader in inside]
        going = one.rollback
        yield from _begun(found, one.query, going.from_checkpoint, inside)
        if not edges or going.from_batch is None or going.safety_id is None:
            continue
        outputs = output_versions.outputs_of(
            one.query,
            store.generations.current(one.query).generation,
            read_cut(Location.of(going.from_checkpoint), going.from_batch),
            going.output_uris,
            settings.queries.get(one.query),
        )
        for edge in edges:
            for output in outputs:
                if output.table_id == edge.table_id and (
                    problem := group_check.ahead(output, edge.position)
                ):
                    yield (
                        f"{edge.reader}: {problem} of {output.uri}, from a batch that "
                        f"{one.query} has not committed, so the operation could not be undone; "
                        f"to avoid that, first run {one.query} until it has committed the batch"
                    )


def _begun(found: Pipeline, query: str, checkpoint: str, inside: set[str]) -> Iterator[str]:
    """Say which topic has records of a batch that its writer has begun and not committed."""
    topics = {
        one.topic for one in found.topic_edges if one.writer == query and one.reader in inside
    }
    begun = position.read(Location.of(checkpoint)).begun if topics else None
    if begun is not None:
        yield (
            f"{query} has begun batch {begun} but not committed it, so topic "
            f"{', '.join(sorted(topics))} may have records from it, and the operation could not be "
            f"undone; to avoid that, first run {query} until it has committed the batch"
        )
