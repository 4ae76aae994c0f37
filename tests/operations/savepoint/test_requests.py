"""What a verb asks S3 for: each table of the store once for a plan, and once under the lease."""

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
# these are renewed after a while; of them for its files and the live checkpoint; and by how many
# more the next one takes, until the tables are compacted.
REQUESTS, FILES, CHECKPOINT, A_COMMIT = 123, 23, 14, 16

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


def test_each_table_is_read_once_for_a_plan_and_once_under_the_lease(
    on_s3: Location, opened: Opened
) -> None:
    checkpoint = samples.unpack("rocksdb", on_s3 / "checkpoint")
    store = Store.at(str(on_s3 / "store")).make()

    def plan() -> create.CreatePlan:
        return create.plan(store, query="totals", checkpoint=str(checkpoint), forms=("native",))

    create.execute(plan(), store)

    assert opened(plan) == {"catalog": 1, "generations": 1}
    begun = plan()
    # The catalog is opened once more to be written, and events each time that a verb ends.
    assert opened(lambda: create.execute(begun, store)) == {
        "catalog": 2, "generations": 1, "events": 1,
    }  # fmt: skip
    to = str(on_s3 / "next")
    back = opened(lambda: rollback.plan(store, "latest", to=to, rewind_outputs=False, stopped=True))
    assert back == {"catalog": 1, "generations": 1, "ledger": 1}


def test_a_native_savepoint_takes_a_named_number_of_requests(
    on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those for the state stay the same; a table's commits are read again until it is compacted.

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
    assert second["files"] == third["files"] <= FILES
    assert max(second["checkpoint"], third["checkpoint"]) <= CHECKPOINT
    assert sum(second.values()) <= REQUESTS
    assert sum(third.values()) <= sum(second.values()) + A_COMMIT


def _what(path: str) -> str:
    """Return what a request is about: the live checkpoint, a savepoint's files, or a table."""
    if "/store/" not in path:
        return "checkpoint" if "/checkpoint" in path else "lists"
    room = path.partition("/store/")[2].partition("/")[0]
    return "files" if room in {"files", "savepoints"} else room
