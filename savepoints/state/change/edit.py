"""Change chosen rows of a state: decode, change by SQL or a function, encode.

All other rows, and everything that is not a value, are copied byte for byte. Rows are decoded where
Spark reads them, on the executors, which need this package. The columns are those of
`savepoints.state.typed.typed`; fields with a unique name that no column of another kind of state
has can also be written without `key.` or `value.` in front.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.state.schema import StateField
from savepoints.errors import IncompatibleError, UsageError
from savepoints.io import Location
from savepoints.model import OperatorState
from savepoints.spark import columns
from savepoints.state.change.sql_assignments import IDENTITY, assigned, condition, shown
from savepoints.state.change.udfs import RowFunction, changer, decoder, encoder
from savepoints.state.storage import canonical_table, new_table
from savepoints.state.storage.canonical_table import Contents
from savepoints.state.typed import typed
from savepoints.state.typed.compare import RowChange

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Columns beside the visible ones: the canonical row, and its change.
_ROW, _CHOSEN, _AFTER, _BYTES = "__row", "__chosen", "__after", "__bytes"
_HIDDEN = frozenset({_ROW, _CHOSEN, _AFTER, _BYTES})
_SEEDS = (1, 2)


@dataclass(frozen=True)
class Family:
    """Rows of one kind in a canonical table.

    Attributes:
        kind: As in `savepoints.state.typed.typed`: rows, value, list or map.
        frozen: Fields of the value that belong to the key, and must not change; as `typed` calls
            them.
    """

    operator_id: int
    store: str
    column_family: str
    kind: typed.VariableKind
    ttl: bool
    key: tuple[StateField, ...]
    value: tuple[StateField, ...]
    frozen: frozenset[str] = frozenset()

    def __str__(self) -> str:
        """Name it: `operator 0, total`."""
        of = "" if self.kind == "rows" else f", {self.column_family}"
        return f"operator {self.operator_id}{of}"


@dataclass(frozen=True)
class StateEdit:
    """A change to state rows.

    Attributes:
        where: SQL that chooses them; None for all.
        assignments: `field = SQL` each, computed from the row as it was.
        delete: Remove them.
        function: Returns new values, instead of assignments.
    """

    where: str | None = None
    assignments: tuple[str, ...] = ()
    delete: bool = False
    function: RowFunction | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Counted:
    """How many rows a change concerns.

    Attributes:
        content_hash: Of the chosen rows and of what they become, in any order, in hex: two
            differently seeded xxHash64 of each over (key, place in a list, new value), by XOR.
    """

    rows: int
    chosen: int
    changed: int
    content_hash: str


@dataclass(frozen=True)
class Edited:
    """A canonical table with a change that is not computed yet."""

    family: Family
    change: StateEdit
    table: DataFrame
    frame: DataFrame

    def count(self) -> Counted:
        """Count the rows, which computes the change."""
        with _failures():
            row = self.frame.agg(*_counts()).first()
        assert row is not None
        return _counted(row.asDict())

    def sample(self, limit: int) -> tuple[RowChange, ...]:
        """Return the first rows that are changed or removed, before and after."""
        from pyspark.sql import functions as F

        wanted = F.col(_CHOSEN) if self.change.delete else _is_changed()
        identity = [name for name in IDENTITY if name in self.frame.columns]
        row = F.struct(
            F.struct(*shown(self.frame)).alias("before"),
            *(
                []
                if self.change.delete
                else [F.struct(F.col(_AFTER).alias("value")).alias("after")]
            ),
        )
        frame = self.frame.where(wanted).select(row.alias("row")).limit(limit)
        text = columns.as_json(F.col("row"), frame.schema["row"].dataType)
        with _failures():
            found = [json.loads(line) for (line,) in frame.select(text).collect()]
        return tuple(_row_change(one, identity) for one in found)

    def write(
        self, target: Location, operators: Sequence[OperatorState]
    ) -> tuple[Counted, dict[int, Contents]]:
        """Write the table with the rows changed, in one commit.

        Args:
            operators: Those of the savepoint that is edited.
        """
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        observation = Observation("edited")
        counted = self.frame.observe(observation, *_counts())
        if self.change.delete:
            counted = counted.where(~F.col(_CHOSEN))
        names = self.table.columns
        bytes_now = F.coalesce(F.col(_BYTES), F.col(f"{_ROW}.value_bytes"))
        changed = counted.select(
            *(
                (bytes_now if name == "value_bytes" else F.col(f"{_ROW}.{name}")).alias(name)
                for name in names
            )
        )
        others = self.table.where(~_is_of(self.family))
        spark = self.table.sparkSession
        with _failures():
            new_table.write(others.unionByName(changed), target, canonical_table.PARTITIONED_BY)
        return _counted(observation.get), canonical_table.of_table(spark, target, operators)


def edited(whole: DataFrame, family: Family, change: StateEdit) -> Edited:
    """Apply a change to the rows of a family, lazily.

    Args:
        whole: All rows of the state, with the columns of a canonical table, in a session whose
            settings may be changed.

    Raises:
        IncompatibleError: If a field of the rows cannot be decoded.
    """
    from pyspark.sql import functions as F

    conf = whole.sparkSession.conf
    conf.set("spark.sql.ansi.enabled", "true")
    # A sum of decimals is exact, or too large: Spark would round away its last digit.
    conf.set("spark.sql.decimalOperations.allowPrecisionLoss", "false")
    try:
        frame = _decoded(whole.where(_is_of(family)), family)
    except IncompatibleError as error:
        error.hint = (
            "rows with such columns can be neither set nor removed; go back to a savepoint from "
            "before what is wrong: savepoints rollback NAME (savepoints list shows them)"
        )
        raise
    chosen = F.expr("true") if change.where is None else condition(frame, change.where)
    frame = frame.withColumn(_CHOSEN, F.coalesce(chosen, F.expr("false")))
    if change.delete:
        return Edited(family, change, whole, frame.withColumn(_BYTES, F.lit(None).cast("binary")))
    if "value" not in frame.columns:
        raise UsageError(
            f"the rows of {family} have only a key and no value that could be set",
            hint="such rows can only be removed: --delete",
        )
    if change.function is not None:
        after = changer(change.function, family.frozen, frame.schema["value"].dataType)(
            F.when(F.col(_CHOSEN), F.struct(*shown(frame)))
        )
    else:
        after = assigned(frame, change.assignments, family.frozen)
    frame = frame.withColumn(_AFTER, F.when(F.col(_CHOSEN), after))
    encoded = encoder(family.value, f"the value of {family}")(_whole_value(family))
    return Edited(family, change, whole, frame.withColumn(_BYTES, encoded))


def _is_of(family: Family) -> Column:
    from pyspark.sql import functions as F

    return (
        F.col("operator_id").eqNullSafe(family.operator_id)
        & F.col("store_name").eqNullSafe(family.store)
        & F.col("column_family").eqNullSafe(family.column_family)
    )


def _is_changed() -> Column:
    from pyspark.sql import functions as F

    return F.col(_BYTES).isNotNull() & (F.col(_BYTES) != F.col(f"{_ROW}.value_bytes"))


def _counts() -> list[Column]:
    from pyspark.sql import functions as F

    return [
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.col(_CHOSEN)).alias("chosen"),
        F.count_if(_is_changed()).alias("changed"),
        *(
            F.coalesce(F.bit_xor(F.when(F.col(_CHOSEN), _hash(seed))), F.lit(0)).alias(
                f"hash{seed}"
            )
            for seed in _SEEDS
        ),
    ]


def _hash(seed: int) -> Column:
    from pyspark.sql import functions as F

    identity = (F.col(f"{_ROW}.{name}") for name in ("key_bytes", "ord"))
    return F.xxhash64(F.lit(seed), *identity, F.col(_BYTES))


def _counted(found: Mapping[str, Any]) -> Counted:
    words = (found[f"hash{seed}"] % (1 << 64) for seed in _SEEDS)
    return Counted(
        found["rows"], found["chosen"], found["changed"], "".join(f"{one:016x}" for one in words)
    )


def _decoded(frame: DataFrame, family: Family) -> DataFrame:
    """Add the visible columns to the rows, and bare names for unique fields."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType
    from pyspark.sql.window import Window

    frame = frame.select(F.struct("*").alias(_ROW))
    found: dict[str, Column] = {}
    key = decoder(family.key, f"the key of {family}")
    value = decoder(family.value, f"the value of {family}")
    if key is not None:
        decoded = key(F.col(f"{_ROW}.key_bytes"))
        both = family.kind == "map"
        found["key"] = decoded[family.key[0].name] if both else decoded
        if both:
            found["map_key"] = decoded[family.key[1].name]
    if family.kind == "list":
        place = Window.partitionBy(f"{_ROW}.key_bytes").orderBy(f"{_ROW}.ord")
        found["position"] = F.row_number().over(place) - 1
    if value is not None:
        decoded = value(F.col(f"{_ROW}.value_bytes"))
        found["value"] = decoded[family.value[0].name] if family.ttl else decoded
        if family.ttl:
            found["expires_at_ms"] = decoded[family.value[1].name]
    frame = frame.withColumns(found)
    inside: dict[str, list[Column]] = {}
    taken = {name.lower() for name in (*frame.columns, *_HIDDEN, *IDENTITY)}
    for name in ("key", "map_key", "value"):
        data_type = frame.schema[name].dataType if name in frame.columns else None
        for one in data_type.names if isinstance(data_type, StructType) else ():
            inside.setdefault(one.lower(), []).append(F.col(name)[one].alias(one))
    bare = [found[0] for name, found in inside.items() if len(found) == 1 and name not in taken]
    return frame.select("*", *bare)


