"""The public handles: their examples run, their docstrings name every argument, plans wait."""

from __future__ import annotations

import copy
import doctest
import inspect
import pickle
import re
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from _pytest.mark import ParameterSet
from deltalake import CommitProperties, Transaction, write_deltalake

import savepoints
from savepoints.io import Location
from tests.samples import contents, query_id, take, unpack
from tests.shown import read
from tests.test_docstrings import entries

EXAMPLES = (savepoints.App, savepoints.Settings, savepoints.TableInput)
HANDLES = (savepoints.Store, savepoints.Query, savepoints.SavepointHandle)
# What a handle knows, and who is told; said once, by the handles' own docstrings.
_COMMON = {"self", "query", "progress"}


@pytest.fixture
def clicks(on_local: Location, local_store: savepoints.Store) -> savepoints.Query:
    """Return a query with four batches in state and output, and savepoints of two of them."""
    checkpoint, table = unpack("rocksdb", on_local / "live"), str(on_local / "output")
    for batch in range(4):
        written = CommitProperties(app_transactions=[Transaction(query_id("rocksdb"), batch)])
        rows = pa.table({"batch": [batch]})
        write_deltalake(table, rows, mode="append", commit_properties=written)
    for batch in (1, 3):
        take(local_store, checkpoint, batch_id=batch, query="clicks", outputs={"totals": table})
    return local_store.query("clicks")


@pytest.mark.parametrize("handle", [*HANDLES, *EXAMPLES], ids=lambda one: str(one.__name__))
def test_the_examples_of_the_docstrings_run(
    handle: type, clicks: savepoints.Query, on_local: Location
) -> None:
    names = {
        "savepoints": savepoints,
        "uri": str(clicks.store.root),
        "target": str(on_local / "checkpoints" / "clicks-2"),
    }
    (example,) = doctest.DocTestFinder(recurse=False).find(handle, globs=names)
    assert example.examples

    outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)

    assert outcome.failed == 0


def test_a_notebook_shows_the_plan_of_a_method(clicks: savepoints.Query) -> None:
    plan = clicks.rollback("latest", to=str(clicks.store.root) + "-2")

    shown = read(plan._repr_html_()).texts
    assert shown[0] == "rollback clicks"
    assert [one.what for one in plan.plan.steps] == shown[2 : 1 + 2 * len(plan.plan.steps) : 2]


def test_the_settings_of_the_docstring_can_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shown,) = re.findall(
        r"```toml\n(.*?)```", inspect.getdoc(savepoints.Settings) or "", re.DOTALL
    )
    (tmp_path / "savepoints.toml").write_text(shown)
    monkeypatch.chdir(tmp_path)

    found = savepoints.Settings.load()

    assert found.queries["totals"].outputs == {"totals": "s3://lake/tables/totals"}


def methods() -> list[ParameterSet]:
    return [
        pytest.param(method, id=f"{handle.__name__}.{name}")
        for handle in HANDLES
        for name, method in inspect.getmembers(handle, callable)
        if name in vars(handle) and not name.startswith("_")
    ]


@pytest.mark.parametrize("method", methods())
def test_help_says_what_each_argument_is_and_nothing_of_others(
    method: Callable[..., object],
) -> None:
    said = set(entries(inspect.getdoc(method) or "", "Args"))
    taken = set(inspect.signature(method).parameters)

    assert taken - _COMMON <= said <= taken


def test_nothing_is_done_until_a_plan_is_executed(
    clicks: savepoints.Query, on_local: Location
) -> None:
    before = contents(on_local)

    plan = clicks.rollback("latest~1", to=str(on_local / "next"))

    assert contents(on_local) == before
    assert str(plan).startswith("rollback clicks:\n  1. ")
    assert plan.to_json()["batch_id"] == 1
    told: list[str] = []
    assert plan.execute(progress=told.append).batch_id == 1
    assert told
    assert clicks.generation.generation == 2


def test_trap_a_tag_that_is_given_as_a_text_is_a_tag_for_each_letter(
    clicks: savepoints.Query,
) -> None:
    good = clicks.store.savepoint("latest")

    with pytest.raises(savepoints.UsageError, match="add is the text 'v2', but must be") as refused:
        good.tag(add="v2")

    assert refused.value.hint == "write add=['v2']"
    generator = (tag for tag in ["v2"])
    assert good.tag(add=generator).execute().tags == ("v2",)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda query, noon: query.rollback(savepoints.AtTime(noon)), "moment"),
        (lambda query, noon: query.merge("s3://b/late", until=noon), "until"),
        (lambda query, noon: query.seed("s3://b/r", until="latest", watermark=noon), "watermark"),
        (lambda query, noon: query.late(since=noon), "since"),
    ],
)
def test_trap_a_time_without_a_zone_is_another_one_on_each_machine(
    call: Callable[[savepoints.Query, datetime], object], name: str, clicks: savepoints.Query
) -> None:
    noon = datetime(2026, 11, 21, 12)  # noqa: DTZ001 - the trap

    with pytest.raises(savepoints.UsageError, match=f"of {name} has no time zone") as refused:
        call(clicks, noon)

    assert "tzinfo=datetime.timezone.utc" in refused.value.hint


