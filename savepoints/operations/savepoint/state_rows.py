"""The state rows of a savepoint: of its canonical table, or else read from its native files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from savepoints.checkpoint.cut import read_cut
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
