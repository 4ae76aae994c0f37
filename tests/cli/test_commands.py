"""What the commands print, as text for people and as JSON for scripts."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from savepoints.checkpoint.cut import read_cut
from savepoints.cli.main import _SECTIONS
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import FORMS, Savepoint
from tests import draw
from tests.samples import contents, savepoint, take, unpack

pytestmark = pytest.mark.drawn(3)

# From conftest.py: the function that calls the command line.
Call = Any
COMMANDS = [name for names in _SECTIONS.values() for name in names]


def as_document(savepoint: Savepoint) -> dict[str, Any]:
    """Write a savepoint as scripts want it: offsets as JSON, and null for no watermark."""
    document = savepoint.to_json()
    cut = document["cut"]
    cut["offsets"] = [one and json.loads(one) for one in cut["offsets"]]
    cut["watermark_ms"] = cut["watermark_ms"] or None
    return document


def test_every_command_has_help_with_an_example(call: Call) -> None:
    pages = {command: call(command, "--help") for command in COMMANDS}

    assert {command: page.code for command, page in pages.items() if page.code} == {}
    examples = {command: page.out.partition("Example")[2] for command, page in pages.items()}
    assert [one for one in COMMANDS if f"savepoints {one}" not in examples[one]] == []


def test_help_groups_the_commands_and_names_the_exit_codes(call: Call) -> None:
    called = call("--help")

    assert called.code == 0
    for word in (*_SECTIONS, *COMMANDS, "Exit codes", "13 inconsistent"):
        assert word in called.out


@pytest.mark.s3
def test_create_restore_and_verify_from_end_to_end(
    call: Call, place: Location, store: Store
) -> None:
    checkpoint = unpack("rocksdb", place / "checkpoint")
    at = ("--store", str(store.root), "-o", "json")

    created = call(
        "create", "--checkpoint", str(checkpoint), "--name", "totals", "--format", "native",
        "--tag", "before", "--description", "the first", *at,
    )  # fmt: skip
    verified = call("verify", "before", "--checksums", *at)
    restored = call("restore", "before", "--to", str(place / "target"), "--yes", *at)

    assert (created.code, verified.code, restored.code) == (0, 0, 0)
    (taken,) = store.catalog.all()
    assert created.document["savepoint"] == as_document(taken)
    assert (taken.tags, taken.description) == (("before",), "the first")
    assert verified.document["report"]["grade"] == "ok"
    assert restored.document["restored"]["batch_id"] == 3
    assert read_cut(place / "target").cut.batch_id == 3


def test_create_in_words_says_what_it_cost(
    call: Call, on_local: Location, local_store: Store
) -> None:
    checkpoint = str(unpack("rocksdb", on_local / "checkpoint"))
    command = ("create", "--checkpoint", checkpoint, "--name", "totals", "--format", "native")

    called = call(*command, "--store", str(local_store.root))

    assert called.code == 0
    assert local_store.catalog.all()[0].id in called.out
    assert "14 files" in called.out
    assert "1. copy 14 files of the newest committed batch, currently 3" in called.err


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_dry_run_shows_the_plan_and_writes_nothing(
    output: str, call: Call, on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    take(local_store, checkpoint)
    before = contents(on_local)
    for verb, command in {
        "create": ["create", "--checkpoint", str(checkpoint), "--format", "native"],
        "restore": ["restore", "latest", "--to", str(on_local / "target")],
        "export": ["export", "latest"],
    }.items():
        called = call(*command, "--dry-run", "--store", str(local_store.root), "-o", output)

        assert called.code == 0
        if output == "json":
            assert called.document["dry_run"] is True
            assert called.document["plan"]["verb"] == verb
            assert called.document["plan"]["steps"]
        else:
            assert called.out.startswith(verb), "the plan is the result"
            assert "nothing was changed" in called.err
    assert contents(on_local) == before


def test_list_shows_the_newest_first(call: Call, local_store: Store) -> None:
    for number in (2, 1, 3):
        local_store.catalog.add(savepoint(number, query=f"q{number % 2}", tags=("t",)))
    at = ("--store", str(local_store.root))

    text, json = call("list", *at), call("list", *at, "-o", "json")
    one = call("list", *at, "--query", "q1", "-o", "json")

    found = local_store.catalog.all()
    assert json.document["savepoints"] == [as_document(item) for item in found]
    assert [item.cut.batch_id for item in found] == [3, 2, 1]
    assert [item["query"] for item in one.document["savepoints"]] == ["q1", "q1"]
    positions = [text.out.index(item.id) for item in found]
    assert positions == sorted(positions)
    _, header, _, first, *_ = text.out.splitlines()
    assert first[header.index("tags") :].startswith("t ")


def test_options_of_every_command_may_stand_before_it(call: Call, local_store: Store) -> None:
    local_store.catalog.add(savepoint(1))
    at = ("--store", str(local_store.root))

    first = call(*at, "-o", "json", "list")
    assert json.loads(first.out) == call("list", *at, "-o", "json").document
    # The one behind the command is the one that is meant.
    assert call("--store", "/nowhere", "list", *at).code == 0
    assert call(*at, "list", "--store", "/nowhere").code == 10


def test_a_list_fits_into_80_columns(
    call: Call, local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        local_store.catalog.add(savepoint(number, query="order_totals", tags=("t",)))
    monkeypatch.setenv("COLUMNS", "80")

    lines = call("list", "--store", str(local_store.root)).out.splitlines()

    assert max(map(len, lines)) <= 80
    for one in local_store.catalog.all():
        (line,) = [line for line in lines if one.id in line]
        assert line.split()[1:2] == ["order_totals"]
        assert "complete" in line


@pytest.mark.parametrize("columns", [20, 30, 40])
def test_trap_a_narrow_terminal_gets_ids_without_their_ends(
    columns: int, call: Call, local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off, all of a day were the same; the other columns were empty."""
    local_store.catalog.add(one := savepoint(1, query="order_totals"))
    monkeypatch.setenv("COLUMNS", str(columns))

    out = call("list", "--store", str(local_store.root)).out

    (line,) = [line for line in out.splitlines() if one.id in line]
    assert line.split() == [one.id, "order_totals", "1", "complete"]


