"""How long a merge will take, going by an earlier one of the query.

Of those that were done in the same way the one of the most similar size counts. A larger merge is
taken to last longer in proportion, a smaller one as long: most of a small one is constant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from savepoints.store.tables.events import Event
from savepoints.store.tables.merge_ledger import MergePolicy, ReplayStrategy

_NEWEST = 10


@dataclass(frozen=True)
class Size:
    """What a merge has to do, as far as its time depends on it.

    Attributes:
        way: How it is replayed; None for policies that replay in one way or not at all.
        batches: Batches of the query since the oldest base.
    """

    policy: MergePolicy
    way: ReplayStrategy | None
    rows: int
    events: int
    batches: int

    @property
    def parameters(self) -> dict[str, object]:
        """What an event of the store says of it."""
        return dict(vars(self))

    @property
    def counts(self) -> str:
        """What the time goes by."""
        if self.policy == "append":
            return "rows"
        return "batches" if self.way == "faithful" else "events"


@dataclass(frozen=True)
class Expected:
    """How long a merge will take.

    Attributes:
        seconds: Estimated duration, from beginning to end.
        basis: The earlier merge that the estimate is based on, and how long that took.
    """

    seconds: float
    basis: str


def expected(events: Iterable[Event], query: str, size: Size) -> Expected | None:
    """Estimate how long a merge will take; None when no such merge of the query was done."""
    alike = [
        one
        for one in events
        if (one.verb, one.query, one.result) == ("merge", query, "done")
        and one.parameters.get("policy") == size.policy
        and one.parameters.get("way", "None") == str(size.way)
        and one.parameters.get(size.counts, "").isdecimal()
    ][:_NEWEST]
    if not alike:
        return None
    wanted = int(getattr(size, size.counts))
    nearest = min(alike, key=lambda one: abs(_count(one.parameters, size) - wanted))
    had = _count(nearest.parameters, size)
    took = f"{nearest.id} took {nearest.seconds:.0f} s for {had} {size.counts}"
    return Expected(nearest.seconds * max(1.0, wanted / max(1, had)), took)


def _count(parameters: Mapping[str, str], size: Size) -> int:
    return int(parameters[size.counts])


def text(found: Expected | None) -> str:
    """Describe it, as the end of a step."""
    if found is None:
        return "duration unknown: this is the first such merge of the query"
    return f"about {found.seconds:.0f} s in total ({found.basis})"
