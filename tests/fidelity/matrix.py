"""The table of what is exact, what is refused, and what Spark itself cannot run.

`python -m tests.fidelity.matrix` writes it as docs/reference/support.md. Each cell is a test of
`test_matrix.py`, whose ids are `<query>-<store>-<way>-seed<seed>`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from savepoints.errors import NativeOnlyError, ProviderError, RescaleError, SavepointsError
from tests import draw
from tests.fidelity.harness import STORES
from tests.fidelity.queries import QUERIES, SEEDS
from tests.outputs import features

Verdict = Literal["exact", "native only", "refused", "–"]
WAYS = ("partitions", "provider", "canonical", "native")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "support.md"


@dataclass(frozen=True)
class Cell:
    """What becomes of one query, with one kind of state store, restored in one way.

    Attributes:
        verdict: Whether it is exact, and otherwise what is said about it.
        reason: Why not, for people.
        error: What is raised: an error of this library, or the condition of Spark's own.
        says: Words of its message.
    """

    verdict: Verdict
    reason: str = ""
    error: type[SavepointsError] | str = ""
    says: str = ""

    def __str__(self) -> str:
        return f"refused: {self.reason}" if self.verdict == "refused" else self.verdict


@dataclass(frozen=True)
class Row:
    """The cells of one query.

    Attributes:
        canonical: Restored from rows, with nothing changed.
        partitions: With another number of state partitions.
        provider: With the other provider.
        hdfs: What Spark says when it is run with its default provider; None when that runs.
    """

    canonical: Cell
    partitions: Cell
    provider: Cell
    hdfs: Cell | None = None


EXACT = Cell("exact")
_ONE_PARTITION = Cell("refused", "one partition", RescaleError, "always has a single partition")
_FAMILIES = Cell("refused", "column families", ProviderError, "state in column families")
_FORMAT_2 = Cell("refused", "checkpoint format 2", ProviderError, "has checkpoint format 2")
_LIMIT_ROWS = "Spark cannot read the state rows of globalLimit"
_JOIN_ROWS = "Spark cannot write the state rows of a join of format 4"
_NO_FAMILIES = Cell(
    "–", "it has one column family only", "UNSUPPORTED_FEATURE.STATE_STORE_MULTIPLE_COLUMN_FAMILIES"
)
_NO_TRANSFORM = Cell(
    "–",
    "transformWithState needs RocksDB",
    "UNSUPPORTED_FEATURE.STORE_BACKEND_NOT_SUPPORTED_FOR_TWS",
)


def _no_rows(verdict: Verdict, why: str) -> Cell:
    return Cell(verdict, "native only", NativeOnlyError, why)


_EXACT = Row(EXACT, EXACT, EXACT)
_JOIN_3 = Row(EXACT, EXACT, _FAMILIES, _NO_FAMILIES)
_TRANSFORM = Row(EXACT, EXACT, _FAMILIES, _NO_TRANSFORM)

TABLE = {
    "aggregate": _EXACT,
    "expressions": _EXACT,
    "global_aggregate": Row(EXACT, _ONE_PARTITION, EXACT),
    "window_append": _EXACT,
    "window_update": _EXACT,
    "session": _EXACT,
    "aggregate_offsets_2": _EXACT,
    "dedupe": _EXACT,
    "dedupe_watermark": _EXACT,
    "dedupe_within": _EXACT,
    "join_inner_2": _EXACT,
    "join_outer_2": _EXACT,
    "join_semi_2": _EXACT,
    "join_inner_3": _JOIN_3,
    "join_outer_3": _JOIN_3,
    "join_outer_4": Row(
        _no_rows("native only", _JOIN_ROWS),
        _no_rows("refused", _JOIN_ROWS),
        _no_rows("refused", _JOIN_ROWS),
        _NO_FAMILIES,
    ),
    "join_itself": _EXACT,
    "pandas": _EXACT,
    "pandas_event": _EXACT,
    "pandas_processing": _EXACT,
    "transform": _TRANSFORM,
    "transform_ttl": _TRANSFORM,
    "transform_event": _TRANSFORM,
    "transform_processing": _TRANSFORM,
    "transform_pandas": _TRANSFORM,
    "dedupe_window": _EXACT,
    "window_window": _EXACT,
    "union": _EXACT,
    "join_window": _EXACT,
    "transform_window": _TRANSFORM,
    "transform_initial": _TRANSFORM,
    "limit": Row(
        _no_rows("native only", _LIMIT_ROWS), _ONE_PARTITION, _no_rows("refused", _LIMIT_ROWS)
    ),
    # Its deduplication is restored from rows; the files of its limit are copied beside them.
    "dedupe_limit": Row(EXACT, EXACT, _no_rows("refused", _LIMIT_ROWS)),
}


def cell(query: str, store: str, way: str) -> Cell:
    """Return what the table says."""
    row = TABLE[query]
    if store == "hdfs" and row.hdfs is not None:
        return row.hdfs
    if way == "native":
        return EXACT
    found: Cell = getattr(row, way)
    if way == "provider" and found == EXACT and store.startswith("rocksdb_2"):
        return _FORMAT_2
    return found


@dataclass(frozen=True, order=True)
class Case:
    """A cell and a seed: one test.

    Attributes:
        query: Name of the query.
        store: Name of the state store.
        way: How it is restored.
        seed: Of its rows.
    """

    query: str
    store: str
    way: str
    seed: int

    def __str__(self) -> str:
        return f"{self.query}-{self.store}-{self.way}-seed{self.seed}"


def cases() -> list[Case]:
    """Return all cells with all seeds."""
    return [Case(*one) for one in product(QUERIES, STORES, WAYS, SEEDS)]


def chosen() -> frozenset[Case]:
    """Return the few that `make test` runs, drawn by the seed of the run.

    Each kind of query is restored exactly once, and each state store and each way occurs; lists,
    whose order only rows can lose, are restored from rows.
    """
    chance = draw.chance("cells of the matrix")
    kinds: dict[str, list[Case]] = {}
    for one in cases():
        if cell(one.query, one.store, one.way) == EXACT:
            kinds.setdefault(QUERIES[one.query].kind, []).append(one)
    while True:
        found = [chance.choice(possible) for possible in kinds.values()]
        stores, ways = {one.store for one in found}, {one.way for one in found}
        of_lists = next(one for one in found if QUERIES[one.query].kind == "transform")
        if stores == set(STORES) and ways == set(WAYS) and of_lists.way != "native":
            return frozenset(found)


_HEAD = """# What can be restored, and how