def _whole_value(family: Family) -> Column:
    """Reassemble what `_decoded` took apart; null where nothing is to be encoded."""
    from pyspark.sql import functions as F

    if not family.ttl:
        return F.col(_AFTER)
    names = [one.name for one in family.value]
    whole = F.struct(F.col(_AFTER).alias(names[0]), F.col("expires_at_ms").alias(names[1]))
    return F.when(F.col(_CHOSEN), whole)


def _row_change(found: Mapping[str, Any], identity: Sequence[str]) -> RowChange:
    before = dict(found["before"])
    row = {name: before.pop(name) for name in identity}
    after = found.get("after")
    return RowChange("removed" if after is None else "changed", row, before, after)


def _failures() -> AbstractContextManager[None]:
    """Turn errors of a condition, an assignment or a function into ours."""
    return typed.translated(
        lambda error: f"the rows cannot be changed this way: {_said(error)}",
        "nothing was changed; inspect the rows: savepoints state NAME",
    )


def _said(error: Exception) -> str:
    """Return the line that names the error; of a Python worker the last one."""
    text = str(error)
    marker = "Traceback (most recent call last):"
    if marker in text:
        lines = [line for line in text.rpartition(marker)[2].splitlines() if line[:1].strip()]
        return lines[0] if lines else typed.reason(error)
    return typed.reason(error)
