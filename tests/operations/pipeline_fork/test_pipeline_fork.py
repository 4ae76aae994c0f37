"""A second version of queries that read each other's tables, made without a JVM: none is behind."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from savepoints.errors import (
    CheckpointDamagedError,
    NotAlignedError,
    NotFoundError,
    SavepointNotFoundError,
    TargetExistsError,
    UnfinishedOperationError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import new_id
from savepoints.moments import rfc3339, utc_now
from savepoints.operations import unfinished
from savepoints.operations.fork import fork_plan
from savepoints.operations.fork.fork_plan import ForkOptions
from savepoints.operations.pipeline_fork import (
    forked_pairs,
    pipeline_fork,
    pipeline_fork_plan,
    pipeline_promote,
)
from savepoints.operations.pipeline_fork.pipeline_fork_plan import PipelineForkPlan
from savepoints.operations.pipeline_fork.pipeline_promote import PipelinePromotePlan
from savepoints.operations.run import recover
from savepoints.outputs.fork import isolated_copy
from savepoints.store import bindings, checked_programs
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Journal, Operation
from tests.draw import some
from tests.operations.pipeline.lines import NEWEST, SAVED, Line, chain, contents, topic
from tests.pipelines import next_version
from tests.processes import killed_at

pytestmark = pytest.mark.drawn(4)

FORKS = ("silver_fix", "gold_fix")
POINTS = (
    "pipeline fork.begun",
    "pipeline fork.silver_fix.checkpoint_written",
    "fork.files_copied",
    "pipeline fork.silver_fix.output_silver_isolated",
    "pipeline fork.gold_fix.output_gold_isolated",
    "pipeline fork.gold_fix.caught_up",
    "pipeline fork.gold_fix.followed",
    "pipeline fork.gold_fix.generation_begun",
    "pipeline fork.silver_fix.generation_begun",
    "pipeline fork.finished",
)


@pytest.fixture
def line(local_store: Store, on_local: Location) -> Line:
    """Bronze, silver and gold, with a group; the settings name what each reads."""
    line = Line(local_store, on_local)
    chain(line)
    reads(line, silver="bronze", gold="silver")
    return line


def reads(line: Line, **tables: str) -> None:
    for query, table in tables.items():
        bound = line.configured[query]
        line.configured[query] = bound.model_copy(update={"tables": {table: line.uri(table)}})


def plan(
    line: Line, query: str = "silver", point: str = "before", **options: Any
) -> PipelineForkPlan:
    return pipeline_fork_plan.plan(
        line.configured_store, query, point, "fix", check_source=False, **options
    )


def copies(line: Line) -> dict[str, str]:
    return {one: f"{line.uri(one)}_forks/{one}_fix" for one in ("silver", "gold")}


def assert_forked(line: Line) -> None:
    """Both stand at the group; gold goes on in the copy of silver's table, behind its rows."""
    there = {name: DeltaTable(uri) for name, uri in copies(line).items()}
    for name, table in there.items():
        assert sorted(table.to_pandas()["batch"]) == [*range(SAVED + 1)]
        assert line.store.generations.current(f"{name}_fix").generation == 1
        assert table.metadata().id != line.table(name).metadata().id
    behind = next_version(str(there["silver"].metadata().id), 1)
    for batch in (SAVED - 1, SAVED):
        assert line.sources("gold_fix", batch) == (behind,)
    # Of bronze, which is not forked, it reads on.
    assert line.sources("silver_fix", SAVED) == (line.reads("bronze")(SAVED),)
    bound = bindings.complete(line.configured_store).queries
    assert dict(bound["gold_fix"].tables) == {"silver": copies(line)["silver"]}
    assert dict(bound["silver_fix"].tables) == {"bronze": line.uri("bronze")}
    assert journal.all_unfinished(line.store.root) == []


def test_each_fork_reads_the_table_of_the_fork_before_it(line: Line) -> None:
    before, live = contents(line, ("silver", "gold")), line.store.queries()

    done = pipeline_fork.execute(plan(line), line.configured_store)

    assert_forked(line)
    assert [(one.query, one.origin) for one in done.forks] == [
        ("silver_fix", "silver"),
        ("gold_fix", "gold"),
    ]
    assert contents(line, ("silver", "gold")) == before
    assert line.store.queries() == sorted([*live, *FORKS])
    assert line.rows("silver") == [*range(NEWEST + 1)]
    again = pipeline_fork.execute(plan(line), line.configured_store)
    assert all(one.already_forked for one in again.forks)


