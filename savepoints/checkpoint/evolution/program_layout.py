"""The operators of a checkpoint and their state layout, read from small files without a JVM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from savepoints.checkpoint.evolution.findings import Start
from savepoints.checkpoint.state import layout as state_layout
from savepoints.checkpoint.state import operators
from savepoints.checkpoint.state.operators import Operator
from savepoints.checkpoint.state.schema import StateSchema
from savepoints.io import Location, in_parallel

_VERSION = re.compile(r"/v2/(\d+)$")
# Their values are buffers of aggregates, at the end of the row.
_AGGREGATES = frozenset({"stateStoreSave", "sessionWindowStateStoreSaveExec"})


@dataclass(frozen=True)
class OperatorShape:
    """A stateful operator of a program.

    Attributes:
        properties: Of a `transformWithState`: time mode, output mode, variables.
        native_only: Why its rows cannot be written, None when they can.
    """

    operator_id: int
    name: str
    stores: Mapping[str, tuple[StateSchema, ...]]
    properties: Mapping[str, Any] = field(default_factory=dict)
    rows: int | None = None
    starts: tuple[Start, ...] | None = None
    native_only: str | None = None

    def __str__(self) -> str:
        """Name it: `operator 0 (stateStoreSave)`."""
        return f"operator {self.operator_id} ({self.name})"

    @property
    def is_aggregate(self) -> bool:
        """Whether its values are buffers of aggregates."""
        return self.name in _AGGREGATES

    @property
    def has_variables(self) -> bool:
        """Whether its state consists of named variables."""
        return operators.has_variables(self.name)

    @property
    def is_keyless(self) -> bool:
        """Whether its state is a single partition without a key."""
        return operators.is_unpartitioned(self.name) or not any(
            schema.key for schemas in self.stores.values() for schema in schemas
        )


def read(checkpoint: Location, conf: Mapping[str, str]) -> tuple[OperatorShape, ...]:
    """Read the operators of a checkpoint, starting at the sink."""
    newest: dict[str, tuple[int, str]] = {}
    for info in checkpoint.list("state"):
        if operators.is_metadata(info.path):
            match = _VERSION.search(info.path)
            written = (int(match.group(1)) if match else -1, info.path)
            home = info.path.partition("/_metadata/")[0]
            newest[home] = max(written, newest.get(home, (-2, "")))
    paths = [path for _, path in newest.values()]
    found = in_parallel(lambda path: operators.parse(checkpoint.get(path), path), paths)
    layout = state_layout.read(checkpoint)
    return tuple(
        sorted((_shape(one, layout, conf) for one in found), key=lambda one: one.operator_id)
    )


def _shape(
    operator: Operator, layout: state_layout.Layout, conf: Mapping[str, str]
) -> OperatorShape:
    return OperatorShape(
        operator.operator_id,
        operator.name,
        {
            store: schemas
            for (operator_id, store), schemas in layout.items()
            if operator_id == operator.operator_id
        },
        operator.properties,
        native_only=operators.native_only(operator, conf),
    )
