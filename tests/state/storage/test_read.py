"""Reading raw state rows, where what lies below it plays tricks."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint.cut import read_cut
from savepoints.errors import NativeOnlyError
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.state.storage import read
from tests.samples import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


def test_a_finalizer_that_closes_the_file_system_does_not_break_a_read(
    spark: SparkSession, world: LocalWorld, world_environment: dict[str, str], tmp_path: Path
) -> None:
    """Hadoop's `S3A` closes its file system when it is collected, under whoever reads from it.

    That takes a collection at the wrong moment in compiled code, so it is shown that none is made.
    """
    bucket = f"raw-{uuid.uuid4().hex[:10]}"
    world.create_bucket(bucket)
    checkpoint = Location.of(f"s3://{bucket}/checkpoint")
    (tmp_path / "0.json").write_text("".join(f'{{"k": {number}}}\n' for number in range(100)))
    (
        spark.readStream.schema("k long")
        .json(str(tmp_path))
        .groupBy("k")
        .count()
        .writeStream.outputMode("complete")
        .option("checkpointLocation", checkpoint.uri.hadoop)
        .trigger(availableNow=True)
        .format("noop")
        .start()
        .awaitTermination()
    )
    files = read_cut(checkpoint)
    reading = read.reading_session(spark, files.cut.checkpoint_format)
    # Whoever asked for one would get an error instead.
    reading.conf.set("fs.AbstractFileSystem.s3a.impl", "none.may.be.Made")
    assert read.read_operator(reading, checkpoint, files, files.operators[0]).count() == 100


def test_trap_spark_looks_elsewhere_for_state_in_a_directory_with_a_space(
    spark: SparkSession, on_local: Location
) -> None:
    """It said that no batch was committed there."""
    checkpoint = unpack("rocksdb", on_local / "a b")
    files = read_cut(checkpoint)
    reading = read.reading_session(spark, files.cut.checkpoint_format)

    with pytest.raises(NativeOnlyError, match=r"would look for them at .*a%20b"):
        read.read_operator(reading, checkpoint, files, files.operators[0])