def test_all_of_it_can_be_forked(line: Line) -> None:
    done = pipeline_fork.execute(plan(line, "bronze"), line.configured_store)

    assert [one.query for one in done.forks] == ["bronze_fix", "silver_fix", "gold_fix"]
    copied = DeltaTable(f"{line.uri('bronze')}_forks/bronze_fix")
    behind = next_version(str(copied.metadata().id), 1)
    assert line.sources("silver_fix", SAVED) == (behind,)
    assert line.sources("bronze_fix", SAVED) == (topic(SAVED),)


@pytest.mark.parametrize("first", ["bronze", "left"])
def test_of_several_tables_a_reader_goes_on_in_the_copies_of_those_that_are_forked(
    local_store: Store, on_local: Location, first: str
) -> None:
    """A diamond: the other tables it reads as they are."""
    line = Line(local_store, on_local)
    line.add("bronze", topic)
    line.add("left", line.reads("bronze"))
    line.add("right", line.reads("bronze"))
    line.add("gold", line.reads("left"), line.reads("right"), line.reads("bronze"))
    reads(line, left="bronze", right="bronze")
    every = {one: line.uri(one) for one in ("left", "right", "bronze")}
    line.configured["gold"] = line.configured["gold"].model_copy(update={"tables": every})
    for query in ("gold", "left", "right", "bronze"):
        line.save(query, "before")

    pipeline_fork.execute(plan(line, first), line.configured_store)

    forked = {"bronze": ("left", "right", "bronze"), "left": ("left",)}[first]
    wanted = []
    for table in every:
        copy = f"{line.uri(table)}_forks/{table}_fix"
        is_copied = table in forked
        wanted.append(
            next_version(str(DeltaTable(copy).metadata().id), 1)
            if is_copied
            else line.reads(table)(SAVED)
        )
        bound = bindings.complete(line.configured_store).queries["gold_fix"]
        assert bound.tables[table] == (copy if is_copied else line.uri(table))
    for batch in (SAVED - 1, SAVED):
        mine = dict(zip(every, line.sources("gold_fix", batch), strict=True))
        assert [mine[one] for one in forked] == [wanted[list(every).index(one)] for one in forked]
    assert list(line.sources("gold_fix", SAVED)) == wanted


def test_trap_of_forks_that_are_lost_all_was_to_be_read_again_from_the_first_record(
    line: Line,
) -> None:
    """The command makes them again from the savepoint that was meant then, the reader as well."""
    words = ["pipeline", "fork", "silver", "latest", "fix", "--no-source-check"]
    where = ["--yes", "--config", config(line)]
    assert killed_at("", *words, *where) == 0
    began = line.store.generations.current("silver_fix").begun_from
    line.save("silver", batch=NEWEST)
    line.checkpoint("gold_fix").delete(["metadata"])
    bound = bindings.complete(line.configured_store).queries["gold_fix"]

    with pytest.raises(CheckpointDamagedError, match="no savepoint") as refused:
        recover.if_damaged(line.configured_store, "gold_fix", bound)

    again = ["pipeline", "fork", "silver", str(began), "NEW_NAME", "--no-source-check"]
    assert f"savepoints {' '.join(again)} --yes; then" in refused.value.hint
    assert "savepoints end silver_fix && savepoints end gold_fix; or" in refused.value.hint
    assert killed_at("", *again, *where) == 0
    for query in FORKS:
        assert killed_at("", "end", query, *where) == 0
    for query in ("silver", "gold"):
        made = DeltaTable(f"{line.uri(query)}_forks/{query}_NEW_NAME")
        assert sorted(made.to_pandas()["batch"]) == [*range(SAVED + 1)]


def test_what_is_going_to_be_done_can_be_read(line: Line) -> None:
    text = str(plan(line))

    assert f"copy version {SAVED} of {line.uri('silver')} to {copies(line)['silver']}" in text
    assert f"continue in {copies(line)['silver']} after version 0" in text
    assert f"{line.uri('bronze')}, written by bronze, is not forked" in text


