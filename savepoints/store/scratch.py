"""Where what a merge makes lies until the merge is done, below the store's `scratch/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.io import Location
from savepoints.store.root import Store
from savepoints.store.tables.merge_ledger import MergePolicy, ReplayStrategy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Rows of the batch that are no events.
SET_ASIDE = "set-aside"
EVENTS, ENTITIES, LIVE = "merged-events", "merged-entities", "live"


def place_of(store: Store, operation_id: str) -> Location:
    """Return where what a merge makes lies until it is done."""
    return store.root / "scratch" / operation_id


def replay_directory(policy: MergePolicy, strategy: ReplayStrategy | None) -> str:
    """Return where a replay lies, below the scratch directory of its merge."""
    return strategy or policy


def discard(store: Store, operation_id: str) -> None:
    """Remove what a merge has made, which nothing needs any more."""
    place = place_of(store, operation_id)
    place.delete(info.path for info in place.list())


def keep(spark: SparkSession, frame: DataFrame, place: Location) -> DataFrame:
    """Write rows to Parquet and return them as read from there, where their plan begins.

    What Spark only keeps in memory it still plans from its very beginning, in each query and each
    step of one: half of a merge's time where events are few.
    """
    frame.write.parquet(place.uri.hadoop)
    return spark.read.schema(frame.schema).parquet(place.uri.hadoop)
