"""A new checkpoint of a live query's cut, in which the state of some entities is that of a replay.

Logs, sources, metadata and schemas are those of the live cut, and so are the rows of all other
entities.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from savepoints.checkpoint import state_partitions
from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.offset_log import PROVIDER_KEY
from savepoints.checkpoint.logs.source_positions import SourceMap
from savepoints.checkpoint.small_files import Skeleton
from savepoints.io import Location, in_parallel
from savepoints.operations.merge.plan import SplicePlan
from savepoints.operations.rollback.generation_change import NewCheckpoint
from savepoints.operations.savepoint import export, restore, restored_layout
from savepoints.runtime.replay import Live
from savepoints.store import scratch
from savepoints.store.root import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from savepoints.state.merge.splice import EntityFields
    from savepoints.state.storage.row_sources import SavedRows

# Makes the directory a checkpoint; it is written last, by whoever begins the generation.
_SEAL = "metadata"


def from_safety_savepoint(
    spark: SparkSession,
    plan: SplicePlan,
    store: Store,
    replayed: Callable[[Live], SavedRows],
    entities: DataFrame | None,
    sources: SourceMap | None = None,
) -> NewCheckpoint:
    """Write a plan's new checkpoint: its safety savepoint with the replayed state put in.

    The rest as in `write`.

    Args:
        replayed: Returns the rows of the replay, given the cut that they go into.
    """
    begun = time.monotonic()
    assert plan.safety_id is not None
    assert plan.from_batch is not None
    target = Location.of(plan.checkpoint)
    # The directory is claimed and sealed as for a restore, so that one killed here is begun again.
    restoring = restore.plan(
        store, plan.safety_id, plan.checkpoint, form="native", owner=plan.operation_id, asked=False
    )
    stored = store.manifest(plan.safety_id)
    # An attempt that was killed may have left some of its files.
    place = scratch.place_of(store, plan.operation_id)
    directory, touched = place / scratch.LIVE, place / scratch.TOUCHED
    for one in (directory, touched):
        one.delete(info.path for info in one.list())
    export.mount(stored, store, directory)
    live = Live(directory, read_cut(directory, plan.from_batch))
    rows = replayed(live)
    by_number = {int(operator): field for operator, field in plan.entity_fields.items()}
    done = restore.fill(
        restoring,
        store,
        stored,
        lambda: write(spark, target, live, rows, by_number, entities, touched, sources),
        begun=begun,
    )
    return NewCheckpoint(done.seconds, done.bytes_written)


def write(
    spark: SparkSession,
    target: Location,
    live: Live,
    replayed: SavedRows,
    fields: EntityFields,
    entities: DataFrame | None,
    place: Location,
    sources: SourceMap | None = None,
) -> None:
    """Write everything of the new checkpoint but `metadata`, and check it.

    Args:
        target: An empty directory, or one that only has the mark of a restore.
        live: The cut that is corrected. Nobody writes to its checkpoint any more.
        entities: The entities that are replaced: entity (string); None for all, and then no field
            is needed.
        place: An empty directory, for what is read of the live cut.
        sources: Where the sources continue; None for where they are.
    """
    from savepoints.state.merge import splice, touched_partitions
    from savepoints.state.storage import write
    from savepoints.state.storage.row_sources import CheckpointRows

    files, cut = live.files, live.files.cut
    written_as = restored_layout.written_conf(cut.provider, files.conf)
    skeleton = Skeleton(target.uri, cut.partitions, {PROVIDER_KEY: cut.provider, **written_as})
    paths = [one.path for one in files.small if one.path != _SEAL]

    def copy(path: str) -> None:
        data = skeleton.changed(path, live.checkpoint.get(path))
        if sources is not None and path.startswith("offsets/"):
            data = offset_log.with_sources(data, path, sources)
        target.put(path, data)

    in_parallel(copy, paths)
    operators = files.operator_states
    if operators:
        touched = None
        if entities is None:
            rows = splice.all_of(replayed)
        else:
            before = CheckpointRows.of(spark, live.checkpoint, files)
            if write.is_loaded(spark, target, cut, operators):
                touched = touched_partitions.find(
                    before, replayed, operators, fields, entities, cut.partitions or 1
                )
            if touched is not None:
                state_partitions.copy_others(live.checkpoint, files, touched, target)
                before = before.among(touched, place)
            rows = splice.spliced(before, replayed, fields, entities)
        written = write.write_rows(spark, target, cut, operators, rows, only=touched)
        if written.ids:
            numbers = {one.operator_id for one in operators}
            restored_layout.name_state(target, cut.batch_id, written.ids, numbers)
    restored_layout.check(target, cut.batch_id, operators, cut.provider)
