"""What the three levels must come to, by pandas over the published file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pandas as pd

from savepoints.outputs.delta.batch_version import open_table
from spark_jobs.orders.cdnow import data_file

LEVELS = ("bronze", "silver", "gold")
BRONZE = ("customer_id", "order_id", "ordered_at", "quantity", "amount_cents")
SILVER = (*BRONZE, "number", "total_cents", "tier")
GOLD = ("day", "tier", "orders", "amount_cents")


def truth(orders_until: date, *, without: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
    """Compute what the tables of the three levels hold after all orders before a day.

    Neither the reader of orders nor Kafka, Avro or Spark is on the way.

    Args:
        orders_until: First day (UTC) whose orders do not count.
        without: Ids of orders that do not count, either.

    Returns:
        By level the columns `BRONZE`, `SILVER` or `GOLD`, in any order of rows; times in UTC.

    Raises:
        MissingExtraError: The package that ships the data is not installed.
    """
    raw = pd.read_csv(data_file(), sep=r"\s+", dtype=str)
    position = pd.Series(range(1, len(raw) + 1)).astype(str).str.zfill(6)
    cents = raw["dollar_value"].str.extract(r"^(\d+)\.(\d\d)$").agg("".join, axis=1)
    day = pd.to_datetime(raw["date"], format="%Y%m%d", utc=True)
    in_day = day.groupby(day)
    of_day_ms = in_day.cumcount() * 86_400_000 // in_day.transform("size")
    orders = pd.DataFrame(
        {
            "customer_id": raw["customer_id"].astype("int64"),
            "order_id": "o-" + position,
            "ordered_at": day + pd.to_timedelta(of_day_ms, unit="ms"),
            "quantity": raw["number_of_cds"].astype("int32"),
            "amount_cents": cents.astype("int64"),
        }
    )
    until = pd.Timestamp(orders_until, tz="UTC")
    orders = orders[(orders["ordered_at"] < until) & ~orders["order_id"].isin(list(without))]
    lines = orders.sort_values(["customer_id", "ordered_at"])
    of_customer = lines.groupby("customer_id")
    lines = lines.assign(
        number=of_customer.cumcount() + 1, total_cents=of_customer["amount_cents"].cumsum()
    )
    tier = pd.cut(
        lines["total_cents"],
        bins=[0, 10_000, 50_000, float("inf")],
        right=False,
        labels=["bronze", "silver", "gold"],
    )
    lines = lines.assign(tier=tier.astype(str), day=lines["ordered_at"].dt.floor("1D"))
    days = lines.groupby(["day", "tier"], as_index=False).agg(
        orders=("order_id", "size"), amount_cents=("amount_cents", "sum")
    )
    return {"bronze": orders, "silver": lines[list(SILVER)], "gold": days[list(GOLD)]}


def differing(level: str, uri: str, wanted: pd.DataFrame) -> int:
    """Count the rows that only one of a level's table and its truth has.

    Args:
        uri: The Delta table, read by deltalake and not by Spark.
        wanted: From `truth`.
    """
    columns = list({"bronze": BRONZE, "silver": SILVER, "gold": GOLD}[level])
    found: pd.DataFrame = open_table(uri).to_pandas()[columns]
    found = found.astype(wanted[columns].dtypes.to_dict())
    # A row that is there twice differs, too.
    both = _counted(found).merge(_counted(wanted[columns]), how="outer", indicator="where")
    return int((both["where"] != "both").sum())


def _counted(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.groupby(list(rows.columns), as_index=False).size()
