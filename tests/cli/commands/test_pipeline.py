"""`pipeline show`: as a tree, as a document, as a diagram."""

from __future__ import annotations

import json
from typing import Any

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from tests.pipelines import BATCH, Queries, chain

# From conftest.py: the function that calls the command line.
Call = Any


@pytest.fixture
def queries(local_store: Store, on_local: Location, call: Call) -> Queries:
    """Give a chain of three queries, with settings in the working directory."""
    found = Queries(local_store, on_local)
    chain(found)
    tables = [
        f'[queries.{name}]\napp = "jobs:app"\ncheckpoints = "{on_local}/checkpoints"\n'
        f'outputs.{name} = "{one.outputs[name]}"\n'
        for name, one in found.configured.items()
    ]
    with open("savepoints.toml", "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(f'store = "{local_store.root}"\n' + "\n".join(tables))
    return found


def test_it_is_a_tree_with_who_is_before_and_after(call: Call, queries: Queries) -> None:
    called = call("pipeline", "show", "silver")

    assert (called.code, called.err) == (0, "")
    behind = "next version 2, 3 versions behind version 4"
    at = f"(generation 1, batch {BATCH})"
    assert [line.rstrip() for line in called.out.splitlines()] == [
        "topic orders",
        f"└── bronze {at}",
        f"    └── silver {at}, reads {queries.uri('bronze')}: {behind}",
        f"        └── gold {at}, reads {queries.uri('silver')}: up to date at version 1",
        "upstream of silver    bronze",
        "downstream of silver  gold",
    ]


def test_it_is_a_document(call: Call, queries: Queries) -> None:
    found = call("pipeline", "show", "silver", "-o", "json").document["pipeline"]

    assert found == json.loads(json.dumps(queries.of("silver").to_json()))
    assert [(one["writer"], one["reader"], one["behind"]) for one in found["edges"]] == [
        ("bronze", "silver", 3),
        ("silver", "gold", 0),
    ]


def test_it_is_a_diagram(call: Call, queries: Queries) -> None:
    called = call("pipeline", "show", "silver", "--mermaid")

    assert called.code == 0
    assert called.out.startswith("flowchart LR\n")
    assert called.out.count("-->") == 3


def test_what_is_not_known_is_said(call: Call, queries: Queries) -> None:
    checkpoint = queries.checkpoint("bronze")
    checkpoint.put(f"offsets/{BATCH}", b"v9\n{}\n-")

    called = call("pipeline", "show", "gold")

    assert called.code == 0
    (note,) = [line for line in called.out.splitlines() if line.startswith("note: ")]
    assert "the checkpoint of bronze cannot be read" in note
    assert "bronze (generation 1, newest batch unknown)" in called.out


def test_a_query_that_the_store_does_not_know(call: Call, queries: Queries) -> None:
    called = call("pipeline", "show", "lead", "-o", "json")

    assert (called.code, called.error["name"]) == (10, "QueryNotFoundError")
    assert called.error["known"] == ["bronze", "gold", "silver"]
