"""Programs that end, or stop their session, with a query that they have not stopped."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from savepoints.handle import Store
from savepoints.store.locks import lease
from tests.e2e.marks import NIGHTLY
from tests.e2e.pages import blocks
from tests.e2e.test_own_pages import driver_environment, run, write_clicks

pytestmark = NIGHTLY

_USERS = ("ada", "bob", "ada")
_AGAIN = """
spark.stop()
taken = attached.stop()
assert (taken.cut.batch_id, taken.forms, query.isActive) == (0, ("native",), False)
assert attached.create(tags=["by-hand"]).forms == ("native",)
spark = builder.appName("the next one").getOrCreate()
assert spark.sparkContext.appName == "the next one"
with open(f"{root}/clicks/2.json", "w") as file:
    file.write('{"user": "eve", "page": "/"}')
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    """Return the program of the page up to where its query has read everything."""
    (tmp_path / "clicks").mkdir()
    write_clicks(tmp_path, 1, _USERS)
    whole = blocks("your-driver.md", "python")[0]
    begin, reached, _ = whole.partition("query.processAllAvailable()")
    return begin + reached + "\n"


def type_in(text: str, directory: Path) -> None:
    (directory / "clicks.py").write_text(text)
    run([sys.executable, "clicks.py", str(directory)], directory, **driver_environment(directory))


def counts(directory: Path) -> dict[str, int]:
    rows = DeltaTable(str(directory / "counts")).to_pyarrow_table().to_pylist()
    return {one["user"]: one["count"] for one in rows}


def test_trap_a_program_that_ends_at_a_savepoint_dies_of_a_segmentation_fault(
    program: str, tmp_path: Path
) -> None:
    """One of three did, having done all its work; and other machines took the query for running."""
    busy = (
        program.replace('every="10m"', 'every="10ms"') + "while not attached.attempts:\n    pass\n"
    )

    type_in(busy, tmp_path)

    store = Store.open(str(tmp_path / "savepoints"))
    last = lease.last_holder(store.root, "clicks")
    assert last is not None
    assert (last.is_given_up(), last.expires_at, last.stopped_after) == (True, last.acquired_at, 0)
    assert {one.result for one in store.events.all()} <= {"done", "skipped"}
    (report,) = store.verify(depth="checksums").reports
    assert report.grade == "ok"
    assert counts(tmp_path) == Counter(_USERS)


def test_trap_a_session_that_is_stopped_first_keeps_the_query_for_ever(
    program: str, tmp_path: Path
) -> None:
    """As in notebooks: Spark still says that the query is active, and the next was refused."""
    named = program.replace("spark = (", "builder = (", 1).replace(
        "    .getOrCreate()\n)", ")\nspark = builder.getOrCreate()", 1
    )
    _, begin, rest = named.partition("clicks = spark.readStream")

    type_in(named + _AGAIN + begin + rest + "attached.stop()\n", tmp_path)

    store = Store.open(str(tmp_path / "savepoints"))
    assert [one.cut.batch_id for one in store.catalog.all()] == [1, 0, 0]
    assert {one.result for one in store.events.all()} <= {"done", "skipped"}
    assert lease.holder(store.root, "clicks") is None
    assert counts(tmp_path) == Counter((*_USERS, "eve"))
