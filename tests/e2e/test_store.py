"""What lies in the store: readable by others, movable, with its cost recorded."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

import savepoints
from savepoints.handle import Store
from savepoints.io import Location
from tests.e2e.marks import NIGHTLY
from tests.e2e.shop import Shop
from tests.edited_rows import edit_rows
from tests.spark_session import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY


def test_what_lies_in_the_store(spark: SparkSession, shop: Shop) -> None:
    """One savepoint of both forms: read, restored, moved with its prefix, and spoilt at last."""
    shop.sell(date(1997, 1, 1), date(1997, 1, 6))
    shop.run(forms=("native", "canonical"))
    saved = shop.store.catalog.find("latest")
    require_plain_delta(spark, shop, saved)
    require_rows_where_spark_looks(spark, shop, saved)
    require_costs(shop, saved)
    require_moved_prefix_restores(shop, saved)
    require_spoilt_contents_are_found(shop, saved)


def require_plain_delta(spark: SparkSession, shop: Shop, saved: savepoints.Savepoint) -> None:
    """deltalake and Spark SQL read the same rows; their keys are the customers of the output."""
    from savepoints.outputs.delta.batch_version import open_table

    uri = f"s3://{shop.bucket}/store/savepoints/{saved.id}/state"
    arrow = open_table(uri).to_pyarrow_table()
    spark.read.format("delta").load(uri.replace("s3:", "s3a:")).createOrReplaceTempView("state")
    counted = spark.sql("select count(*), count(distinct key.op0.customer_id) from state").first()
    customers = set(open_table(shop.table).to_pyarrow_table()["customer_id"].to_pylist())
    assert counted is not None
    assert tuple(counted) == (len(customers), len(customers))
    assert {row["key"]["op0"]["customer_id"] for row in arrow.to_pylist()} == customers
    assert arrow.num_rows == saved.operators[0].rows
    assert open_table(uri).version() == 0, "written in one commit"


def require_rows_where_spark_looks(
    spark: SparkSession, shop: Shop, saved: savepoints.Savepoint
) -> None:
    """pmod(key_hash, P) is the partition at capture: Spark's own placement."""
    uri = f"s3a://{shop.bucket}/store/savepoints/{saved.id}/state"
    rows = spark.read.format("delta").load(uri)
    assert rows.where(f"pmod(key_hash, {PARTITIONS}) != partition_id").count() == 0


def require_moved_prefix_restores(shop: Shop, saved: savepoints.Savepoint) -> None:
    """No absolute path in a savepoint: both forms come out of the copy, which verifies."""
    root = shop.store.root
    copy = Location.of(f"s3://{shop.bucket}/elsewhere/copied")
    for info in root.list():
        copy.copy_from(root, info.path, info.path)
    root.delete(info.path for info in root.list())
    moved = Store.at(str(copy)).make()
    assert moved.with_settings(shop.settings).savepoint(saved.id).verify().grade == "ok"
    for form in ("native", "canonical"):
        target = f"s3://{shop.bucket}/restored-{form}"
        moved.savepoint(saved.id).restore(target, form=form).execute()
        again = moved.with_settings(shop.settings).create(checkpoint=target, query=form).execute()
        assert again.operators == saved.operators
    for info in copy.list():
        root.copy_from(copy, info.path, info.path)


def require_costs(shop: Shop, saved: savepoints.Savepoint) -> None:
    """Durations and bytes of pin and export are in the catalog, those of a restore are reported."""
    cost = shop.json("show", saved.id)["savepoint"]["cost"]
    for name in ("pin_seconds", "checksum_seconds", "export_seconds"):
        assert cost[name] > 0
    assert cost["bytes_copied"] > 0
    assert cost["export_bytes"] > 0
    target = f"s3://{shop.bucket}/r"
    restored = shop.json("restore", saved.id, "--to", target, "--yes")["restored"]
    listed = Location.of(target).list()
    assert restored["bytes_written"] == sum(i.size for i in listed if not i.path.startswith("_"))
    assert restored["seconds"] > 0


def require_spoilt_contents_are_found(shop: Shop, saved: savepoints.Savepoint) -> None:
    """A row that was changed, and the manifest made to fit: only the content hash tells."""

    def spoil(rows: pa.Table) -> pa.Table:
        values = rows["value_bytes"].to_pylist()
        at = rows.schema.get_field_index("value_bytes")
        spoilt = pa.array([(values[0] or b"") + b"\0", *values[1:]], rows.schema.field(at).type)
        return rows.set_column(at, rows.schema.field(at), spoilt)

    edit_rows(shop.store, saved.id, spoil)
    report = shop.store.savepoint(saved.id).verify()
    assert report.grade == "broken"
    assert [one.what for one in report.findings] == ["operator 0 (stateStoreSave)"]
    assert shop.store.savepoint(saved.id).verify(depth="checksums").grade == "ok"
