"""Read raw state rows of every store of an operator, in the canonical table's columns.

Spark's `statestore` source with `_readAllColumnFamilies` gives, for one store of one operator,
`partition_key` (struct), `key_bytes`, `value_bytes` (UnsafeRow bytes) and `column_family_name`.
`pmod(hash(partition_key.*), P)` is Spark's own placement of a row in P state partitions.
Source: `StateDataSource`, `StatePartitionAllColumnFamiliesReader`. Spark refuses this for its
default provider, whose files are read by `savepoints.state.storage.hdfs_provider`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.logs.offset_log import CHECKPOINT_FORMAT_KEY
from savepoints.checkpoint.state.operators import HDFS_PROVIDER, Operator
from savepoints.checkpoint.state.schema import StateField
from savepoints.errors import NativeOnlyError
from savepoints.io import Location
from savepoints.spark import private_api
from savepoints.spark.private_api import READ_ALL_COLUMN_FAMILIES
from savepoints.spark.session import own_session
from savepoints.spark.versions import SparkVersion
from savepoints.state.storage import hdfs_provider
from savepoints.state.storage.key_names import fit_fields
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

COLUMNS = frozenset({"partition_key", "key_bytes", "value_bytes", "column_family_name"})

FILE_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"


def state_session(spark: SparkSession, checkpoint_format: int) -> SparkSession:
    """Return a session in which state stores can be opened, with settings of its own.

    State stores report to a coordinator, which the session's manager of streaming queries makes; a
    Spark that has not run a streaming query yet has none, and opening a store fails.
    """
    own = own_session(spark)
    _ = own.streams
    own.conf.set(CHECKPOINT_FORMAT_KEY, str(checkpoint_format))
    return own


def reading_session(spark: SparkSession, checkpoint_format: int) -> SparkSession:
    """Return a session for reading state.

    With changelog checkpointing on, a raw read writes temporary files into the checkpoint it reads.
    Spark's default file manager makes a Hadoop `FileContext` for each directory and drops it while
    a file is still being read; on S3 its finalizer closes the client under the reader
    (`org.apache.hadoop.fs.s3a.S3A.finalize`), now and then. The other one uses Hadoop's cached file
    systems. It renames less safely, which does not matter to a reader.
    """
    own = state_session(spark, checkpoint_format)
    own.conf.set(FILE_MANAGER_KEY, SparkVersion.of(spark.version).file_manager)
    own.conf.set("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "false")
    # Rows with a map in their key lie where the hash of its sorted entries says.
    own.conf.set("spark.sql.legacy.allowHashOnMapType", "true")
    return own


def read_operator(
    spark: SparkSession, checkpoint: Location, files: CutFiles, operator: Operator
) -> DataFrame:
    """Read all stores of an operator as canonical rows.

    Args:
        checkpoint: A checkpoint that nobody writes to: a mounted savepoint, not a live query's.

    Returns:
        operator_id (int), operator_name, store_name, column_family (string), partition_id,
        key_hash (int), ord (long), key_bytes, value_bytes (binary), and key, the decoded partition
        key (a struct; null when the operator has no grouping key).
    """
    return together(
        [
            read_raw(spark, checkpoint, files, operator, store).canonical()
            for store in operator.stores
        ]
    )


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the canonical rows of several stores; what one of them has no column for is null."""
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def load(
    spark: SparkSession, checkpoint: Uri, batch_id: int, operator_id: int, store: str
) -> DataFrame:
    """Read one RocksDB store with Spark's raw reader.

    Raises:
        NativeOnlyError: If this version of Spark has none, or would not find the directory: it
            takes the escaped path for the path itself
            (`StreamingUtils.resolvedCheckpointLocation`).
    """
    version = SparkVersion.of(spark.version)
    if not version.reads_raw_rows:
        raise NativeOnlyError(
            f"Spark {version} cannot read state rows from RocksDB",
            hint="run the command where Spark 4.2 is installed; with an older version, only "
            "native savepoints can be restored and verified",
        )
    if (escaped := private_api.escaped(spark, checkpoint.hadoop)) != checkpoint.hadoop:
        raise NativeOnlyError(
            f"Spark {version} cannot read state rows from {checkpoint}: it would look for them at "
            f"{escaped}",
            hint="copy the savepoint to a store whose path has no spaces, percent signs and the "
            "like: savepoints copy ID URI; native savepoints can be taken and restored here, "
            "too",
        )
    reader = (
        spark.read.format("statestore")
        .option("path", checkpoint.hadoop)
        .option("batchId", batch_id)
        .option("operatorId", operator_id)
        .option(READ_ALL_COLUMN_FAMILIES, "true")
    )
    if store != "default":
        reader = reader.option("storeName", store)
    return reader.load()


