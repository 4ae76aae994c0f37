"""Canonical rows as Parquet files, written by columns and summed up in one job.

The writer is Java (`RowFiles.java`), because Spark's own takes a value at a time, which is more
than half of the time of an export (ADR 31). Columns of `key` of other types than the ones in
`_KINDS` are left to Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from savepoints.io import Location
from savepoints.spark import java_functions, private_api
from savepoints.state.storage.read import RawStore

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

    from savepoints.spark.java_trees import JavaObject

# Each may use the ones before it.
_CLASSES = ("TwoHashes", "PagedColumn", "FewValues", "RowFiles")
# In the order in which `RowFiles.java` reads them.
_COLUMNS = ("partition_key", "key_bytes", "value_bytes", "column_family_name")
_NUMBER = "partition_id"
_SCHEMA = """message spark_schema {{
  required binary column_family (STRING);
  required binary operator_name (STRING);
  required int32 partition_id;
  required int32 key_hash;
  required int64 ord;
  required binary key_bytes;
  optional binary value_bytes;
  optional group key {{ optional group op{operator_id} {{ {fields} }} }}
}}"""
# Of a Spark type: how `RowFiles.java` reads it, and its types in Parquet.
_KINDS = {
    "string": ("s", "binary", "(STRING)"),
    "binary": ("b", "binary", ""),
    "byte": ("y", "int32", "(INTEGER(8,true))"),
    "short": ("h", "int32", "(INTEGER(16,true))"),
    "integer": ("i", "int32", ""),
    "long": ("l", "int64", ""),
    "float": ("f", "float", ""),
    "double": ("d", "double", ""),
    "date": ("i", "int32", "(DATE)"),
    "timestamp": ("l", "int64", "(TIMESTAMP(MICROS,true))"),
    "timestamp_ntz": ("l", "int64", "(TIMESTAMP(MICROS,false))"),
}


@dataclass(frozen=True)
class RowFile:
    """A file that was written, with the sums of its rows.

    Attributes:
        hashes: Two sums, modulo 2**64, of xxHash64 of seed, store, column family, key and value.
        orders: Two sums of xxHash64 of that and a row's place among the rows of its key, of all
            but the first of them.
        stray: Rows that are not in the state partition that the hash of their key determines.
    """

    operator_id: int
    rows: int
    state_bytes: int
    hashes: tuple[int, int]
    orders: tuple[int, int]
    stray: int
    path: str

    @classmethod
    def parse(cls, line: str) -> RowFile:
        """Read what a task returns of a file."""
        *numbers, path = line.split(" ", 8)
        operator_id, rows, state_bytes, *hashes, stray = map(int, numbers)
        first, second, third, fourth = hashes
        return cls(operator_id, rows, state_bytes, (first, second), (third, fourth), stray, path)


def fits(store: RawStore) -> bool:
    """Return True if all fields of a store's key are of types that can be written by columns."""
    return bool(store.key_type.names) and _fits(store.key_type)


def write(stores: Sequence[RawStore], target: Location, tasks: int | None) -> list[RowFile]:
    """Write the rows of stores that fit, and return the files of the tasks that succeeded.

    Args:
        stores: Read in one session.
        tasks: How many tasks write at the same time; one for each state partition by default.
    """
    written = [_written(store, target) for store in stores]
    return [RowFile.parse(one) for one in private_api.collected(written, tasks)]


def _written(store: RawStore, target: Location) -> JavaObject:
    """Return a `JavaRDD` of what the tasks of one store return."""
    has_numbers = _NUMBER in store.rows.columns
    columns = [*_COLUMNS, _NUMBER] if has_numbers else [*_COLUMNS]
    # A selection would make copies of what Spark's reader gives, which has them in this order.
    rows = store.rows if store.rows.columns == columns else store.rows.select(*columns)
    spark = rows.sparkSession
    key = store.key_type
    fields = [_group(field.name, field.dataType) for field in key.fields]
    operator = store.operator
    function = private_api.made(
        spark,
        java_functions.load(spark, _CLASSES[-1], _sources()),
        private_api.hadoop_conf(spark),
        target.uri.hadoop,
        spark.version,
        operator.operator_id,
        operator.name,
        store.name,
        _SCHEMA.format(operator_id=operator.operator_id, fields=" ".join(fields)),
        ";".join(_leaves(key, ())),
        len(fields),
        store.partitions,
        len(_COLUMNS) if has_numbers else -1,
        private_api.bound(rows, store.key_hash()),
    )
    return private_api.called_on_rows(rows, function)


def _sources() -> list[str]:
    """Return the Java of the writer, also where the package is in a zip file."""
    java = files(__package__) / "java"
    return [(java / f"{one}.java").read_text("utf-8") for one in _CLASSES]


def _fields(struct: DataType) -> list[StructField]:
    return list(getattr(struct, "fields", ()))


def _fits(kind: DataType) -> bool:
    if fields := _fields(kind):
        return all(_fits(one.dataType) for one in fields)
    return kind.typeName() in _KINDS


def _group(name: str, kind: DataType) -> str:
    """Return a field in Parquet's text form, all of it nullable."""
    if fields := _fields(kind):
        inner = " ".join(_group(one.name, one.dataType) for one in fields)
        return f"optional group {name} {{ {inner} }}"
    _, physical, logical = _KINDS[kind.typeName()]
    return f"optional {physical} {name} {logical};"


def _leaves(kind: DataType, way: tuple[int, ...]) -> Iterator[str]:
    """Describe the leaves below a field: how to read each, and the way there.

    Args:
        way: Ordinals of structs, each but the last followed by the number of their fields.
    """
    if fields := _fields(kind):
        for position, one in enumerate(fields):
            above = (*way, len(fields)) if way else ()
            yield from _leaves(one.dataType, (*above, position))
    else:
        yield f"{_KINDS[kind.typeName()][0]} {' '.join(map(str, way))}"
