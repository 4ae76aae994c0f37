"""What `compare` refuses before Spark or Kafka is asked anything, with the way out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from savepoints.errors import (
    LockedError,
    MissingExtraError,
    QueryNotFoundError,
    QueryRunningError,
    SavepointsError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.store.locks import lease
from tests.cli.conftest import Call
from tests.samples import unpack

APP = "tests.e2e.chain_app:app"


@pytest.fixture
def store(call: Call, local_store: Store, on_local: Location) -> Store:
    """Give a store with two queries that nobody runs; they read different topics."""
    Path("savepoints.toml").write_text(
        f'store = "{local_store.root}"\n'
        + "".join(
            f'[queries.{name}]\napp = "{APP}"\napp_name = "chain"\n'
            f'checkpoints = "{on_local / name}"\noutputs.totals = "{on_local / name}/totals"\n'
            f'topics.sales = "sales-{name}"\n'
            for name in ("a", "b")
        )
    )
    for name in ("a", "b"):
        live = unpack("rocksdb", on_local / name / "live")
        local_store.generations.begin(name, 1, live, by="fork")
    return local_store


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("a",), UsageError, "two or more different queries, but got: a"),
        (("a", "b", "a"), UsageError, "different queries, but got: a, b, a"),
        (("a", "c"), QueryNotFoundError, "no query 'c'"),
        (("a", "b"), UsageError, "a reads sales-a; b reads sales-b"),
        (("a", "b", "--key", "totals"), UsageError, "'totals' is not in the form OUTPUT=COLUMN"),
        (("a", "b", "--key", "totals=a,"), UsageError, "is not in the form OUTPUT=COLUMN"),
        (("a", "b", "--metric", "SELECT 1"), UsageError, "'SELECT 1' is not in the form NAME=SQL"),
        (("a", "b", "--report", "no/such/r.html"), UsageError, "of --report does not exist"),
        # Found out only when the queries had run and the report was to be written.
        (("a", "b", "--report", ""), UsageError, "--report is empty"),
    ],
)
def test_what_makes_no_sense_is_refused(
    call: Call, store: Store, arguments: tuple[str, ...], error: type[SavepointsError], said: str
) -> None:
    """Nothing is run, and the hint is there."""
    found = call("compare", *arguments, "--yes", "-o", "json")
    assert (found.code, found.error["name"]) == (error.exit_code, error.__name__)
    assert said in found.error["message"]
    assert found.error["hint"]
    assert found.out == ""


def test_a_running_query_is_refused_with_the_way_to_pause_it(call: Call, store: Store) -> None:
    """Exit code 12, before anything is resolved; another verb's lease is 11."""
    for verb, error in (("run", QueryRunningError), ("rollback", LockedError)):
        with lease.hold(store.root, "b", verb):
            found = call("compare", "a", "b", "--yes", "-o", "json")
        assert (found.code, found.error["name"]) == (error.exit_code, error.__name__)
        assert "b" in found.error["message"]
    with lease.hold(store.root, "b", "run"):
        assert "savepoints pause b --wait" in call("compare", "a", "b", "--yes").err


def test_without_jinja_a_report_is_refused_before_anything_runs(
    call: Call, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour of comparing would be lost otherwise."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    found = call("compare", "a", "b", "--report", "r.html", "--yes", "-o", "json")
    assert (found.code, found.error["name"]) == (2, MissingExtraError.__name__)
    assert "savepoints[report]" in found.error["hint"]
