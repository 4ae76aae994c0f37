"""What a driver says while the store's S3 does not answer, and how it goes on."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.run.attach import Attached
from tests.e2e.plain_driver import Driver
from tests.faults.s3_proxy import Fault, proxy_of
from tests.spark_session import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.timeout(900),
]


@dataclass
class DriverWithStore(Driver):
    """A driver whose store is elsewhere."""

    place: str = ""

    @property
    def store(self) -> Store:
        return Store.at(self.place)


def has_failed(attached: Attached, since: int, times: int) -> bool:
    return len([one for one in attached.attempts[since:] if one.error]) >= times


def test_an_outage_of_s3_is_one_line_and_savepoints_go_on_after_it(
    spark: SparkSession,
    tmp_path: Path,
    on_s3: Location,
    s3_endpoint: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with proxy_of(s3_endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        driver = DriverWithStore(spark, tmp_path, "append", place=str(on_s3 / "store"))
        driver.store.make()
        driver.add(1)
        query = driver.start()
        query.processAllAvailable()
        attached = driver.attach(query, every="1s")
        wait_until(lambda: bool(attached.attempts), "a savepoint was taken")
        caplog.clear()
        caplog.set_level(logging.INFO)

        with proxy.faults(lambda _: Fault.RESET):
            tried = len(attached.attempts)
            driver.add(2)
            query.processAllAvailable()
            for failures in (1, 2, 3):
                wait_until(partial(has_failed, attached, tried, failures), "savepoints failed")
            said = [one for one in caplog.records if one.name.startswith("savepoints.")]
            # A second between savepoints is this test's own.
            said = [one for one in said if "runs were skipped" not in one.getMessage()]
            lines = [one.getMessage() for one in said if one.levelno >= logging.WARNING]
        assert query.isActive
        assert driver.rows() == [(1, 1), (2, 2)]

        tried = len(attached.attempts)
        driver.add(3)
        query.processAllAvailable()
        wait_until(lambda: any(one.savepoint for one in attached.attempts[tried:]), "one was taken")
        last = attached.stop()

    assert last is not None
    assert last.cut.batch_id == 2
    assert len(lines) == 1, lines
    assert "did not respond" in lines[0]
    assert all(one.exc_info is None for one in said)
