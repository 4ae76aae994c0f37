"""Which queries run on which version of Spark, with which state stores; and the page that says so.

`python -m tests.versions.table` writes docs/reference/versions.md. Each cell of it is a test of
`test_native.py`, run by `make test-versions` in an environment that has that version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tests.fidelity.harness import STORES
from tests.fidelity.queries import QUERIES

Number: TypeAlias = "tuple[int, int]"

VERSIONS: tuple[Number, ...] = ((3, 5), (4, 0), (4, 1), (4, 2))
MOVES = Path(__file__).with_name("moves.json")
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "versions.md"


@dataclass(frozen=True)
class Move:
    """A query that one version of Spark begins and another goes on with, in one form."""

    begun: Number
    goes_on: Number
    query: str
    store: str
    form: str

    @property
    def key(self) -> str:
        """How `moves.json` names it."""
        begun, goes_on = (".".join(map(str, one)) for one in (self.begun, self.goes_on))
        return f"{begun} {goes_on} {self.query} {self.store} {self.form}"


# The version that a query, or a kind of state store, came with; all others are in each.
_QUERIES_SINCE = {
    "transform": (4, 1),
    "transform_ttl": (4, 1),
    "transform_event": (4, 1),
    "transform_processing": (4, 1),
    "transform_window": (4, 1),
    "transform_initial": (4, 1),
    "transform_pandas": (4, 0),
    "join_inner_3": (4, 1),
    "join_outer_3": (4, 1),
    "join_outer_4": (4, 2),
    "aggregate_offsets_2": (4, 2),
}
_STORES_SINCE = {"rocksdb_2": (4, 0), "rocksdb_2_changelog": (4, 0)}
# Spark 4.0 itself fails on the first batch of state in one partition, in checkpoint format 2.
_ONE_PARTITION = ("global_aggregate", "limit", "dedupe_limit")
_COLUMN_FAMILIES = ("transform", "join_inner_3", "join_outer_3", "join_outer_4")


def cells(version: Number) -> list[tuple[str, str]]:
    """Return each query with each state store that a version of Spark runs it on."""
    return [
        (query, store)
        for query in QUERIES
        for store in STORES
        if _QUERIES_SINCE.get(query, VERSIONS[0]) <= version
        and _STORES_SINCE.get(store, VERSIONS[0]) <= version
        and not (store == "hdfs" and query.startswith(_COLUMN_FAMILIES))
        and not (version == (4, 0) and store.startswith("rocksdb_2") and query in _ONE_PARTITION)
    ]


_STORE_NAMES = {"rocksdb_1": "RocksDB", "hdfs": "HDFS-backed"}
_VERBS = {
    "`create --format native`, and what needs no JVM": ("exact", "exact", "exact", "exact"),
    "`restore` and `rollback` of the native form": ("exact", "exact", "exact", "exact"),
    "`attach` in a driver of your own": ("exact", "exact", "exact", "exact"),
    "`create` and `attach` in both forms, RocksDB": (*["native form, and says so"] * 3, "exact"),
    "`create` in both forms, Spark's default store, and `restore` from its rows": (
        "native form, and says so",
        "exact",
        "exact",
        "exact",
    ),
    "`run --until latest`, on Kafka and Delta": ("exact", "exact", "exact", "exact"),
    "`run` up to offsets or a time, `--max-records`": ("exact", "exact", "exact", "exact"),
    "`run`, killed and run again": ("exact", "exact", "exact", "exact"),
    "`run` with periodic savepoints": ("exact", "exact", "exact", "exact"),
    "`rollback` of such a query with its table, on S3": ("exact", "exact", "exact", "exact"),
    "`fork`": ("exact", "exact", "exact", "exact"),
    "`promote`, and its undo": ("exact", "exact", "exact", "exact"),
    "`compare`": (
        "exact with `--no-state`; refused without",
        "exact",
        "exact",
        "exact",
    ),
    "`merge` into state of RocksDB": (*["refused, before anything is touched"] * 3, "exact"),
    "`merge` into state of Spark's default store": ("not tested", "exact", "exact", "exact"),
    "`late`": ("exact", "exact", "exact", "exact"),
    "everything else": (*["not tested"] * 3, "exact"),
}

_COLUMNS = "| | 3.5 | 4.0 | 4.1 | 4.2 |\n| --- | --- | --- | --- | --- |\n"
_HEAD = """# Versions of Spark

This page is written by `python -m tests.versions.table`; a test fails when it differs from what is
tested. `make test-versions` runs the tests in an environment for each version.

## Which verbs work where

VERBS
The Kafka sources of Spark 4.1.0 to 4.1.2 throw after each batch that was planned before the query
started, as `run --until` plans them; the run continues anyway. Fixed in 4.1.3.

Spark before 4.0 wrote no operator metadata. Such operators are called `unknown`, and their rows
cannot be read until the query has run one batch on Spark 4.

## From one version to another

A query runs on one version; a savepoint of a batch in the middle is restored on another, and every
later batch and watermark is compared with those of a query that the other version has run from the
beginning. From rows: the savepoint is first exported there, which only Spark 4.2 can do, and only
if its operators have metadata, so not from 3.5. **Spark fails**: the older version cannot read what
the newer one wrote. **–**: not tested.

MOVES
In addition, aggregates, and windows with a watermark behind `dropDuplicates`, continue exactly from
3.5 (native form), 4.0 and 4.1 (both forms) to 4.2, with both state stores: see the nightly part
`fidelity`.

## Native savepoints

The query runs over random rows, late ones among them; a native savepoint of a batch in the middle
is restored, and every later batch and watermark is compared with those of the query that was not
interrupted, on the same version. **–**: that version does not have it.

| test | query | 3.5 | 4.0 | 4.1 | 4.2 |
| --- | --- | --- | --- | --- | --- |
"""


def render() -> str:
    """Return the page."""
    lines = []
    for name, query in QUERIES.items():
        stores = [[store for one, store in cells(version) if one == name] for version in VERSIONS]
        found = " | ".join("exact" if each else "–" for each in stores)
        lines.append(f"| {name} | {query.label} | {found} |\n")
    stores_text = (
        "\nEach with RocksDB, with and without changelogs, and with Spark's default store where "
        "Spark runs it;\nsince 4.0 also with checkpoint format 2, in which Spark 4.0 itself fails "
        "on state in one partition\n(aggregates without keys, limits).\n"
    )
    verbs = [f"| {verb} | {' | '.join(found)} |\n" for verb, found in _VERBS.items()]
    head = _HEAD.replace("VERBS\n", "".join([_COLUMNS, *verbs, "\n"])).replace("MOVES\n", _moves())
    return head + "".join(lines) + stores_text


def _moves() -> str:
    """Return the table of moves: a row for each pair, query and store, and what came of it."""
    known: dict[str, str] = json.loads(MOVES.read_text())
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for key, came in known.items():
        *of, form = key.split()
        rows.setdefault(tuple(of), {})[form] = came.partition(":")[0]
    lines = [
        f"| {begun} | {goes_on} | {QUERIES[query].label} | {_STORE_NAMES[store]} "
        f"| {forms.get('native', '–')} | {forms.get('canonical', '–')} |\n"
        for (begun, goes_on, query, store), forms in sorted(rows.items())
    ]
    head = "| from | to | query | state store | native form | from rows |\n"
    return "".join([head, "| --- | --- | --- | --- | --- | --- |\n", *lines, "\n"])


if __name__ == "__main__":
    PAGE.write_text(render())
