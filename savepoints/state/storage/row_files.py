"""Canonical rows as Parquet files, written by columns and summed up in one job.

The writer is Java (`RowFiles.java`), because Spark's own takes a value at a time, which is more
than half of the time of an export (ADR 31). Columns of `key` of other types than the ones in
`_KINDS` are left to Spark's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from savepoints.io import Location
from savepoints.spark import java_functions, private_api

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField

_CLASS = "RowFiles"
# In the order in which `RowFiles.java` reads them; `key` comes last.
_COLUMNS = (
    "operator_id", "store_name", "column_family", "operator_name", "partition_id", "key_hash",
    "ord", "key_bytes", "value_bytes", "key",
)  # fmt: skip
_SCHEMA = """message spark_schema {{
  required binary column_family (STRING);
  required binary operator_name (STRING);
  required int32 partition_id;
  required int32 key_hash;
  required int64 ord;
  required binary key_bytes;
  optional binary value_bytes;
  {key}
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
        stray: Rows that are not in the state partition that the hash of their key determines.
    """

    operator_id: int
    rows: int
    state_bytes: int
    hashes: tuple[int, int]
    stray: int
    path: str

    @classmethod
    def parse(cls, line: str) -> RowFile:
        """Read what a task returns of a file."""
        operator_id, rows, state_bytes, first, second, stray, path = line.split(" ", 6)
        hashes = (int(first), int(second))
        return cls(int(operator_id), int(rows), int(state_bytes), hashes, int(stray), path)


def fits(rows: DataFrame) -> bool:
    """Return True if all fields of all keys are of types that can be written by columns."""
    keys = rows.schema["key"].dataType
    return all(_fits(one.dataType) for one in _fields(keys))


def write(rows: DataFrame, target: Location, partitions: Mapping[int, int]) -> list[RowFile]:
    """Write the rows of all operators, and return the files of the tasks that succeeded.

    Args:
        rows: As `canonical_table` puts them together: `key` has a field `op0`, … per operator.
        partitions: The number of state partitions of each operator.
    """
    spark = rows.sparkSession
    keys = rows.schema["key"].dataType
    names = [field.name for field in _fields(keys)]
    schemas, leaves = {}, {}
    for operator_id in partitions:
        position = names.index(f"op{operator_id}")
        field = _fields(keys)[position]
        schemas[operator_id] = _SCHEMA.format(
            key=f"optional group key {{ {_group(field.name, field.dataType)} }}"
        )
        way = (len(_COLUMNS) - 1, len(names), position)
        leaves[operator_id] = ";".join(_leaves(field.dataType, way))
    function = private_api.made(
        spark,
        java_functions.load(spark, _CLASS, _source()),
        private_api.hadoop_conf(spark),
        target.uri.hadoop,
        spark.version,
        schemas,
        leaves,
        dict(partitions),
    )
    lines = private_api.called_on_rows(rows.select(*_COLUMNS), function)
    return [RowFile.parse(one) for one in lines]


def _source() -> str:
    """Return the Java of the writer, also where the package is in a zip file."""
    return files(__package__).joinpath(f"{_CLASS}.java").read_text()


def _fields(struct: DataType) -> list[StructField]:
    return list(getattr(struct, "fields", ()))


def _fits(kind: DataType) -> bool:
    if fields := _fields(kind):
        return all(_fits(one.dataType) for one in fields)
    return kind.jsonValue() in _KINDS


def _group(name: str, kind: DataType) -> str:
    """Return a field in Parquet's text form, all of it nullable."""
    if fields := _fields(kind):
        inner = " ".join(_group(one.name, one.dataType) for one in fields)
        return f"optional group {name} {{ {inner} }}"
    _, physical, logical = _KINDS[str(kind.jsonValue())]
    return f"optional {physical} {name} {logical};"


def _leaves(kind: DataType, way: tuple[int, ...]) -> Iterator[str]:
    """Describe the leaves below a field: how to read each, and the way there.

    Args:
        way: Ordinals of structs, each but the last followed by the number of their fields.
    """
    if fields := _fields(kind):
        for position, one in enumerate(fields):
            yield from _leaves(one.dataType, (*way, len(fields), position))
    else:
        yield f"{_KINDS[str(kind.jsonValue())][0]} {' '.join(map(str, way))}"
