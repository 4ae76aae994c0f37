"""S3 that fails: nothing acknowledged is lost, nothing is done twice, errors name the object."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import product
from typing import TypeVar

import pytest

from savepoints import io
from savepoints.errors import LockedError, SavepointsError, UnreachableError, VerificationError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Labels, Savepoint
from savepoints.operations.inspect.verify import verify_all
from savepoints.operations.maintain import copy, expire, gc
from savepoints.operations.savepoint import create
from savepoints.operations.savepoint.create import CreatePlan
from savepoints.store.locks import lease
from savepoints.store.retention_policy import RetentionPolicy
from tests import samples
from tests.draw import some
from tests.faults.s3_proxy import Fault, Request, S3Proxy, Schedule, once, proxy_of, seeded

pytestmark = pytest.mark.drawn(4)

T = TypeVar("T")

SCHEDULES = 200
SHARE = 0.06
# Nothing takes longer with faults.
PATIENCE_SECONDS = 40

# A request that was done and whose client does not know: by a reset, or by an error that makes
# object_store send it again.
LOST = (Fault.LOST, Fault.LOST_500)


@pytest.fixture(scope="module")
def started_proxy(s3_endpoint: str) -> Iterator[S3Proxy]:
    with proxy_of(s3_endpoint) as started:
        yield started


@pytest.fixture
def proxy(started_proxy: S3Proxy, s3_environment: None, monkeypatch: pytest.MonkeyPatch) -> S3Proxy:
    """Put the proxy between this process and S3, with pauses that a test can wait for."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", started_proxy.endpoint)
    monkeypatch.setattr(io, "FIRST_PAUSE_MS", 5)
    monkeypatch.setattr(io, "RETRY_SECONDS", 5)
    monkeypatch.setattr(lease, "TTL", timedelta(seconds=0.3))
    monkeypatch.setattr(lease, "CLOCK_SKEW", timedelta(0))
    return started_proxy


def always(fault: Fault, method: str, part: str) -> Schedule:
    """Give a schedule in which all requests of a kind meet a fault."""

    def choose(request: Request) -> Fault | None:
        return fault if request.method == method and part in request.path else None

    return choose


