"""From rows that people can read to those of state stores: keys, counters, timers and expiry.

What Spark keeps besides the values it can be asked for is made of them: the numbers of a join's
rows and how many a key has (`SymmetricHashJoinStateManager`), how many elements a list has
(`StateStoreColumnFamilySchemaUtils`, `ListStateImpl`), each timer by its time as well
(`TimerStateImpl`), and what expires when (`TTLState`). Placement is Spark's own hash of the
grouping key, which those families share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.state.schema import StateField, StateSchema, type_text
from savepoints.model import OperatorState
from savepoints.spark import private_api
from savepoints.spark.columns import quoted
from savepoints.spark.versions import SparkVersion
from savepoints.state.codec import encode, float_keys
from savepoints.state.codec.decode import FIXED_BYTES, WORD
from savepoints.state.seed import visible as visibles
from savepoints.state.seed.visible import (
    EXPIRES,
    FIRES,
    KEY,
    MAP_KEY,
    POSITION,
    SESSIONS,
    VALUE,
    Visible,
)
from savepoints.state.storage.write import STORE_ORDER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# More than any frame has: `coalesce` leaves them.
_PARTITIONS_AS_THEY_ARE = 1 << 30
_NAMES = ("key_hash", "ord", "key_bytes", "value_bytes")
_NOTHING = (
    "CAST(id AS int) AS key_hash",
    "id AS ord",
    *(f"CAST(NULL AS binary) AS {name}" for name in _NAMES[2:]),
    f"CAST(NULL AS long) AS {STORE_ORDER}",
    "nullif('', '') AS column_family",
)
_ROWS_OF_KEY, _COUNT_OF_KEY = "keyWithIndexToValue", "keyToNumValues"
_TIMERS = ("Timers_keyToTimestamp", "Timers_timestampToKey")
_NUMBER, _ORDER = "number", "order"


@dataclass(frozen=True)
class Family:
    """The rows of one column family.

    Attributes:
        schema: Of its keys and values.
        rows: Columns `order` and those that the expressions are of.
        key: By position, the fields of the key.
        value: By position, the fields of the value; voids are left out.
        placed_by: The columns whose hash places a row; empty for a single partition.
    """

    schema: StateSchema
    rows: DataFrame
    key: tuple[Column, ...]
    value: tuple[Column, ...]
    placed_by: tuple[Column, ...]


@dataclass(frozen=True)
class SeededState:
    """The state of a program, of rows that were given.

    Attributes:
        given: By operator, its variables with their checked rows; an operator without any, and a
            variable that is not among them, is empty.
    """

    spark: SparkSession
    operators: Mapping[int, OperatorShape]
    given: Mapping[int, Sequence[tuple[Visible, DataFrame]]]

    def rows_of(self, operator: OperatorState, store: str) -> DataFrame:
        """Return the rows of a store, not yet placed.

        Returns:
            The columns key_hash, ord, key_bytes, value_bytes, column_family and `STORE_ORDER`.
        """
        from pyspark.sql import functions as F

        shape = self.operators[operator.operator_id]
        frames = [
            _encoded(family, shape).withColumn(
                # Spark requires the column to be nullable, which a literal is not.
                "column_family",
                F.nullif(F.lit(family.schema.column_family), F.lit("")),
            )
            for visible, rows in self.given.get(operator.operator_id, ())
            for name, family in _families(visible, shape, _with_keys_of_spark(visible, rows))
            if store in (name, visibles.DEFAULT)
        ]
        if frames:
            return reduce(lambda one, other: one.unionByName(other), frames)
        # A condition that Spark cannot fold: it would write no store for a frame that it knows to
        # be empty.
        return self.spark.range(1).where("id < 0").selectExpr(*_NOTHING)


def _with_keys_of_spark(visible: Visible, rows: DataFrame) -> DataFrame:
    """Return rows with the floating-point numbers that the operator's keys have."""
    from pyspark.sql import functions as F

    variable, fields = visible.variable, visible.structs.get(KEY, ())
    version = SparkVersion.of(rows.sparkSession.version)
    if not fields or not float_keys.are_canonical(variable.operator_name, version):
        return rows
    rows = rows.withColumn(KEY, private_api.canonical_floats(rows, KEY))
    if variable.operator_name != SESSIONS:
        return rows
    # The value of a session has its key, too.
    value = F.col(VALUE)
    for one in fields[:-1]:
        value = value.withField(quoted(one.name), F.col(KEY)[one.name])
    return rows.withColumn(VALUE, value)


