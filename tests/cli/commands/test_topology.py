"""`topology`: what it prints of a query and of a checkpoint, and how it ends."""

from __future__ import annotations

import json

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from tests.cli.conftest import Call
from tests.faults.test_rollback_killed import write_output
from tests.samples import contents, query_id, take, unpack
from tests.sources.reading import checkpoint_at


def words(text: str) -> list[list[str]]:
    """Return the words of each line."""
    return [line.split() for line in text.splitlines()]


def test_of_a_checkpoint_no_store_and_no_settings_are_needed(
    call: Call, on_local: Location
) -> None:
    checkpoint = str(unpack("join_3", on_local / "join"))

    text, document = (
        call("topology", "--checkpoint", checkpoint, *options) for options in ((), ("-o", "json"))
    )

    assert (text.code, document.code) == (0, 0)
    found = document.document["topology"]
    assert (found["query"], found["query_id"]) == (None, query_id("join_3"))
    assert (found["batch_id"], found["watermark_ms"]) == (2, 94_000)
    assert [json.loads(one["position"]) for one in found["sources"]] == [{"logOffset": 1}] * 2
    (operator,) = found["operators"]
    assert (operator["name"], operator["rows"]) == ("symmetricHashJoin", None)
    (store,) = operator["stores"]
    assert {one["name"] for one in store["families"]} == {
        f"{side}-{part}"
        for side in ("left", "right")
        for part in ("keyToNumValues", "keyWithIndexToValue")
    }
    lines = words(text.out)
    assert ["query", "unknown"] in lines
    assert ["0", "files", '{"logOffset":1}'] in lines
    size = f"{operator['bytes'] / 1000:.1f}"
    assert ["0", "symmetricHashJoin", "default", "2", "8", size, "kB"] in lines
    assert "1970-01-01 00:01:34Z" in text.out
    assert "at2 timestamp, matched boolean" in text.out
    assert "Rows of operator 0: unknown: no savepoint has counted them." in text.out


def test_trap_a_store_that_was_given_is_called_missing(
    call: Call, on_local: Location, local_store: Store
) -> None:
    """It is there, and does not know the checkpoint: as of a restore to another directory."""
    checkpoint = str(unpack("join_3", on_local / "join"))

    called = call(
        "topology", "--checkpoint", checkpoint, "--store", str(local_store.root), "-o", "json"
    )

    (finding, *_) = called.document["topology"]["findings"]
    assert finding.startswith(f"the store {local_store.root} does not know this checkpoint")


def test_of_a_query_name_generation_and_outputs_are_shown(
    call: Call, local_store: Store, on_local: Location
) -> None:
    table = str(on_local / "totals")
    write_output(table, query_id("rocksdb"))
    taken = take(local_store, unpack("rocksdb", on_local / "live"), outputs={"totals": table})
    at = ("--store", str(local_store.root))
    before = contents(on_local)

    text, document = call("topology", "totals", *at), call("topology", "totals", *at, "-o", "json")
    same = call("topology", "--checkpoint", str(on_local / "live"), *at, "-o", "json")

    assert (text.code, document.code) == (0, 0)
    found = document.document["topology"]
    assert (found["query"], found["generation"], found["watermark_ms"]) == ("totals", 1, None)
    assert found["savepoint_id"] == taken.id
    assert (found["outputs"][0]["uri"], found["outputs"][0]["version"]) == (table, 3)
    assert same.document == document.document
    lines = words(text.out)
    assert ["query", "totals,", "generation", "1", "(current)"] in lines
    assert ["totals", "delta", "3", "3", table] in lines
    assert "Version of totals: the table's log, for batch 3." in text.out
    assert contents(on_local) == before


def test_positions_in_kafka_are_shown_where_no_broker_is_known(
    call: Call, on_local: Location
) -> None:
    checkpoint = str(checkpoint_at({"orders": {0: 12, 1: 7}}, on_local / "checkpoint"))

    called = call("topology", "--checkpoint", checkpoint)

    assert called.code == 0
    lines = words(called.out)
    assert ["0", "orders", "0", "12", "-", "-", "-", "-"] in lines
    assert ["0", "orders", "1", "7", "-", "-", "-", "-"] in lines
    assert "Lag and retention of source 0 are unknown" in called.out
    assert "no broker is configured" in called.out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "topology needs a QUERY or --checkpoint URI"),
        (("totals",), 2, "no store was given"),
        (
            ("totals", "--checkpoint", "/x", "--store", "STORE"),
            2,
            "either a query or a checkpoint",
        ),
        (("nobody", "--store", "STORE"), 10, "has no query 'nobody'"),
        (("--checkpoint", "/no/such/checkpoint"), 10, "there is no Spark checkpoint"),
    ],
)
def test_what_cannot_be_shown_is_refused(
    arguments: tuple[str, ...], code: int, message: str, call: Call, local_store: Store
) -> None:
    root = str(local_store.root)

    called = call("topology", *(root if one == "STORE" else one for one in arguments))

    assert called.code == code
    assert message in called.err
