"""Write a new Delta table, and read it: Parquet by one Spark job, the log by deltalake.

Delta's own commit through Spark runs a second job, which reads back the log that it has just
written, and takes about as long as all the rest where there are few rows. Its reader runs five jobs
to find out what the log says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from savepoints.delta_reader import open_delta
from savepoints.errors import (
    SAVE_NATIVE,
    IncompatibleError,
    NotAlignedError,
    TargetExistsError,
    VerificationError,
)
from savepoints.io import Location, ObjectInfo, in_parallel, storage_options
from savepoints.moments import epoch_ms, utc_now
from savepoints.spark.columns import quoted
from savepoints.spark.private_api import GLOB_PATHS, in_buckets
from savepoints.texts import count_text

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# State bytes are distinct and unordered: dictionaries and statistics of them would cost a third of
# the time for nothing. Row counts are kept. Zstandard takes as long as Spark's default, for little
# more than half the bytes. Tasks put their files in place themselves: the driver would move one
# after the other, which on S3 copies it.
_WRITING = {
    "spark.sql.parquet.compression.codec": "zstd",
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    **{
        f"parquet.enable.dictionary#{name}": "false" for name in ("key_bytes", "value_bytes", "ord")
    },
}
# Spark may be told to pass over what it cannot read, and decodes pages that somebody has changed.
_WHOLE_OR_NOT_AT_ALL = {
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
_PARQUET = ".parquet"
_WRITE_AGAIN = "run the command again; if this happens again, check the storage"
_BUCKET = re.compile(r"_([0-9]{5,})\.[^/]*$")
_CONFIGURATION = {"delta.dataSkippingNumIndexedCols": "0"}
_PLAIN = frozenset(
    {"byte", "short", "integer", "long", "float", "double", "string", "binary", "boolean", "date"}
    | {"timestamp", "timestamp_ntz"}
)
# A Parquet file ends with its footer, the length of that in 4 bytes, and 4 bytes that say Parquet.
_ENDING = 8
_FOOTER_READ = 64 << 10


def write(rows: DataFrame, target: Location, partition_by: Sequence[str]) -> int:
    """Write rows as a Delta table in one commit, and return how many there are.

    Args:
        rows: Read in a session of which settings may be changed.
        target: Where nothing is yet.

    Raises:
        TargetExistsError: If there is anything.
        IncompatibleError: If a column has a type that Delta tables cannot have.
    """
    require_new(rows.schema, target)
    for name, value in _WRITING.items():
        rows.sparkSession.conf.set(name, value)
    # `append` because an empty directory on a local disk would be an error otherwise.
    rows.write.partitionBy(*partition_by).mode("append").parquet(target.uri.hadoop)
    # A task that was given up may still write below `_temporary`.
    files = [
        one
        for one in target.list()
        if one.path.endswith(_PARQUET) and not one.path.startswith("_temporary/")
    ]
    counts = in_parallel(lambda info: _row_count(target, info), files)
    _commit(rows.schema, target, partition_by, zip(files, counts, strict=True))
    return sum(counts)


def require_new(schema: StructType, target: Location) -> None:
    """Check that a table can be made.

    Raises:
        TargetExistsError: If there is anything.
        IncompatibleError: If a column has a type that Delta tables cannot have.
    """
    _delta_schema(schema)
    if there := target.list():
        raise TargetExistsError(
            f"{target} already has {count_text(len(there), 'file')} (first: {there[0].path})",
            hint="find out what else writes there; nothing was overwritten",
            target=str(target),
        )


def commit(
    schema: StructType, target: Location, partition_by: Sequence[str], counts: Mapping[str, int]
) -> None:
    """Make a table of files.

    Args:
        counts: The number of rows of each file, by its path.

    Raises:
        VerificationError: If one of them is not there.
    """
    there = {one.path: one for one in target.list()}
    _require_files(counts.keys() - there, target, hint=_WRITE_AGAIN)
    files = ((there[path], count) for path, count in counts.items())
    _commit(schema, target, partition_by, files)


def _commit(
    schema: StructType,
    target: Location,
    partition_by: Sequence[str],
    files: Iterable[tuple[ObjectInfo, int]],
) -> None:
    from deltalake.transaction import create_table_with_add_actions

    create_table_with_add_actions(
        str(target),
        _delta_schema(schema),
        [_added(info, count) for info, count in files],
        partition_by=list(partition_by),
        configuration=_CONFIGURATION,
        storage_options=storage_options(target.uri),
    )


def _require_files(missing: Collection[str], target: Location, *, hint: str) -> None:
    if missing:
        raise VerificationError(
            f"{target} is missing {count_text(len(missing), 'file')} (first: {min(missing)})",
            hint=hint,
            target=str(target),
        )


def read(spark: SparkSession, target: Location) -> DataFrame:
    """Return the rows that `write` wrote.

    Raises:
        VerificationError: If a file is gone.
    """
    return _read(spark, target, _opened(target), lambda rows: rows)


def read_buckets(
    spark: SparkSession, target: Location, buckets: int, column: str
) -> DataFrame | None:
    """Return the rows of bucket b in task b, or None if a file has none of these in its name.

    Spark silently skips files of other buckets.

    Args:
        spark: A session of which settings may be changed.
        column: Whose values place the rows, somehow; see `private_api.in_buckets`.
    """
    table = _opened(target)
    found = [_BUCKET.search(one) for one in _named(table)]
    if not all(one and int(one[1]) < buckets for one in found):
        return None
    return _read(spark, target, table, lambda rows: in_buckets(rows, buckets, column))


def _opened(target: Location) -> DeltaTable:
    """Open the table as it was written: whatever somebody has done to it since does not count."""
    return open_delta(target, version=0)


def _named(table: DeltaTable) -> set[str]:
    return {*table.get_add_actions().column("path").to_pylist()}


def _read(
    spark: SparkSession,
    target: Location,
    table: DeltaTable,
    arranged: Callable[[DataFrame], DataFrame],
) -> DataFrame:
    from pyspark.sql.types import StructType

    named = _named(table)
    there = {one.path for one in target.list() if one.path.endswith(_PARQUET)}
    # Spark would silently read the others.
    _require_files(
        named - there, target, hint="find what is left of the savepoint: savepoints verify NAME"
    )
    # Listed as a whole, which takes few requests, unless there are files that the log does not
    # name: Delta's own writer, which wrote such tables before, left those of tasks that failed.
    paths = [target.uri] if there == named else [target.uri / one for one in sorted(named)]
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    options = {GLOB_PATHS: "false", "basePath": target.uri.hadoop, **_WHOLE_OR_NOT_AT_ALL}
    reader = spark.read.schema(schema).options(**options)
    rows = arranged(reader.parquet(*(one.hadoop for one in paths)))
    # Spark puts the columns by which files are partitioned last.
    return rows.select(*map(quoted, schema.fieldNames()))


def require_rows(found: int, read: int, target: Location) -> None:
    """Check that a table has as many rows as were read for it.

    Raises:
        NotAlignedError: If it has not: a task's file was lost or is there twice.
    """
    if found != read:
        raise NotAlignedError(
            f"read {count_text(read, 'state row')}, but the files in {target} contain {found:,}",
            hint=_WRITE_AGAIN,
            target=str(target),
        )


def _delta_schema(schema: StructType) -> Schema:
    from deltalake import Schema

    return Schema.from_json(json.dumps(_delta_type(json.loads(schema.json()))))


def _added(info: ObjectInfo, count: int) -> AddAction:
    from deltalake.transaction import AddAction

    values = dict(part.split("=", 1) for part in info.path.split("/")[:-1])
    return AddAction(
        path=info.path,
        size=info.size,
        partition_values={name: unquote(value) for name, value in values.items()},
        modification_time=epoch_ms(utc_now()),
        data_change=True,
        stats=json.dumps({"numRecords": count}),
    )


def _row_count(target: Location, info: ObjectInfo) -> int:
    """Return the number of rows that the footer of a Parquet file says."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    length = min(info.size, _FOOTER_READ)
    ending = target.get_range(info.path, info.size - length, length)
    footer = int.from_bytes(ending[-_ENDING:-4], "little") + _ENDING
    if footer > length:
        ending = target.get_range(info.path, info.size - footer, footer)
    footer_of = pq.read_metadata(pa.BufferReader(ending))
    return int(footer_of.num_rows)


def _delta_type(spark_type: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return a type of Spark's in Delta's JSON, which is the same but for what is dropped here.

    Everything may be null, as in tables that Spark writes; metadata of fields is for Spark.
    """
    name = spark_type if isinstance(spark_type, str) else spark_type["type"]
    if name == "struct":
        return {"type": name, "fields": [_delta_field(one) for one in spark_type["fields"]]}
    if name == "array":
        element = _delta_type(spark_type["elementType"])
        return {"type": name, "elementType": element, "containsNull": True}
    if name == "map":
        key, value = (_delta_type(spark_type[part]) for part in ("keyType", "valueType"))
        return {"type": name, "keyType": key, "valueType": value, "valueContainsNull": True}
    if name not in _PLAIN and not name.startswith("decimal("):
        raise IncompatibleError(
            f"state of type {name} cannot be written as rows of a Delta table",
            hint=SAVE_NATIVE,
            type=name,
        )
    return name


def _delta_field(field: Mapping[str, Any]) -> dict[str, Any]:
    kind = _delta_type(field["type"])
    return {"name": field["name"], "type": kind, "nullable": True, "metadata": {}}