def _families(
    visible: Visible, shape: OperatorShape, rows: DataFrame
) -> Iterator[tuple[str, Family]]:
    """Yield what a variable needs in the state, by the name of the store of a join's rows."""
    variable = visible.variable
    if variable.kind == "side":
        yield from _side(visible, shape, rows)
    elif variable.kind == "rows":
        yield variable.store, _plain(visible, visibles.schema_of(variable, shape), rows)
    elif variable.kind == "timers":
        yield from _timers(visible, shape, rows)
    else:
        yield from _variable(visible, shape, rows)


def _plain(visible: Visible, schema: StateSchema, rows: DataFrame) -> Family:
    key = _fields(visible, KEY)
    # A session is found by its key, and among the sessions of that by its beginning.
    placed_by = key[:-1] if visible.variable.operator_name == SESSIONS else key
    return Family(schema, rows, key, _fields(visible, VALUE), placed_by)


def _side(visible: Visible, shape: OperatorShape, rows: DataFrame) -> Iterator[tuple[str, Family]]:
    """Number the rows of each key from 0, and count them."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    side, families = visible.variable.name, visibles.families_of(shape)
    key = _fields(visible, KEY)
    number = F.row_number().over(Window.partitionBy(*key).orderBy(F.lit(0))).cast("long") - 1
    name = f"{side}-{_ROWS_OF_KEY}"
    numbered = rows.withColumn(_NUMBER, number)
    yield (
        name,
        Family(families[name], numbered, (*key, F.col(_NUMBER)), _fields(visible, VALUE), key),
    )
    name = f"{side}-{_COUNT_OF_KEY}"
    counted = rows.groupBy(F.col(KEY)).agg(F.count(F.lit(1)).alias(_NUMBER))
    yield name, Family(families[name], counted, key, (F.col(_NUMBER),), key)


def _timers(
    visible: Visible, shape: OperatorShape, rows: DataFrame
) -> Iterator[tuple[str, Family]]:
    from pyspark.sql import functions as F

    families, placed_by = visibles.families_of(shape), _fields(visible, KEY)
    by_key, by_time = (
        next(one for name, one in families.items() if name.endswith(end)) for end in _TIMERS
    )
    for schema, key in (
        (by_key, (F.col(KEY), F.col(FIRES))),
        (by_time, (F.col(FIRES), F.col(KEY))),
    ):
        yield visibles.DEFAULT, Family(schema, rows, key, (), placed_by)


def _variable(
    visible: Visible, shape: OperatorShape, rows: DataFrame
) -> Iterator[tuple[str, Family]]:
    """Give a value, list or map, the counter of a list, and what tells when they expire."""
    from pyspark.sql import functions as F

    variable, families = visible.variable, visibles.families_of(shape)
    placed_by = _fields(visible, KEY)
    key = (F.col(KEY), F.col(MAP_KEY)) if variable.kind == "map" else placed_by
    value = (F.col(VALUE), F.col(EXPIRES)) if variable.ttl else _fields(visible, VALUE)
    if variable.kind == "list":
        rows = rows.withColumn(_ORDER, F.col(POSITION).cast("long"))
    yield visibles.DEFAULT, Family(families[str(variable.name)], rows, key, value, placed_by)
    if variable.kind == "list":
        of_key = rows.groupBy(F.col(KEY)).agg(
            F.count(F.lit(1)).alias(_NUMBER),
            *((F.min(EXPIRES).alias(EXPIRES),) if variable.ttl else ()),
        )
        counter = families[f"${'count' if variable.ttl else 'rowCounter'}_{variable.name}"]
        yield visibles.DEFAULT, Family(counter, of_key, placed_by, (F.col(_NUMBER),), placed_by)
        if variable.ttl:
            first = families[f"$min_{variable.name}"]
            yield visibles.DEFAULT, Family(first, of_key, placed_by, (F.col(EXPIRES),), placed_by)
        rows = of_key
    if variable.ttl:
        element = F.col(KEY)
        if variable.kind == "map":
            element = F.struct(F.col(KEY).alias("key"), F.col(MAP_KEY).alias("userKey"))
        due = families[f"$ttl_{variable.name}"]
        yield visibles.DEFAULT, Family(due, rows, (F.col(EXPIRES), element), (), placed_by)


def _fields(visible: Visible, part: str) -> tuple[Column, ...]:
    from pyspark.sql import functions as F

    return tuple(F.col(part)[one.name] for one in visible.structs.get(part, ()))


def _encoded(family: Family, shape: OperatorShape) -> DataFrame:
    """Return the rows of a family as a state store has them, in the bytes that Spark writes."""
    from pyspark.sql import functions as F

    rows = family.rows
    order = F.col(_ORDER) if _ORDER in rows.columns else F.monotonically_increasing_id()
    key_hash = F.hash(*family.placed_by) if family.placed_by else F.lit(0)
    where = f"{shape}, {family.schema.column_family}"
    made = rows.select(
        key_hash.alias("key_hash"),
        order.alias("ord"),
        _row(family.schema.key, family.key).alias("key"),
        _row(family.schema.value, family.value).alias("value"),
    )
    for part, fields in (("key", family.schema.key), ("value", family.schema.value)):
        _require_types(made, part, fields, where)
    # Each row as bytes, of which the structs are then parts.
    flat = made.coalesce(_PARTITIONS_AS_THEY_ARE)
    key = _bytes(flat, "key", family.schema.key, where)
    value = _bytes(flat, "value", family.schema.value, where)
    encoded = flat.select("key_hash", "ord", key.alias("key_bytes"), value.alias("value_bytes"))
    begin = 1 + _first_value(family.schema.key)
    word = encoded.withColumn(STORE_ORDER, F.substring("key_bytes", begin, WORD))
    return word.withColumn(STORE_ORDER, private_api.first_word(word, STORE_ORDER))


def _first_value(fields: Sequence[StateField]) -> int:
    """Return at which byte of a row the value of its first field begins (`UnsafeRow`).

    What is before is the same in nearly all rows: which fields are null, and where others are.
    """
    nulls = WORD * -(-len(fields) // (8 * WORD))
    kind = fields[0].type if fields else "void"
    if isinstance(kind, str) and kind in FIXED_BYTES:
        return nulls
    behind_words = nulls + WORD * len(fields)
    if isinstance(kind, str) or kind["type"] != "struct":
        return behind_words
    return behind_words + _first_value([StateField.from_json(one) for one in kind["fields"]])


def _bytes(rows: DataFrame, part: str, fields: Sequence[StateField], where: str) -> Column:
    """Return the bytes of a key or value, which is a struct."""
    import pyarrow as pa
    from pyspark.sql import functions as F

    if any(one.type != "void" for one in fields):
        return private_api.row_bytes(rows, part)
    # The same for each row: Spark would move the struct up here as a constant.
    nulls = [pa.nulls(1) for _ in fields]
    return F.lit(encode.encode(nulls, fields, where)[0].as_py() if fields else b"")


def _row(fields: Sequence[StateField], columns: Sequence[Column]) -> Column:
    """Return a struct with the fields of a key or value, by position, voids put back."""
    from pyspark.sql import functions as F

    given = iter(columns)
    return F.struct(
        *(
            (F.lit(None) if one.type == "void" else next(given)).alias(f"c{n}")
            for n, one in enumerate(fields)
        )
    )


def _require_types(rows: DataFrame, part: str, fields: Sequence[StateField], where: str) -> None:
    """Check that a row is made of what its schema says: others would be read as something else."""
    from pyspark.sql.types import StructType

    made = rows.schema[part].dataType
    assert isinstance(made, StructType)
    for column, field in zip(made.fields, fields, strict=True):
        found, wanted = type_text(column.dataType.jsonValue()), type_text(field.type)
        assert found == wanted, f"{where}: {part}.{field.name} is {found}, not {wanted}"
