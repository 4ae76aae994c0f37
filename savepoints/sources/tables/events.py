"""Rows of a table that a query reads, as its events: each with its entity, time and id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from savepoints.errors import IncompatibleError
from savepoints.sources.events.events import Decoding, entity
from savepoints.spark.columns import JSON_OPTIONS
from savepoints.texts import count_text
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ENTITY = "entity"
_ROW = "__row"


def version(spark: SparkSession, uri: str, number: int) -> DataFrame:
    """Return the rows of a version of a table."""
    return spark.read.format("delta").option("versionAsOf", number).load(Uri.parse(uri).hadoop)


def events(rows: DataFrame, columns: Sequence[str], decoding: Decoding) -> DataFrame:
    """Return rows of a table as events.

    Args:
        columns: Those that the program reads.

    Returns:
        These columns, and `entity` (string), `event_time` and `event_id` (string). Rows that
        `decode` leaves out are no events.
    """
    from pyspark.sql import functions as F

    decoded = decoding.decode(rows.select(*columns).withColumn(_ROW, F.struct(*columns)))
    if _ROW not in decoded.columns:
        raise IncompatibleError(
            "decode drops columns of the table, so an event cannot be matched to its row",
            hint="in decode, add columns with withColumn instead of selecting some of them",
        )
    identified = F.to_json(F.struct(*decoding.event_id), JSON_OPTIONS)
    return decoded.select(
        f"{_ROW}.*",
        entity(decoding).alias(ENTITY),
        F.col(decoding.event_time).cast("timestamp_ltz").alias("event_time"),
        (identified if decoding.event_id else F.lit("")).alias("event_id"),
    )


def require_entities(rows: DataFrame) -> None:
    """Refuse events that belong to no entity: nothing says what has to be replayed for them."""
    if nobody := rows.where(f"{ENTITY} IS NULL").count():
        raise IncompatibleError(
            f"the table has {count_text(nobody, 'changed row')} without a value in entity_key, so "
            "it is unknown which entity to replay",
            hint="correct the input's entity_key, or drop such rows in decode",
        )


def of_entities(rows: DataFrame, entities: DataFrame) -> DataFrame:
    """Return the events of some entities, given in `entity`, in the same columns."""
    from pyspark.sql import functions as F

    mine = rows.join(F.broadcast(entities.select(ENTITY)), ENTITY, "left_semi")
    return mine.select(*rows.columns)


def corrected(rows: DataFrame, removed: DataFrame, added: DataFrame) -> DataFrame:
    """Return events without some and with others, each as often; all in the same columns."""
    columns = rows.columns
    return rows.exceptAll(removed.select(*columns)).unionByName(added.select(*columns))
