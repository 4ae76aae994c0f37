"""A new checkpoint of a live query's cut, in which the state of some entities is that of a replay.

Logs, sources, metadata and schemas are those of the live cut, and so are the rows of all other
entities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.offset_log import PROVIDER_KEY
from savepoints.checkpoint.logs.source_positions import SourceMap
from savepoints.checkpoint.small_files import Skeleton
from savepoints.checkpoint.state.operators import HDFS_PROVIDER
from savepoints.checkpoint.state.records import ROW_CHECKSUM_KEY
from savepoints.io import Location, in_parallel
from savepoints.operations.savepoint import restore, restored_layout
from savepoints.runtime.replay import Live

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from savepoints.state.merge.splice import EntityFields
    from savepoints.state.storage.row_sources import SavedRows

# Makes the directory a checkpoint; it is written last, by whoever begins the generation.
_SEAL = "metadata"


def write(
    spark: SparkSession,
    target: Location,
    live: Live,
    replayed: SavedRows,
    fields: EntityFields,
    entities: DataFrame | None,
    sources: SourceMap | None = None,
) -> None:
    """Write everything of the new checkpoint but `metadata`, and check it.

    Args:
        target: An empty directory, or one that only has the mark of a restore.
        live: The cut that is corrected. Nobody writes to its checkpoint any more.
        entities: The entities that are replaced: entity (string); None for all, and then no field
            is needed.
        sources: Where the sources go on; None for where they are.

    Raises:
        NotAlignedError: If a query could not go on from what was written.
    """
    from savepoints.state.merge import splice
    from savepoints.state.storage import write
    from savepoints.state.storage.row_sources import CheckpointRows

    files, cut = live.files, live.files.cut
    conf = {PROVIDER_KEY: cut.provider}
    if cut.provider == HDFS_PROVIDER and files.conf.get(ROW_CHECKSUM_KEY, "false") != "false":
        conf[ROW_CHECKSUM_KEY] = "false"  # Snapshots written here have none.
    skeleton = Skeleton(target.uri, cut.partitions, conf)
    paths = [one.path for one in files.small if one.path != _SEAL]

    def copy(path: str) -> None:
        data = skeleton.changed(path, live.checkpoint.get(path))
        if sources is not None and path.startswith("offsets/"):
            data = offset_log.with_sources(data, path, sources)
        target.put(path, data)

    in_parallel(copy, paths)
    operators = files.operator_states
    if operators:
        if entities is None:
            rows = splice.all_of(replayed)
        else:
            before = CheckpointRows.of(spark, live.checkpoint, files)
            rows = splice.spliced(before, replayed, fields, entities)
        written = write.write_rows(spark, target, cut, operators, rows)
        if written.ids:
            numbers = {one.operator_id for one in operators}
            restore.name_state(target, cut.batch_id, written.ids, numbers)
    restored_layout.check(target, cut.batch_id, operators, cut.provider)