def when_free(step: Callable[[], T]) -> T:
    """Do a step as soon as no lease that was not released prevents it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return step()
        except LockedError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


class Story:
    """A store behind the proxy; each step is done with faults, and again without when it failed."""

    def __init__(self, proxy: S3Proxy, root: Location, seed: int) -> None:
        self._proxy = proxy
        self._seed = seed
        self._root = root
        self._steps = 0
        self.met = 0
        self.failed = 0
        self.checkpoint = samples.unpack("grand_total", root / "live")
        self.store = Store(root / "store")

    def step(self, do: Callable[[], T]) -> T:
        self._steps += 1
        begun = time.monotonic()
        schedule = seeded(self._seed * 100 + self._steps, SHARE)
        try:
            with self._proxy.faults(schedule) as met:
                return do()
        except SavepointsError as error:
            self.failed += 1
            require_helpful(error, self._root)
        finally:
            self.met += len(met)
            assert time.monotonic() - begun < PATIENCE_SECONDS
        return when_free(do)

    def take(self, batch_id: int) -> Savepoint:
        def plan() -> CreatePlan:
            return create.plan(
                self.store, query="totals", checkpoint=str(self.checkpoint), batch_id=batch_id,
                forms=("native",),
            )  # fmt: skip

        planned = self.step(plan)
        return self.step(lambda: create.execute(planned, self.store))


def require_helpful(error: SavepointsError, root: Location) -> None:
    """Require that an error says what could not be reached, or who holds a lease."""
    assert isinstance(error, (UnreachableError, LockedError)), error
    assert error.hint
    assert str(root) in str(error) or isinstance(error, LockedError), error


def tagged(labels: Labels) -> Labels:
    return dataclasses.replace(labels, tags=("before",))


@pytest.mark.parametrize("seed", some(1, range(SCHEDULES), "story"))
def test_whatever_fails_nothing_is_lost_and_nothing_is_done_twice(
    seed: int, proxy: S3Proxy, on_s3: Location, record_property: Callable[[str, object], None]
) -> None:
    story = Story(proxy, on_s3, seed)
    store = story.store

    first, second = story.take(0), story.take(1)

    expected = [second, first]
    if seed % 3 == 0:
        story.step(lambda: store.catalog.relabel([first.id], tagged))
        expected = [second, first.with_labels(tagged(first.labels))]
        assert story.step(store.catalog.all) == expected
    elif seed % 3 == 1:
        other = Store(on_s3 / "other")
        copied = story.step(lambda: copy.plan(store, first.id, str(other.root)))
        story.step(lambda: copy.execute(copied, store))
        require_whole(other, [first])
    else:
        expired = story.step(lambda: expire.plan(store, RetentionPolicy(keep_last=1)))
        story.step(lambda: expire.execute(expired, store))
        collected = story.step(lambda: gc.plan(store, grace=timedelta(0)))
        story.step(lambda: gc.execute(collected, store))
        gc.execute(gc.plan(store, grace=timedelta(0)), store)
        assert gc.plan(store, grace=timedelta(0)).orphans == ()
        expected = [second]
    require_whole(store, expected)
    assert [(one.query, one.generation) for one in store.generations.all()] == [("totals", 1)]
    record_property("faults", story.met)
    record_property("failed", story.failed)


def require_whole(store: Store, expected: list[Savepoint]) -> None:
    """Require that these savepoints, and nothing of others, are in a store."""
    assert store.catalog.all() == expected
    wanted = {one.id for one in expected}
    assert {info.path.split("/")[1] for info in store.root.list("savepoints")} == wanted
    assert verify_all(store, depth="checksums").grade == "ok"
    events = [one.id for one in store.events.all()]
    assert len(events) == len(set(events))


@pytest.mark.parametrize("fault", some(1, LOST, "taking"))
def test_a_lease_whose_taking_was_not_answered_is_held(
    fault: Fault, proxy: S3Proxy, on_s3: Location
) -> None:
    with (
        proxy.faults(once(fault, "PUT", "leases/orders.json")) as met,
        lease.hold(on_s3, "orders", "rollback") as held,
    ):
        held.check()

    assert len(met) == 1
    assert met[0][1].conditional
    lease.refuse_held(on_s3, "orders")


@pytest.mark.parametrize("fault", some(1, [*LOST, Fault.RESET], "renewal"))
def test_a_lease_whose_renewal_was_not_answered_is_kept(
    fault: Fault, proxy: S3Proxy, on_s3: Location
) -> None:
    with lease.hold(on_s3, "orders", "rollback") as held:
        with proxy.faults(once(fault, "PUT", "leases/orders.json")) as met:
            held.renew()
        held.renew()
        held.check()

    assert len(met) == 1
    lease.refuse_held(on_s3, "orders")


@pytest.mark.parametrize("fault", some(1, [*LOST, Fault.RESET], "release"))
def test_a_lease_whose_release_was_not_answered_is_free(
    fault: Fault, proxy: S3Proxy, on_s3: Location
) -> None:
    with ExitStack() as stack:
        stack.enter_context(lease.hold(on_s3, "orders", "rollback"))
        with proxy.faults(once(fault, "PUT", "leases/orders.json")) as met:
            stack.close()

    assert len(met) == 1
    lease.refuse_held(on_s3, "orders")


def test_what_was_done_is_done_when_its_lease_cannot_be_released(
    proxy: S3Proxy, on_s3: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for what is done, as it is not renewed.
    monkeypatch.setattr(lease, "TTL", timedelta(seconds=3))
    checkpoint = samples.unpack("grand_total", on_s3 / "live")
    store = Store(on_s3 / "store")

    def taken_only(request: Request) -> Fault | None:
        again = request.method == "PUT" and "leases/" in request.path and request.nth > 0
        return Fault.SLOW_DOWN if again else None

    with proxy.faults(taken_only) as met:
        taken = samples.take(store, checkpoint)

    assert met
    assert store.catalog.all() == [taken]
    assert when_free(lambda: samples.take(store, checkpoint)).parent == taken.id


@pytest.mark.parametrize(
    ("fault", "part"),
    some(
        1,
        product(
            LOST,
            ["manifest.json", "catalog/_delta_log/", "generations/_delta_log/", "leases/files/"],
        ),
        "writing",
    ),
)
def test_a_savepoint_whose_writing_was_not_answered_is_taken_once(
    fault: Fault, part: str, proxy: S3Proxy, on_s3: Location
) -> None:
    checkpoint = samples.unpack("grand_total", on_s3 / "live")
    store = Store(on_s3 / "store")

    with proxy.faults(once(fault, "PUT", part)) as met:
        taken = samples.take(store, checkpoint)

    assert len(met) == 1
    require_whole(store, [taken])
    assert len(store.generations.all()) == 1


@pytest.mark.parametrize(
    ("way", "fault"),
    some(2, product(["append", "change", "remove", "make"], [*LOST, Fault.RESET]), "rows"),
)
def test_rows_whose_commit_was_not_answered_are_written_once(
    way: str, fault: Fault, proxy: S3Proxy, on_s3: Location
) -> None:
    store = Store(on_s3)
    one, two = samples.savepoint(1), samples.savepoint(2)
    if way != "make":
        store.catalog.add(one)

    with proxy.faults(once(fault, "PUT", "_delta_log/")) as met:
        if way == "change":
            store.catalog.relabel([one.id], tagged)
        elif way == "remove":
            store.catalog.remove([one.id])
        else:
            store.catalog.add(two)

    assert len(met) == 1
    expected = {
        "append": [two, one], "change": [one.with_labels(tagged(one.labels))], "remove": [],
        "make": [two],
    }  # fmt: skip
    assert store.catalog.all() == expected[way]


def test_a_change_that_decides_anew_each_time_is_made_once(proxy: S3Proxy, on_s3: Location) -> None:
    store = Store(on_s3)
    store.catalog.add(samples.savepoint(1))
    table = store.catalog._table

    def count(rows: list[dict[str, object]]) -> list[dict[str, object]]:
        return [{**rows[0], "description": f"{rows[0]['description']}+"}]

    with proxy.faults(once(Fault.LOST, "PUT", "catalog/_delta_log/")):
        table.change(("id",), count)

    assert store.catalog.all()[0].description == "+"


NO_ANSWER = [Fault.INTERNAL_ERROR, Fault.SLOW_DOWN, Fault.RESET, Fault.LOST, Fault.TRUNCATED]
READ = ["_last_checkpoint", "_delta_log/0", "part-"]


@pytest.mark.parametrize(
    ("fault", "method", "part"),
    [
        *some(1, ((fault, "GET", part) for fault in NO_ANSWER for part in READ), "GET"),
        *some(
            1,
            [
                *((fault, "PUT", "part-") for fault in NO_ANSWER if fault is not Fault.TRUNCATED),
                *((fault, "PUT", "_delta_log") for fault in NO_ANSWER[:3]),
            ],
            "PUT",
        ),
    ],
)
def test_a_table_that_does_not_answer_is_not_damaged(
    fault: Fault, method: str, part: str, proxy: S3Proxy, on_s3: Location
) -> None:
    store = Store(on_s3)
    one, two = samples.savepoint(1), samples.savepoint(2)
    store.catalog.add(one)
    # Files that cannot have the row are not opened to add it.
    rows_are_read = (method, part) == ("GET", "part-")

    opened = Store(on_s3).catalog  # As a process that has not read it yet.
    with (
        proxy.faults(always(fault, method, part)),
        pytest.raises(UnreachableError, match=f"{on_s3}/catalog") as refused,
    ):
        opened.all() if rows_are_read else opened.add(two)

    assert refused.value.retryable
    assert "\x1b" not in str(refused.value)
    assert "AWS_ENDPOINT_URL" in refused.value.hint
    assert one in store.catalog.all()
    store.catalog.add(two)
    assert store.catalog.all() == [two, one]


@pytest.mark.parametrize(("fault", "part"), some(2, product(NO_ANSWER, READ), "read"))
def test_a_read_that_is_not_answered_once_is_repeated(
    fault: Fault, part: str, proxy: S3Proxy, on_s3: Location
) -> None:
    store = Store(on_s3)
    store.catalog.add(samples.savepoint(1))

    with proxy.faults(once(fault, "GET", part)) as met:
        assert Store(on_s3).catalog.all() == [samples.savepoint(1)]

    assert len(met) == 1


def damaged_parts(root: Location) -> dict[str, tuple[str, bytes]]:
    """Give what can be wrong with a table: a name, and the file with its damaged bytes."""
    (data,) = [info.path for info in root.list("catalog") if info.path.endswith(".parquet")]
    log = "catalog/_delta_log/00000000000000000001.json"
    content = root.get(data)
    return {
        "data cut": (data, content[: len(content) // 2]),
        "data empty": (data, b""),
        "data overwritten": (data, bytes(len(content))),
        "log garbled": (log, b"\xff" + root.get(log)[1:]),
    }


@pytest.mark.parametrize(
    "what",
    some(1, ["data cut", "data empty", "data overwritten", "log garbled", "data gone"], "damaged"),
)
def test_a_damaged_table_is_damaged(what: str, proxy: S3Proxy, on_s3: Location) -> None:
    store = Store(on_s3)
    store.catalog.add(samples.savepoint(1))
    (data,) = [info.path for info in on_s3.list("catalog") if info.path.endswith(".parquet")]
    if what == "data gone":
        on_s3.delete([data])
    else:
        on_s3.put(*damaged_parts(on_s3)[what])

    with pytest.raises(VerificationError, match=f"{on_s3}/catalog is damaged"):
        Store(on_s3).catalog.all()


@pytest.mark.parametrize(
    "fault",
    some(1, [Fault.INTERNAL_ERROR, Fault.SLOW_DOWN, Fault.RESET, Fault.LOST], "unanswered"),
)
def test_an_object_that_is_not_answered_for_is_named(
    fault: Fault, proxy: S3Proxy, on_s3: Location
) -> None:
    on_s3.put("a", b"1")

    asks: dict[str, Callable[[], object]] = {
        "GET": lambda: on_s3.get("a"),
        "PUT": lambda: on_s3.put("a", b"2"),
        "HEAD": lambda: on_s3.head("a"),
    }
    for method, ask in asks.items():
        with (
            proxy.faults(always(fault, method, "/a")),
            pytest.raises(UnreachableError, match=f"{on_s3}/a"),
        ):
            ask()


def test_a_file_that_another_wrote_is_not_taken_for_ones_own(
    proxy: S3Proxy, on_s3: Location
) -> None:
    on_s3.create("a", b"theirs")

    with proxy.faults(once(Fault.LOST, "PUT", "/a")), pytest.raises(FileExistsError):
        on_s3.create("a", b"mine")

    assert on_s3.get("a") == b"theirs"
