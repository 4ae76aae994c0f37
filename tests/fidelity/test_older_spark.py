"""Savepoints of checkpoints that older versions of Spark wrote, restored and gone on with here.

Compared with a query that this Spark has run from the beginning, over the same files.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from _pytest.mark import ParameterSet

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import FORMS, Form
from savepoints.state.storage.read import state_session
from tests import draw
from tests.data import make_older

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.drawn(3)]

# One file more makes windows close whose rows came before the savepoint.
LATER = range(make_older.FILES, make_older.FILES + 2)


BY_DAY = draw.chance("older Spark").choice(
    ["3.5_rocksdb_windows", "4.0_hdfs_windows", "4.1_rocksdb_windows"]
)


def cases() -> list[ParameterSet]:
    """All of them; by day one of three that have all operators. Rows are of 4.0 and later."""
    names = sorted(path.stem for path in make_older.HERE.glob("*.zip"))
    return [
        pytest.param(name, form, marks=[] if name == BY_DAY else [pytest.mark.nightly])
        for name in names
        for form in (("native",) if name.startswith("3.") else FORMS)
    ]


@pytest.mark.parametrize(("name", "form"), cases())
def test_what_an_older_spark_saved_goes_on_exactly(
    name: str, form: Form, spark: SparkSession, tmp_path: Path
) -> None:
    _, provider, query = name.split("_")
    source = tmp_path / "in"
    own = state_session(spark, 1)
    own.conf.set("spark.sql.shuffle.partitions", "2")
    own.conf.set("spark.sql.streaming.stateStore.providerClass", make_older.PROVIDERS[provider])
    make_older.put(source, range(make_older.FILES))
    checkpoint = make_older.unpack(name, Location.of(str(tmp_path / "older")), source)
    (tmp_path / "store").mkdir()
    store = Store.at(str(tmp_path / "store")).make()
    taken = store.create(query=query, checkpoint=str(checkpoint)).execute()
    assert store.savepoint(taken.id).verify().findings == ()
    restored = str(tmp_path / "restored")
    store.savepoint(taken.id).restore(restored, form=form).execute()
    first = make_older.run(own, source, str(tmp_path / "reference"), query)

    make_older.put(source, LATER)
    expected = make_older.run(own, source, str(tmp_path / "reference"), query)
    found = make_older.run(own, source, restored, query)

    assert taken.cut.batch_id == max(first)
    assert found == expected
    assert sum(map(len, found.values())) > 0
    # This Spark has written what 3.5 did not, so from now on rows can be saved.
    again = store.create(query=f"{query}-again", checkpoint=restored).execute()
    assert (again.forms, again.rows_missing) == (FORMS, None)
    assert "unknown" not in {one.name for one in again.operators}
