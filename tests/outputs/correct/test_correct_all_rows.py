"""All rows of a query are replaced by those of a replay, in one commit; those of others stay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.errors import SeveralRowsError
from savepoints.json_values import from_json, to_json
from savepoints.outputs.correct import commit, correct
from savepoints.outputs.correct.correct import Correction
from savepoints.outputs.delta.row_selection import EVERYTHING, RowSelection
from savepoints.outputs.delta.write import Mode
from tests.outputs.correct import test_correct
from tests.outputs.correct.test_correct import (
    BATCH,
    COLUMNS,
    LIVE,
    MERGE,
    NEXT,
    Row,
    batch,
    content,
    make,
)
from tests.outputs.tables import append, opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.drawn(3)]


def planned(
    uri: Path,
    *,
    mode: Mode = "append",
    own_rows: str | None = None,
    selection: RowSelection = EVERYTHING,
) -> Correction:
    doing = test_correct.planned(
        uri,
        None,
        mode=mode,
        key=("client",) if mode == "upsert" else (),
        entity=None,
        own_rows=own_rows,
        selection=selection,
    )
    return from_json(Correction, to_json(doing))


def replayed(spark: SparkSession, *found: tuple[Row, int]) -> DataFrame:
    rows = [(*row, number) for row, number in found]
    return spark.createDataFrame(rows, f"{COLUMNS}, replay_slice int")


def test_rows_of_others_stay_and_what_was_there_comes_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Done twice it is one commit, which says what it is; rows without an entity are rows, too."""
    uri = tmp_path / "visits"
    mine = [batch(("a", 1, 1, None), ("b", 1, 2, {"x": 1})), batch(("b", 1, 3, None))]
    newest = make(uri, *mine)[-1].version
    append(str(uri), batch(("theirs", 0, 9, None)).to_pydict(), None)
    before = content(uri)
    doing = planned(uri, own_rows="day > 0")
    rows = replayed(spark, ((None, 1, 7, None), 1), (("b", 2, 8, {"y": 2}), 2))

    done = [correct.execute(spark, doing, None, rows) for _ in range(2)]

    assert done[0] == done[1] == correct.Corrected(newest + 2, 3, 2, 0)
    assert opened(str(uri)).version() == newest + 2, "one commit"
    wanted: list[Row] = [(None, 1, 7, None), ("b", 2, 8, {"y": 2}), ("theirs", 0, 9, None)]
    assert content(uri) == sorted(wanted, key=str)
    assert opened(str(uri)).transaction_version(NEXT) == BATCH
    _, mark = commit.find_correction(str(uri), NEXT, BATCH)
    assert mark is not None
    assert (mark.merge_id, mark.rows_removed, mark.rows_added) == (MERGE, 3, 2)

    correct.undo(doing, "op-undo")

    assert content(uri) == before
    assert opened(str(uri)).transaction_version(LIVE) == 1


def test_of_an_upserted_output_the_last_write_of_each_key_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    uri = tmp_path / "visits"
    make(uri, batch(("a", 1, 1, None), ("b", 1, 1, None)))
    doing = planned(uri, mode="upsert")
    one, other = ("a", 1, 5, None), ("a", 2, 6, None)

    with pytest.raises(SeveralRowsError, match="1 key affected"):
        correct.execute(spark, doing, None, replayed(spark, (one, 1), (other, 1)))

    correct.execute(spark, doing, None, replayed(spark, (other, 2), (one, 1)))
    assert content(uri) == [other]


def test_of_a_complete_output_the_last_result_counts(spark: SparkSession, tmp_path: Path) -> None:
    uri = tmp_path / "visits"
    make(uri, batch(("a", 1, 1, None)))
    one, other = ("a", 1, 5, None), ("b", 2, 6, None)

    correct.execute(spark, planned(uri, mode="complete"), None,
                    replayed(spark, (one, 1), (one, 2), (other, 2)))  # fmt: skip

    assert content(uri) == [one, other]


def test_an_output_of_some_rows_and_columns_gets_just_these(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The predicate may name a column that the table does not have; null is not true."""
    uri = tmp_path / "visits"
    make(uri, batch(("a", 1, 1, None)))
    wider = "why string, client string, day int, visits bigint, pages map<string, int>"
    rows = [("no", "b", 1, 2, None, 0), ("yes", "c", 1, 3, None, 0), (None, "d", 1, 4, None, 1)]
    frame = spark.createDataFrame(rows, f"{wider}, replay_slice int")
    part = RowSelection("why = 'yes'", ("client", "day", "visits", "pages"))

    correct.execute(spark, planned(uri, selection=part), None, frame)

    assert content(uri) == [("c", 1, 3, None)]


def test_trap_a_complete_output_of_some_rows_is_empty_when_its_last_result_has_none_of_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The newest slice that has a row for it is not the last one."""
    uri = tmp_path / "visits"
    make(uri, batch(("a", 1, 1, None)))
    part = RowSelection("visits > 5")
    rows = replayed(spark, (("a", 1, 9, None), 1), (("a", 1, 2, None), 2))

    correct.execute(spark, planned(uri, mode="complete", selection=part), None, rows)

    assert content(uri) == []
