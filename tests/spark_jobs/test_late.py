"""Orders that are held back: against the published file, by pandas."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from spark_jobs.orders import __main__ as commands
from spark_jobs.orders import late
from spark_jobs.orders.cdnow import data_file, read_orders
from spark_jobs.orders.codec import decode_order


def test_what_is_held_back_is_a_year_of_some_customers_and_no_order_is_lost() -> None:
    known = read_orders()
    raw = pd.read_csv(data_file(), sep=r"\s+", dtype={"_Salesdate": str}, skiprows=1, header=None)

    kept, held = late.held_back(known, 200)

    customers = {one.customer_id for one in held}
    of_them = raw[raw[0].isin(customers) & raw[1].astype(str).str.startswith("1997")]
    assert len(customers) == 200
    assert len(held) == len(of_them)
    assert sum(one.amount_cents for one in held) == round(of_them[3].sum() * 100)
    assert sorted((*kept, *held), key=lambda one: one.ordered_at) == list(known)


def test_the_file_has_the_records_that_the_feed_would_have_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "late.parquet"

    assert commands.main(["held-back", "--customers", "20", "--to", str(file)]) == 0

    _, held = late.held_back(read_orders(), 20)
    rows = pq.read_table(file).to_pylist()
    assert [decode_order(row["value"]) for row in rows] == held
    assert [row["key"] for row in rows] == [str(one.customer_id).encode() for one in held]
    assert [row["timestamp"] for row in rows] == [one.ordered_at for one in held]
    assert str(len(held)) in capsys.readouterr().out
