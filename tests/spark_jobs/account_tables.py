"""The two tables of `accounts`, put together as `truths.accounts` has what was decided."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pandas as pd

from savepoints.outputs.delta.batch_version import open_table
from tests.spark_jobs.truths import Rows


def decided(events: str, rejected: str) -> Rows:
    """Return what was decided: an accepted command had expected the version before its own.

    Args:
        events: URI of the table of events.
        rejected: URI of the table of rejected commands.
    """
    found = [
        (row["account_id"], row["event_id"], row["at"], row["version"] - 1, row["amount_cents"],
         row["version"], row["balance_cents"], None)
        for row in read(events)
    ]  # fmt: skip
    found += [
        (row["account_id"], row["event_id"], row["at"], row["expected_version"],
         row["amount_cents"], row["version"], row["balance_cents"], row["rejected"])
        for row in read(rejected)
    ]  # fmt: skip
    return sorted(found, key=str)


def read(uri: str) -> list[dict[str, Any]]:
    """Return the rows of a table, read by deltalake and not by Spark, times in UTC."""
    rows = open_table(uri).to_pyarrow_table().to_pylist()
    return [{name: _in_utc(value) for name, value in row.items()} for row in rows]


def require_consistent(events: str, rejected: str) -> None:
    """Check by the tables alone that versions and balances have neither gaps nor doubles."""
    ledgers: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for row in read(events):
        ledgers[row["account_id"]].append(
            (row["version"], row["amount_cents"], row["balance_cents"])
        )
    for name, rows in ledgers.items():
        rows.sort()
        assert [version for version, _, _ in rows] == list(range(1, len(rows) + 1)), name
        assert [cents for _, _, cents in rows] == _sums([amount for _, amount, _ in rows]), name
    for row in read(rejected):
        balance = sum(amount for _, amount, _ in ledgers[row["account_id"]][: row["version"]])
        assert row["balance_cents"] == balance, row


def _sums(amounts: list[int]) -> list[int]:
    return [sum(amounts[: number + 1]) for number in range(len(amounts))]


def _in_utc(value: Any) -> Any:
    return pd.Timestamp(value).tz_convert("UTC") if hasattr(value, "tzinfo") else value
