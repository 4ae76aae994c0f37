"""The checks of a promotion, over tables that deltalake wrote."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from savepoints.config.settings import PromoteSettings
from savepoints.errors import UsageError
from savepoints.model import OutputVersion
from savepoints.operations.fork import promote_checks
from savepoints.outputs.compare import sql_metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_trap_outputs_whose_names_are_alike_are_counted_each_by_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As views, `live_totals` of the fork and `totals` of the live query were one."""

    def written(side: str, name: str, rows: int) -> OutputVersion:
        uri = str(tmp_path / side / name)
        write_deltalake(uri, pa.table({"n": range(rows)}))
        return OutputVersion(name, uri, "", 0, "", None)

    forked = [written("fork", name, rows) for name, rows in (("totals", 3), ("live_totals", 4))]
    live = [written("live", name, rows) for name, rows in (("totals", 5), ("live_totals", 4))]

    found = promote_checks._of_rows(
        promote_checks._counted(spark, forked, {}),
        promote_checks._counted(spark, live, {}),
        PromoteSettings(),
    )

    assert {one.name: one.found for one in found} == {
        "rows of totals": "the fork has 3 rows, the live query 5",
        "rows of live_totals": "the fork has 4 rows, the live query 4",
    }


@pytest.mark.spark
def test_trap_rows_of_other_writers_made_an_empty_fork_look_full(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Those that were copied from the shared table of the live query."""

    def counted(side: str, *rows: str) -> dict[str, int]:
        uri = str(tmp_path / side)
        write_deltalake(uri, pa.table({"by": rows}))
        output = OutputVersion("totals", uri, "", 0, "", None)
        return promote_checks._counted(spark, [output], {"totals": "by = 'mine'"})

    fork, live = counted("fork", "theirs"), counted("live", "mine", "theirs", "theirs")

    (found,) = promote_checks._of_rows(fork, live, PromoteSettings())
    assert (found.found, found.passed) == ("the fork has 0 rows, the live query 1", False)


@pytest.mark.parametrize(
    ("new", "old", "passed"),
    [(110, 100, True), (90, 100, True), (111, 100, False), (0, 0, True), (1_000_000, 0, False)],
)
def test_trap_any_number_of_rows_was_within_a_tenth_of_none(
    new: int, old: int, passed: bool
) -> None:
    """The check said a difference of 0.0000."""
    (found,) = promote_checks._of_rows({"totals": new}, {"totals": old}, PromoteSettings(rows=0.1))

    assert found.passed is passed
    assert found.found.startswith(f"the fork has {new} rows, the live query {old}; ")


def test_trap_sql_compares_names_without_case() -> None:
    """The one view took the other's place without an error."""
    with pytest.raises(UsageError, match=r"several outputs as totals \(totals, Totals\)"):
        sql_metrics.refuse_ambiguous(["totals", "by_day", "Totals"])
    sql_metrics.refuse_ambiguous(["totals", "by_day"])
