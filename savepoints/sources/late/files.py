"""Read a late batch's rows from Parquet, JSON or CSV files, or from a Delta table.

Files without a schema of their own are read with the columns of the application's events; an
unreadable line is kept as text, so that it can be counted, shown and set aside. They are UTF-8,
which Spark does not check. CSV is that of RFC 4180: quotes within quotes are doubled, lines may
break within them, and a value that is empty in quotes is no null.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from savepoints.errors import IncompatibleError, StalePlanError
from savepoints.sources.late import stored_files
from savepoints.sources.late.stored_files import StoredFiles
from savepoints.spark.columns import quoted
from savepoints.spark.private_api import root_cause

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# Why a line could not be read, in the reader's own words.
UNREADABLE = "__unreadable"
OP = "op"
_TEXT = {
    "json": {"mode": "PERMISSIVE"},
    "csv": {
        "mode": "PERMISSIVE",
        "header": "true",
        "enforceSchema": "false",
        # Spark's own defaults take a backslash for what RFC 4180 writes as two quotes, and guess
        # at quotes that do not fit.
        "escape": '"',
        "unescapedQuoteHandling": "RAISE_ERROR",
        "multiLine": "true",
        # By default both are null.
        "nullValue": "\x00",
        "emptyValue": "",
    },
}
_HINTS = {
    "csv": "write UTF-8 with the same header in each file, and double the quotes within quoted "
    "values (RFC 4180); Parquet and Delta need none of this",
    "json": "write UTF-8 with one object per line and each key once; Parquet and Delta need none "
    "of this",
    "parquet": "write files whose columns have the same types in each, with times in microseconds",
    "delta": "correct the table, depending on the message",
}
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
            `op` string and `UNREADABLE` string, both null where there is nothing to report. What is
            wrong with the files may be found only when they are used, see `failures`.
        kind: Spark's name of the format.
    """

    rows: DataFrame
    is_records: bool
    ignored: tuple[str, ...]
    kind: str


def read(spark: SparkSession, batch: str, *, records: StructType, events: StructType) -> Stored:
    """Read the rows of a batch.

    Args:
        batch: A file, a directory of files, a pattern such as `s3://bucket/late/*.json`, or a
            Delta table.
        records: Columns that a record may have.
        events: Columns that a decoded event has.

    Raises:
        IncompatibleError: If the files cannot be read, or have other columns.
        StalePlanError: If files are added meanwhile.
    """
    found = stored_files.find(batch)
    with failures(batch, found.kind):
        found.require_flat(spark)
        types = {one.name.casefold(): one.dataType for one in (*records, *events)}
        if found.kind in _TEXT:
            found.require_values(types)
            lines = _checked_lines(spark, found, batch)
            rows, named = _text(spark, found, records, events)
            require_same_files(batch, lines, named, rows)
        else:
            rows = found.load_with(spark, types)
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
    typed, ignored = _typed(rows, wanted, batch)
    return Stored(typed, is_records, ignored, found.kind)


@contextmanager
def failures(batch: str, kind: str) -> Iterator[None]:
    """Turn Spark's errors into ours, which say how files of a kind are written."""
    from pyspark.errors import PySparkException

    try:
        yield
    except Exception as error:
        is_java = hasattr(error, "java_exception")  # Py4J's own, as tasks that fail end.
        if not is_java and not isinstance(error, PySparkException):
            raise
        reason = root_cause(cast("Any", error)) if is_java else str(error)
        raise IncompatibleError(
            f"{batch} cannot be read: {reason[:500]}", hint=_HINTS[kind], batch=batch
        ) from error


def require_same_files(batch: str, *frames: DataFrame) -> None:
    """Refuse a batch to which files were added, or removed, while frames were made of it."""
    files = [set(one.inputFiles()) for one in frames]
    for one in files[1:]:
        if changed := sorted(one ^ files[0]):
            raise StalePlanError(
                f"{batch} changed while it was read: {changed[0]} was added or removed",
                hint="wait until the batch is complete, then run the command again",
                batch=batch,
            )


def _checked_lines(spark: SparkSession, found: StoredFiles, batch: str) -> DataFrame:
    """Return the lines; refuse text that is not UTF-8, or has a quoted value without end."""
    from pyspark.sql import functions as F

    line = F.col("value")
    quotes = F.length(line) - F.length(F.replace(line, F.lit('"')))
    read_again = F.encode(F.decode(line.cast("binary"), "UTF-8"), "UTF-8")
    text = StoredFiles("text", found.path, found.options).load(spark)
    checked = text.groupBy(F.col("_metadata.file_path").alias("file")).agg(
        (F.sum(quotes) % 2).alias("odd"),
        F.count_if(read_again != line.cast("binary")).alias("other"),
    )
    bad = checked.where("other > 0" if found.kind == "json" else "other > 0 OR odd > 0").first()
    if bad is not None:
        what = "is not UTF-8" if bad["other"] else "has a quoted value that does not end"
        raise IncompatibleError(
            f"{batch} cannot be read: {bad['file']} {what}", hint=_HINTS[found.kind], batch=batch
        )
    return text


def _text(
    spark: SparkSession, found: StoredFiles, records: StructType, events: StructType
) -> tuple[DataFrame, DataFrame]:
    """Read JSON or CSV with the columns of its rows; also return a frame that has their names."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    options = _TEXT[found.kind]
    # Only names: types would be guessed.
    reader = found.reader(spark).options(**options).option("primitivesAsString", "true")
    named = reader.load(found.path)
    names = named.columns
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
    if found.kind == "csv":
        by_name = {one.name.casefold(): one for one in ordered}
        ordered = [by_name[name.casefold()] for name in names]
    schema = StructType([*ordered, StructField(corrupt, text)])
    reader = found.reader(spark).options(**options)
    rows = reader.option("columnNameOfCorruptRecord", corrupt).schema(schema).load(found.path)
    binary = {one.name.casefold() for one in records if isinstance(one.dataType, BinaryType)}
    last = F.col(quoted(ordered[-1].name)).cast("string") if ordered else F.lit(None)
    # The first line end is taken for that of all lines, so that others end up in values.
    is_cut = F.lit(found.kind == "csv") & last.endswith("\r")
    encoded = {
        one.name: F.encode(one.name, "UTF-8")
        for one in ordered
        if not decoded and one.name.casefold() in binary
    }
    unreadable = F.coalesce(corrupt, F.when(is_cut, last))
    return rows.withColumns({UNREADABLE: unreadable, **encoded}).drop(corrupt), named


def _typed(rows: DataFrame, wanted: StructType, batch: str) -> tuple[DataFrame, tuple[str, ...]]:
    """Return the wanted columns as they have to be, and the names of all others."""
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
        columns.append(F.col(quoted(name)).cast(one.dataType).alias(one.name))
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
    return rows.select(*columns), ignored
