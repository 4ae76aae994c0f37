"""The CDNOW reader against what the published file is known to hold."""

from __future__ import annotations

import importlib.util
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest

from savepoints.errors import MissingExtraError
from spark_jobs.orders.cdnow import Order, data_file, orders_between, read_orders


@pytest.fixture(scope="module")
def orders() -> tuple[Order, ...]:
    return read_orders()


def raw_fields() -> list[list[str]]:
    """The file's fields, read without any code of the package but the path."""
    return [line.split() for line in data_file().read_bytes().decode().split("\r\n")[1:] if line]


def test_it_has_the_published_numbers_of_orders_and_customers(orders: tuple[Order, ...]) -> None:
    assert len(orders) == 69_659
    assert len({order.customer_id for order in orders}) == 23_570
    assert orders[0].ordered_at.date() == date(1997, 1, 1)
    assert orders[-1].ordered_at.date() == date(1998, 6, 30)


def test_sums_are_exact_to_the_cent(orders: tuple[Order, ...]) -> None:
    cents = sum(int(fields[3].replace(".", "")) for fields in raw_fields())
    assert cents == 250_031_563
    assert sum(order.amount_cents for order in orders) == cents
    assert all(type(order.amount_cents) is int for order in orders)


def test_every_order_is_the_line_that_its_id_names(orders: tuple[Order, ...]) -> None:
    lines = raw_fields()
    for order in orders:
        customer, day, quantity, dollars = lines[int(order.order_id.removeprefix("o-")) - 1]
        assert order.customer_id == int(customer)
        assert order.ordered_at.strftime("%Y%m%d") == day
        assert order.quantity == int(quantity)
        assert order.amount_cents == int(dollars.replace(".", ""))


def test_order_ids_are_unique_and_of_one_width(orders: tuple[Order, ...]) -> None:
    assert len({order.order_id for order in orders}) == len(orders)
    assert {len(order.order_id) for order in orders} == {len("o-000001")}


def test_events_come_in_order_and_no_two_at_the_same_time(orders: tuple[Order, ...]) -> None:
    times = [order.ordered_at for order in orders]
    assert all(earlier < later for earlier, later in pairwise(times))


def test_within_a_day_the_position_in_the_file_decides(orders: tuple[Order, ...]) -> None:
    by_day = [(order.ordered_at.date(), order.order_id) for order in orders]
    assert by_day == sorted(by_day)


def test_the_orders_of_a_day_are_spread_evenly_over_it(orders: tuple[Order, ...]) -> None:
    """24 February 1997 has the most orders of all days, 504."""
    day = orders_between(orders, from_date=date(1997, 2, 24), until_date=date(1997, 2, 25))
    midnight = datetime(1997, 2, 24, tzinfo=UTC)
    assert len(day) == 504
    assert day[0].ordered_at == midnight
    assert day[252].ordered_at == midnight + timedelta(hours=12)
    # 503 * 86,400,000 / 504 = 86,228,571.4 ms
    assert day[503].ordered_at == midnight + timedelta(milliseconds=86_228_571)


def test_times_are_whole_milliseconds_in_utc(orders: tuple[Order, ...]) -> None:
    assert all(order.ordered_at.microsecond % 1000 == 0 for order in orders)
    assert {order.ordered_at.tzinfo for order in orders} == {UTC}


def test_adjoining_ranges_share_no_order_and_lose_none(orders: tuple[Order, ...]) -> None:
    cut = date(1997, 4, 1)
    before = orders_between(orders, until_date=cut)
    after = orders_between(orders, from_date=cut)
    assert before + after == orders
    assert before[-1].ordered_at.date() == date(1997, 3, 31)
    assert after[0].ordered_at == datetime(1997, 4, 1, tzinfo=UTC)


def test_without_the_data_package_the_hint_is_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError) as caught:
        read_orders()
    assert caught.value.hint == "pip install --no-deps lifetimes==0.11.3"
