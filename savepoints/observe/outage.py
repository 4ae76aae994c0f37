"""A store that does not answer for a while: one line in the log, not one for each attempt."""

from __future__ import annotations

import logging
import time

from savepoints.errors import UnreachableError

_LOG = logging.getLogger(__name__)


class Outage:
    """The outages of a store as the run of one query sees them."""

    def __init__(self, query: str) -> None:
        """Begin with a store that answers."""
        self._query = query
        self._since: float | None = None

    def noticed(self, error: UnreachableError) -> None:
        """Log that the store does not answer, unless it has not answered before either."""
        if self._since is not None:
            _LOG.debug("still: %s", error)
            return
        self._since = time.monotonic()
        _LOG.error(
            "%s; until it answers, %s continues without savepoints, and other processes may assume "
            "that the query is stopped",
            error.message,
            self._query,
        )

    def over(self) -> None:
        """Log that the store answers again, if it did not."""
        if self._since is not None:
            _LOG.info("the store is reachable again after %.0f s", time.monotonic() - self._since)
            self._since = None
