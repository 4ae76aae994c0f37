"""The savepoints that entities can be replayed from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.checkpoint.state import layout as state_layout
from savepoints.checkpoint.state.layout import Layout
from savepoints.errors import IncompatibleError, NotAlignedError, OutputVersionGoneError
from savepoints.io import in_parallel
from savepoints.model import KafkaOffsets, OutputVersion, Savepoint, lowest_offsets
from savepoints.operations.merge.lineage import GenerationHistory, Reach
from savepoints.operations.savepoint import history
from savepoints.outputs.correct import correct
from savepoints.runtime.archive_of import is_before
from savepoints.runtime.inputs import Inputs
from savepoints.sources.archive.progress import ArchiveProgress
from savepoints.sources.late import affected_entities
from savepoints.sources.late.affected_entities import BaseState
from savepoints.store.root import Store
from savepoints.store.savepoint import manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Used:
    """A base that entities are replayed from.

    Attributes:
        savepoint: Its savepoint, None for the empty state.
    """

    base: BaseState
    savepoint: Savepoint | None
    entities: int

    def pinned(self, output: str) -> OutputVersion | None:
        """Return the version of an output there; None where entities begin with nothing."""
        outputs = self.savepoint.outputs if self.savepoint else ()
        return next((one for one in outputs if one.name == output), None)


@dataclass(frozen=True)
class Assigned:
    """The entities that are touched, and where each begins.

    Attributes:
        entities: `entity` string, each once, and `base` int, an index of `bases`.
        bases: Where entities can begin, from `affected_entities.thinned`.
        counts: Entities by base, those of which there are some.
    """

    entities: DataFrame
    bases: list[BaseState]
    counts: dict[int, int]


def candidates(
    store: Store,
    query: str,
    inputs: Inputs,
    layout: Layout,
    lineage: GenerationHistory,
    reach: Reach,
    beginning: KafkaOffsets,
) -> list[BaseState]:
    """Return where entities of a query can begin, the newest first and the empty state last.

    Args:
        reach: How far back its state can be told from its events.
    """
    known = tuple(inputs.arrivals(name) for name in inputs.app.inputs)
    savepoints = {one.id: one for one in history.history(store, query) if reach.has(one)}
    bases = []
    for one in savepoints.values():
        offsets = lowest_offsets(one.cut.offsets)
        if (clock := _clock(known, offsets)) is not None:
            bases.append(BaseState(one.id, clock, offsets))
    # Few are looked at closely: for each, files of the store and two versions of tables are read.
    *some, nothing = affected_entities.thinned(bases, BaseState(offsets=beginning))
    usable = in_parallel(
        lambda one: _is_usable(store, inputs, savepoints[one.savepoint_id or ""], layout), some
    )
    found = []
    for base, is_usable in zip(some, usable, strict=True):
        if is_usable:
            has = lineage.in_effect(query, savepoints[base.savepoint_id or ""].generation)
            # A query that was reset reads what was merged again, and has it only after that.
            seen = (each.id for each in has if is_before(each.offsets, base.offsets))
            found.append(replace(base, has=frozenset(seen)))
    return [*found, nothing]


def _is_usable(store: Store, inputs: Inputs, savepoint: Savepoint, layout: Layout) -> bool:
    """Return True if a savepoint has the program's state layout and its outputs are there."""
    small = store.root / manifest.directory(savepoint.id) / "checkpoint"
    if state_layout.read(small) != layout:
        return False
    outputs = {one.name: one for one in savepoint.outputs}
    try:
        for name in inputs.app.outputs:
            correct.require_base(outputs[name], inputs.bound.outputs[name])
    except (KeyError, OutputVersionGoneError, IncompatibleError):
        return False
    return True


def _clock(known: Sequence[ArchiveProgress], offsets: KafkaOffsets) -> datetime | None:
    """Return a time that nothing before some offsets is later than; None if it is not known."""
    found = []
    for one in known:
        mine = {topic: parts for topic, parts in offsets.items() if topic in one.end}
        try:
            found.append(one.clock(mine))
        except NotAlignedError:
            return None
    times = [one for one in found if one is not None]
    return max(times) if times and len(times) == len(found) else None
