"""Savepoints of queries that read each other's tables, against what the test wrote into these."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from savepoints import faults
from savepoints.errors import NoCommittedBatchError, NotAlignedError, SavepointNotFoundError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.pipeline import group_savepoint
from savepoints.operations.pipeline.group_savepoint import Group
from savepoints.operations.savepoint import create
from savepoints.store.locks import lease
from savepoints.store.savepoint import labels
from tests.killed import killed_at
from tests.pipelines import BATCH, Queries, next_version

pytestmark = pytest.mark.drawn(4)


@pytest.fixture
def queries(local_store: Store, on_local: Location) -> Queries:
    return Queries(local_store, on_local)


def write(queries: Queries, table: str, batch: int) -> str:
    """Write a batch of a table as its query does, and return the table's id."""
    write_deltalake(
        queries.uri(table),
        pa.table({"n": [batch]}),
        mode="append",
        commit_properties=CommitProperties(
            app_transactions=[Transaction(f"{table}/{table}/1", batch)]
        ),
    )
    return str(DeltaTable(queries.uri(table)).metadata().id)


def chain(queries: Queries, *, read: tuple[int, int] = (2, 2), ahead: bool = False) -> None:
    """Add bronze, silver and gold, which all have committed the same batch.

    Args:
        read: How many versions silver has read of bronze, and gold of silver.
        ahead: Whether bronze has written one more batch than it has committed.
    """
    ids = {}
    for table in ("bronze", "silver", "gold"):
        for batch in range(BATCH + 1):
            ids[table] = write(queries, table, batch)
    if ahead:
        write(queries, "bronze", BATCH + 1)
    queries.add("bronze", ['{"orders":{"0":10}}'], writes=("bronze",))
    queries.add("silver", [next_version(ids["bronze"], read[0])], writes=("silver",))
    queries.add("gold", [next_version(ids["silver"], read[1])], writes=("gold",))


def commit(queries: Queries, query: str, batch: int) -> None:
    """Commit another batch in a query's checkpoint."""
    checkpoint = queries.checkpoint(query)
    for log in ("offsets", "commits"):
        checkpoint.put(f"{log}/{batch}", checkpoint.get(f"{log}/{BATCH}"))


def taken(queries: Queries, tag: str = "group", **how: object) -> Group:
    store = queries.configured_store
    plan = group_savepoint.plan(store, "silver", name=tag)
    return group_savepoint.execute(plan, store, **how)  # type: ignore[arg-type]


def only_begun(queries: Queries, query: str) -> dict[str, bytes]:
    """Let a query have begun its first batch; return the files that are missing for it."""
    checkpoint = queries.checkpoint(query)
    commits = [info.path for info in checkpoint.list("commits")]
    offsets = [info.path for info in checkpoint.list("offsets") if not info.path.endswith("/0")]
    files = {path: checkpoint.get(path) for path in (*offsets, *commits)}
    checkpoint.delete(list(files))
    return files


def test_trap_the_first_batch_of_a_running_query_is_waited_for(queries: Queries) -> None:
    """Its rows can be seen before it is committed, and who looks at them types the command."""
    chain(queries)
    rest = only_begun(queries, "gold")
    told: list[str] = []

    def progress(line: str) -> None:
        told.append(line)
        for path, data in rest.items() if line.startswith("waiting") else ():
            queries.checkpoint("gold").put(path, data)

    with lease.hold(queries.store.root, "gold", lease.RUN):
        store = queries.configured_store
        plan = group_savepoint.plan(store, "silver", name="group", progress=progress)

    assert told == ["waiting for gold to commit its first batch"]
    group = group_savepoint.execute(plan, store)
    assert [one.query for one in group.savepoints] == ["gold", "silver", "bronze"]
    assert group.problems == ()


def test_without_a_first_batch_it_says_which_command_makes_one(queries: Queries) -> None:
    chain(queries)
    only_begun(queries, "gold")
    store = queries.configured_store

    with pytest.raises(NoCommittedBatchError, match="gold has not finished its first") as idle:
        group_savepoint.plan(store, "silver", name="group")
    assert "savepoints run gold --until latest" in idle.value.hint

    with (
        lease.hold(store.root, "gold", lease.RUN),
        pytest.raises(NoCommittedBatchError, match="gold has not finished its first") as busy,
    ):
        group_savepoint.plan(store, "silver", name="group", wait=timedelta(0))
    assert "savepoints pipeline create silver --tag group --wait 1h" in busy.value.hint
    assert store.catalog.all() == []


def test_readers_are_saved_before_who_writes_what_they_read(queries: Queries) -> None:
    chain(queries)

    group = taken(queries)

    assert [one.query for one in group.savepoints] == ["gold", "silver", "bronze"]
    assert sorted(group.savepoints, key=lambda one: one.created_at) == list(group.savepoints)
    assert {one.tags for one in group.savepoints} == {("group",)}
    assert [(one.reader, one.read, one.writer, one.version) for one in group.reads] == [
        ("gold", 1, "silver", BATCH),
        ("silver", 1, "bronze", BATCH),
    ]
    assert group.problems == ()
    assert group_savepoint.read(queries.configured_store, "gold", "group") == group


