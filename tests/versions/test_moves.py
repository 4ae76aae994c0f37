"""What another version of Spark saved goes on here as `moves.json` says.

The savepoints are made by `python -m tests.versions.moves make` in the environment of each version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from savepoints.local.jars import resolve_jars
from tests.versions import installed, moves, table
from tests.versions.moves import Bench

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.versions]

KNOWN: dict[str, str] = json.loads(table.MOVES.read_text())


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with installed.session(resolve_jars().spark) as spark:
        yield Bench(spark, tmp_path_factory.mktemp("moves"))


@pytest.mark.parametrize(
    "move",
    [one for one in moves.moves(installed.VERSION) if one.key in KNOWN],
    ids=lambda move: move.key.replace(" ", "-"),
)
def test_a_query_goes_on_as_if_this_spark_had_run_it_from_the_beginning(
    move: table.Move, bench: Bench
) -> None:
    if not moves.is_made(move):
        pytest.skip("its savepoint was not made: python -m tests.versions.moves make")
    assert bench.go(move) == KNOWN[move.key]
