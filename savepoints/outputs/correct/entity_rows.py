"""The rows of some entities in a table: as they are, as they were, and as they should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.errors import REBUILD_OUTPUT, IncompatibleError
from savepoints.outputs.correct import desired_rows
from savepoints.outputs.correct.row_difference import Differing, differing
from savepoints.outputs.delta.row_selection import EVERYTHING, RowSelection
from savepoints.outputs.delta.write import Mode
from savepoints.outputs.rewind.planned_rewind import Rewind
from savepoints.spark.columns import quoted, text_sql
from savepoints.spark.session import session_like
from savepoints.texts import count_text
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_VERSION = "version"


@dataclass(frozen=True)
class EntityRows:
    """A table of which the rows of some entities are looked at.

    Attributes:
        table: The table at that version, rows of the query alone.
        selection: Which part of the program's result it has.
    """

    spark: SparkSession
    live: Rewind
    entity: str
    mode: Mode
    key: tuple[str, ...]
    table: DataFrame
    selection: RowSelection = EVERYTHING

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        live: Rewind,
        entity: str,
        mode: Mode,
        key: tuple[str, ...],
        selection: RowSelection = EVERYTHING,
    ) -> EntityRows:
        """Open a table.

        Args:
            spark: Any session; it is not changed, but its time zone and plans count.
        """
        own = session_like(spark)
        table = read_own_rows(own, live, live.newest)
        named = next(name for name in table.columns if name.casefold() == entity.casefold())
        return cls(own, live, named, mode, key, table, selection)

    @property
    def entity_text(self) -> Column:
        """The entity of a row, as text."""
        from pyspark.sql import functions as F

        return F.expr(text_sql(quoted(self.entity)))

    def differing(self, entities: DataFrame, replayed: DataFrame) -> Differing:
        """Compare what the table holds of entities with what it should hold after a replay.

        Args:
            entities: `entity` string, each once, and `version` bigint: of the table at its base,
                null for one that begins with nothing.
            replayed: As `correct.execute` has it.
        """
        should = self.desired(entities, replayed)
        return differing(self.current(entities), should, self.entity)

    def current(self, entities: DataFrame) -> DataFrame:
        """Return what the table holds of entities, given in `entity`."""
        return self._of(self.table, entities)

    def desired(self, entities: DataFrame, replayed: DataFrame) -> DataFrame:
        """Return what the table should hold of entities; arguments as in `differing`."""
        rows = self.written(replayed)
        bases = self._bases(entities)
        return desired_rows.content(bases, self._of(rows, entities), self.mode, self.key)

    def require_applicable(self, replayed: DataFrame) -> None:
        """Refuse replayed rows that cannot be put into the table.

        Raises:
            SeveralRowsError: If two have one key in one slice.
        """
        from pyspark.sql import functions as F

        rows, uri = self.written(replayed), self.live.output.uri
        if nobody := rows.where(F.col(quoted(self.entity)).isNull()).count():
            raise IncompatibleError(
                f"the replay wrote {count_text(nobody, 'row')} to {uri} without a value in "
                f"{self.entity}, so it is unknown which entity to correct",
                hint=REBUILD_OUTPUT,
                uri=uri,
                column=self.entity,
            )
        if self.mode == "upsert":
            desired_rows.refuse_several(rows, self.key, uri)

    def written(self, replayed: DataFrame) -> DataFrame:
        """Return the replayed rows that the table has, as it has them, and `replay_slice`."""
        return desired_rows.written(
            replayed, self.table, self.live.output.uri, self.mode, self.selection
        )

    def refuse_taken_keys(self, entities: DataFrame, replayed: DataFrame) -> None:
        """Refuse replayed rows with a key under which the table has a row of another entity."""
        from pyspark.sql import functions as F

        if self.mode != "upsert" or self.entity.casefold() in {one.casefold() for one in self.key}:
            return
        keys = self._of(self.written(replayed), entities).select(
            *(F.col(quoted(name)).alias(f"__key{n}") for n, name in enumerate(self.key))
        )
        same = [
            F.col(quoted(name)).eqNullSafe(F.col(f"__key{n}")) for n, name in enumerate(self.key)
        ]
        mine = entities.select(F.col("entity").alias("__entity"))
        others = self.table.join(mine, self.entity_text == F.col("__entity"), "left_anti")
        taken = others.join(keys, same, "left_semi").select(*map(quoted, self.key)).first()
        if taken is not None:
            raise IncompatibleError(
                f"the replay wrote a row for one {self.entity} to {self.live.output.uri}, but a "
                f"row for another {self.entity} already has the same key, {taken.asDict()}",
                hint=f"make {self.entity} part of the output's key; or {REBUILD_OUTPUT}",
                uri=self.live.output.uri,
                key=list(self.key),
            )

    def _bases(self, entities: DataFrame) -> DataFrame:
        """Return the rows of entities at their bases."""
        from pyspark.sql import functions as F

        rows = self.table.limit(0)
        if self.mode == "complete":
            return rows
        found = entities.where(f"{_VERSION} IS NOT NULL").select(_VERSION).distinct().collect()
        for (version,) in found:
            then = read_own_rows(self.spark, self.live, version)
            mine = self._of(then, entities.where(F.col(_VERSION) == version))
            rows = rows.unionByName(mine, allowMissingColumns=True)
        return rows

    def _of(self, rows: DataFrame, entities: DataFrame) -> DataFrame:
        """Return the rows of entities; those without an entity are nobody's."""
        from pyspark.sql import functions as F

        wanted = F.broadcast(entities.select(F.col("entity").alias("__entity")))
        return rows.join(wanted, self.entity_text == F.col("__entity"), "left_semi")


def read_own_rows(spark: SparkSession, live: Rewind, version: int) -> DataFrame:
    """Return the rows of a query in a version of its table."""
    uri = Uri.parse(live.output.uri).hadoop
    table = spark.read.format("delta").option("versionAsOf", version).load(uri)
    return table if live.own_rows is None else table.where(live.own_rows)
