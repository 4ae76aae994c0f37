"""`list` of a thousand savepoints on S3 takes at most twice as long as deltalake's bare read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from savepoints.cli.main import _run
from savepoints.cli.output import Terminal
from savepoints.handle import Store
from savepoints.io import Location, storage_options
from savepoints.store.tables import catalog
from tests import samples
from tests.faults.s3_proxy import Request, S3Proxy, proxy_of

# It measures, over and over until the machine had a quiet moment.
pytestmark = pytest.mark.nightly

COUNT, SINGLE = 1000, 10
REQUEST_SECONDS = 0.01
# On a busy machine more are needed until both had a quiet moment.
ROUNDS, MOST_ROUNDS = 3, 25


@pytest.fixture(scope="module")
def far_away(s3_endpoint: str) -> Iterator[S3Proxy]:
    """Give a way to the S3 server on which a request takes as long as on S3, when it is quick."""

    def wait(request: Request) -> None:
        time.sleep(REQUEST_SECONDS)

    with proxy_of(s3_endpoint) as proxy, proxy.faults(wait):
        yield proxy


@pytest.fixture(scope="module")
def made() -> list[Store]:
    """Keep the store, which takes longer to make than to read."""
    return []


@pytest.fixture
def thousand(
    on_s3: Location, made: list[Store], far_away: S3Proxy, monkeypatch: pytest.MonkeyPatch
) -> Store:
    """Make a catalog of large commits, as compaction leaves them, and some of one row."""
    if not made:
        store = Store(on_s3)
        rows = [catalog._to_row(samples.savepoint(number)) for number in range(COUNT)]
        for first in range(0, COUNT - SINGLE, 200):
            store.catalog._table.append(rows[first : min(first + 200, COUNT - SINGLE)])
        for number in range(COUNT - SINGLE, COUNT):
            store.catalog._table.append([rows[number]])
        made.append(store)
    monkeypatch.setenv("AWS_ENDPOINT_URL", far_away.endpoint)
    return Store.at(str(made[0].root)).make()


def seconds(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def bare_read(store: Store) -> int:
    place = store.root / "catalog"
    table = DeltaTable(str(place), storage_options=storage_options(place.uri))
    rows = pa.table(QueryBuilder().register("rows", table).execute("select * from rows"))
    return len(rows.to_pylist())


@pytest.mark.parametrize("form", ["text", "json"])
def test_it_takes_at_most_twice_a_bare_read(
    form: str, thousand: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["list", "--store", str(thousand.root), "-o", form]
    ours: list[float] = []
    bare: list[float] = []
    while len(ours) < MOST_ROUNDS and (len(ours) < ROUNDS or min(ours) > 2 * min(bare)):
        bare.append(seconds(lambda: bare_read(thousand)))
        ours.append(seconds(lambda: _run(Terminal(), words)))
        shown = capsys.readouterr().out

    if form == "json":
        assert len(json.loads(shown)["savepoints"]) == COUNT
    else:
        assert sum(line.startswith(" sp-") for line in shown.splitlines()) == COUNT
    # Other work on the machine only ever adds time; `make bench` compares medians.
    ratio = min(ours) / min(bare)
    assert ratio <= 2, f"{min(ours):.3f} s, {ratio:.2f} times {min(bare):.3f} s"


def test_the_whole_command_shows_them_all(thousand: Store) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "savepoints", "list", "--store", str(thousand.root), "-o", "json"],
        env=os.environ,
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=True,
    )

    newest_first = [f"{COUNT - 1 - number:06d}" for number in range(COUNT)]
    assert [one["id"][-6:] for one in json.loads(done.stdout)["savepoints"]] == newest_first
