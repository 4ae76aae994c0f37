"""A seeded query goes on exactly as the one from whose state the rows are, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint.logs.offset_log import PROVIDER_KEY
from savepoints.checkpoint.state.operators import PROVIDERS
from savepoints.operations.begin.new_query import Begun
from tests.operations.begin import lab as labs
from tests.operations.begin.lab import After, Lab

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

CUT, LAST = 4, 7
PROGRAMS = (
    "totals", "total", "window", "window_update", "session", "dedupe", "within", "chain",
    "join_inner", "join_left", "pandas_event", "transform",
)  # fmt: skip
UPSERTED = {"totals", "window_update"}
ONLY_ROCKSDB = {"transform"}


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab.open(spark, tmp_path)


@pytest.fixture
def hdfs(spark: SparkSession) -> Iterator[None]:
    """Let queries keep their state in Spark's default store."""
    before = spark.conf.get(PROVIDER_KEY)
    spark.conf.set(PROVIDER_KEY, PROVIDERS["hdfs"])
    yield
    spark.conf.set(PROVIDER_KEY, str(before))


def seeded(lab: Lab, program: str, cut: After, rows: dict[str, str]) -> Begun:
    """Begin a query of a program with rows, from the version of the cut on."""
    plan = lab.query("seeded", program).seed(
        rows, until=f"version:{CUT}", watermark=labs.watermark(cut)
    )
    return plan.execute()


def require_same(program: str, cut: After, one: After, other: After) -> None:
    """Compare what the query has and the seeded one has, which wrote nothing before the cut."""
    assert one.watermark == other.watermark
    assert one.state == other.state
    if program in UPSERTED:
        written = one.rows - cut.rows
        assert written <= other.rows <= one.rows
    elif program == "total":
        assert one.rows == other.rows
    else:
        assert one.rows - cut.rows == other.rows


def goes_on_exactly(lab: Lab, program: str) -> None:
    for version in range(CUT + 1):
        lab.append(version)
    streamed = lab.query("streamed", program)
    for version in range(CUT + 1):
        cut = lab.advance(streamed, version)
    assert any(cut.state.values()), "nothing was seeded"
    done = seeded(lab, program, cut, lab.given(streamed, "cut"))
    query = lab.query("seeded", program)
    assert (query.generation.generation, query.latest.id) == (1, done.savepoint_id)
    assert lab.now(query).state == cut.state
    for version in range(CUT + 1, LAST + 1):
        lab.append(version)
        require_same(program, cut, lab.advance(streamed, version), lab.advance(query, version))
    assert lab.now(query).state != cut.state


@pytest.mark.nightly
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_seeded_query_equals_the_streamed_one(lab: Lab, program: str) -> None:
    goes_on_exactly(lab, program)


@pytest.mark.nightly
@pytest.mark.usefixtures("hdfs")
@pytest.mark.parametrize("program", [one for one in PROGRAMS if one not in ONLY_ROCKSDB])
def test_a_seeded_query_equals_the_streamed_one_on_the_default_store(
    lab: Lab, program: str
) -> None:
    goes_on_exactly(lab, program)
