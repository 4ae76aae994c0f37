"""`savepoints run`, as far as it goes without Spark and Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.handle import Store
from savepoints.store.locks import lease
from tests.cli.conftest import Call

QUERY = "order_totals"


@pytest.fixture
def store(tmp_path: Path, call: Call) -> Store:
    """Give the store of a query in the settings of the working directory."""
    (tmp_path / "store").mkdir()
    (tmp_path / "savepoints.toml").write_text(
        f'store = "{tmp_path}/store"\n[queries.{QUERY}]\napp = "spark_jobs.order_totals:app"\n'
        f'checkpoints = "{tmp_path}/live"\n[queries.{QUERY}.outputs]\ntotals = "{tmp_path}/out"\n'
    )
    return Store.at(str(tmp_path / "store")).make()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-duration", "soon"), "'soon' is not a valid duration"),
        (("--max-duration", "0s"), "'0s' is not a valid duration"),
        (("--wait", "a while"), "'a while' is not a valid duration"),
        (("--max-records", "0"), "--max-records is 0, but must be at least 1"),
        (("--every", "never"), "never"),
    ],
)
def test_a_bound_that_is_none_is_a_usage_error(
    store: Store, call: Call, options: tuple[str, ...], message: str
) -> None:
    done = call("run", QUERY, *options)

    assert done.code == 2
    assert message in done.err
    assert store.generations.all() == []


@pytest.mark.parametrize("waits", [(), ("--wait", "600ms"), ("--until", "latest")])
def test_a_second_start_names_who_runs_and_exits_with_12(
    store: Store, call: Call, waits: tuple[str, ...]
) -> None:
    with lease.hold(store.root, QUERY, "run"):
        done = call("run", QUERY, *waits, "-o", "json")

    assert done.code == 12
    assert done.error["holder"].startswith("process ")
    assert done.error["query"] == QUERY
    assert ("waiting: the query" in done.err) == ("--wait" in waits)


def test_a_checkpoint_that_is_gone_is_named_with_the_way_out(
    store: Store, call: Call, tmp_path: Path
) -> None:
    gone = store.root / "gone"
    store.generations.begin(QUERY, 1, gone, by="rollback", begun_from="sp-1")

    done = call("run", QUERY, "--until", "latest")

    assert done.code == 13
    assert f"{gone} of {QUERY} is damaged: it was written from sp-" in done.err
    assert f"savepoints run {QUERY} --recover" in done.err
