"""The independent truth against numbers added up by hand from lines of the file."""

from __future__ import annotations

from datetime import date
from functools import cache
from typing import NamedTuple

import pandas as pd
import pytest

from spark_jobs.orders.truth import order_totals_truth

pytestmark = pytest.mark.drawn(3)

AFTER_ALL = date(1998, 7, 1)


class Totals(NamedTuple):
    orders: int
    amount_cents: int
    last_day: str
    tier: str


@cache
def truth_until(orders_until: date) -> pd.DataFrame:
    """Parsing the file takes half a second; no test changes the frame."""
    return order_totals_truth(orders_until)


def totals_of(customer_id: int, orders_until: date) -> Totals:
    row = truth_until(orders_until).set_index("customer_id").loc[customer_id]
    day = row["last_ordered_at"].strftime("%Y-%m-%d")
    return Totals(int(row["orders"]), int(row["amount_cents"]), day, row["tier"])


@pytest.mark.parametrize(
    ("customer_id", "orders_until", "totals"),
    [
        # 11.77
        (1, AFTER_ALL, Totals(1, 11_77, "1997-01-01", "bronze")),
        # 12.00 + 77.00, both on one day
        (2, AFTER_ALL, Totals(2, 89_00, "1997-01-12", "bronze")),
        # 20.76 + 20.76 + 19.54 + 57.45 + 20.96 + 16.99
        (3, AFTER_ALL, Totals(6, 156_46, "1998-05-28", "silver")),
        # 29.33 + 29.73 + 14.96 + 26.48, just over the line
        (4, AFTER_ALL, Totals(4, 100_50, "1997-12-12", "silver")),
        # 29.33 + 29.73 + 14.96: the last order is on the day that no longer counts
        (4, date(1997, 12, 12), Totals(3, 74_02, "1997-08-02", "bronze")),
        (4, date(1997, 12, 13), Totals(4, 100_50, "1997-12-12", "silver")),
        # one order of exactly 100.00
        (2144, AFTER_ALL, Totals(1, 100_00, "1997-01-09", "silver")),
        # 51.12 + 42.96
        (23_570, AFTER_ALL, Totals(2, 94_08, "1997-03-26", "bronze")),
    ],
)
def test_totals_of_a_customer(customer_id: int, orders_until: date, totals: Totals) -> None:
    assert totals_of(customer_id, orders_until) == totals


def test_gold_begins_at_500_dollars() -> None:
    truth = truth_until(AFTER_ALL)
    gold = truth[truth["tier"] == "gold"]
    silver = truth[truth["tier"] == "silver"]
    assert gold["amount_cents"].min() >= 500_00 > silver["amount_cents"].max()
    assert len(gold) == 734


def test_the_whole_of_it_adds_up() -> None:
    truth = truth_until(AFTER_ALL)
    assert list(truth.columns) == [
        "customer_id",
        "orders",
        "amount_cents",
        "last_ordered_at",
        "tier",
    ]
    assert len(truth) == 23_570
    assert truth["orders"].sum() == 69_659
    assert truth["amount_cents"].sum() == 250_031_563
    assert truth["customer_id"].is_monotonic_increasing


def test_the_orders_of_a_day_are_spread_evenly_over_it() -> None:
    """24 February 1997 has 504 orders; these customers made the 1st, 2nd, 253rd and last."""
    truth = order_totals_truth(date(1997, 2, 25)).set_index("customer_id")
    last_ordered_at = truth["last_ordered_at"].dt.tz_localize(None)
    assert last_ordered_at[88] == pd.Timestamp("1997-02-24T00:00:00")
    assert last_ordered_at[147] == pd.Timestamp("1997-02-24T00:02:51.428")
    assert last_ordered_at[15_221] == pd.Timestamp("1997-02-24T12:00:00")
    assert last_ordered_at[15_495] == pd.Timestamp("1997-02-24T23:57:08.571")


def test_before_the_first_order_there_is_nobody() -> None:
    assert order_totals_truth(date(1997, 1, 1)).empty
