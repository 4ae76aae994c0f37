"""Orders that a broken feed held back, as a file of Kafka records: a late batch.

All orders that some customers placed in 1997 are missing in the topic and lie in a Parquet file
instead, as if they had been found a year later.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_jobs.orders.cdnow import Order
from spark_jobs.orders.codec import encode_order, order_key

YEAR = 1997

_FIELDS: list[tuple[str, pa.DataType]] = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
]
_COLUMNS = pa.schema(_FIELDS)


def held_back(orders: Iterable[Order], customers: int) -> tuple[tuple[Order, ...], list[Order]]:
    """Take all orders of 1997 of some customers, evenly chosen, out of the others.

    Args:
        orders: All orders; their order is kept.
        customers: How many customers.

    Returns:
        The orders that arrive in time, and those that are held back.
    """
    known = tuple(orders)
    of_year = sorted({one.customer_id for one in known if one.ordered_at.year == YEAR})
    step = max(1, len(of_year) // customers)
    chosen = frozenset(of_year[::step][:customers])
    late = [one for one in known if one.customer_id in chosen and one.ordered_at.year == YEAR]
    ids = {one.order_id for one in late}
    return tuple(one for one in known if one.order_id not in ids), late


def write(orders: Iterable[Order], path: Path) -> int:
    """Write orders as Kafka records, as the feed would have sent them; returns how many.

    The Parquet file has the columns key and value (binary) and timestamp (UTC).
    """
    rows = [
        {"key": order_key(one.customer_id), "value": encode_order(one), "timestamp": one.ordered_at}
        for one in orders
    ]
    pq.write_table(pa.Table.from_pylist(rows, schema=_COLUMNS), path)
    return len(rows)