def test_list_of_an_empty_store_is_no_error(call: Call, store: Store) -> None:
    at = ("--store", str(store.root))

    assert "no savepoints" in call("list", *at).out
    assert call("list", *at, "-o", "json").document == {
        "schema_version": 1,
        "savepoints": [],
        "rolled_back": [],
    }


def test_show_has_offsets_operators_and_what_was_written_by_a_person(
    call: Call, local_store: Store
) -> None:
    local_store.catalog.add(savepoint(1, tags=("before",), offsets=(None, '{"t":{"0":7}}')))

    called = call("show", "before", "--store", str(local_store.root))

    assert called.code == 0
    for text in ("stateStoreSave", "not started", "before", "10:59:00Z"):
        assert text in called.out


@pytest.mark.parametrize("sample", ["limit", "join_4"])
def test_trap_operators_that_are_native_only_are_said_in_the_plan_and_in_show(
    sample: str, call: Call, on_local: Location, local_store: Store
) -> None:
    checkpoint = unpack(sample, on_local / "checkpoint")
    at = ("--store", str(local_store.root))
    # Both forms, by default: what cannot have one is saved all the same, and that is said.
    create = ("create", "--checkpoint", str(checkpoint), "--dry-run", *at)
    planned, plan = call(*create), call(*create, "-o", "json").document["plan"]
    take(local_store, checkpoint)

    shown, json = call("show", "latest", *at), call("show", "latest", *at, "-o", "json")

    reason = {"limit": "globalLimit", "join_4": "join of format 4"}[sample]
    assert "native form only" in planned.out
    assert reason in planned.out
    assert reason in plan["warnings"][0]
    assert reason in shown.out
    operators = json.document["savepoint"]["operators"]
    assert [bool(one["native_only"]) for one in operators] == [True, False][: len(operators)]
    assert reason in operators[0]["native_only"]
    assert operators[0]["keyless"] == (sample == "limit")


def test_a_query_without_state_is_exported_and_the_second_time_it_is_done(
    call: Call, on_local: Location, local_store: Store
) -> None:
    taken = take(local_store, unpack("two_sources", on_local / "checkpoint"))
    at = ("--store", str(local_store.root))

    first = call("export", "latest", *at, "-o", "json")
    again = call("export", "latest", *at)

    assert (first.code, again.code) == (0, 0)
    (exported,) = local_store.catalog.all()
    assert first.document["savepoint"] == as_document(exported)
    assert exported == dataclasses.replace(taken, forms=FORMS)
    assert "native and canonical form" in again.out


def test_verify_can_restore_what_it_looks_at(
    call: Call, on_local: Location, local_store: Store
) -> None:
    take(local_store, unpack("two_sources", on_local / "checkpoint"))
    command = ("verify", "latest", "--deep", "--store", str(local_store.root))

    text, json = call(*command), call(*command, "-o", "json")

    assert (text.code, json.code) == (0, 0)
    assert "restoring the native form" in text.err
    assert (json.document["report"]["depth"], json.document["report"]["grade"]) == ("deep", "ok")


def test_markup_in_what_people_write_is_shown_as_it_is(call: Call, local_store: Store) -> None:
    strange = "[red]not markup[/red] \N{SNOWMAN}"
    local_store.catalog.add(dataclasses.replace(savepoint(1), description=strange))
    at = ("--store", str(local_store.root))

    assert "[red]not markup[/red]" in call("show", "latest", *at).out
    assert call("show", "latest", *at, "-o", "json").document["savepoint"]["description"] == strange


def test_version_names_what_it_works_with(call: Call) -> None:
    called = call("version", "-o", "json")

    assert called.code == 0
    assert {"savepoints", "pyspark", "deltalake"} <= called.document["versions"].keys()


COUNTED = """
import sys, time
begun = time.process_time()
{work}
heavy = [name for name in ("pyspark", "py4j", "confluent_kafka") if name in sys.modules]
print(code, time.process_time() - begun, *heavy, file=sys.stderr)
"""
LOOKING = """
from savepoints.cli.main import _run
from savepoints.cli.output import Terminal
code = _run(Terminal(), sys.argv[1:])
"""
# What looking cannot do without.
LIBRARIES = """
import click, deltalake, obstore, pyarrow.dataset, pydantic_settings, rich.console, rich.table
code = 0
"""


def processor_seconds(work: str, store: Store, words: Sequence[str] = ()) -> float:
    done = subprocess.run(
        [sys.executable, "-c", COUNTED.format(work=work), *words],
        env={**os.environ, "SAVEPOINTS_STORE": str(store.root)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    code, taken, *heavy = done.stderr.split()
    assert (code, heavy) == ("0", [])
    return float(taken)


@pytest.mark.parametrize(
    "command", draw.some(1, [["list"], ["show", "latest"], ["version"], ["--help"]], "looking")
)
def test_looking_needs_no_spark_and_answers_at_once(command: list[str], local_store: Store) -> None:
    """Beside the libraries alone at the same moment: what else runs here makes both slower."""
    local_store.catalog.add(savepoint(1))

    ratios = (
        processor_seconds(LOOKING, local_store, command) / processor_seconds(LIBRARIES, local_store)
        for _ in range(5)
    )
    assert any(ratio < 2.0 for ratio in ratios)
