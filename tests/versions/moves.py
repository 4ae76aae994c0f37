"""Queries that one version of Spark begins and another goes on with.

`python -m tests.versions.moves make` runs the queries on the Spark that is installed and keeps
savepoints of them below `build/versions/moves/`; `… go` restores those of the other versions here,
and writes what came of those that `moves.json` does not have into it. The page of versions is made
of that file, and `test_moves.py` holds it. The truth is the query that this Spark has run from the
beginning, over the same files.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from savepoints.errors import SavepointsError
from savepoints.handle import Store
from savepoints.local.jars import resolve_jars
from savepoints.model import Form
from tests.fidelity import harness
from tests.fidelity.harness import STORES, Run
from tests.fidelity.queries import QUERIES, write_inputs
from tests.versions import installed, table
from tests.versions.table import MOVES, Move

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAVEPOINT = re.compile(r"sp-\d{8}-\d{6}-\w+")
HOME = Path(__file__).parents[2] / "build" / "versions" / "moves"
SEED, BATCH = 1, 2
MOVED = ("aggregate", "dedupe_watermark", "window_append", "session", "join_outer_2",
         "pandas_event", "transform_pandas", "transform")  # fmt: skip
KEPT = ("rocksdb_1", "hdfs")


def kept(version: table.Number) -> list[tuple[str, str]]:
    """Return each query and state store of which a version has a savepoint."""
    return [one for one in table.cells(version) if one[0] in MOVED and one[1] in KEPT]


def moves(home: table.Number) -> Iterator[Move]:
    """Return what can be tried on a version of Spark: from each other one, in each form."""
    for version in table.VERSIONS:
        cells = set(kept(version)) & set(kept(home))
        for query in MOVED:
            for store in KEPT:
                if version != home and (query, store) in cells:
                    yield Move(version, home, query, store, "native")
                    if home == table.VERSIONS[-1]:
                        yield Move(version, home, query, store, "canonical")


@dataclass
class Bench:
    """Where the queries of this process run, and what they give when nobody interrupts them."""

    spark: SparkSession
    place: Path
    _wholes: dict[tuple[str, str], Run] = field(default_factory=dict)

    def run(self, query: str, store: str, checkpoint: Path) -> Run:
        """Run a query to the end of its files."""
        return harness.run_batches(
            self.spark, QUERIES[query], STORES[store], HOME / "inputs", checkpoint
        )

    def whole(self, query: str, store: str) -> Run:
        """Return what the query gives from beginning to end."""
        if (query, store) not in self._wholes:
            at = self.place / f"{query}-{store}-whole"
            self._wholes[query, store] = self.run(query, store, at)
        return self._wholes[query, store]

    def go(self, move: Move) -> str:
        """Go on with what another version saved; return what came of it, as in `moves.json`."""
        from pyspark.errors import PySparkException

        place = Path(tempfile.mkdtemp(dir=self.place))
        shutil.copytree(_place(move.begun, move.query, move.store) / "store", place / "store")
        store = Store.open(str(place / "store"))
        saved = store.savepoint("latest", query=move.query)
        try:
            if move.form == "canonical":
                saved.export().execute()
            saved.restore(str(place / "restored"), form=_form(move.form)).execute()
        except SavepointsError as error:
            return f"refused: {_SAVEPOINT.sub('ID', error.message)}"
        expected = self.whole(move.query, move.store).after(BATCH)
        assert expected.batches, "there must be later batches"
        try:
            found = self.run(move.query, move.store, place / "restored")
        except PySparkException:
            return "Spark fails"
        same = (found.batches, found.after(BATCH).watermarks) == (
            expected.batches,
            expected.watermarks,
        )
        return "exact" if same else "different"


def make() -> None:
    """Run each query on this Spark, and keep a native savepoint of a batch in the middle."""
    if not (HOME / "inputs").exists():
        part = Path(tempfile.mkdtemp(dir=HOME)) / "inputs"
        write_inputs(part, SEED)
        part.rename(HOME / "inputs")
        part.parent.rmdir()
    with installed.session() as spark, tempfile.TemporaryDirectory() as place:
        bench = Bench(spark, Path(place))
        for query, store in kept(installed.VERSION):
            if (_place(installed.VERSION, query, store) / "complete").exists():
                continue
            print("make", query, store, flush=True)
            checkpoint = Path(place) / f"{query}-{store}-whole"
            bench.whole(query, store)
            home = _place(installed.VERSION, query, store)
            shutil.rmtree(home, ignore_errors=True)
            (home / "store").mkdir(parents=True)
            kept_in = Store.at(str(home / "store")).make()
            kept_in.create(
                checkpoint=str(checkpoint), query=query, batch_id=BATCH, forms=("native",)
            ).execute()
            (home / "complete").touch()


def is_made(move: Move) -> bool:
    """Whether there is a savepoint to go on from."""
    return (_place(move.begun, move.query, move.store) / "complete").exists()


def try_all() -> None:
    """Go on here with what the other versions saved, and write down what came of it."""
    with installed.session(resolve_jars().spark) as spark, tempfile.TemporaryDirectory() as place:
        bench = Bench(spark, Path(place))
        for move in moves(installed.VERSION):
            if not is_made(move) or move.key in _known():
                continue
            came = bench.go(move)
            print(move.key, came, flush=True)
            known = {**_known(), move.key: came}
            MOVES.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def _known() -> dict[str, str]:
    return dict(json.loads(MOVES.read_text()))


def _place(version: table.Number, query: str, store: str) -> Path:
    return HOME / ".".join(map(str, version)) / f"{query}-{store}"


def _form(text: str) -> Form:
    return "canonical" if text == "canonical" else "native"


if __name__ == "__main__":
    HOME.mkdir(parents=True, exist_ok=True)
    {"make": make, "go": try_all}[sys.argv[1]]()
