"""Resets, undos and rollbacks to a batch that are killed anywhere go on or are taken back."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from deltalake import DeltaTable

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import read_cut
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations import unfinished
from savepoints.operations.inspect.verify import verify
from savepoints.operations.rollback import rollback
from savepoints.store.locks import journal
from tests.kafka_query import QUERY, Query, make
from tests.processes import killed_at
from tests.samples import contents, query_id
from tests.sources.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.drawn(3)]


@dataclass(frozen=True)
class Verb:
    """A command, where it can be killed, and what must have come of it."""

    words: tuple[str, ...]
    points: tuple[str, ...]
    rows: list[int]
    prepare: Callable[[Query], object] = lambda _: None
    generation: int = 2
    batch_id: int | None = None


def roll_back(query: Query) -> None:
    plan = rollback.plan(query.store, "latest")
    rollback.execute(plan, query.store)


VERBS = {
    "reset, empty": Verb(
        ("reset", QUERY, "--to-earliest", "--outputs", "truncate", "--yes"),
        (
            "reset.begun",
            "create.catalog",
            "reset.safety_savepoint",
            "reset.claimed",
            "reset.checkpoint_written",
            "reset.output_totals_rewound",
            "reset.generation_begun",
            "reset.finished",
        ),
        [],
    ),
    "reset, kept": Verb(
        ("reset", QUERY, "--shift-by", "-1", "--state", "keep", "--yes"),
        (
            "reset.safety_savepoint",
            "restore.files",
            "reset.checkpoint_written",
            "reset.first_savepoint",
        ),
        [0, 1, 2, 3],
        batch_id=3,
    ),
    "undo": Verb(
        ("rollback", "--undo", "--query", QUERY, "--yes"),
        (
            "rollback.begun",
            "rollback.safety_savepoint",
            "rollback.checkpoint_written",
            "rollback.output_totals_rewound",
            "rollback.generation_begun",
            "rollback.finished",
        ),
        [0, 1, 2, 3],
        prepare=roll_back,
        generation=3,
        batch_id=3,
    ),
    "to a batch": Verb(
        ("rollback", "--at-batch", "2", "--query", QUERY, "--yes"),
        ("rollback.safety_savepoint", "create.pinned", "rollback.batch_saved", "restore.claimed"),
        [0, 1, 2],
        batch_id=2,
    ),
}
# Each costs three seconds, and most of the way is that of `test_rollback_killed`.
OFTEN = {
    ("reset, empty", "reset.claimed"),
    ("reset, empty", "reset.checkpoint_written"),
    ("reset, empty", "reset.output_totals_rewound"),
    ("reset, empty", "reset.generation_begun"),
    ("reset, kept", "restore.files"),
    ("undo", "rollback.safety_savepoint"),
    ("undo", "rollback.finished"),
    ("to a batch", "rollback.batch_saved"),
}
CASES = [
    pytest.param(name, point, marks=[] if (name, point) in OFTEN else [pytest.mark.nightly])
    for name, verb in VERBS.items()
    for point in verb.points
]
TAKEN_BACK = [
    ("reset, empty", "reset.output_totals_rewound"),
    ("undo", "rollback.output_totals_rewound"),
    ("to a batch", "rollback.batch_saved"),
]


@pytest.fixture
def query(broker: Broker, on_local: Location, local_store: Store) -> Query:
    """Give a query that has read a part of its topic, and its settings in a file."""
    made = make(broker, on_local, local_store)
    (on_local / "").put(
        "savepoints.toml",
        f'store = "{local_store.root}"\n'
        f'[kafka]\nbootstrap_servers = "{broker.settings.bootstrap_servers}"\n'
        f'[queries.{QUERY}]\napp = "unused:app"\ncheckpoints = "{on_local}/next"\n'
        f'[queries.{QUERY}.outputs]\ntotals = "{made.table}"\n'.encode(),
    )
    return made


def call(query: Query, verb: Verb, point: str = "") -> int:
    return killed_at(point, *verb.words, "--config", f"{query.place}/savepoints.toml")


@pytest.mark.parametrize(("name", "point"), CASES)
def test_killed_and_run_again_it_is_as_if_it_had_not_been_killed(
    query: Query, name: str, point: str
) -> None:
    verb = VERBS[name]
    verb.prepare(query)
    live = contents(query.checkpoint)

    assert call(query, verb, point) == -signal.SIGKILL
    assert journal.unfinished(query.store.root, QUERY) is not None
    assert call(query, verb) == 0

    assert journal.unfinished(query.store.root, QUERY) is None
    assert contents(query.checkpoint) == live
    assert query.rows == verb.rows
    current = query.store.generations.current(QUERY)
    assert current.generation == verb.generation
    checkpoint = Location.of(current.checkpoint)
    if verb.batch_id is None:
        assert position.read(checkpoint).initial == {0: query.read(0, 0)}
    else:
        assert read_cut(checkpoint).cut.batch_id == verb.batch_id
    for one in query.store.catalog.all():
        report = verify(query.store, one.id, depth="checksums")
        assert report.grade == "ok", report


@pytest.mark.parametrize(("name", "point"), TAKEN_BACK)
def test_undone_it_is_as_if_it_had_not_been_begun(query: Query, name: str, point: str) -> None:
    verb = VERBS[name]
    verb.prepare(query)
    live, rows = contents(query.checkpoint), query.rows
    before = query.store.generations.current(QUERY)
    reached = DeltaTable(query.table).transaction_version(query_id("rocksdb"))
    assert call(query, verb, point) == -signal.SIGKILL
    begun = journal.unfinished(query.store.root, QUERY)
    assert begun is not None

    unfinished.undo(query.store, begun.id)

    assert contents(query.checkpoint) == live
    assert query.rows == rows
    assert DeltaTable(query.table).transaction_version(query_id("rocksdb")) == reached
    assert query.store.generations.current(QUERY) == before
    assert not Location.of(str(begun.plan["checkpoint"])).list()
    assert call(query, verb) == 0
