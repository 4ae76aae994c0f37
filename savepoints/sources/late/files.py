"""Read a late batch's rows from Parquet, JSON or CSV files, or from a Delta table.

Files without a schema of their own are read with the columns of the application's events; an
unreadable line is kept as text, so that it can be counted, shown and set aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.errors import IncompatibleError, NotFoundError, UsageError
from savepoints.io import Location
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

# Why a line could not be read, in the reader's own words.
UNREADABLE = "__unreadable"
OP = "op"
_FORMATS = {
    "parquet": "parquet",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "csv": "csv",
}
_COMPRESSED = ("gz", "bz2", "zst", "snappy", "lz4", "deflate")
_GLOB = frozenset("*?[{")
# Types that hold all values of a narrower one.
_WIDER = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
    "timestamp_ntz": (),
}


@dataclass(frozen=True)
class Stored:
    """The rows of a batch.

    Attributes:
        rows: Columns of records (`value` and maybe `key`, `headers`, `timestamp`) or of events, and
            `op` string and `UNREADABLE` string, both null where there is nothing to report.
    """

    rows: DataFrame
    is_records: bool
    ignored: tuple[str, ...]


def read(spark: SparkSession, batch: str, *, records: StructType, events: StructType) -> Stored:
    """Read the rows of a batch.

    Args:
        batch: A file, a directory of files, a pattern such as `s3://bucket/late/*.json`, or a
            Delta table.
        records: Columns that a record may have.
        events: Columns that a decoded event has.
    """
    kind, path = stored_as(batch)
    reader = spark.read
    if kind in {"parquet", "delta"}:
        rows = reader.format(kind).load(path)
    else:
        rows = _text(reader, kind, path, records, events)
    names = {name.casefold() for name in rows.columns}
    lacking = [one.name for one in events if one.name.casefold() not in names]
    is_records = bool(lacking) and "value" in names
    wanted = records if is_records else events
    if lacking and not is_records:
        raise IncompatibleError(
            f"{batch} lacks columns of a decoded event: {', '.join(lacking)}; it has only "
            f"{', '.join(rows.columns)}",
            hint="write decoded events with all of their columns, or write Kafka records: a "
            "column named value and, optionally, key, timestamp and headers",
            batch=batch,
            columns=lacking,
        )
    return _typed(rows, wanted, is_records, batch)


def _text(
    reader: DataFrameReader, kind: str, path: str, records: StructType, events: StructType
) -> DataFrame:
    """Read JSON or CSV with the columns of its rows."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    reader = reader.option("header", "true").option("mode", "PERMISSIVE")
    # Only names: types would be guessed.
    names = reader.option("primitivesAsString", "true").format(kind).load(path).columns
    there = {name.casefold() for name in names}
    decoded = all(one.name.casefold() in there for one in events)
    text = StringType()
    fields = [
        StructField(one.name, text if isinstance(one.dataType, BinaryType) else one.dataType)
        for one in (events if decoded or "value" not in there else records)
        if one.name.casefold() in there
    ]
    known = {one.name.casefold() for one in fields}
    others = [StructField(name, text) for name in names if name.casefold() not in known]
    corrupt = "_corrupt_record"
    ordered = [*fields, *(one for one in others if one.name != corrupt)]
    if kind == "csv":
        by_name = {one.name.casefold(): one for one in ordered}
        ordered = [by_name[name.casefold()] for name in names]
    schema = StructType([*ordered, StructField(corrupt, text)])
    rows = (
        reader.option("columnNameOfCorruptRecord", corrupt)
        .option("enforceSchema", "false")
        .schema(schema)
        .format(kind)
        .load(path)
    )
    binary = {one.name.casefold() for one in records if isinstance(one.dataType, BinaryType)}
    return rows.withColumns(
        {
            UNREADABLE: F.col(corrupt),
            **{
                one.name: F.encode(one.name, "UTF-8")
                for one in ordered
                if not decoded and one.name.casefold() in binary
            },
        }
    ).drop(corrupt)


def _typed(rows: DataFrame, wanted: StructType, is_records: bool, batch: str) -> Stored:
    from pyspark.sql import functions as F

    there = {name.casefold(): name for name in rows.columns}
    wrong = []
    columns = []
    for one in wanted:
        name = there.get(one.name.casefold())
        if name is None:
            continue
        found, needed = rows.schema[name].dataType.simpleString(), one.dataType.simpleString()
        if found != needed and needed not in _WIDER.get(found, ()):
            wrong.append(f"{name} is {found}, not {needed}")
        columns.append(F.col(f"`{name}`").cast(one.dataType).alias(one.name))
    if wrong:
        raise IncompatibleError(
            f"columns of {batch} have the wrong type: {'; '.join(wrong)}",
            hint="cast the columns to the expected types and write the batch again",
            batch=batch,
            columns=wrong,
        )
    for name in (OP, UNREADABLE):
        found_name = there.get(name)
        columns.append(
            (F.lit(None) if found_name is None else F.col(found_name)).cast("string").alias(name)
        )
    used = {one.name.casefold() for one in wanted} | {OP, UNREADABLE}
    ignored = tuple(name for key, name in there.items() if key not in used)
    return Stored(rows.select(*columns), is_records, ignored)


def stored_as(batch: str) -> tuple[str, str]:
    """Detect how a batch is stored.

    Returns:
        Spark's name of the format, and the location for Spark.
    """
    name = batch.rstrip("/").rpartition("/")[2]
    if _GLOB & set(name):
        parent = batch.rstrip("/").removesuffix(name).rstrip("/") or "."
        return _by_name([name], batch), f"{Uri.parse(parent).hadoop}/{name}"
    uri = Uri.parse(batch)
    if Location(Uri(uri.scheme, uri.bucket, uri.path.rpartition("/")[0])).exists(name):
        return _by_name([name], batch), uri.hadoop
    there = [one.path for one in Location(uri).list()]
    if any(path.startswith("_delta_log/") for path in there):
        return "delta", uri.hadoop
    inside = [path for path in there if not _is_hidden(path)]
    if not inside:
        raise NotFoundError(
            f"there are no files at {batch}",
            hint="pass a file, a directory, a quoted pattern, or a Delta table",
            batch=batch,
        )
    return _by_name(inside, batch), uri.hadoop


def _by_name(names: Sequence[str], batch: str) -> str:
    found = set()
    for name in names:
        parts = name.rpartition("/")[2].casefold().split(".")
        if parts[-1] in _COMPRESSED:
            parts.pop()
        found.add(_FORMATS.get(parts[-1]))
    kinds = sorted(str(one) for one in found)
    if len(found) != 1 or None in found:
        raise UsageError(
            f"cannot tell the format of {batch} from its name"
            if None in found
            else f"{batch} has files of different formats: {', '.join(kinds)}",
            hint="use file names that end in .parquet, .json or .csv, or pass a Delta table",
            batch=batch,
        )
    return kinds[0]


def _is_hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))
