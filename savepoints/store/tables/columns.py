"""Columns of the store's tables, written short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# The name of a type; a mapping is a struct of such, and a list with one item a list of it.
Shape = Any

OUTPUT = {
    "name": "text", "uri": "text", "table_id": "text", "version": "long", "app_id": "text",
    "app_version": "long", "kind": "text",
}  # fmt: skip


def schema(columns: Mapping[str, Shape]) -> pa.Schema:
    """Return the Arrow schema of columns; types are text, long, int, double, flag and moment."""
    import pyarrow as pa

    types: dict[str, pa.DataType] = {
        "text": pa.string(),
        "long": pa.int64(),
        "int": pa.int32(),
        "double": pa.float64(),
        "flag": pa.bool_(),
        "moment": pa.timestamp("us", tz="UTC"),
    }

    def arrow(shape: Shape) -> pa.DataType:
        if isinstance(shape, list):
            return pa.list_(arrow(shape[0]))
        if isinstance(shape, Mapping):
            return pa.struct([(name, arrow(one)) for name, one in shape.items()])
        return types[shape]

    return pa.schema([(name, arrow(shape)) for name, shape in columns.items()])


def names(fields: Iterable[pa.Field[Any]], within: str = "") -> Iterator[str]:
    """Yield the names of columns, and of what is in their structs and lists: `operators.rows`."""
    for field in fields:
        name, kind = f"{within}{field.name}", field.type
        yield name
        while hasattr(kind, "value_type"):
            kind = kind.value_type
        if kind.num_fields:
            yield from names(kind, f"{name}.")