def test_a_batch_that_a_reader_has_read_is_waited_for(queries: Queries) -> None:
    """Its rows are in the table before the writer commits it."""
    chain(queries, read=(BATCH + 2, 2), ahead=True)
    told: list[str] = []

    def progress(line: str) -> None:
        told.append(line)
        if line.startswith("waiting"):
            commit(queries, "bronze", BATCH + 1)

    group = taken(queries, progress=progress)

    assert [line for line in told if line.startswith("waiting")] == [
        (
            f"waiting for bronze to commit batch {BATCH + 1}, because a reader has already read "
            "rows of that batch"
        )
    ]
    bronze = group.savepoints[-1]
    assert (bronze.cut.batch_id, bronze.outputs[0].version) == (BATCH + 1, BATCH + 1)
    assert group.problems == ()
    tagged = [one for one in queries.store.catalog.all() if one.tags]
    assert {one.id for one in tagged} == {one.id for one in group.savepoints}


def test_what_is_never_committed_is_refused_with_who_is_ahead(queries: Queries) -> None:
    chain(queries, read=(BATCH + 2, 2), ahead=True)

    with pytest.raises(NotAlignedError, match="silver is ahead of bronze: it has read version 3"):
        taken(queries, wait=timedelta(0))

    read = group_savepoint.read(queries.configured_store, "silver", "group")
    assert read.missing == ("bronze",)
    assert read.problems == ("bronze has no savepoint with the tag group",)
    commit(queries, "bronze", BATCH + 1)
    assert taken(queries).problems == ()


def test_versions_without_rows_are_nobodys_batch(queries: Queries) -> None:
    """OPTIMIZE, for one, makes versions that a reader passes."""
    chain(queries, read=(BATCH + 2, 2))
    DeltaTable(queries.uri("bronze")).optimize.compact()
    assert DeltaTable(queries.uri("bronze")).version() == BATCH + 1

    group = taken(queries)

    assert group.problems == ()
    assert [one.read for one in group.reads if one.reader == "silver"] == [BATCH + 1]


def test_savepoints_that_were_taken_in_the_wrong_order_are_found(queries: Queries) -> None:
    chain(queries, read=(BATCH + 1, BATCH + 1))
    store = queries.configured_store

    def save(query: str) -> Savepoint:
        plan = create.plan(store, query=query, forms=("native",), tags=("group",))
        return create.execute(plan, store)

    save("bronze")
    table = write(queries, "bronze", BATCH + 1)
    commit(queries, "bronze", BATCH + 1)
    queries.move("silver", [next_version(table, BATCH + 2)])
    for query in ("silver", "gold"):
        save(query)

    group = group_savepoint.read(store, "silver", "group")

    assert group.problems == (
        (
            f"silver is ahead of bronze: it has read version {BATCH + 1} (WRITE) of "
            f"{queries.uri('bronze')}, but the savepoint of bronze ends at version {BATCH}"
        ),
    )


@pytest.mark.parametrize("point", ["group.saved", "group.taken"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_stopped_anywhere_and_run_again_there_is_one_of_each(
    point: str, nth: int, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain(queries)
    left = [nth]

    class KilledError(BaseException):
        pass

    def reach(reached: str) -> None:
        left[0] -= reached == point
        if not left[0]:
            raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(faults, "reach", reach)
        with pytest.raises(KilledError):
            taken(queries)

    again = taken(queries)

    assert again.problems == ()
    tagged = [one.query for one in queries.store.catalog.all() if "group" in one.tags]
    assert sorted(tagged) == ["bronze", "gold", "silver"]


def test_trap_killed_while_it_tags_a_second_savepoint_got_the_tag(
    queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels are written before the catalog, from which the tag was missing."""
    chain(queries)
    killed_at(monkeypatch, "group.saved", lambda: taken(queries))
    (gold,) = queries.store.catalog.all()
    labels.change(queries.store.root, gold, lambda old: replace(old, tags=("group",)))

    again = taken(queries)

    assert again.savepoints[0].id == gold.id
    queries.store.rebuild_catalog().execute()
    tagged = [one.query for one in queries.store.catalog.all() if "group" in one.tags]
    assert sorted(tagged) == ["bronze", "gold", "silver"]


def test_queries_that_read_each_other_in_a_circle_have_no_first(queries: Queries) -> None:
    there, back = (write(queries, name, 0) for name in ("there", "back"))
    queries.add("there", [next_version(back, 1)], writes=("there",))
    queries.add("back", [next_version(there, 1)], writes=("back",))
    store = queries.configured_store

    with pytest.raises(NotAlignedError, match="back and there read each other in a cycle"):
        group_savepoint.plan(store, "there", name="group")


def test_a_tag_that_no_query_has_is_not_found(queries: Queries) -> None:
    chain(queries)

    with pytest.raises(SavepointNotFoundError, match="no query in the pipeline of gold"):
        group_savepoint.read(queries.configured_store, "gold", "group")


def test_while_everybody_goes_on_they_always_fit_together(queries: Queries) -> None:
    """Bronze commits batches, silver reads them at once, and groups are taken meanwhile."""
    chain(queries)
    silver = queries.checkpoint("silver")
    ended, failed = threading.Event(), []

    def go_on() -> None:
        try:
            for batch in range(BATCH + 1, 60):
                table = write(queries, "bronze", batch)
                # A batch of its own, as Spark does: a log that is there already never changes.
                queries.move("silver", [next_version(table, batch + 1)], batch)
                silver.put(f"commits/{batch}", silver.get(f"commits/{BATCH}"))
                commit(queries, "bronze", batch)
                if ended.is_set():
                    return
        except Exception as error:  # noqa: BLE001  (told by the test)
            failed.append(error)

    running = threading.Thread(target=go_on)
    running.start()
    try:
        for number in range(3):
            assert taken(queries, f"group-{number}").problems == ()
    finally:
        ended.set()
        running.join()
    assert failed == []
