"""A plan is carried out on what it was made from, or refused before anything is written.

Somebody plans, somebody else acts meanwhile, then the plan is carried out. What must come of it is
known by hand: each batch wrote one row with its own number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from itertools import count

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints import faults
from savepoints.checkpoint.cut import committed_batches
from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import NotFoundError, StalePlanError, UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations import unfinished
from savepoints.operations.inspect.verify import verify_all
from savepoints.operations.maintain import expire, gc, tag
from savepoints.operations.rollback import rollback
from savepoints.operations.rollback.target import BeforeLast
from savepoints.operations.savepoint import create, restore
from savepoints.store.locks import journal
from savepoints.store.retention_policy import RetentionPolicy
from tests import draw
from tests.processes import at_once
from tests.samples import contents, lasting, take, unpack

pytestmark = pytest.mark.drawn(5)

BATCHES = 4


@dataclasses.dataclass(frozen=True)
class Query:
    """A query with four batches in state and output, and savepoints of the second and third."""

    place: Location
    store: Store
    output: str
    saved: tuple[Savepoint, ...]

    @property
    def settings(self) -> Settings:
        return self.store.settings

    @property
    def rows(self) -> list[int]:
        rows = DeltaTable(self.output).to_pyarrow_table().to_pylist()
        return sorted(row["batch"] for row in rows)

    def require_right(self) -> None:
        """Whatever was done: state, output and what the output skips belong to one batch."""
        now = self.store.generations.current("totals")
        reached = committed_batches(Location.of(now.checkpoint).list())[-1]
        assert self.rows == list(range(reached + 1))
        skips = DeltaTable(self.output).transaction_version(f"totals/out/{now.generation}")
        assert skips == reached, "what it writes next would be dropped, or doubled"
        numbers = [one.generation for one in self.store.generations.all("totals")]
        assert numbers == list(range(len(numbers), 0, -1))
        assert [one.status for one in self.store.generations.all("totals")].count("current") == 1
        assert journal.all_unfinished(self.store.root) == []
        assert verify_all(self.store, depth="checksums").grade == "ok"


@pytest.fixture
def query(on_local: Location, local_store: Store) -> Query:
    output = str(on_local / "out")
    bound = QuerySettings(app="a:b", checkpoints=str(on_local / "live"), outputs={"out": output})
    live = unpack("rocksdb", on_local / "live" / "totals" / "1")
    local_store.generations.begin("totals", 1, live, by="run")
    for batch in range(BATCHES):
        own = CommitProperties(app_transactions=[Transaction("totals/out/1", batch)])
        write_deltalake(output, pa.table({"batch": [batch]}), mode="append", commit_properties=own)
    saved = tuple(
        take(local_store, live, batch_id=batch, outputs={"out": output}) for batch in (1, 2)
    )
    settings = Settings(queries={"totals": bound})
    return Query(on_local, local_store.with_settings(settings), output, saved)


Execution = Callable[[], object]
_TARGETS = count()


def roll_back(query: Query, nth: int, to: str | None = None) -> Execution:
    plan = rollback.plan(query.store, query.saved[nth].id, to=to, check_source=False)
    return lambda: rollback.execute(plan, query.store)


def roll_back_elsewhere(query: Query) -> Execution:
    """To a directory of its own, which so is not what is in the way."""
    return roll_back(query, 0, str(query.place / f"elsewhere-{next(_TARGETS)}"))


def undo(query: Query) -> Execution:
    """Take back the last rollback; the first is done here if none was."""
    if len(query.store.generations.all("totals")) == 1:
        roll_back(query, 1)()
    plan = rollback.plan(query.store, BeforeLast(), query="totals", check_source=False)
    return lambda: rollback.execute(plan, query.store)


def expire_all(query: Query) -> Execution:
    plan = expire.plan(query.store, RetentionPolicy(keep_last=1), query="totals")
    return lambda: expire.execute(plan, query.store)


def collect(query: Query) -> Execution:
    query.store.root.put("savepoints/sp-lost/checkpoint/metadata", b"lost")
    plan = gc.plan(query.store, grace=timedelta())
    return lambda: gc.execute(plan, query.store)


def save(query: Query) -> Execution:
    now = query.store.generations.current("totals")
    plan = create.plan(
        query.store,
        query="totals",
        checkpoint=now.checkpoint,
        outputs={"out": query.output},
        forms=("native",),
    )
    return lambda: create.execute(plan, query.store)


def label(query: Query) -> Execution:
    plan = tag.plan(query.store, query.saved[0].id, add=["good"])
    return lambda: tag.execute(plan, query.store)


def restore_aside(query: Query) -> Execution:
    plan = restore.plan(
        query.store, query.saved[0].id, str(query.place / f"aside-{next(_TARGETS)}")
    )
    return lambda: restore.execute(plan, query.store)


VERBS: dict[str, Callable[[Query], Execution]] = {
    "rollback": lambda query: roll_back(query, 0),
    "rollback to the other": lambda query: roll_back(query, 1),
    "rollback --to": roll_back_elsewhere,
    "rollback --undo": undo,
    "expire": expire_all,
    "gc": collect,
    "create": save,
    "tag": label,
    "restore": restore_aside,
}
PAIRS = [(one, other) for one in VERBS for other in VERBS]


@pytest.mark.parametrize(("planned", "meanwhile"), draw.some(12, PAIRS, "stale plans"))
def test_what_was_planned_before_somebody_acted_is_refused_or_right(
    query: Query, planned: str, meanwhile: str
) -> None:
    execute = VERBS[planned](query)
    VERBS[meanwhile](query)()
    query.require_right()
    before, rows = lasting(query.store), query.rows

    try:
        execute()
    except (StalePlanError, NotFoundError):
        assert lasting(query.store) == before, "refused, it leaves everything as it is"
        assert query.rows == rows

    query.require_right()


@pytest.mark.parametrize("to", [None, "elsewhere"])
def test_trap_a_plan_of_a_generation_that_somebody_else_has_begun(
    query: Query, to: str | None
) -> None:
    """Both plan the second generation; whoever comes later would write into the other's."""
    late = roll_back(query, 0, to and str(query.place / to))
    roll_back(query, 1)()
    before = contents(query.place)

    with pytest.raises(StalePlanError, match="it was in generation 1 and is now in 2") as refused:
        late()

    assert "savepoints events --query totals" in refused.value.hint
    after = contents(query.place)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert all(path.startswith(("store/leases/", "store/events/")) for path in changed)
    assert query.rows == [0, 1, 2]
    query.require_right()


