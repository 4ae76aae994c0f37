"""Programs as silver and gold, of which one reads a change data feed and one upserts its table."""

from __future__ import annotations

from dataclasses import replace

from savepoints.runtime.app import Output
from spark_jobs.medallion import gold, silver

app = replace(
    gold.app,
    inputs={name: replace(one, changes=True) for name, one in gold.app.table_inputs.items()},
)
upserts = replace(silver.app, outputs={"lines": Output("upsert", key=("order_id",))})
