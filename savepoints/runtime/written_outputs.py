"""Which outputs have the rows already of a batch that was begun and not committed."""

from __future__ import annotations

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import read_query_id
from savepoints.io import Location
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.write import app_id
from savepoints.runtime.inputs import Inputs


def find(inputs: Inputs, generation: int, checkpoint: Location, batch: int) -> list[str]:
    """Return the names of those outputs of a generation.

    The batch may have been begun by a driver of the user's, which writes under the id of Spark's
    query, or under one that the settings name.

    Raises:
        NotAlignedError: If a table has forgotten who has written to it.
    """
    since = position.begun_ms(checkpoint, batch)
    of_spark = read_query_id(checkpoint)
    query, bound = inputs.app.name, inputs.bound
    return [
        name
        for name in inputs.app.outputs
        if batch_version.was_written(
            bound.outputs[name],
            app_id(query, name, generation),
            batch,
            since,
            drivers=[of_spark, *filter(None, [bound.app_ids.get(name)])],
        )
    ]
