"""What the order applications must come to, computed without them.

Everything here is taken from the published file with pandas: neither the reader of
orders nor Kafka, Avro or Spark is on the way, and the thresholds are written out, so
that a mistake in any of them shows as a difference.
"""

from __future__ import annotations

from datetime import date

import pandas as pd

from spark_jobs.orders.cdnow import data_file


def order_totals_truth(orders_until: date, *, v2_from: date | None = None) -> pd.DataFrame:
    """Compute what `order_totals` holds after all orders before a day.

    Args:
        orders_until: First day (UTC) whose orders do not count.
        v2_from: Since that day `order_tiers_v2` runs: customers that ordered since have the tier of
            its rule. None for never.

    Returns:
        One row a customer, by customer_id: customer_id, orders (number of orders),
        amount_cents (their exact sum), last_ordered_at (UTC), tier (`bronze` below
        100 dollars, `silver` below 500, `gold` from 500; by the second rule `gold` from 300
        dollars or 6 orders, else `silver` from 100 dollars or 3 orders).

    Raises:
        MissingExtraError: The package that ships the data is not installed.
    """
    orders = _orders()
    orders = orders[orders["ordered_at"] < pd.Timestamp(orders_until, tz="UTC")]
    totals = orders.groupby("customer_id", as_index=False).agg(
        orders=("customer_id", "size"),
        amount_cents=("amount_cents", "sum"),
        last_ordered_at=("ordered_at", "max"),
    )
    tier = pd.cut(
        totals["amount_cents"],
        bins=[0, 10_000, 50_000, float("inf")],
        right=False,
        labels=["bronze", "silver", "gold"],
    )
    totals = totals.assign(tier=tier.astype(str))
    if v2_from is not None:
        since = totals["last_ordered_at"] >= pd.Timestamp(v2_from, tz="UTC")
        cents, orders_ = totals["amount_cents"], totals["orders"]
        gold = cents.ge(30_000) | orders_.ge(6)
        silver = cents.ge(10_000) | orders_.ge(3)
        totals.loc[since, "tier"] = "bronze"
        totals.loc[since & silver, "tier"] = "silver"
        totals.loc[since & gold, "tier"] = "gold"
    return totals


def order_months_truth(watermark: pd.Timestamp) -> pd.DataFrame:
    """Compute what `order_months` has written of all orders.

    Args:
        watermark: Windows that ended at or before it are over.

    Returns:
        One row a customer and window of 30 days since 1970, by both: customer_id, window_at
        (its begin, UTC), orders, amount_cents, last_ordered_at (UTC).

    Raises:
        MissingExtraError: The package that ships the data is not installed.
    """
    orders = _orders()
    orders = orders.assign(window_at=orders["ordered_at"].dt.floor("30D"))
    totals = orders.groupby(["customer_id", "window_at"], as_index=False).agg(
        orders=("customer_id", "size"),
        amount_cents=("amount_cents", "sum"),
        last_ordered_at=("ordered_at", "max"),
    )
    return totals[totals["window_at"] + pd.Timedelta(days=30) <= watermark]


def _orders() -> pd.DataFrame:
    raw = pd.read_csv(data_file(), sep=r"\s+", dtype=str)
    # Dollars always have two decimals, so without the point they are cents: no float involved.
    cents = raw["dollar_value"].str.extract(r"^(\d+)\.(\d\d)$").agg("".join, axis=1)
    day = pd.to_datetime(raw["date"], format="%Y%m%d", utc=True)
    in_day = day.groupby(day)
    of_day_ms = in_day.cumcount() * 86_400_000 // in_day.transform("size")
    return pd.DataFrame(
        {
            "customer_id": raw["customer_id"].astype("int64"),
            "amount_cents": cents.astype("int64"),
            "ordered_at": day + pd.to_timedelta(of_day_ms, unit="ms"),
        }
    )
