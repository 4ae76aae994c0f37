"""Care for a store each night: verify another seventh of it, then delete what no rule keeps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG
from savepoints_operator import SavepointsOperator

RULES = ["--keep-last", "6", "--keep-hourly", "24", "--keep-daily", "7"]

with DAG(
    "savepoints_care",
    schedule="17 3 * * *",
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
) as dag:
    verify = SavepointsOperator(
        task_id="verify", command=["verify", "--all", "--read-data", "day/7"]
    )
    expire = SavepointsOperator(task_id="expire", command=["expire", *RULES, "--yes"])
    verify >> expire
