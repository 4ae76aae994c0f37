"""`attach`: periodic savepoints of a query that the user starts, in the user's own driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from savepoints.config import settings as config_settings
from savepoints.config.schedule import parse_schedule
from savepoints.config.settings import Settings
from savepoints.errors import UsageError
from savepoints.model import FORMS, Form
from savepoints.operations.run import periodic
from savepoints.operations.run.periodic import Attempt
from savepoints.runtime.ticker import Ticker
from savepoints.spark import listener
from savepoints.store.root import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Attached:
    """Periodic savepoints of one query, until it ends or `detach` is called."""

    def __init__(self, ticker: Ticker, attempts: list[Attempt]) -> None:
        """Begin."""
        self._ticker = ticker
        self._attempts = attempts
        ticker.start()

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """What came of each savepoint so far."""
        return tuple(self._attempts)

    @property
    def active(self) -> bool:
        """Whether more savepoints will be taken."""
        return self._ticker.active

    def detach(self) -> None:
        """Take no more savepoints; waits for one that is under way. The query goes on."""
        self._ticker.join()


def attach(
    spark: SparkSession,
    query: StreamingQuery,
    *,
    every: str,
    store: str | None = None,
    name: str | None = None,
    checkpoint: str | None = None,
    outputs: dict[str, str] | None = None,
    forms: Sequence[Form] = FORMS,
    settings: Settings | None = None,
) -> Attached:
    """Take savepoints of a running query on a schedule, in a thread of this driver.

    The query is never stopped, slowed by a lock, or failed by this: a savepoint that fails is in
    the log and in the store's events. It ends with the query.

    ```python
    query = orders.writeStream...start()
    savepoints.attach(spark, query, every="10m", store="s3://bucket/savepoints")
    ```

    Args:
        spark: The session in which the query runs.
        query: What `start()` returned.
        every: An interval (`90s`, `10m`) or a cron expression in UTC (`*/10 * * * *`).
        store: URI of the store; the one in the settings by default.
        name: What to call the query in the store; its `queryName`, or else Spark's id.
        checkpoint: Its checkpoint directory, found out by default.
        outputs: The Delta tables that it writes, by name.
        forms: `native`, `canonical` or both.
        settings: Read from `savepoints.toml` and the environment by default.

    Raises:
        UsageError: If no store is given, or the schedule or the checkpoint is not known.
        StoreNotFoundError: If there is no such store.
    """
    settings = settings or config_settings.load(flags={"store": store})
    if not (store or settings.store):
        raise UsageError(
            "no store is given", hint="savepoints.attach(…, store='s3://bucket/savepoints')"
        )
    opened = Store.open(store or settings.store)
    directory = checkpoint or listener.checkpoint_of(query)
    attempts: list[Attempt] = []

    def take() -> None:
        attempts.append(
            periodic.take(
                opened,
                query=name or query.name or None,
                checkpoint=directory,
                settings=settings,
                forms=forms,
                outputs=outputs,
            )
        )

    ticker = Ticker(parse_schedule(every), take, f"savepoints of {name or query.name or query.id}")
    attached = Attached(ticker, attempts)
    listener.on_end(spark, query, ticker.end)
    return attached
