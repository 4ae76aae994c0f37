"""The output of the order applications beside the truth, customer by customer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import pandas as pd

from savepoints.outputs.delta.batch_version import open_table
from spark_jobs.orders.truth import order_totals_truth

COLUMNS = ("orders", "amount_cents", "last_ordered_at", "tier")


@dataclass(frozen=True)
class Comparison:
    """How an output table differs from the truth.

    Attributes:
        rows: Rows of the table.
        customers: Customers in the truth.
        orders: Sum of the table's order counts.
        orders_true: The same in the truth.
        amount_cents: Sum of the table's amounts.
        amount_cents_true: The same in the truth.
        wrong: Customers that are missing, doubled, or have another value in any column.
    """

    rows: int
    customers: int
    orders: int
    orders_true: int
    amount_cents: int
    amount_cents_true: int
    wrong: int

    @property
    def exact(self) -> bool:
        """Whether the table is the truth: no row missing, doubled or different."""
        return self.wrong == 0 and self.rows == self.customers


def compare(uri: str, orders_until: date, *, v2_from: date | None = None) -> Comparison:
    """Compare an output with the truth over all orders before a day.

    Args:
        uri: The Delta table, read by deltalake and not by Spark.
        orders_until: First day (UTC) whose orders do not count.
        v2_from: Since when the table follows the rule of `order_tiers_v2`, None for never.
    """
    found: pd.DataFrame = open_table(uri).to_pandas()
    truth = order_totals_truth(orders_until, v2_from=v2_from)
    both = truth.merge(found, on="customer_id", how="outer", suffixes=("", "_found"))
    # A missing customer has no values, and nothing equals those.
    same = pd.concat([both[name] == both[f"{name}_found"] for name in COLUMNS], axis=1).all(axis=1)
    once = ~both.duplicated("customer_id", keep=False)
    return Comparison(
        rows=len(found),
        customers=len(truth),
        orders=int(found["orders"].sum()),
        orders_true=int(truth["orders"].sum()),
        amount_cents=int(found["amount_cents"].sum()),
        amount_cents_true=int(truth["amount_cents"].sum()),
        wrong=int(both.loc[~(same & once), "customer_id"].nunique()),
    )
