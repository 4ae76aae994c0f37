"""Programs and what they become: the old and the new of each way in which a program changes.

Each is a `Query`, which tests run on files, and under its name an `App`, which `--app` takes:
`tests.fidelity.programs:swapped`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from savepoints.runtime.app import (
    App,
    Input,
    KeyMigration,
    Output,
    ValueMigration,
)
from tests.fidelity.queries import SCHEMA, Inputs, Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Build = Callable[[Inputs], "DataFrame"]
OUTPUT = "k string, what string, n long"


def _totals(*columns: str) -> Build:
    return lambda inputs: inputs[0].groupBy("k").agg(*map(F.expr, columns))


def _distinct(inputs: Inputs) -> DataFrame:
    return inputs[0].withWatermark("t", "10 seconds").dropDuplicates(["k", "v", "t"])


def _distinct_counted(inputs: Inputs) -> DataFrame:
    return _distinct(inputs).groupBy(F.window("t", "10 seconds"), "k").agg(F.count("*").alias("n"))


def _distinct_counted_again(inputs: Inputs) -> DataFrame:
    counted = _distinct_counted(inputs)
    return counted.groupBy(F.window("window", "20 seconds")).agg(F.max("n").alias("most"))


def _sessions(*columns: str) -> Build:
    def build(inputs: Inputs) -> DataFrame:
        timed = inputs[0].withWatermark("t", "10 seconds")
        return timed.groupBy(F.session_window("t", "4 seconds"), "k").agg(*map(F.expr, columns))

    return build


def _joined(*left: str) -> Build:
    def build(inputs: Inputs) -> DataFrame:
        near = F.expr("k = k2 AND v2 = 1 AND t2 BETWEEN t AND t + INTERVAL 15 SECONDS")
        mine = inputs[0].withWatermark("t", "10 seconds").selectExpr("k", *left, "t")
        theirs = inputs[1].toDF("k2", "v2", "t").withWatermark("t", "10 seconds")
        return mine.join(theirs.withColumnRenamed("t", "t2"), near, "leftOuter")

    return build


class Notes(StatefulProcessor):
    """Keeps the number of rows, and the values of a key."""

    total = ("total", "s long")
    other: tuple[str, str] | None = ("first", "at timestamp")

    def init(self, handle: Any) -> None:
        """Declare the state variables."""
        self.sum: Any = handle.getValueState(*self.total)
        self.seen: Any = handle.getListState("seen", "v long")
        self.counts: Any = handle.getMapState("counts", "v long", "n long")
        if self.other:
            handle.getValueState(*self.other)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Add the rows, and give what there is."""
        before = self.sum.get() if self.sum.exists() else (0,)
        values = sorted(row.v for row in rows)
        for value in values:
            self.seen.appendValue((value,))
            count = self.counts.getValue((value,))[0] if self.counts.containsKey((value,)) else 0
            self.counts.updateValue((value,), (count + 1,))
        self.sum.update(self.changed(before, values))
        yield Row(k=key[0], what="total", n=self.sum.get()[0])
        for position, (value,) in enumerate(self.seen.get()):
            yield Row(k=key[0], what=f"seen {position}", n=value)
        for (value,), (count,) in self.counts.iterator():
            yield Row(k=key[0], what=f"count {value}", n=count)

    def changed(self, before: Any, values: list[int]) -> tuple[Any, ...]:
        """Return the new total."""
        return (before[0] + sum(values),)

    def close(self) -> None:
        """Nothing is open."""


class ChangedNotes(Notes):
    """The same; the total has another name and one more field, and another variable is new."""

    total = ("sum", "s long, n long")
    other = ("last", "v long")

    def changed(self, before: Any, values: list[int]) -> tuple[Any, ...]:
        """Return the new total, with how many rows there were since it has been counted."""
        n = before[1] if len(before) > 1 and before[1] is not None else 0
        return before[0] + sum(values), n + len(values)


def _notes(processor: Callable[[], StatefulProcessor]) -> Build:
    return lambda inputs: (
        inputs[0].groupBy("k").transformWithState(processor(), OUTPUT, "update", "none")
    )


