"""Whether the short way of a replay can be exact, before it is tried.

The short way reads everything up to the batch before the cut as one batch, and evicts nothing until
then. What depends on when the live query evicted, dropped or looked at the clock comes out
otherwise. What can be seen of that without running anything is said here; the controls find the
rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from savepoints.checkpoint.state.operators import Operator

_FORGETS = "dedupeWithinWatermark"
_PROCESSING_TIME = "ProcessingTime"


def reasons_against_short(operators: Sequence[Operator], *, dropped: int = 0) -> tuple[str, ...]:
    """Return why only the faithful way can be exact; nothing where the short one may be.

    Args:
        dropped: How many events of the replayed entities came below the watermark that the live
            query dropped late rows by.
    """
    found = []
    for one in operators:
        what = f"operator {one.operator_id} ({one.name})"
        if one.name == _FORGETS:
            found.append(f"{what} forgets what it has seen by the watermark of each batch")
        if one.properties.get("timeMode") == _PROCESSING_TIME:
            found.append(f"{what} goes by the processing time of each batch")
    if dropped:
        found.append(f"the live query may have dropped {dropped} of the events as late")
    return tuple(found)
