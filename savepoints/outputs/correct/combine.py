"""Rows of an output combined with what late events gave alone, by a function of the application.

A row whose key only one of the two has stays as it is; where both have one, the function makes one
of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, TypeAlias

from savepoints.errors import IncompatibleError, SeveralRowsError
from savepoints.outputs.correct.desired_rows import REPLAY_BATCH
from savepoints.outputs.correct.entity_rows import EntityRows
from savepoints.spark import arrow_batches
from savepoints.spark.columns import quoted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

# Given by a program, see `savepoints.runtime.app`.
CombineRows: TypeAlias = "Callable[[pa.RecordBatch, pa.RecordBatch], pa.RecordBatch]"

_LIVE, _LATE = "live", "late"


@dataclass(frozen=True)
class _Names:
    """Columns of a table."""

    all: tuple[str, ...]
    key: tuple[str, ...]
    uri: str


def combined(
    rows: EntityRows, entities: DataFrame, late: DataFrame, key: Sequence[str], combine: CombineRows
) -> DataFrame:
    """Return what a table should hold of entities, as if a replay of all they had had written it.

    Args:
        entities: `entity` string and `version` bigint, which is null for all.
        late: What the late events gave alone: the program's columns and `replay_slice`.
        key: Columns by which two rows are about the same.
        combine: Makes one row of two: the table's columns of both, row for row.

    Returns:
        The table's columns and `replay_slice`.

    Raises:
        SeveralRowsError: If two rows of the table, or of the late ones, have one key.
    """
    from pyspark.sql import functions as F

    names = _names(rows, key)
    rows.require_applicable(late)
    live, alone = rows.current(entities), rows.desired(entities, late)
    for frame in (live, alone):
        _refuse_several(frame, names)
    struct = F.struct(*map(quoted, names.all))
    keys = [F.col(quoted(name)).alias(f"__key{n}") for n, name in enumerate(names.key)]
    pairs = live.select(*keys, struct.alias(_LIVE)).join(
        alone.select(
            *(F.col(quoted(name)).alias(f"__late{n}") for n, name in enumerate(names.key)),
            struct.alias(_LATE),
        ),
        _same(len(names.key)),
        "full",
    )
    one_alone = pairs.where(f"{_LIVE} is null or {_LATE} is null")
    stays = one_alone.select(F.coalesce(_LIVE, _LATE).alias("row")).select("row.*")
    both = pairs.where(f"{_LIVE} is not null and {_LATE} is not null").select(_LIVE, _LATE)
    made = arrow_batches.mapped(both, partial(_made, combine, names), rows.table.schema)
    return stays.unionByName(made).withColumn(REPLAY_BATCH, F.lit(0))


def _names(rows: EntityRows, key: Sequence[str]) -> _Names:
    uri = rows.live.output.uri
    known = {name.casefold(): name for name in rows.table.columns}
    if lacking := [name for name in key if name.casefold() not in known]:
        raise IncompatibleError(
            f"{uri} has no column {lacking[0]!r}, which is in the key given in "
            "MergeFunctions(rows=…)",
            hint=f"correct the key; the table has the columns {', '.join(known.values())}",
            uri=uri,
            column=lacking[0],
        )
    return _Names(tuple(known.values()), tuple(known[name.casefold()] for name in key), uri)


def _same(count: int) -> Column:
    from pyspark.sql import functions as F

    each = [F.col(f"__key{n}").eqNullSafe(F.col(f"__late{n}")) for n in range(count)]
    return reduce(lambda one, other: one & other, each)


def _refuse_several(frame: DataFrame, names: _Names) -> None:
    found = frame.groupBy(*map(quoted, names.key)).count().where("count > 1").first()
    if found is not None:
        key = {name: found[name] for name in names.key}
        raise SeveralRowsError(
            f"{found['count']} rows of {names.uri} have the key {key}, so it is unclear which one "
            "to combine",
            hint="name a key in MergeFunctions(rows=…) that is unique for each row",
            uri=names.uri,
            key=list(names.key),
        )


def _made(function: CombineRows, names: _Names, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that pairs of rows become, and check them."""
    import pyarrow as pa

    live = pa.RecordBatch.from_struct_array(batch.column(_LIVE))  # type: ignore[arg-type]
    late = pa.RecordBatch.from_struct_array(batch.column(_LATE))  # type: ignore[arg-type]
    made = function(live, late)
    if not isinstance(made, pa.RecordBatch) or set(made.schema.names) != set(names.all):
        has = made.schema.names if isinstance(made, pa.RecordBatch) else type(made).__name__
        raise _wrong(
            names, f"returned {has} instead of a RecordBatch with columns {list(names.all)}"
        )
    if made.num_rows != live.num_rows:
        raise _wrong(names, f"returned {made.num_rows} rows instead of {live.num_rows}")
    for name in names.key:
        # As text, since NaN is not itself.
        if str(made.column(name).to_pylist()) != str(live.column(name).to_pylist()):
            raise _wrong(names, f"changed {name}, which belongs to the key")
    columns = [made.column(one.name).cast(one.type) for one in live.schema]
    return pa.RecordBatch.from_arrays(columns, schema=live.schema)


def _wrong(names: _Names, why: str) -> IncompatibleError:
    return IncompatibleError(
        f"the function that combines the rows of {names.uri} {why}",
        hint="correct the function in the program's App(…) and run the command again",
        uri=names.uri,
    )
