"""Find how given rows are stored, and read all files that are at a place, or none.

Spark reads what it takes for the data of a directory: not what lies deeper, not what lies beside
partitions, and of Parquet only the columns that one of the files has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote

from savepoints.errors import IncompatibleError, NotFoundError, UsageError
from savepoints.io import Location
from savepoints.spark.columns import quoted
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType

_FORMATS = {
    "parquet": "parquet",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "csv": "csv",
}
_COMPRESSED = ("gz", "bz2", "zst", "snappy", "lz4", "deflate")
_GLOB = frozenset("*?[{")
# Where a table or a streaming sink keeps which of its files count.
_LOGS = frozenset({"_delta_log", "_spark_metadata", ".hoodie"})
# Delta protocol, "Delta Log Entries" and "Checkpoints".
_VERSION = re.compile(r"_delta_log/(\d{20})\.(?:json$|checkpoint\.)")
_DEEP = {"recursiveFileLookup": "true"}
# The value of a directory that stands for null.
_NULL = "__HIVE_DEFAULT_PARTITION__"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?", re.ASCII)
_WHOLE = re.compile(r"[-+]?\d+", re.ASCII)
# What is no longer a number of a type.
_LIMITS = {"tinyint": 1 << 7, "smallint": 1 << 15}


@dataclass(frozen=True)
class StoredFiles:
    """How rows are stored.

    Attributes:
        kind: Spark's name of the format.
        path: The place for Spark: a file, a directory, a pattern or a Delta table.
        options: What Spark's reader has to be told to read all of it.
        is_pattern: Whether the path stands for several.
        partitions: The columns that the names of directories have, with their values there.
    """

    kind: str
    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    is_pattern: bool = False
    partitions: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def reader(self, spark: SparkSession) -> DataFrameReader:
        """Return a reader of the format with the options."""
        return spark.read.format(self.kind).options(**self.options)

    def load(self, spark: SparkSession) -> DataFrame:
        """Return the rows of a format that has a schema of its own."""
        return self.reader(spark).load(self.path)

    def load_with(self, spark: SparkSession, types: Mapping[str, DataType]) -> DataFrame:
        """Return these rows, with values of directories as they are written there.

        Of them alone Spark guesses the types: `007` would be the number 7.

        Args:
            types: Those of columns, by their names in lower case.

        Raises:
            IncompatibleError: If a value does not fit into the type of its column.
        """
        from pyspark.sql import functions as F
        from pyspark.sql.types import DecimalType, StringType, StructField, StructType

        rows = self.load(spark)
        given = self.require_values(types)
        # Spark takes the digits of `1.1` for those of a decimal with two places: 0.11.
        decimals = {one: kind for one, kind in given.items() if isinstance(kind, DecimalType)}
        read = {**given, **dict.fromkeys(decimals, StringType())}
        fields = [
            StructField(one.name, read[one.name]) if one.name in read else one
            for one in rows.schema
        ]
        if fields == rows.schema.fields:
            return rows
        rows = self.reader(spark).schema(StructType(fields)).load(self.path)
        return rows.withColumns({one: F.col(quoted(one)).cast(to) for one, to in decimals.items()})

    def require_values(self, types: Mapping[str, DataType]) -> Mapping[str, DataType]:
        """Refuse values of directories that Spark would round or cut off.

        Args:
            types: Those of columns, by their names in lower case.

        Returns:
            The types of the columns that directories give.
        """
        given = {one: types[one.casefold()] for one in self.partitions if one.casefold() in types}
        for column, kind in given.items():
            for value in sorted(self.partitions[column] - {_NULL}):
                if not _is_value(value, kind):
                    raise IncompatibleError(
                        f"{self.path} has a directory {column}={value}, which is no value of "
                        f"{kind.simpleString()}",
                        hint=f"name the directory by a value of that type, or write {column} into "
                        "the files",
                    )
        return given

    def require_flat(self, spark: SparkSession) -> None:
        """Refuse a pattern of which Spark would pass over some files, or read too many."""
        if not self.is_pattern:
            return
        listed = spark.read.format("binaryFile").options(**_DEEP).load(self.path).inputFiles()
        files = _depth(self.path)
        for one in listed:
            if _depth(one) > files + 1:
                raise UsageError(
                    f"{self.path} matches directories that contain other directories: {one}",
                    hint="pass one directory, or a pattern that matches files",
                )
        # Of several places Spark looks into no log.
        for directory in sorted({one.rpartition("/")[0] for one in listed if _depth(one) > files}):
            place = Location.of(unquote(directory))
            logs = (info.path for log in sorted(_LOGS) for info in place.list(log))
            if (log := next(logs, None)) is not None:
                raise _table(str(place), log.partition("/")[0], self.path)


def find(batch: str) -> StoredFiles:
    """Detect how rows are stored.

    Args:
        batch: A file, a directory of files, a pattern such as `s3://bucket/late/*.json`, or a
            Delta table.

    Raises:
        NotFoundError: If nothing is there.
        UsageError: If the format is not known, or Spark would read some of the files and not all.
    """
    name = batch.rstrip("/").rpartition("/")[2]
    if _GLOB & set(name):
        parent = batch.rstrip("/").removesuffix(name).rstrip("/") or "."
        kind = _by_name([name], batch)
        path = f"{Uri.parse(parent).hadoop}/{name}"
        return StoredFiles(kind, path, _merged(kind), is_pattern=True)
    uri = Uri.parse(batch)
    if Location(Uri(uri.scheme, uri.bucket, uri.path.rpartition("/")[0])).exists(name):
        return StoredFiles(_by_name([name], batch), uri.hadoop)
    there = [one.path for one in Location(uri).list()]
    if versions := [int(match[1]) for match in map(_VERSION.match, there) if match]:
        # A frame of the newest one would take each commit that comes in between two queries of it.
        return StoredFiles("delta", uri.hadoop, {"versionAsOf": str(max(versions))})
    _require_no_table(there, batch)
    inside = [path for path in there if not _is_hidden(path)]
    if not inside:
        raise NotFoundError(
            f"there are no files at {batch}",
            hint="pass a file, a directory, a quoted pattern, or a Delta table",
            batch=batch,
        )
    kind = _by_name(inside, batch)
    nested = _nested(inside, batch)
    partitions = {} if nested else _partitions(inside)
    return StoredFiles(kind, uri.hadoop, {**_merged(kind), **nested}, partitions=partitions)


def _merged(kind: str) -> Mapping[str, str]:
    """Return the option by which files have all columns that any of them has."""
    return {"mergeSchema": "true"} if kind == "parquet" else {}


def _depth(text: str) -> int:
    return len([part for part in Uri.parse(text).path.split("/") if part])


def _nested(paths: Sequence[str], batch: str) -> Mapping[str, str]:
    """Return the option for directories in directories, if they are no partitions.

    Raises:
        UsageError: If only some are, or other ones.
    """
    by_keys = {_partitioned_by(path): path for path in paths}
    if not any(key for keys in by_keys for key in keys):
        return _DEEP if any(by_keys) else {}
    if len(by_keys) > 1 or not all(next(iter(by_keys))):
        examples = " and ".join(sorted(by_keys.values())[:2])
        raise UsageError(
            f"the files of {batch} are not all in directories of the same partitions: {examples}",
            hint="pass files that are partitioned in one way, each set as a batch of its own",
            batch=batch,
        )
    return {}


def _partitioned_by(path: str) -> tuple[str, ...]:
    """Return the column of each directory of a path, empty for one that is no partition."""
    directories = path.split("/")[:-1]
    return tuple(one.partition("=")[0] if "=" in one else "" for one in directories)


def _is_value(text: str, kind: DataType) -> bool:
    """Return True if a text is a number of a type; of other types Spark itself refuses what is not.

    Spark makes 44 of 300 where one byte is wanted.
    """
    from pyspark.sql.types import DecimalType

    if (limit := _LIMITS.get(kind.simpleString())) is not None:
        return bool(_WHOLE.fullmatch(text)) and -limit <= int(text) < limit
    if not isinstance(kind, DecimalType):
        return True
    whole, _, fraction = text.removeprefix("-").partition(".")
    fits = len(whole.lstrip("0")) <= kind.precision - kind.scale
    return fits and len(fraction.rstrip("0")) <= kind.scale and bool(_NUMBER.fullmatch(text))


def _partitions(paths: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """Return the columns that directories name, with their values."""
    found: dict[str, set[str]] = {}
    for directory in {one for path in paths for one in path.split("/")[:-1]}:
        name, separator, value = directory.partition("=")
        if separator:
            found.setdefault(unquote(name), set()).add(unquote(value))
    return {name: frozenset(values) for name, values in found.items()}


def _require_no_table(paths: Sequence[str], batch: str) -> None:
    """Refuse a directory with tables in it: not all of their files count."""
    for path in paths:
        parts = path.split("/")
        at = next((index for index, part in enumerate(parts) if part in _LOGS), None)
        if at is None or (at == 0 and parts[0] == "_spark_metadata"):
            continue
        raise _table("/".join([batch.rstrip("/"), *parts[:at]]), parts[at], batch)


def _table(where: str, log: str, batch: str) -> UsageError:
    return UsageError(
        f"{where} is a table, of whose files only some count, as {log} says",
        hint="pass a Delta table by its own path; write the rows of other tables to Parquet "
        "files first",
        batch=batch,
    )


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
    """Return whether Spark passes over a file (`HadoopFSUtils.shouldFilterOutPathName`)."""
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part)
        for part in path.split("/")
    )
