"""`list`, `show` and `lineage`: what is chosen and what is shown, as text and as JSON."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Edit
from savepoints.moments import rfc3339, utc_now
from savepoints.store.tables.events import Event
from tests.samples import BEGINNING, savepoint
from tests.templates import made_once

pytestmark = pytest.mark.drawn(4)

# From conftest.py: the function that calls the command line.
Call = Any

ONE = savepoint(1, tags=("first", "both"))
TWO = dataclasses.replace(
    savepoint(2, tags=("both",), state="broken"), state_reason="state/0/1.sst is missing"
)
THREE = dataclasses.replace(savepoint(3, query="clicks"), pinned=True)
GONE = savepoint(4, tags=("both",), state="expired")


@pytest.fixture
def at(local_store: Store, on_local: Location) -> tuple[str, ...]:
    """Give a store with savepoints, as options."""
    listed(local_store, on_local)
    return ("--store", str(local_store.root))


@made_once
def listed(store: Store, place: Location) -> None:
    for one in (ONE, TWO, THREE, GONE):
        store.catalog.add(one)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [THREE, TWO, ONE]),
        (("--query", "orders"), [TWO, ONE]),
        (("--tag", "both"), [TWO, ONE]),
        (("--tag", "none"), []),
        (("--state", "expired"), [GONE]),
        (("--state", "broken"), [TWO]),
        (("--since", "2026-11-20T11:59:00Z"), [THREE, TWO]),
        (("--until", "2026-11-20T11:59:00Z"), [TWO, ONE]),
        (("--since", "2026-11-20T13:59:00+02:00", "--until", "2026-11-20T11:59:00Z"), [TWO]),
        (("--limit", "2"), [THREE, TWO]),
        (("--query", "orders", "--limit", "1"), [TWO]),
        (("--since", "36500d"), [THREE, TWO, ONE]),
        (("--until", "36500d"), []),
    ],
)
def test_list_chooses(
    options: tuple[str, ...], expected: list[Any], call: Call, at: tuple[str, ...]
) -> None:
    text, json = call("list", *options, *at), call("list", *options, *at, "-o", "json")

    assert (text.code, json.code) == (0, 0)
    assert [one["id"] for one in json.document["savepoints"]] == [one.id for one in expected]
    for one in (ONE, TWO, THREE, GONE):
        assert (one.id in text.out) == (one in expected)
    if not expected:
        assert "no matching savepoints" in text.out


LISTS = (("list",), ("events",), ("operations", "list"))


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_trap_a_misspelt_query_was_an_empty_list(
    words: tuple[str, ...], call: Call, at: tuple[str, ...]
) -> None:
    """Which says of the query that nothing was ever saved of it, or done to it."""
    refused = call(*words, "--query", "order", *at, "-o", "json")

    assert (refused.code, refused.out) == (10, "")
    assert "has no query 'order'" in refused.error["message"]
    assert refused.error["hint"] == "did you mean orders? name one of its queries: clicks, orders"


@pytest.mark.parametrize("words", LISTS, ids=" ".join)
def test_a_query_that_only_the_settings_name_has_an_empty_list(
    words: tuple[str, ...], call: Call, at: tuple[str, ...], tmp_path: Path
) -> None:
    settings = '[queries.refunds]\napp = "refunds:app"\noutputs = {}\ncheckpoints = "ck"\n'
    (tmp_path / "savepoints.toml").write_text(settings, encoding="utf-8")

    text, json = (call(*words, "--query", "refunds", *at, *how) for how in ((), ("-o", "json")))

    assert (text.code, json.code) == (0, 0)
    assert text.out.startswith(("no matching ", "no operations "))
    assert [] in json.document.values()


def test_trap_what_was_done_to_a_query_before_it_was_renamed_is_still_listed(
    call: Call, at: tuple[str, ...], local_store: Store
) -> None:
    """Events keep the name that the query had; a query of that name there no longer is."""
    event = Event("op-1", BEGINNING, "create", "me", "done", "orders_v1", ONE.id)
    local_store.events.append(event)

    found = call("events", "--query", "orders_v1", *at, "-o", "json").document["events"]
    none = call("events", "--query", "orders_v1", "--verb", "tag", *at)

    assert [one["id"] for one in found] == ["op-1"]
    assert (none.code, "no matching events" in none.out) == (0, True)


def test_a_duration_is_counted_back_from_now(call: Call, local_store: Store) -> None:
    recent, old = (
        savepoint(n, committed_at=utc_now() - timedelta(hours=hours))
        for n, hours in ((1, 5), (2, 30))
    )
    local_store.catalog.add(recent)
    local_store.catalog.add(old)
    at = ("--store", str(local_store.root), "-o", "json")

    def ids(*options: str) -> list[str]:
        return [one["id"] for one in call("list", *options, *at).document["savepoints"]]

    assert ids("--since", "1d") == [recent.id]
    assert ids("--until", "PT6H") == [old.id]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--since", "2026-11-20T10:00:00"), "no time zone"),
        (("--until", "yesterday"), "not an RFC 3339 time"),
        (("--limit", "0"), "--limit"),
        (("--state", "lost"), "--state"),
    ],
)
def test_list_refuses_what_makes_no_sense(
    options: tuple[str, ...], says: str, call: Call, at: tuple[str, ...]
) -> None:
    called = call("list", *options, *at, "-o", "json")

    assert (called.code, called.error["name"]) == (2, "UsageError")
    assert says in called.error["message"]
    assert called.error["hint"]


def test_a_wrong_time_is_told_that_it_may_be_an_age(call: Call, at: tuple[str, ...]) -> None:
    """Too long, or in words that no age has; the hint spoke of times alone."""
    for text in ("99999d", "7days"):
        error = call("list", "--since", text, *at, "-o", "json").error

        assert error["hint"].endswith("or as an age of at most 36500d, such as 10m or 7d")


def test_list_shows_pins_tags_and_why_something_is_broken(call: Call, at: tuple[str, ...]) -> None:
    lines = {line.split()[0]: line for line in call("list", *at).out.splitlines() if line.split()}

    assert " yes" in lines[THREE.id]
    assert " yes" not in lines[ONE.id]
    assert lines[ONE.id].index("first, both") == lines["id"].index("tags")
    assert "broken: " in lines[TWO.id]


def test_list_shows_what_was_edited_by_hand_whatever_its_description_says(
    call: Call, at: tuple[str, ...], local_store: Store
) -> None:
    edited = dataclasses.replace(
        savepoint(5), description="", kind="edit", edit=Edit("me", "a try", 0)
    )
    local_store.catalog.add(edited)

    lines = {line.split()[0]: line for line in call("list", *at).out.splitlines() if line.split()}

    assert " edit " in lines[edited.id]
    assert " edit " not in lines[ONE.id]


def test_show_says_what_changed_since_it_was_taken(call: Call, at: tuple[str, ...]) -> None:
    broken, pinned = call("show", TWO.id, *at), call("show", THREE.id, *at)
    document = call("show", TWO.id, *at, "-o", "json").document["savepoint"]

    assert "state/0/1.sst is missing" in broken.out
    assert "reason" not in pinned.out
    assert "yes: protected from retention" in pinned.out
    assert "size" in pinned.out
    assert (document["state"], document["state_reason"]) == ("broken", "state/0/1.sst is missing")
    assert document["pinned"] is False


def test_what_is_being_removed_is_not_found(call: Call, at: tuple[str, ...]) -> None:
    assert call("show", GONE.id, *at).code == 10


@pytest.fixture
def rolled_back(local_store: Store, on_local: Location) -> tuple[str, ...]:
    """Give a store with a query that was rolled back, as options."""
    two_generations(local_store, on_local)
    return ("--store", str(local_store.root))


@made_once
def two_generations(store: Store, place: Location) -> None:
    begun = dataclasses.replace(savepoint(5), generation=2, parent=ONE.id)
    for one in (ONE, begun):
        store.catalog.add(one)
    store.generations.begin("orders", 1, Location.of("/c/1"), by="run")
    store.generations.begin("orders", 2, Location.of("/c/2"), by="rollback", begun_from=ONE.id)


def test_lineage_is_a_tree(call: Call, rolled_back: tuple[str, ...]) -> None:
    called = call("lineage", *rolled_back)

    assert called.code == 0
    lines = [line.rstrip() for line in called.out.splitlines()]
    assert lines[0].startswith("generation orders/1, ")
    assert lines[1].startswith(f"└── {ONE.id}, batch 1, ")
    assert lines[1].endswith("[first] [both]")
    assert lines[2].startswith("    └── generation orders/2, ")
    assert lines[2].endswith("current, begun by rollback")
    assert lines[3].startswith("        └── sp-")
    assert len(lines) == 4


@pytest.mark.parametrize("how", [("-o", "json"), ("--format", "json")])
def test_lineage_is_a_document(
    how: tuple[str, ...], call: Call, rolled_back: tuple[str, ...]
) -> None:
    found = call("lineage", "--query", "orders", *how, *rolled_back).document["lineage"]

    assert [node["kind"] for node in found["nodes"]].count("generation") == 2
    assert {"source": ONE.id, "target": "orders/2", "kind": "began"} in found["edges"]
    assert all(
        set(node) == {"id", "kind", "query", "at", "batch_id", "status", "note", "needs"}
        for node in found["nodes"]
    )


def test_lineage_is_a_picture(call: Call, rolled_back: tuple[str, ...]) -> None:
    mermaid = call("lineage", "--format", "mermaid", *rolled_back)
    dot = call("lineage", "--format", "dot", *rolled_back)

    assert mermaid.out.startswith("flowchart TD\n")
    assert dot.out.startswith("digraph lineage {\n")
    assert dot.out.endswith("}\n")


def test_lineage_of_nothing_is_no_error(call: Call, local_store: Store) -> None:
    at = ("--store", str(local_store.root))

    assert "no generations" in call("lineage", *at).out
    assert call("lineage", *at, "-o", "json").document["lineage"] == {"nodes": [], "edges": []}


def test_a_tag_is_a_name(call: Call, at: tuple[str, ...]) -> None:
    text = call("tag", ONE.id, "golden", "--pin", "--description", "[b]x[/b]", *at)
    json = call("tag", "golden", "--query", "orders", "--remove", "first", *at, "-o", "json")

    assert (text.code, json.code) == (0, 0)
    assert "first, both, golden" in text.out
    assert "[b]x[/b]" in text.out
    document = json.document["savepoint"]
    assert (document["id"], document["tags"]) == (ONE.id, ["both", "golden"])
    assert (document["pinned"], document["description"]) == (True, "[b]x[/b]")
    assert call("show", "golden", *at, "-o", "json").document["savepoint"] == document


def test_what_was_done_is_in_the_events(call: Call, at: tuple[str, ...]) -> None:
    assert "no matching events" in call("events", *at).out
    call("tag", ONE.id, "golden", *at)
    call("tag", THREE.id, "best", *at)

    text, json = call("events", *at), call("events", *at, "-o", "json")
    one = call("events", "--query", "clicks", "--verb", "tag", "--limit", "1", *at, "-o", "json")

    assert [event["savepoint"] for event in json.document["events"]] == [THREE.id, ONE.id]
    assert {event["result"] for event in json.document["events"]} == {"done"}
    assert text.out.index(THREE.id) < text.out.index(ONE.id)
    assert [event["savepoint"] for event in one.document["events"]] == [THREE.id]
    assert call("events", "--result", "failed", *at, "-o", "json").document["events"] == []


def test_trap_a_query_that_waits_fills_the_events_with_skips(
    call: Call, at: tuple[str, ...], local_store: Store
) -> None:
    """Alerts count each of them, so each is recorded; people see one line."""
    for number in range(25):
        message = f"batch {number // 20} is already saved"
        event = Event(
            f"op-{number}", BEGINNING + timedelta(minutes=number), "create", "me", "skipped",
            "orders", ONE.id, message=message,
        )  # fmt: skip
        local_store.events.append(event)

    text, json = call("events", "--limit", "2", *at), call("events", *at, "-o", "json")

    lines = [line for line in text.out.splitlines() if "skipped" in line]
    assert [line.partition("me ")[2].strip() for line in lines] == [
        "5 times: batch 1 is already saved",
        "20 times: batch 0 is already saved",
    ]
    assert len(json.document["events"]) == 25


def test_a_dry_run_of_tag_changes_nothing(call: Call, at: tuple[str, ...]) -> None:
    text = call("tag", ONE.id, "golden", "--unpin", "--dry-run", *at)
    json = call("tag", ONE.id, "golden", "--dry-run", *at, "-o", "json")

    assert (text.code, json.code) == (0, 0)
    assert "add the tag golden" in text.out
    assert json.document["plan"]["add"] == ["golden"]
    assert call("show", "golden", *at).code == 10


def test_a_taken_tag_is_refused_unless_it_is_moved(call: Call, at: tuple[str, ...]) -> None:
    refused = call("tag", TWO.id, "first", *at, "-o", "json")
    moved = call("tag", TWO.id, "first", "--move", *at, "-o", "json")

    assert (refused.code, refused.error["name"]) == (15, "TargetExistsError")
    assert refused.error["savepoint"] == ONE.id
    assert moved.code == 0
    shown = call("show", "first", *at, "-o", "json").document["savepoint"]
    assert (shown["id"], rfc3339(TWO.created_at)) == (TWO.id, shown["created_at"])
