"""Rows of state as people give them: found in a frame, and checked before anything is written.

A column may be a struct, as `savepoints state` shows it (`key`, `value`), or its fields may stand
for themselves where their names are clear (`customer_id`, `count`). Nothing is converted but whole
and floating-point numbers into wider ones.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from savepoints.checkpoint.state.schema import type_text
from savepoints.errors import IncompatibleError, SeedRowsError
from savepoints.spark import columns
from savepoints.state.seed import nulls
from savepoints.state.seed.visible import (
    EXPIRES,
    FIRES,
    KEY,
    MAP_KEY,
    POSITION,
    SESSIONS,
    VALUE,
    Visible,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_SAMPLES = 5
# What a reader of state adds, which says nothing about another number of partitions.
_IGNORED = frozenset({"partition_id"})
_WIDER = {
    "byte": ("short", "integer", "long"),
    "short": ("integer", "long"),
    "integer": ("long",),
    "float": ("double",),
}
_WINDOW = "struct<start:timestamp,end:timestamp>"
_HINT = "write the rows with exactly these columns: {}"


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with rows.

    Attributes:
        what: Such as `have a null in value.count`.
        rows: How many rows have it.
        samples: Some of them as JSON.
    """

    what: str
    rows: int
    samples: tuple[str, ...]


def bound(frame: DataFrame, visible: Visible) -> DataFrame:
    """Return rows in the columns of a variable, in the types of the state.

    Raises:
        IncompatibleError: If columns are missing, are of another type, or are not of the variable.
    """
    from pyspark.sql import functions as F

    found, used = {}, set(_IGNORED)
    wrong: list[str] = []
    for part, fields in visible.structs.items():
        inner = []
        for name, kind in ((one.name, type_text(one.type)) for one in fields):
            place = _place(frame, visible, part, name)
            if place is None:
                wrong.append(f"{part}.{name} is missing")
                continue
            used.add(place.split(".")[0])
            wrong += _of_wrong_type(frame, place, f"{part}.{name}", kind)
            inner.append(F.col(_quoted(place)).alias(name))
        if len(inner) == len(fields):
            found[part] = F.struct(*inner).cast(visible.type_of(part))
    for name, kind in visible.numbers.items():
        used.add(name)
        if name not in frame.columns:
            wrong.append(f"{name} is missing")
            continue
        wrong += _of_wrong_type(frame, name, name, kind)
        found[name] = F.col(name).cast("int" if kind == "integer" else kind)
    wrong += [f"{name} does not belong to this state" for name in frame.columns if name not in used]
    wrong += _unknown_inside(frame, visible)
    if wrong:
        raise IncompatibleError(
            f"the rows for {visible.variable} do not have the right columns: {'; '.join(wrong)}",
            hint=_HINT.format(", ".join(visible.columns)),
        )
    return frame.select(*(column.alias(name) for name, column in found.items()))


def before_due(frames: Sequence[DataFrame], now_ms: int) -> int:
    """Return a time in milliseconds before all of the frames expires or fires, now at the latest.

    After a batch, Spark looks only for what is due later than that batch's time (`TTLState`,
    `TimerStateImpl.getExpiredTimers`): what was due before would stay for ever.
    """
    from pyspark.sql import functions as F

    found = [now_ms]
    for frame in frames:
        for name in {EXPIRES, FIRES} & set(frame.columns):
            first = frame.agg(F.min(name)).first()
            if first is not None and first[0] is not None:
                found.append(int(first[0]) - 1)
    return min(found)


def checked(rows: DataFrame, visible: Visible, watermark_ms: int | None = None) -> int:
    """Count the rows of `bound` and refuse those that no state could have.

    Args:
        watermark_ms: Where the query continues, if the variable's timers go by event time.

    Raises:
        SeedRowsError: If rows have nulls where the state allows none, or two are of one key; it
            counts them and shows some.
    """
    null = {f"have a null in {place}": test for place, test in nulls.found(visible)}
    tests = {**null, **_contradictions(visible), **_missed(watermark_ms)}
    count, suspects = _scanned(rows, visible, tests.values())
    if suspects and (problems := _problems(rows, visible, tests)):
        raise _refused(visible, count, problems)
    return count


def _scanned(rows: DataFrame, visible: Visible, tests: Iterable[Column]) -> tuple[int, int]:
    """Count the rows, and those that fail a test or may share their key with another.

    Equal keys have equal hashes, and rarely different ones have, too. Counting the keys themselves
    takes twice as long.
    """
    from pyspark.sql import functions as F

    fails = reduce(operator.or_, tests, F.expr("false"))
    if not _is_unique(visible):
        found = rows.agg(F.count(F.lit(1)), F.count_if(fails)).first()
    else:
        key = F.xxhash64(*_identity_names(visible), F.lit(0))
        hashes = rows.select(F.when(~fails, key).alias("hash")).repartition("hash")
        counted = hashes.mapInArrow(_count_hashes, "rows long, suspects long")
        sums = (F.coalesce(F.sum(name), F.lit(0)) for name in counted.columns)
        found = counted.agg(*sums).first()
    assert found is not None
    return int(found[0]), int(found[1])