@pytest.mark.parametrize("point", some(2, POINTS, "pipeline fork"))
def test_killed_and_run_again_it_is_as_if_it_had_not_been_killed(line: Line, point: str) -> None:
    words = [*("pipeline", "fork", "silver", "before", "fix", "--yes", "--no-source-check")]
    words += ["--config", config(line)]

    assert killed_at(point, *words) == -signal.SIGKILL

    for fork in FORKS if point != "pipeline fork.finished" else ():
        with pytest.raises(UnfinishedOperationError):
            journal.refuse_unfinished(line.store.root, fork)
    journal.refuse_unfinished(line.store.root, "silver")
    assert killed_at("", *words) == 0
    assert_forked(line)


@pytest.mark.parametrize("point", some(2, POINTS[:-3], "fork undone"))
def test_killed_and_undone_nothing_of_it_is_left(line: Line, point: str) -> None:
    words = [*("pipeline", "fork", "silver", "before", "fix", "--yes", "--no-source-check")]
    where = ["--config", config(line)]
    assert killed_at(point, *words, *where) == -signal.SIGKILL
    (begun,) = journal.all_unfinished(line.store.root)
    # A reader that catches up writes down its program.
    checked_programs.write(line.store.root, "gold_fix", 1, "program", first_batch=NEWEST)
    undo = ["operations", "undo", begun.id, "--yes", *where]
    assert killed_at("pipeline fork.undo_silver_fix", *undo) == -signal.SIGKILL
    assert killed_at("", *words, *where) != 0, "it can only be undone"

    assert killed_at("", *undo) == 0

    assert line.store.queries() == ["bronze", "gold", "silver"]
    left = {*line.place.list("checkpoints"), *line.place.list("tables")}
    assert not [info.path for info in left if "_fix" in info.path]
    assert checked_programs.read(line.store.root, "gold_fix", 1) == ()
    assert killed_at("", *words, *where) == 0
    assert_forked(line)


@pytest.mark.parametrize("point", some(1, POINTS[-3:-1], "fork begun"))
def test_trap_an_undo_was_planned_and_offered_that_is_refused(line: Line, point: str) -> None:
    """One of the forks has begun; the journal may not know it yet."""
    words = ["pipeline", "fork", "silver", "before", "fix", "--yes", "--no-source-check"]
    assert killed_at(point, *words, "--config", config(line)) == -signal.SIGKILL
    (begun,) = journal.all_unfinished(line.store.root)

    for undo in (unfinished.undo_plan, unfinished.undo):
        with pytest.raises(UsageError, match="already exists"):
            undo(line.configured_store, begun.id)
    with pytest.raises(UnfinishedOperationError) as refused:
        journal.refuse_unfinished(line.store.root, "gold_fix")
    assert "undo" not in refused.value.hint
    unfinished.resume(line.configured_store, begun.id)

    assert_forked(line)


def test_trap_what_the_fork_itself_wrote_into_its_table_is_removed_by_an_undo(
    line: Line,
) -> None:
    """A reader that was behind has written a batch; what others wrote is not removed."""
    made = plan(line)
    one = made.members[1].fork.outputs[0]
    isolated_copy.execute(one, made.operation_id)
    for batch, app in ((2, one.app_id), (3, "somebody else")):
        write(one.uri, batch, app)
    with pytest.raises(NotAlignedError, match="something other than the fork has committed"):
        isolated_copy.undo(one, made.operation_id)
    Location.of(one.uri).delete(["_delta_log/00000000000000000002.json"])

    isolated_copy.undo(one, made.operation_id)

    assert not Location.of(one.uri).list()


def write(uri: str, batch: int, app: str) -> None:
    import pyarrow as pa
    from deltalake import CommitProperties, Transaction, write_deltalake

    properties = CommitProperties(app_transactions=[Transaction(app, batch)])
    rows = pa.table({"batch": pa.array([batch], pa.int64())})
    write_deltalake(uri, rows, mode="append", commit_properties=properties)


