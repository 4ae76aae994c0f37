"""What an application says of late events that are not replayed: `merge-function`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.state import layout
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from savepoints.outputs.correct.correct import Correction
from savepoints.outputs.correct.entity_rows import EntityRows
from savepoints.runtime.app import App, MergeFunctions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from savepoints.state.merge.combine import Combined, CombinedRows
    from savepoints.state.storage.row_sources import CheckpointRows, SavedRows


def required(app: App) -> MergeFunctions:
    """Return the functions by which late events are worked in without a replay.

    Raises:
        IncompatibleError: If the application has none, or lacks that of an output.
    """
    if app.merge is None:
        raise IncompatibleError(
            f"the application {app.name} does not define how late events combine with its state",
            hint="define functions: App(…, merge=MergeFunctions(states=…, rows=…)), see "
            "docs/merging.md; or merge without --policy, which replays the events",
            query=app.name,
        )
    if lacking := [name for name in app.outputs if name not in app.merge.rows]:
        raise IncompatibleError(
            f"the application {app.name} does not define how rows of {lacking[0]} combine",
            hint="add it to MergeFunctions(rows=…), see docs/merging.md",
            query=app.name,
            outputs=lacking,
        )
    return app.merge


def require_states(checkpoint: Location, files: CutFiles, functions: MergeFunctions) -> None:
    """Check that the functions combine the state of each operator.

    Args:
        functions: From `required`.

    Raises:
        IncompatibleError: If an operator cannot be combined.
    """
    _operators(checkpoint, files, functions)


def state(live: CheckpointRows, late: SavedRows, functions: MergeFunctions) -> CombinedRows:
    """Return the state of a query with what late events gave.

    Args:
        late: That of a `LateReplay`.
        functions: From `required`.

    Raises:
        IncompatibleError: If an operator cannot be combined.
    """
    from savepoints.state.merge import combine as merge_combine

    return merge_combine.CombinedRows(
        live, late, _operators(live.checkpoint, live.files, functions)
    )


def rows(
    spark: SparkSession,
    correction: Correction,
    entities: DataFrame,
    late: DataFrame,
    functions: MergeFunctions,
) -> DataFrame:
    """Return what an output should hold of entities, as `correct.execute` wants it.

    Args:
        entities: `entity` string and `version` bigint, which is null for all.
        late: What the late events gave, with `replay_slice`.
        functions: From `required`.

    Raises:
        SeveralRowsError: If the key of the function does not tell rows apart.
        IncompatibleError: If the rows are no rows of the table.
    """
    from savepoints.outputs.correct import combine as correct_combine

    assert correction.entity is not None, "only a replay of everything replaces all rows"
    one = functions.rows[correction.live.output.name]
    table = EntityRows.of(
        spark, correction.live, correction.entity, correction.mode, correction.key
    )
    return correct_combine.combined(table, entities, late, one.key, one.combine)


def _operators(
    checkpoint: Location, files: CutFiles, functions: MergeFunctions
) -> dict[int, Combined]:
    """Return how each operator is combined."""
    from savepoints.state.merge import combine as merge_combine

    return merge_combine.required(files.operators, layout.read(checkpoint), functions.states)
