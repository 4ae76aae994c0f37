"""The safety savepoint: what was there before a verb began a new generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from savepoints.checkpoint.cut import committed_in, read_cut
from savepoints.config.settings import Settings
from savepoints.errors import CheckpointDamagedError, SavepointsError
from savepoints.io import Location
from savepoints.model import Generation, new_id
from savepoints.moments import utc_now
from savepoints.operations.savepoint import history, output_versions
from savepoints.plan import Step
from savepoints.store.root import Store

_UNSAFE = (
    "go without a safety savepoint, which cannot be undone: savepoints rollback NAME "
    "--no-safety-savepoint, or to give up the state savepoints reset QUERY --to-current "
    "--no-safety-savepoint"
)


class Present(NamedTuple):
    """The newest committed batch of a query, and the savepoint to be of it; None for nothing."""

    batch_id: int | None
    safety_id: str | None


def newest_batch(checkpoint: str) -> int | None:
    """Return the newest committed batch of a checkpoint, None when it has none."""
    batches = committed_in(Location.of(checkpoint))
    return batches[-1] if batches else None


def plan(
    store: Store, generation: Generation, outputs: Mapping[str, str], settings: Settings
) -> Present:
    """Find out whether the present can be saved, before anything is begun.

    Raises:
        SavepointsError: If there is a present and it cannot be saved.
    """
    batch = newest_batch(generation.checkpoint)
    if batch is None:
        return Present(None, None)
    try:
        files = read_cut(Location.of(generation.checkpoint), batch)
        history.require_state(store, generation, files)
        output_versions.outputs_of(
            generation.query,
            generation.generation,
            files,
            outputs,
            settings.queries.get(generation.query),
        )
    except FileNotFoundError as gone:
        raise CheckpointDamagedError(
            f"no safety savepoint of batch {batch} in {generation.checkpoint} can be taken, "
            f"because {gone} is missing",
            hint=_UNSAFE,
            query=generation.query,
        ) from None
    except SavepointsError as error:
        error.hint = f"{error.hint}; or {_UNSAFE}"
        raise
    return Present(batch, new_id("sp", utc_now()))


def step(safety_id: str | None, from_checkpoint: str, from_batch: int | None) -> list[Step]:
    """Return the first step of a plan, if there is a present to save."""
    if safety_id is None:
        return []
    what = f"take a safety savepoint of batch {from_batch} in {from_checkpoint}"
    return [Step("safety_savepoint", what)]


def first_step(first_id: str | None, generation: int) -> list[Step]:
    """Return the last step of a plan that moves a query: saving it where it is then."""
    if first_id is None:
        return []
    what = f"take the first savepoint of generation {generation}, {first_id}"
    return [Step("first_savepoint", what)]
