"""Convert Arrow columns of old state: moved, widened, started, or made by a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from savepoints.checkpoint.evolution.findings import Column, unique_names
from savepoints.checkpoint.state.schema import StateField, StateSchema, type_text
from savepoints.errors import IncompatibleError, UsageError
from savepoints.state.codec import decode
from savepoints.texts import count_text

if TYPE_CHECKING:
    import pyarrow as pa

    from savepoints.state.codec.decode import Array

# Given by a program, see `savepoints.runtime.app`.
ColumnFunction: TypeAlias = "Callable[[pa.RecordBatch], pa.RecordBatch]"


def make(made: Sequence[Column], old: Sequence[Array], count: int) -> list[Array]:
    """Make new columns; a null where the program allows none is refused."""
    return [_column(one, old, count) for one in made]


def start(column: Column) -> Array:
    """Return a new column's initial value, as an array of one."""
    import pyarrow as pa

    to = decode.arrow_type(column.field.type, column.address)
    try:
        if isinstance(column.start, str) and to != pa.string():
            return pa.array([column.start], pa.string()).cast(to)
        return pa.array([column.start], to)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise UsageError(
            f"--default {column.address}={column.start!r} does not fit the column, which is of "
            f"type {type_text(column.field.type)}: {error}",
            hint=f"pass a value of that type: --default {column.address}=VALUE",
        ) from None


def batch(schema: StateSchema, key: Sequence[Array], value: Sequence[Array]) -> pa.RecordBatch:
    """Return decoded rows as the input of a function: columns `key.NAME` and `value.NAME`."""
    import pyarrow as pa

    names = [
        *(f"key.{name}" for name in unique_names([one.name for one in schema.key])),
        *(f"value.{name}" for name in unique_names([one.name for one in schema.value])),
    ]
    return pa.RecordBatch.from_arrays([*key, *value], names=names)


def given(
    function: ColumnFunction,
    rows_in: pa.RecordBatch,
    fields: Sequence[StateField],
    what: str,
    count: int,
) -> list[Array]:
    """Let a program's function make columns, and check them."""
    import pyarrow as pa

    made = function(rows_in)
    names = unique_names([one.name for one in fields])
    if not isinstance(made, pa.RecordBatch) or sorted(made.schema.names) != sorted(names):
        has = made.schema.names if isinstance(made, pa.RecordBatch) else type(made).__name__
        raise _wrong(what, f"returned {has} instead of a RecordBatch with {names}")
    if made.num_rows != count:
        raise _wrong(what, f"returned {count_text(made.num_rows, 'row')} instead of {count:,}")
    found = []
    for name, one in zip(names, decode.arrow_fields(fields, what), strict=True):
        try:
            found.append(exactly(made.column(name), one.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _wrong(
                what, f"returned {name} with a type other than {one.type}: {error}"
            ) from None
    return found


def exactly(column: Array, to: pa.DataType) -> Array:
    """Cast a function's column to the state's type, without rounding or guessing.

    Raises:
        ArrowInvalid: If a value would change.
        ArrowNotImplementedError: If there is no such cast.
    """
    import pyarrow as pa

    if column.type == to:
        return column
    was, now = str(column.type), str(to)
    if "timestamp" in was and "timestamp" in now and ("tz=" in was) != ("tz=" in now):
        raise pa.ArrowInvalid(f"only one of {was} and {now} has a time zone")
    found: Array = column.cast(to)
    back = found.cast(column.type)
    # As text, because NaN does not equal itself.
    if not back.equals(column) and str(back.to_pylist()) != str(column.to_pylist()):
        raise pa.ArrowInvalid(f"a value of {was} would change when converted to {now}")
    return found


def _column(
    one: Column, old: Sequence[Array], count: int, there: pa.BooleanArray | None = None
) -> Array:
    """Make a column; a null counts only where its struct is `there`."""
    import pyarrow as pa

    if one.source is None:
        begun = start(one)
        return begun.take(pa.array([0] * count, pa.int64())) if count else begun.slice(0, 0)
    column = old[one.source]
    nulls = (column if there is None else column.filter(there)).null_count
    if one.forbids_nulls and nulls:
        raise IncompatibleError(
            f"{one.address} is null in {nulls} of {count} rows, but the program does not allow "
            "nulls there",
            hint="allow nulls in the program, or give it a function that replaces them: "
            "App(…, migrate={…})",
        )
    to = decode.arrow_type(one.field.type, one.address)
    if one.inner:
        from pyarrow import compute

        valid = column.is_valid() if there is None else compute.and_(column.is_valid(), there)
        flat = cast("pa.StructArray", column).flatten()
        inner = [_column(each, flat, count, valid) for each in one.inner]
        fields = [to.field(position) for position in range(to.num_fields)]
        return pa.StructArray.from_arrays(inner, fields=fields, mask=column.is_null())
    return column if column.type == to else column.cast(to)


def _wrong(what: str, why: str) -> IncompatibleError:
    return IncompatibleError(
        f"the function for {what} {why}",
        hint="correct the function in the program's App(…) and run the command again",
    )