def test_a_plan_that_was_overtaken_is_refused(clicks: savepoints.Query, on_local: Location) -> None:
    plan = clicks.rollback("latest~1", to=str(on_local / "next"))
    clicks.rollback("latest~1", to=str(on_local / "other")).execute()
    before = contents(on_local)

    with pytest.raises(savepoints.StalePlanError):
        plan.execute()

    now = contents(on_local)
    changed = {path for path in now if now[path] != before.get(path)}
    assert {path.split("/")[1] for path in changed} <= {"leases", "events"}


def test_trap_a_plan_cannot_be_handed_to_another_process(
    clicks: savepoints.Query, on_local: Location
) -> None:
    """A scheduler's tasks pickle what they return: handles and plans failed with their tables."""
    plan = clicks.store.savepoint(clicks.latest.id).restore(str(on_local / "restored"))

    again = pickle.loads(pickle.dumps(plan))

    assert str(again) == str(plan)
    assert again.execute().savepoint_id == clicks.latest.id
    assert pickle.loads(pickle.dumps(clicks)).latest == copy.deepcopy(clicks).latest


def test_what_was_done_is_printed_a_line_for_each_field(
    clicks: savepoints.Query, on_local: Location
) -> None:
    target = str(on_local / "next")

    done = clicks.rollback("latest~1", to=target).execute()

    lines = str(done).splitlines()
    assert lines[0] == "RolledBack"
    assert {f"  checkpoint: {target}", "  batch_id: 1", "  outputs: totals=4"} <= set(lines)
    assert str(clicks.latest).startswith(f"Savepoint\n  id: {clicks.latest.id}\n  query: clicks\n")
    assert max(len(line) for line in str(clicks.latest).splitlines()) <= 130


def test_a_second_query_begins_from_the_state_of_the_first(
    clicks: savepoints.Query, on_local: Location
) -> None:
    before, own = clicks.store.savepoint("latest~1"), str(uuid.uuid4())

    done = before.restore(str(on_local / "second"), query_id=own).execute()

    made = clicks.store.create(checkpoint=done.checkpoint, query="clicks_v2", forms=["native"])
    taken = made.execute()
    assert (taken.query_id, taken.cut.batch_id, taken.query) == (own, 1, "clicks_v2")
    assert clicks.latest.cut.batch_id == 3
    assert clicks.store.query("clicks_v2").latest.id == taken.id


def test_the_handle_of_a_savepoint_stays_that_one(clicks: savepoints.Query) -> None:
    newest = clicks.store.savepoint("latest")
    assert clicks.latest == newest.row

    older = clicks.store.savepoint("latest~1")
    older.tag(add=["good"]).execute()

    assert older.row.tags == ("good",)
    assert (older.row.cut.batch_id, newest.row.cut.batch_id) == (1, 3)


def test_a_query_has_a_name_already(clicks: savepoints.Query) -> None:
    with pytest.raises(TypeError, match="handle belongs to clicks: omit query="):
        clicks.rollback("latest", query="orders")
    newest = clicks.store.savepoint("latest")
    with pytest.raises(TypeError, match=f"handle belongs to {newest.id}: omit query="):
        newest.verify(query="orders")


def test_of_a_query_that_nobody_runs_its_name_is_enough(clicks: savepoints.Query) -> None:
    renamed = clicks.rename("visits")
    assert str(renamed).startswith("rename clicks")

    renamed.execute()

    assert clicks.store.queries() == ["visits"]


def test_trap_a_path_is_not_a_text_but_names_the_same_place(
    clicks: savepoints.Query, on_local: Location, tmp_path: Path
) -> None:
    """It was a raw TypeError or AttributeError."""
    root = Path(str(clicks.store.root))
    there = Path(str(on_local))

    assert savepoints.Store.open(root).root == clicks.store.root
    assert savepoints.Store.at(tmp_path / "new").make().exists()
    tables = {"totals": there / "output"}
    saved = clicks.create(checkpoint=there / "live", outputs=tables, batch_id=2)  # type: ignore[arg-type]
    assert saved.plan.outputs == {"totals": str(there / "output")}
    plan = clicks.rollback("latest~1", to=there / "next")  # type: ignore[arg-type]
    assert plan.execute().batch_id == 1
    assert clicks.generation.checkpoint == str(there / "next")