@dataclass(frozen=True)
class RawStore:
    """A store of an operator, as it is read.

    Attributes:
        partitions: How many state partitions it has.
        rows: Columns `partition_key`, `key_bytes`, `value_bytes`, `column_family_name`, and
            `partition_id` where the number of the task does not say that.
    """

    operator: Operator
    name: str
    partitions: int
    rows: DataFrame

    @cached_property
    def key_type(self) -> StructType:
        """Type of the key by which rows are placed, with the names of canonical rows."""
        from pyspark.sql.types import StructType

        given: Any = self.rows.schema["partition_key"].dataType.jsonValue()
        fields = fit_fields([StateField.from_json(one) for one in given["fields"]])
        return StructType.fromJson({"type": "struct", "fields": [one.to_json() for one in fields]})

    def key_hash(self) -> Column:
        """Return the hash by which Spark places a row."""
        from pyspark.sql import functions as F

        key, names = self._named_key(), self.key_type.names
        return F.hash(*(key[name] for name in names)) if names else F.lit(0)

    def canonical(self) -> DataFrame:
        """Return the rows with the columns that `read_operator` has."""
        from pyspark.sql import functions as F

        has_number = "partition_id" in self.rows.columns
        partition_id = F.col("partition_id") if has_number else F.spark_partition_id()
        rows = self.rows.select(
            F.col("column_family_name").alias("column_family"),
            partition_id.alias("partition_id"),
            self.key_hash().alias("key_hash"),
            F.monotonically_increasing_id().alias("ord"),
            F.col("key_bytes"),
            F.col("value_bytes"),
            self._key().alias("key"),
        )
        # On top: Spark moves no condition below a column that counts, so one on these could not
        # tell that a store need not be read.
        return rows.select(
            F.lit(self.operator.operator_id).alias("operator_id"),
            F.lit(self.operator.name).alias("operator_name"),
            F.lit(self.name).alias("store_name"),
            "*",
        )

    def _key(self) -> Column:
        from pyspark.sql import functions as F

        key, names = self._named_key(), self.key_type.names
        # Field by field, so that each may be null, whatever Spark's schema of the state says.
        fields = [key[name].alias(name) for name in names]
        return F.struct(*fields) if fields else F.lit(None).cast("boolean")

    def _named_key(self) -> Column:
        from pyspark.sql import functions as F

        key, named = F.col("partition_key"), self.key_type
        # By position; a cast, which makes a copy, where names differ.
        return key if named == self.rows.schema["partition_key"].dataType else key.cast(named)


def read_raw(
    spark: SparkSession, checkpoint: Location, files: CutFiles, operator: Operator, store: str
) -> RawStore:
    """Read one store of an operator, by Spark's own raw reader where that can read it."""
    if files.cut.provider == HDFS_PROVIDER:
        rows = hdfs_provider.read_store(spark, checkpoint, files, operator, store)
    else:
        rows = load(spark, checkpoint.uri, files.cut.batch_id, operator.operator_id, store)
    return RawStore(operator, store, files.partitions[operator.operator_id], rows)
