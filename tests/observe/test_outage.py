"""A store that does not answer is told once, and again at the next outage."""

from __future__ import annotations

import logging

import pytest

from savepoints.errors import UnreachableError
from savepoints.observe.outage import Outage


def test_each_outage_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    outage = Outage("totals")
    outage.over()

    for _ in range(2):
        for attempt in range(3):
            outage.noticed(UnreachableError(f"no answer to request {attempt}"))
        outage.over()

    told = (
        "no answer to request 0; until it answers, totals continues without savepoints, and other"
    )
    begun = ("ERROR", f"{told} processes may assume that the query is stopped")
    ended = ("INFO", "the store is reachable again after 0 s")
    found = [(one.levelname, one.getMessage()) for one in caplog.records]
    assert found == [begun, ended, begun, ended]
