"""A seeded query goes on exactly as the one from whose state the rows are, batch by batch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from savepoints.errors import (
    IncompatibleError,
    LayoutChangedError,
    NativeOnlyError,
    SeedRowsError,
    TargetExistsError,
    UsageError,
)
from savepoints.handle import Query
from savepoints.operations.begin.new_query import Begun
from tests import draw
from tests.operations.begin import lab as labs
from tests.operations.begin.lab import CLOCK, ONLY_ROCKSDB, After, Lab

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

# A streamed query is in the middle of everything then: it has evicted, and has more to evict.
BEFORE, CUT, LAST = 1, 4, 6
PROGRAMS = (
    "totals", "total", "window", "window_update", "part", "session", "dedupe", "within", "chain",
    "join_inner", "join_left", "pandas_event", "transform",
)  # fmt: skip
UPSERTED = {"totals", "window_update"}


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab.open(spark, tmp_path)


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


def streamed_to_the_cut(lab: Lab, program: str, *before: int) -> tuple[Query, After]:
    """Write the events up to the cut, and let a query read them, with stops at versions before."""
    for version in range(CUT + 1):
        lab.append(version)
    query = lab.query("streamed", program)
    for version in before:
        lab.advance(query, version)
    return query, lab.advance(query, CUT)


def goes_on_exactly(lab: Lab, program: str) -> None:
    streamed, cut = streamed_to_the_cut(lab, program, BEFORE)
    assert any(cut.state.values()), "nothing was seeded"
    done = seeded(lab, program, cut, lab.given(streamed, "cut"))
    query, clock = lab.query("seeded", program), CLOCK.get(program, ())
    assert (query.generation.generation, query.latest.id) == (1, done.savepoint_id)
    assert lab.now(query).state == cut.state
    for version in range(CUT + 1, LAST + 1):
        lab.append(version)
        one, other = (lab.advance(each, version, clock) for each in (streamed, query))
        require_same(program, cut, one, other)
    assert lab.now(query).state != cut.state


@pytest.mark.nightly
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_seeded_query_equals_the_streamed_one(lab: Lab, program: str) -> None:
    goes_on_exactly(lab, program)


@pytest.mark.nightly
def test_trap_what_expired_before_the_seed_is_never_evicted(lab: Lab) -> None:
    """Spark looks only for what expired since the time of the batch before, which is the seed's."""
    goes_on_exactly(lab, "transform_ttl")


@pytest.mark.nightly
def test_trap_a_timer_that_the_watermark_has_passed_never_fires(lab: Lab) -> None:
    streamed, cut = streamed_to_the_cut(lab, "transform")
    rows = lab.given(streamed, "cut")
    (timers,) = (place for name, place in rows.items() if "imer" in name)
    table = pq.read_table(timers)
    at = table.schema.get_field_index("fires_at_ms")
    passed = pa.array([cut.watermark[1], *table["fires_at_ms"].to_pylist()[1:]], pa.int64())
    shutil.rmtree(timers)
    Path(timers).mkdir()
    pq.write_table(table.set_column(at, "fires_at_ms", passed), f"{timers}/rows.parquet")

    with pytest.raises(
        SeedRowsError, match=r"rows that are due at or before the watermark.*: 1 of \d+"
    ):
        seeded(lab, "transform", cut, rows)


@pytest.mark.nightly
@pytest.mark.usefixtures("hdfs")
@pytest.mark.parametrize("program", [one for one in PROGRAMS if one not in ONLY_ROCKSDB])
def test_a_seeded_query_equals_the_streamed_one_on_the_default_store(
    lab: Lab, program: str
) -> None:
    goes_on_exactly(lab, program)


@pytest.mark.nightly
def test_rows_that_differ_are_seen_later(lab: Lab) -> None:
    """The negative control: a count more, or a row less, and what is compared shows it."""
    streamed, cut = streamed_to_the_cut(lab, "window")
    (place,) = lab.given(streamed, "cut").values()
    rows = lab.spark.read.parquet(place).coalesce(1)
    more = "named_struct('sum', value.sum, 'count', value.count + 1) AS value"
    wrong = {"more": rows.selectExpr("key", more), "less": rows.limit(rows.count() - 1)}
    lab.append(CUT + 1)
    true = lab.advance(streamed, CUT + 1)
    for name, frame in wrong.items():
        place = str(lab.directory / "wrong" / name)
        frame.write.parquet(place)
        query = lab.query(name, "window")
        plan = query.seed(place, until=f"version:{CUT}", watermark=labs.watermark(cut))
        plan.execute()
        after = lab.advance(query, CUT + 1)
        assert (after.rows, after.state) != (true.rows - cut.rows, true.state)


@draw.taking_turns("seed of pandas", "seed of directories")
def test_totals_of_pandas_are_gone_on_with(lab: Lab) -> None:
    """Rows that Spark never saw: what follows is the same computation over all events."""
    lab.append(0)
    place = str(lab.directory / "computed.parquet")
    events = lab.events()
    totals = events.groupby("k", as_index=False, dropna=False).agg(
        count=("v", "size"), sum=("v", "sum"), max=("t", "max")
    )
    pq.write_table(pa.Table.from_pandas(totals, preserve_index=False), place)
    lab.query("seeded", "totals").seed(place, until="version:0").execute()
    lab.append(1)
    lab.query("seeded", "totals").run(until="version:1", final_savepoint=False)
    events = lab.events().fillna({"k": "none"})
    true = events.groupby("k", as_index=False).agg(
        n=("v", "size"), s=("v", "sum"), last=("t", "max")
    )
    touched = true["k"].isin(events[events["id"].str.startswith("1-")]["k"])
    written = DeltaTable(str(lab.directory / "seeded")).to_pandas()
    assert plain(written) == plain(true[touched])