This page is written by `python -m tests.fidelity.matrix`; a test fails when it differs from what
the tests show. Each cell is a test: `pytest tests/fidelity/test_matrix.py -k NAME` with the name in
the first column. It runs the query over random rows, late ones among them, restores a savepoint of
a batch in the middle, and compares every later batch, the watermarks, the timers and the state at
the end with those of the query that was not interrupted. State partitions without rows occur.

- **exact**: each later batch is that of the uninterrupted query.
- **native only**: Spark cannot read or write its state rows. The native form restores it exactly;
  `create` refuses to save only the canonical form.
- **refused**: an error that says why; nothing is written.
- **–**: Spark itself does not run it.

`native` and `canonical` are the two forms, with nothing changed. `--partitions` is another number
of state partitions, `--provider` the other state store provider.
"""
_SECTIONS = {
    "rocksdb_1": "RocksDB, with and without changelog checkpointing",
    "rocksdb_2": "RocksDB with state store checkpoint format 2, with and without changelogs",
    "hdfs": "HDFS, Spark's default provider",
}


def render() -> str:
    """Return the page."""
    parts = [_HEAD]
    for store, title in _SECTIONS.items():
        other = "rocksdb" if store == "hdfs" else "hdfs"
        lines = [
            f"## {title}\n",
            f"| test | query | `--partitions` | `--provider {other}` | canonical | native |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for name, query in QUERIES.items():
            verdicts = (str(cell(name, store, way)) for way in WAYS)
            lines.append(f"| {' | '.join([name, query.label, *verdicts])} |")
        parts.append("\n".join(lines) + "\n")
    impossible = {row.hdfs for row in TABLE.values() if row.hdfs}
    notes = sorted(f"- `{one.error}`: {one.reason}.\n" for one in impossible)
    parts.append("Spark's error classes for its default provider:\n\n" + "".join(notes))
    return "\n".join([*parts, features.render()])


if __name__ == "__main__":
    PAGE.write_text(render())
