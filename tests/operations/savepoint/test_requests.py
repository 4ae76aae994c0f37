"""What a verb asks S3 for: each table of the store is opened once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.rollback import rollback
from savepoints.operations.savepoint import create
from tests import samples
from tests.faults.s3_proxy import Request, proxy_of

# Sends requests while it is called, and counts how often each table of the store is opened.
Opened = Callable[[Callable[[], object]], Counter[str]]

# Requests of the second native savepoint of a query with two state partitions, without leases, as
# these are renewed after a while; of them for its files and the live checkpoint.
REQUESTS, FILES, CHECKPOINT = 78, 23, 14

# What a reader of a Delta table asks for first, once.
_FIRST = re.compile(r".*/store/(\w+)/_delta_log/_last_checkpoint")


@pytest.fixture
def opened(on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Count the tables that are opened."""
    with proxy_of(s3_endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)

        def count(act: Callable[[], object]) -> Counter[str]:
            sent: list[Request] = []
            with proxy.faults(sent.append):
                act()
            return Counter(found[1] for one in sent if (found := _FIRST.fullmatch(one.path)))

        yield count


def test_each_table_is_opened_once_by_a_handle(on_s3: Location, opened: Opened) -> None:
    """What others have written since is read on from there; nothing is opened to be written."""
    checkpoint = samples.unpack("rocksdb", on_s3 / "checkpoint")
    uri, to = str(on_s3 / "store"), str(on_s3 / "next")

    def plan(store: Store) -> create.CreatePlan:
        return create.plan(store, query="totals", checkpoint=str(checkpoint), forms=("native",))

    def taken(store: Store) -> None:
        create.execute(plan(store), store)

    def back(store: Store) -> None:
        rollback.plan(store, "latest", to=to, rewind_outputs=False, stopped=True)

    taken(Store.at(uri).make())

    assert opened(lambda: plan(Store.at(uri))) == {"catalog": 1, "generations": 1}
    assert opened(lambda: back(Store.at(uri))) == {"catalog": 1, "generations": 1, "ledger": 1}
    store = Store.at(uri)
    assert opened(lambda: taken(store)) == {"catalog": 1, "generations": 1, "events": 1}
    taken(Store.at(uri))
    assert opened(lambda: taken(store)) == {}
    assert len(store.catalog.all()) == 4


def test_a_native_savepoint_takes_a_named_number_of_requests(
    on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay the same: of the store's tables only what is new is read.

    Of the 14 files of the cut, the ten small ones are copied and hashed each time.
    """
    sent: list[Request] = []
    counts = []
    with proxy_of(s3_endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        checkpoint = samples.unpack("rocksdb", on_s3 / "checkpoint")
        store = Store.at(str(on_s3 / "store")).make()
        for _ in range(3):
            with proxy.faults(sent.append):
                plan = create.plan(
                    store, query="totals", checkpoint=str(checkpoint), forms=("native",)
                )
                create.execute(plan, store)
            counts.append(Counter(what for one in sent if (what := _what(one.path)) != "leases"))
            sent.clear()

    _, second, third = counts
    assert second == third
    assert second["files"] <= FILES
    assert second["checkpoint"] <= CHECKPOINT
    assert sum(second.values()) <= REQUESTS


def _what(path: str) -> str:
    """Return what a request is about: the live checkpoint, a savepoint's files, or a table."""
    if "/store/" not in path:
        return "checkpoint" if "/checkpoint" in path else "lists"
    room = path.partition("/store/")[2].partition("/")[0]
    return "files" if room in {"files", "savepoints"} else room
