"""The Spark that is installed here: its version, what it has, and a session without jars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING

from tests.fidelity.harness import STORES
from tests.fidelity.queries import QUERIES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION: tuple[int, int] = tuple(map(int, version("pyspark").split(".")[:2]))  # type: ignore[assignment]

# The version that a query, or a kind of state store, came with; all others are in each.
_QUERIES_SINCE = {
    "transform": (4, 1),
    "transform_ttl": (4, 1),
    "transform_event": (4, 1),
    "transform_processing": (4, 1),
    "transform_pandas": (4, 0),
    "join_inner_3": (4, 1),
    "join_outer_3": (4, 1),
    "join_outer_4": (4, 2),
    "aggregate_offsets_2": (4, 2),
}
_STORES_SINCE = {"rocksdb_2": (4, 0), "rocksdb_2_changelog": (4, 0)}
_COLUMN_FAMILIES = ("transform", "join_inner_3", "join_outer_3", "join_outer_4")


def cells() -> list[tuple[str, str]]:
    """Return each query with each state store that this Spark runs it on."""
    return [
        (query, store)
        for query in QUERIES
        for store in STORES
        if _QUERIES_SINCE.get(query, (3, 5)) <= VERSION
        and _STORES_SINCE.get(store, (3, 5)) <= VERSION
        and not (store == "hdfs" and query.startswith(_COLUMN_FAMILIES))
    ]


@contextmanager
def session() -> Iterator[SparkSession]:
    """Start a small session that needs no jar; it is stopped afterwards."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("versions")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }.items():
        builder = builder.config(key, value)
    started = builder.getOrCreate()
    yield started
    started.stop()