def to_letters(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Make keys of four letters, which are those of all keys but NULL."""
    keys = pc.utf8_slice_codeunits(rows.column("key.k"), 0, 4)
    return pa.RecordBatch.from_arrays([keys], names=["letters"])


def summed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Add up what has one key."""
    sums = [pc.sum(rows.column(f"value.{name}")) for name in ("count", "sum")]
    arrays = [pa.array([one.as_py()], pa.int64()) for one in sums]
    return pa.RecordBatch.from_arrays(arrays, names=["count", "sum"])


def quartered(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Make a quarter of a sum, as a floating-point number."""
    sums = rows.column("value.sum").cast(pa.float64())
    return pa.RecordBatch.from_arrays([pc.divide(sums, 4.0)], names=["sum"])


def _by_letters(inputs: Inputs) -> DataFrame:
    # A column and no expression in `groupBy`, whose name the state would not have.
    lettered = inputs[0].withColumn("letters", F.substring("k", 1, 4))
    return lettered.groupBy("letters").agg(F.count("*").alias("n"), F.sum("v").alias("s"))


def _aggregate(name: str, *columns: str) -> Query:
    return Query(name, name, "aggregate", _totals(*columns), "update")


_PROGRAMS = (
    _aggregate("totals", "count(*) AS n", "sum(v) AS s"),
    _aggregate("extremes", "max(v) AS a", "min(v) AS b"),
    _aggregate("swapped", "min(v) AS b", "max(v) AS a"),
    _aggregate("many", "count(*) AS n", "max(int(v)) AS a", "min(v) AS b", "sum(v)", "first(v)"),
    # The last one dropped; reordered; max widened; max and min in each other's place.
    _aggregate("fewer", "sum(v)", "min(v) AS b", "max(v) AS a", "count(*) AS n"),
    _aggregate(
        "more", "max(v) AS a", "count(*) AS n", "avg(v) AS m", "sum(v) AS s", "collect_list(v) AS l"
    ),
    _aggregate("retyped", "count(*) AS n", "sum(double(v)) AS s"),
    _aggregate("sums", "sum(v) AS s"),
    _aggregate("quarters", "sum(v / 4) AS s"),
    Query("letters", "letters", "aggregate", _by_letters, "update"),
    Query("unmerged", "unmerged", "aggregate", _by_letters, "update"),
    Query("distinct", "distinct", "dedupe", _distinct),
    Query("distinct_counted", "distinct_counted", "chain", _distinct_counted),
    Query("distinct_counted_again", "again", "chain", _distinct_counted_again),
    Query("notes", "notes", "transform", _notes(Notes), "update"),
    Query("changed_notes", "changed_notes", "transform", _notes(ChangedNotes), "update"),
    Query("sessions", "sessions", "aggregate", _sessions("count(*) AS n", "max(int(v)) AS a")),
    Query("changed_sessions", "sessions", "aggregate", _sessions("max(v) AS a", "count(*) AS n")),
    Query("joined", "joined", "join", _joined("int(v) AS v", "v * 2 AS w"), sources=2),
    Query("changed_joined", "joined", "join", _joined("v"), sources=2),
)


MIGRATE: Mapping[str, Mapping[str, ValueMigration | KeyMigration]] = {
    "quarters": {"stateStoreSave": quartered},
    "letters": {"0": KeyMigration(to_letters, summed)},
    "unmerged": {"stateStoreSave": KeyMigration(to_letters)},
}
PROGRAMS = {one.name: one for one in _PROGRAMS}


def _decode(raw: DataFrame) -> DataFrame:
    events = raw.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("e"))
    return events.select("e.*")


def _app(query: Query) -> App:
    names = [f"events_{position}" for position in range(query.sources)]

    def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
        return query.build([inputs[name] for name in names])

    return App(
        name=query.name,
        inputs={
            name: Input(topic=name, decode=_decode, entity_key="k", event_time="t")
            for name in names
        },
        build=build,
        outputs={
            "out": Output(mode="upsert", key=("k",))
            if query.mode == "update"
            else Output(mode="append")
        },
        migrate=MIGRATE.get(query.name, {}),
    )


def __getattr__(name: str) -> App:
    """Make the application of a program."""
    try:
        return _app(PROGRAMS[name])
    except KeyError:
        raise AttributeError(name) from None
