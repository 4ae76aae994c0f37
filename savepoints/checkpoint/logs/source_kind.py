"""Which kind of source a position is of: the offset log does not name it, so the form decides."""

from __future__ import annotations

import json
from typing import Literal

from savepoints.checkpoint.logs.kafka_position import kafka_offsets

SourceKind = Literal["kafka", "delta", "files", "unknown"]

_KEYS: dict[str, SourceKind] = {"logOffset": "files", "reservoirId": "delta"}


def kind_of(position: str | None) -> SourceKind:
    """Return the kind of source that writes such positions."""
    if kafka_offsets(position) is not None:
        return "kafka"
    try:
        data = json.loads(position or "")
    except ValueError:
        return "unknown"
    found = (kind for key, kind in _KEYS.items() if isinstance(data, dict) and key in data)
    return next(found, "unknown")
