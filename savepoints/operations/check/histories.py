"""Is what is needed later still there? The batch logs, and the journals of what was done."""

from __future__ import annotations

from collections.abc import Sequence

from savepoints.errors import VerificationError
from savepoints.io import in_parallel
from savepoints.model import Generation, Savepoint
from savepoints.operations.inspect.findings import Seen
from savepoints.store import batch_log
from savepoints.store.locks import journal
from savepoints.store.root import Store

# Verbs that begin a generation by a journal, which `rollback --undo` reads.
_JOURNALLED = frozenset({"rollback", "reset", "merge", "promote"})


def check_histories(store: Store, savepoints: Sequence[Savepoint]) -> list[Seen]:
    """Look at batch logs, compared with the catalog's savepoints, and at finished journals."""
    generations = store.generations.all()
    found = in_parallel(lambda one: _batches(store, one, savepoints), generations)
    seen = [one for some in found for one in some]
    return [*seen, *_journals(store, generations)]


def _batches(store: Store, generation: Generation, savepoints: Sequence[Savepoint]) -> list[Seen]:
    where = f"batches/{generation.query}/{generation.generation}"
    advice = (
        "restore the file from an older version in the bucket, or delete it: the next run then "
        "copies the batches that the checkpoint still has, and merges that replay any other batch "
        "are refused"
    )
    try:
        known = batch_log.read(store.root, generation.query, generation.generation)
    except VerificationError as error:
        return [Seen(where, "broken", error.message, advice)]
    other = [
        one.id
        for one in savepoints
        if one.place == generation.place
        and (batch := known.get(one.cut.batch_id)) is not None
        and batch.offsets != one.cut.offsets
    ]
    if not other:
        return []
    what = f"disagrees with the savepoint {other[0]} about the offsets of a batch"
    return [Seen(where, "broken", what, advice)]


def _journals(store: Store, generations: Sequence[Generation]) -> list[Seen]:
    """Find generations whose beginning nobody can take back, because its journal is gone."""
    try:
        known = {one.plan.get("checkpoint") for one in journal.all_operations(store.root)}
    except VerificationError:
        return []  # It is among the operations.
    return [
        Seen(
            f"generation {one.generation} of {one.query}",
            "warning",
            f"was started by {one.begun_by}, but its journal in operations/ is missing",
            "rollback --undo does not know this generation; to undo it, roll back to its safety "
            "savepoint by id: savepoints rollback ID",
        )
        for one in generations
        if one.status == "current" and one.begun_by in _JOURNALLED and one.checkpoint not in known
    ]
