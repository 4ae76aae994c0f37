"""The state rows of a savepoint: of its canonical table, or else read from its native files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from savepoints.checkpoint.cut import read_cut
from savepoints.model import Cut
from savepoints.operations.savepoint import export, forms
from savepoints.store.root import Store
from savepoints.store.savepoint import canonical
from savepoints.store.savepoint.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def state_rows(stored: Manifest, store: Store, spark: SparkSession) -> Iterator[DataFrame]:
    """Return the rows of all operators that can have a canonical form, inside of a `with` block.

    Without a canonical table the native files are laid out below `scratch/` in the store.

    Args:
        spark: From `read.reading_session`; the rows are of this session.

    Returns:
        The columns of a canonical table; see `canonical_table.export`.

    Raises:
        NativeOnlyError: If there is no table, and this Spark cannot read the files.
        PlacementError: From the block, if a row is not in the partition of its key.
    """
    from savepoints.state.storage import canonical_table, new_table

    savepoint = stored.savepoint
    if "canonical" in savepoint.forms:
        yield new_table.read(spark, canonical.table(store.root, savepoint.id))
        return
    forms.require_readable(savepoint)
    with store.scratch() as scratch, canonical_table.placement_checked():
        export.mount(stored, store, scratch)
        files = read_cut(scratch, savepoint.cut.batch_id)
        yield canonical_table.rows_of_checkpoint(spark, scratch, files)


def rows_in_place(
    stored: Manifest, store: Store, spark: SparkSession, cut: Cut
) -> DataFrame | None:
    """Return the rows of a canonical table by state partition, where they need not be moved.

    Returns:
        None if `cut` has another number of state partitions, or no table says where they are.
    """
    from savepoints.state.storage import canonical_table

    savepoint = stored.savepoint
    if "canonical" not in savepoint.forms or cut.partitions != savepoint.cut.partitions:
        return None
    table = canonical.table(store.root, savepoint.id)
    return canonical_table.rows_in_partitions(spark, table, cut.partitions or 1)
