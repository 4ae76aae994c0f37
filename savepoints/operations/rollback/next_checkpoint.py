"""Where the checkpoint of a query's next generation goes."""

from __future__ import annotations

from savepoints.config.settings import Settings
from savepoints.errors import UsageError
from savepoints.io import Location


def next_checkpoint(settings: Settings, query: str, number: int) -> str:
    """Return where the settings put the checkpoint of a query's next generation."""
    configured = settings.queries.get(query)
    if configured is None:
        raise UsageError(
            f"the query {query} is not in the settings, so the directory of its new checkpoint "
            "is unknown",
            hint="name a new directory: --to s3://bucket/path",
            query=query,
        )
    return str(checkpoint_of(configured.checkpoints, query, number))


def checkpoint_of(root: str, query: str, generation: int) -> Location:
    """Return the checkpoint directory of a generation of a query that `run` manages."""
    return Location.of(root) / query / str(generation)
