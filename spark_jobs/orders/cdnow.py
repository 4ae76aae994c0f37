"""The CDNOW data set: 69,659 real orders of 23,570 customers, 1997-01 to 1998-06.

Source: the customers of the online shop CDNOW who first ordered in the first quarter
of 1997, with everything they ordered until the end of June 1998, published by Peter
Fader and Bruce Hardie. The package `lifetimes` ships it as `datasets/CDNOW_master.txt`;
only that file is read, the package is never imported.

The file gives days, an event stream needs instants. The n orders of a day are therefore
spread evenly over its 24 hours (UTC), in the order of the file: order k of n, counted
from 0, is at midnight + floor(k * 86,400,000 / n) ms. That makes `ordered_at`
deterministic and strictly increasing over the whole data set.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path

from savepoints.errors import MissingExtraError

_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Order:
    """One order; the attributes are the fields of `order.avsc`.

    Args:
        order_id: `o-` and the six-digit position in the file, from 1: unique and stable.
        customer_id: Who ordered.
        ordered_at: When, in UTC, to the millisecond.
        quantity: Number of items.
        amount_cents: Value of the whole order in US cents.
    """

    order_id: str
    customer_id: int
    ordered_at: datetime
    quantity: int
    amount_cents: int


def data_file() -> Path:
    """Return where the CDNOW file is in the installed package `lifetimes`.

    Returns:
        The path of `CDNOW_master.txt`.

    Raises:
        MissingExtraError: The package is not installed, or does not have the file.
    """
    spec = importlib.util.find_spec("lifetimes")
    locations = spec.submodule_search_locations if spec else None
    for location in locations or ():
        path = Path(location, "datasets", "CDNOW_master.txt")
        if path.is_file():
            return path
    raise MissingExtraError(
        "the CDNOW orders are read from the package lifetimes, which is not installed",
        hint="pip install --no-deps lifetimes==0.11.3",
    )


def read_orders() -> tuple[Order, ...]:
    """Read all orders in the order in which they happened; parsed once, which takes a second.

    Returns:
        Every order, by date, those of one day by their position in the file.

    Raises:
        MissingExtraError: The package that ships the data is not installed.
        ValueError: A line is not as in the published file.
    """
    return _orders(data_file())


@cache
def _orders(file: Path) -> tuple[Order, ...]:
    lines = file.read_text(encoding="ascii").splitlines()[1:]
    rows = [(position, *_parse(line)) for position, line in enumerate(lines, start=1)]
    rows.sort(key=lambda row: row[2])  # stable: the file's order decides within a day
    in_day = Counter(day for _, _, day, _, _ in rows)
    seen: Counter[date] = Counter()
    orders = []
    for position, customer_id, day, quantity, amount_cents in rows:
        of_day_ms = _DAY_MS * seen[day] // in_day[day]
        seen[day] += 1
        midnight = datetime.combine(day, time.min, UTC)
        orders.append(
            Order(
                order_id=f"o-{position:06d}",
                customer_id=customer_id,
                ordered_at=midnight + timedelta(milliseconds=of_day_ms),
                quantity=quantity,
                amount_cents=amount_cents,
            )
        )
    return tuple(orders)


def orders_between(
    orders: Iterable[Order], *, from_date: date | None = None, until_date: date | None = None
) -> tuple[Order, ...]:
    """Pick the orders of a half-open range of days, so that adjoining ranges never overlap.

    Args:
        orders: What to pick from; its order is kept.
        from_date: First day (UTC) that belongs to the range; None for no lower end.
        until_date: First day (UTC) that no longer belongs to it; None for no upper end.

    Returns:
        The orders with `from_date` <= day of `ordered_at` < `until_date`.
    """
    return tuple(
        order
        for order in orders
        if (from_date is None or from_date <= order.ordered_at.date())
        and (until_date is None or order.ordered_at.date() < until_date)
    )


def _parse(line: str) -> tuple[int, date, int, int]:
    customer_id, day, quantity, dollars = line.split()
    # Decimal, because 0.1 has no exact float and sums are compared cent by cent.
    cents = Decimal(dollars).scaleb(2)
    if cents != cents.to_integral_value():
        raise ValueError(f"{dollars} dollars are not a whole number of cents: {line!r}")
    return (
        int(customer_id),
        date(int(day[:4]), int(day[4:6]), int(day[6:])),
        int(quantity),
        int(cents),
    )