def _count_hashes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count the hashes of a partition, and those that are missing or equal to another."""
    import numpy as np
    import pyarrow as pa

    columns = [batch.column(0) for batch in batches]
    given = [one.drop_null().to_numpy() for one in columns]
    hashes = np.sort(np.concatenate(given)) if given else np.empty(0, np.int64)
    count = sum(map(len, columns))
    suspects = count - len(hashes) + np.count_nonzero(hashes[1:] == hashes[:-1])
    yield pa.RecordBatch.from_pydict({"rows": [count], "suspects": [int(suspects)]})


def _problems(rows: DataFrame, visible: Visible, tests: Mapping[str, Column]) -> list[Problem]:
    """Return what is wrong with rows, counted and with samples."""
    from pyspark.sql import functions as F

    counts = rows.agg(F.count(F.lit(1)), *map(F.count_if, tests.values())).first()
    assert counts is not None
    problems = [
        Problem(what, number, _samples(rows.where(test)))
        for (what, test), number in zip(tests.items(), counts[1:], strict=True)
        if number
    ]
    return [*problems, *_doubled(rows, visible)] if _is_unique(visible) else problems


def _doubled(rows: DataFrame, visible: Visible) -> Iterator[Problem]:
    """Find rows of one key; there are none where only the hashes of two keys are equal."""
    from pyspark.sql import functions as F

    names = _identity_names(visible)
    several = rows.groupBy(*names).agg(F.count(F.lit(1)).alias("n")).where("n > 1")
    total = several.agg(F.sum("n")).collect()[0][0]
    if total:
        what = f"share their {' and '.join(names) or 'state'} with another row"
        yield Problem(what, total, _samples(several.select(*names)))


def _is_unique(visible: Visible) -> bool:
    """Say whether a key has one row: in a side of a join it has any number."""
    return visible.variable.kind != "side"


def _place(frame: DataFrame, visible: Visible, part: str, name: str) -> str | None:
    """Return where a field is: in the struct of its part, or by itself where its name is clear."""
    inside = _inside(frame, part)
    if inside is not None and (name != part or name in inside):
        return f"{part}.{name}" if name in inside else None
    alike = [one for fields in visible.structs.values() for one in fields if one.name == name]
    return name if len(alike) == 1 and name in frame.columns else None


def _inside(frame: DataFrame, part: str) -> list[str] | None:
    from pyspark.sql.types import StructType

    if part not in frame.columns:
        return None
    kind = frame.schema[part].dataType
    return kind.fieldNames() if isinstance(kind, StructType) else None


def _unknown_inside(frame: DataFrame, visible: Visible) -> Iterator[str]:
    for part, fields in visible.structs.items():
        known = {one.name for one in fields}
        for name in _inside(frame, part) or ():
            if name not in known and part not in known:
                yield f"{part}.{name} does not belong to this state"


def _of_wrong_type(frame: DataFrame, place: str, name: str, wanted: str) -> Iterator[str]:
    given = type_text(frame.select(_quoted(place)).schema[0].dataType.jsonValue())
    if given != wanted and wanted not in _WIDER.get(given, ()):
        yield f"{name} is {given} instead of {wanted}"


def _contradictions(visible: Visible) -> Mapping[str, Column]:
    """Return what a row can say twice: the value of a session has its key, too."""
    from pyspark.sql import functions as F

    if visible.variable.operator_name != SESSIONS:
        return {}
    *keys, start = visible.structs[KEY]
    session = next(one for one in visible.structs[VALUE] if type_text(one.type) == _WINDOW)
    same = F.col(VALUE)[session.name]["start"].eqNullSafe(F.col(KEY)[start.name])
    for one in keys:
        same &= F.col(VALUE)[one.name].eqNullSafe(F.col(KEY)[one.name])
    return {"have a session that does not match their key": ~same}


def _missed(watermark_ms: int | None) -> Mapping[str, Column]:
    """Return which timers would never fire: Spark looks only for those behind the watermark."""
    from pyspark.sql import functions as F

    if watermark_ms is None:
        return {}
    what = "are due at or before the watermark, so they would never fire"
    return {what: F.col(FIRES) <= watermark_ms}


def _identity_names(visible: Visible) -> list[str]:
    parts = [part for part in (KEY, MAP_KEY) if part in visible.structs]
    return parts + [name for name in (POSITION, FIRES) if name in visible.numbers]


def _samples(rows: DataFrame) -> tuple[str, ...]:
    from pyspark.sql import functions as F

    whole = rows.limit(_SAMPLES).select(F.struct("*").alias("row"))
    text = columns.as_json(F.col("row"), whole.schema["row"].dataType)
    return tuple(str(line) for (line,) in whole.select(text).collect())


def _refused(visible: Visible, rows: int, problems: Sequence[Problem]) -> SeedRowsError:
    what = "; ".join(
        f"rows that {one.what}: {one.rows} of {rows}, for example {', '.join(one.samples)}"
        for one in problems
    )
    return SeedRowsError(
        f"the rows for {visible.variable} cannot be used as its state, so nothing was written: "
        f"{what}",
        hint="correct the rows and run the command again",
        rows=rows,
        problems=[vars(one) for one in problems],
    )


def _quoted(place: str) -> str:
    return ".".join(columns.quoted(one) for one in place.split(".", 1))