def test_trap_a_generation_is_never_two_directories(query: Query) -> None:
    generations = query.store.generations
    first = generations.current("totals")
    assert generations.begin("totals", 1, Location.of(first.checkpoint), by="run") == first

    with pytest.raises(StalePlanError, match=r"generation 1 of totals \(run\) already has"):
        generations.begin("totals", 1, query.place / "other", by="rollback")

    assert generations.all("totals") == [first]


def test_trap_resume_and_undo_never_send_to_each_other(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operation whose generation somebody else has begun cannot be finished: it is undone."""

    class Killed(BaseException):
        pass

    def reach(name: str) -> None:
        if name == "rollback.output_out_rewound":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reach", reach)
        with pytest.raises(Killed):
            roll_back(query, 0)()
    # As by a version that did not look, or by hand.
    query.store.generations.begin("totals", 2, query.place / "other", by="somebody")
    operation = journal.unfinished(query.store.root, "totals")
    assert operation is not None

    with pytest.raises(StalePlanError, match=r"totals \(somebody\) already has") as refused:
        unfinished.resume(query.store, operation.id)
    assert "savepoints operations undo" in refused.value.hint
    unfinished.undo(query.store, operation.id)

    assert journal.unfinished(query.store.root, "totals") is None
    assert query.rows == [0, 1, 2, 3]
    with pytest.raises(UsageError, match="has already been undone, at"):
        unfinished.resume(query.store, operation.id)


def test_trap_a_query_that_went_on_is_taken_back_past_its_safety_savepoint(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that nobody knows of has run a batch since the rollback was interrupted."""

    class Killed(BaseException):
        pass

    def reach(name: str) -> None:
        if name == "rollback.checkpoint_written":
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reach", reach)
        with pytest.raises(Killed):
            roll_back(query, 0)()
    live = Location.of(query.store.generations.current("totals").checkpoint)
    for log in ("offsets", "commits"):
        live.put(f"{log}/{BATCHES}", live.get(f"{log}/{BATCHES - 1}"))
    operation = journal.unfinished(query.store.root, "totals")
    assert operation is not None

    with pytest.raises(StalePlanError, match=r"has run to batch 4 since .* at batch 3") as refused:
        unfinished.resume(query.store, operation.id)

    assert f"savepoints operations undo {operation.id}" in refused.value.hint
    unfinished.undo(query.store, operation.id)
    assert query.rows == [0, 1, 2, 3]
    assert journal.all_unfinished(query.store.root) == []


# Each plans, all wait for each other, and then all carry out what they planned.
MANY = """
from savepoints.config.settings import Settings
from savepoints.operations.maintain import expire
from savepoints.operations.rollback import rollback
from savepoints.store.retention_policy import RetentionPolicy

root, text = uri.split("|", 1)
store = Store.at(root, settings=Settings.model_validate_json(text)).make()
names = sorted(one.id for one in store.catalog.all())
if number % 4 == 3:
    plan = expire.plan(store, RetentionPolicy(keep_last=1), query="totals")
else:
    plan = rollback.plan(store, names[number % 2], check_source=False)
say("planned")
wait_for_end()
try:
    if number % 4 == 3:
        expire.execute(plan, store)
    else:
        rollback.execute(plan, store)
except SavepointsError as error:
    assert error.exit_code in (10, 11, 13), repr(error)
"""


def test_of_eight_that_carry_out_their_plans_at_once_each_is_right_or_refused(
    query: Query,
) -> None:
    uri = f"{query.store.root}|{query.settings.model_dump_json()}"

    with at_once(MANY, uri, 8) as processes:
        assert [processes.say() for _ in range(8)] == ["planned"] * 8
        failed, errors = processes.end()

    assert failed == 0, errors
    assert len(query.store.generations.all("totals")) <= 2, "one of the rollbacks, or none"
    query.require_right()
