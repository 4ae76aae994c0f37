"""The measured query in Flink's SQL: it counts, sums and compares rows by key, and never ends.

What it finds is of no interest but for one key, of which each restored query gets a new record
with a larger amount than there is otherwise: only that comes out, so that it is seen at once.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.flink_cluster import Cluster
from benchmarks.flink_rest import SavepointFormat

# More than any amount of `benchmarks.state`.
MARK = 1_000_000

_SINK = "marked"
_POLL_SECONDS = 0.01
_DEADLINE_SECONDS = 300.0
# A row in the changelog of the sink `print`; several tasks put their number behind the name.
_PRINTED = re.compile(rf"^{_SINK}(?::\d+)?> \+[IU]\[(\w+), (\d+), (\d+), (\d+)\]$", re.MULTILINE)


@dataclass(frozen=True)
class Seen:
    """A row that the query wrote: what it knows of one key.

    Attributes:
        customer: The key.
        orders: How many records it had.
        total: The sum of their amounts.
        most: The largest one.
    """

    customer: str
    orders: int
    total: int
    most: int


@dataclass(frozen=True)
class Restored:
    """How long a restore took, in seconds.

    Attributes:
        state: From the first task that restored state until all had it.
        record: From the request, with planning, until a new record came out.
        client: Of that, until the request was accepted.
    """

    state: float
    record: float
    client: float


class Query:
    """A query of a cluster, as one job after the other."""

    def __init__(self, cluster: Cluster, orders: Path, savepoints: Path) -> None:
        """Describe it, without running it.

        Args:
            cluster: Where it runs.
            orders: Its input: a directory of CSV files, at least one, without a header.
            savepoints: Where it leaves the savepoints that are restored.
        """
        self._cluster = cluster
        self._orders = orders
        self._savepoints = savepoints
        self._first = _first_order(orders)
        self._locations: dict[SavepointFormat, str] = {}
        self._job = ""

    def start(self, keys: int) -> None:
        """Start it, wait until it has read so many orders, and take a savepoint of each format."""
        self._job = self._cluster.client.submit(*statements(self._orders))
        self._cluster.rest.wait_for_records(self._job, keys)
        for form in ("CANONICAL", "NATIVE"):
            self._locations[form] = self._cluster.rest.savepoint(
                self._job, str(self._savepoints), form
            )

    def save(self, directory: Path, form: SavepointFormat) -> Path:
        """Take a savepoint below a directory; returns where its files are."""
        found = self._cluster.rest.savepoint(self._job, str(directory), form)
        return Path(urlsplit(found).path)

    def restore(self, form: SavepointFormat) -> Restored:
        """Run it from its first savepoint of a format, with one more order to read.

        Raises:
            RuntimeError: If the order does not come out on top of the state that was saved.
        """
        rest = self._cluster.rest
        rest.cancel(self._job)
        customer, amount = self._first
        new = self._orders / "new.csv"
        new.write_text(f"{customer},{MARK}\n")
        before = self._cluster.printed.stat().st_size
        begun = time.monotonic()
        self._job = self._cluster.client.submit(
            *statements(self._orders), savepoint=self._locations[form]
        )
        accepted = time.monotonic()
        found = self._wait_for_row(before)
        took = time.monotonic() - begun
        if found != (wanted := Seen(customer, 2, amount + MARK, MARK)):
            raise RuntimeError(f"Flink found {found}, which should be {wanted}")
        rest.wait_until_running(self._job)
        new.unlink()
        return Restored(rest.restored_seconds(self._job), took, accepted - begun)

    def _wait_for_row(self, offset: int) -> Seen:
        """Wait until the sink prints a row behind an offset."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while time.monotonic() < deadline:
            with self._cluster.printed.open("rb") as printed:
                printed.seek(offset)
                if rows := seen(printed.read().decode(errors="replace")):
                    return rows[0]
            self._cluster.rest.check(self._job)
            time.sleep(_POLL_SECONDS)
        raise RuntimeError(f"no new record after {_DEADLINE_SECONDS:.0f} s")


def statements(orders: Path) -> tuple[str, ...]:
    """Return the query in SQL: its tables, and the job.

    Args:
        orders: A directory of CSV files.
    """
    source = {
        "connector": "filesystem",
        "path": orders.as_uri(),
        "format": "csv",
        "source.monitor-interval": "50 ms",
    }
    sink = {"connector": "print", "print-identifier": _SINK}
    columns = "customer STRING, orders BIGINT, total BIGINT, most BIGINT"
    job = (
        f"INSERT INTO {_SINK} SELECT customer, COUNT(*), SUM(amount), MAX(amount) "  # noqa: S608
        f"FROM orders GROUP BY customer HAVING MAX(amount) >= {MARK}"
    )
    return (
        f"CREATE TABLE orders (customer STRING, amount BIGINT) WITH ({_options(source)})",
        f"CREATE TABLE {_SINK} ({columns}) WITH ({_options(sink)})",
        job,
    )


def seen(printed: str) -> list[Seen]:
    """Return the rows that the sink printed, in whole lines, as they are after each change."""
    return [
        Seen(customer, int(orders), int(total), int(most))
        for customer, orders, total, most in _PRINTED.findall(printed)
    ]


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def _first_order(orders: Path) -> tuple[str, int]:
    """Return key and amount of an order."""
    for file in sorted(orders.glob("*.csv")):
        with file.open() as lines:
            if line := lines.readline().strip():
                customer, amount = line.split(",")
                return customer, int(amount)
    raise RuntimeError(f"there are no orders in {orders}")