REFUSED: Mapping[str, tuple[dict[str, Any], type[Exception], str]] = {
    "program of another query": (
        {"apps": {"bronze": "jobs:app"}}, UsageError, "which is not part of this fork",
    ),
    "no such savepoint": ({"point": "never"}, SavepointNotFoundError, "never"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_refused_before_anything_is_done(line: Line, case: str) -> None:
    given, error, text = REFUSED[case]

    with pytest.raises(error, match=text):
        plan(line, **given)

    assert line.store.queries() == ["bronze", "gold", "silver"]


def test_a_fork_of_a_reader_says_how_to_make_one_that_can_be_compared(line: Line) -> None:
    def warnings(query: str) -> str:
        saved = line.store.catalog.find("before", query=query)
        options = ForkOptions(check_source=False)
        return "\n".join(fork_plan.plan(line.configured_store, saved.id, "fix", options).warnings)

    silver = line.store.catalog.find("before", query="silver")
    assert f"savepoints pipeline fork silver {silver.id} NAME" in warnings("silver")
    assert "compare" not in warnings("bronze")


def test_a_name_that_is_taken_is_refused(line: Line) -> None:
    pipeline_fork.execute(plan(line), line.configured_store)

    with pytest.raises(TargetExistsError, match="already has a query named silver_fix"):
        plan(line, apps={"silver": "jobs:app"})


def test_settings_that_name_other_tables_for_a_fork_are_refused(line: Line) -> None:
    bound = line.configured["gold"]
    outputs = {"gold": f"{line.uri('gold')}-other"}
    line.configured["gold_fix"] = bound.model_copy(update={"outputs": outputs, "app_name": "gold"})

    with pytest.raises(UsageError, match=r"\[queries.gold_fix.tables\] in the settings names"):
        plan(line)

    # What it would read, in another spelling.
    tables = {name: f"file://{uri}_forks/silver_fix/" for name, uri in bound.tables.items()}
    line.configured["gold_fix"] = line.configured["gold_fix"].model_copy(update={"tables": tables})
    assert plan(line).queries[-1] == "gold_fix"


def test_a_table_that_no_input_names_is_refused(line: Line) -> None:
    line.configured["gold"] = line.configured["gold"].model_copy(update={"tables": {}})

    with pytest.raises(UsageError, match=r"which is not among its inputs in the settings"):
        plan(line)


def test_trap_an_unforked_table_that_was_taken_back_since_is_refused(line: Line) -> None:
    """The fork would fail at the rewind, or read what was taken back."""
    line.table("bronze").restore(0)

    with pytest.raises(NotAlignedError, match=r"because version \d+ rewound the table"):
        plan(line)


def test_forks_that_were_not_made_together_are_not_found(line: Line) -> None:
    store = line.configured_store
    with pytest.raises(NotFoundError, match="silver has no fork fix"):
        store.query("silver").compare_pipeline("fix")
    with pytest.raises(NotFoundError, match="silver has no fork fix"):
        store.query("silver").promote_pipeline("fix")


def test_trap_an_operation_on_a_fork_is_interrupted_after_the_plan_to_promote(line: Line) -> None:
    store = line.configured_store
    pipeline_fork.execute(plan(line), store)
    pairs = forked_pairs.find(store, "silver", "fix")
    promoting = PipelinePromotePlan(
        "pipeline promote", "silver", (), (), "fix", pairs, checks=False, command="x"
    )
    begun = Operation(new_id("op", utc_now()), "rollback", FORKS[1], {}, "x", rfc3339(utc_now()))
    Journal.begin(store.root, begun)

    with pytest.raises(UnfinishedOperationError, match=begun.id):
        pipeline_promote.execute(promoting, store)


def test_the_forks_are_found_by_any_of_the_queries(line: Line) -> None:
    pipeline_fork.execute(plan(line), line.configured_store)
    store = line.configured_store

    compared = store.query("gold").compare_pipeline("fix").plan

    assert [(one.live, one.fork) for one in compared.pairs] == [
        ("silver", "silver_fix"),
        ("gold", "gold_fix"),
    ]
    with pytest.raises(UsageError, match="in the future"):
        store.query("gold").compare_pipeline("fix", until="2999-01-01T00:00:00Z")


def config(line: Line) -> str:
    """Write the settings into a file, with what each reads."""
    path = Path(line.config())
    tables = [
        f"[queries.{query}.tables]\n{name} = {json.dumps(uri)}\n"
        for query, bound in line.configured.items()
        for name, uri in bound.tables.items()
    ]
    path.write_text(path.read_text() + "".join(tables))
    return str(path)
