"""What is a store, and who makes one."""

from __future__ import annotations

import json
import shlex
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from savepoints.errors import IncompatibleError, StoreNotFoundError
from savepoints.handle import Store
from savepoints.io import Location
from tests.cli.conftest import Call
from tests.denied import unconditional
from tests.samples import take, unpack


def test_trap_an_empty_prefix_looks_like_a_store_without_savepoints(
    place: Location, call: Call
) -> None:
    nowhere = str(place / "stroe")

    called = call("list", "--store", nowhere, "-o", "json")

    assert (called.code, called.error["name"]) == (10, "StoreNotFoundError")
    assert f"there is no store at {nowhere}" in called.error["message"]
    assert f"savepoints init --store {nowhere}" in called.error["hint"]


@pytest.mark.parametrize("words", [(), ("-o", "json"), ("--to", "x.prom")])
def test_trap_metrics_of_no_store_are_a_file_without_figures(
    words: tuple[str, ...], on_local: Location, call: Call, tmp_path: Path
) -> None:
    """Each alert about a query was silent, for there were no queries."""
    (tmp_path / "x.prom").write_text("as it was")

    called = call("metrics", *words, "--store", str(on_local / "stroe"))

    assert (called.code, called.out) == (10, "")
    assert (tmp_path / "x.prom").read_text() == "as it was"


def test_trap_the_next_command_of_a_path_with_a_blank_is_of_another_path(
    on_local: Location, call: Call
) -> None:
    store, backup = str(on_local / "my store"), str(on_local / "my backup")
    missing = call("list", "--store", store, "-o", "json").error["hint"]

    assert call(*words_after(missing, "create the store: savepoints")).code == 0
    take(Store.open(store), unpack("rocksdb", on_local / "checkpoint"))
    copied = call("copy", "latest", backup, "--yes", "--store", store).out
    assert call(*words_after(copied, "savepoints")).code == 0


def words_after(text: str, begin: str) -> list[str]:
    """Return the arguments of a command that stands at the end of a text, as a shell has them."""
    return shlex.split(text.rpartition(f"{begin} ")[2])


def test_a_directory_with_something_else_in_it_is_no_store(place: Location) -> None:
    (place / "data").put("part-0.parquet", b"x")

    with pytest.raises(StoreNotFoundError):
        Store.open(str(place / "data"))


def test_init_makes_a_store_once(place: Location, call: Call) -> None:
    uri = str(place / "store")

    first = call("init", "--store", uri)
    second = call("init", "--store", uri, "-o", "json")

    assert first.code == 0
    assert f"created a store at {uri}".split() == first.err.split()[1:]
    assert (second.code, json.loads(second.out)["made"]) == (0, False)
    assert call("list", "--store", uri).code == 0


def test_trap_a_store_above_a_table_called_events_writes_into_it(
    on_local: Location, call: Call
) -> None:
    write_deltalake(str(on_local / "events"), pa.table({"event": ["paid"]}))
    before = [info.path for info in on_local.list()]

    refused = call("init", "--store", str(on_local), "-o", "json")

    assert (refused.code, refused.error["name"]) == (16, "IncompatibleError")
    assert f"such as {on_local}/savepoints" in refused.error["hint"]
    assert [info.path for info in on_local.list()] == before
    assert call("init", "--store", str(on_local / "savepoints")).code == 0


@pytest.mark.parametrize("header", ["If-None-Match", "If-Match"])
def test_trap_a_server_that_ignores_conditions_gives_two_processes_one_lease(
    header: str, on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unconditional(s3_endpoint, header) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        with pytest.raises(IncompatibleError, match=f"the store ignores {header}"):
            Store.at(str(on_s3 / "store")).make()

        assert on_s3.list() == []


def test_a_store_that_lost_its_mark_is_one_again_though_it_is_damaged(on_local: Location) -> None:
    store = Store.at(str(on_local / "store")).make()
    take(store, unpack("rocksdb", on_local / "checkpoint"))
    store.root.delete(["store.json", "catalog/_delta_log/00000000000000000000.json"])

    assert Store.at(str(store.root)).make().exists()


def test_the_first_create_makes_the_store_and_says_so(
    place: Location, on_local: Location, call: Call
) -> None:
    uri = str(place / "store")
    checkpoint = unpack("rocksdb", on_local / "checkpoint")
    arguments = ("create", "--checkpoint", str(checkpoint), "--format", "native", "--store", uri)

    assert call(*arguments, "--dry-run").code == 0
    assert not Store.at(uri).exists()
    first, second = call(*arguments), call(*arguments)

    assert (first.code, second.code) == (0, 0)
    assert "created a store at" in first.err
    assert "created a store at" not in second.err
    assert len(Store.open(uri).catalog.all()) == 2


def test_many_can_make_one_store(place: Location) -> None:
    said: list[str] = []
    store = Store.at(str(place / "store"))
    makers = [threading.Thread(target=store.make, args=(said.append,)) for _ in range(8)]
    for one in makers:
        one.start()
    for one in makers:
        one.join()

    assert set(said) == {f"created a store at {store.root}"}
    take(store, unpack("rocksdb", place / "checkpoint"))


def test_a_store_of_another_format_is_refused(place: Location) -> None:
    store = Store.at(str(place / "store")).make()
    store.root.put("store.json", b'{"format": "savepoints-store/2"}')

    with pytest.raises(IncompatibleError, match="savepoints-store/2"):
        Store.open(str(store.root))
