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