@draw.taking_turns("seed of directories", "seed of pandas")
def test_trap_keys_in_names_of_directories_become_numbers(lab: Lab) -> None:
    """The keys `01` and `1` were said to be whole numbers instead of texts, in no file at all."""
    lab.append(0)
    totals = pa.table({"count": [1], "sum": [1], "max": pa.array([labs.BEGINNING])})
    for key in ("01", "1"):
        (lab.directory / "computed" / f"k={key}").mkdir(parents=True)
        pq.write_table(totals, lab.directory / "computed" / f"k={key}" / "rows.parquet")
    query = lab.query("seeded", "totals")

    query.seed(str(lab.directory / "computed"), until="version:0").execute()

    (state,) = lab.now(query).state.values()
    assert sorted(json.loads(row)["key"]["k"] for _, row in state) == ["01", "1"]


def plain(totals: pd.DataFrame) -> list[tuple[str, int, int, str]]:
    """Return totals by key, a missing one as text."""
    rows = totals.itertuples(index=False)
    return sorted(
        ("none" if pd.isna(k) else str(k), int(n), int(s), pd.Timestamp(last).isoformat())
        for k, n, s, last in rows
    )


@pytest.mark.nightly
def test_wrong_rows_are_refused_with_counts_and_samples(lab: Lab) -> None:
    for version in range(2):
        lab.append(version)
    at = pa.array([labs.BEGINNING] * 4, pa.timestamp("us", "UTC"))
    good = {"k": ["a", "b", "c", None], "count": [1, 2, 3, 4], "sum": [1, 2, 3, 4], "max": at}
    kinds = {"count": pa.int64(), "sum": pa.int64()}
    wrong: dict[str, tuple[dict[str, object], type[Exception], str]] = {
        "nulls": (
            {"count": [1, None, None, 4]},
            SeedRowsError,
            "rows that have a null in value.count: 2 of 4",
        ),
        "doubled": (
            {"k": ["a", "b", "a", "a"]},
            SeedRowsError,
            r'rows that share their key with another row: 3 of 4.*"k":"a"',
        ),
        "nulls doubled": (
            {"k": ["a", None, "b", None]},
            SeedRowsError,
            "rows that share their key with another row: 2 of 4",
        ),
        "text": (
            {"sum": ["1", "2", "3", "4"]},
            IncompatibleError,
            "value.sum is string instead of long",
        ),
        "more": ({"other": [1, 2, 3, 4]}, IncompatibleError, "other does not belong to this state"),
        "missing": ({"max": None}, IncompatibleError, "value.max is missing"),
    }
    query = lab.query("seeded", "totals")
    for name, (changed, error, why) in wrong.items():
        columns = {key: one for key, one in {**good, **changed}.items() if one is not None}
        place = str(lab.directory / f"{name}.parquet")
        exact = {
            key: pa.array(one, kinds.get(key))
            if isinstance(one, list) and key not in changed
            else one
            for key, one in columns.items()
        }
        pq.write_table(pa.table(exact), place)
        with pytest.raises(error, match=why):
            query.seed(place, until="version:0")
    assert not list((lab.directory / "store").glob("savepoints/*"))
    assert not (lab.directory / "checkpoints").exists()


@pytest.mark.nightly
def test_what_does_not_fit_the_program_is_refused(lab: Lab) -> None:
    lab.append(0)
    with pytest.raises(UsageError, match=r"window has a watermark"):
        lab.query("window", "window").seed("none", until="version:0")
    with pytest.raises(UsageError, match="totals has no watermark"):
        lab.query("totals", "totals").seed("none", until="version:0", watermark=labs.BEGINNING)
    with pytest.raises(UsageError, match=r"no rows are given for .*right"):
        lab.query("join_left", "join_left").seed(
            {"left": "none"}, until="version:0", watermark=labs.BEGINNING
        )
    with pytest.raises(NativeOnlyError, match="globalLimit"):
        lab.query("limit", "limit").seed("none", until="version:0")
    lab.advance(lab.query("totals", "totals"), 0)
    with pytest.raises(TargetExistsError, match="already has generation 1") as refused:
        lab.query("totals", "totals").seed("none", until="version:0")
    assert "savepoints fork" in str(refused.value.hint)


@pytest.mark.nightly
def test_outputs_that_a_batch_job_has_filled_go_on_and_back_with_the_query(lab: Lab) -> None:
    for version in range(2):
        lab.append(version)
    streamed = lab.query("streamed", "totals")
    cut = lab.advance(streamed, 1)
    filled = DeltaTable(str(lab.directory / "streamed")).to_pyarrow_table()
    write_deltalake(str(lab.directory / "seeded"), filled)
    query = lab.query("seeded", "totals")
    done = query.seed(lab.given(streamed, "cut"), until="version:1").execute()
    lab.append(2)
    assert lab.advance(query, 2) == lab.advance(streamed, 2)
    query.rollback(str(done.savepoint_id)).execute()
    assert (lab.rows(query), lab.now(query).state) == (cut.rows, cut.state)
    assert lab.advance(query, 2) == lab.now(streamed)


@pytest.mark.nightly
def test_trap_a_program_changed_after_the_seed_is_found_before_its_first_batch(lab: Lab) -> None:
    """Sum and maximum are longs, and Spark compares nothing but types."""
    lab.append(0)
    lab.query("seeded", "sum_max").seed("none", until="version:0").execute()
    lab.append(1)
    with pytest.raises(LayoutChangedError):
        lab.query("seeded", "max_sum").run(until="version:1")
