"""Where each entity of a merge is replayed from, and which events its replay reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, lowest_offsets, sources_apart
from savepoints.checkpoint.state import layout
from savepoints.checkpoint.state.layout import Layout
from savepoints.errors import IncompatibleError, NotAlignedError, OutputVersionGoneError
from savepoints.io import in_parallel
from savepoints.model import OutputVersion, Savepoint
from savepoints.operations.merge.affected import Affected
from savepoints.operations.merge.live_query import LiveQuery
from savepoints.outputs.correct import correct
from savepoints.runtime.archive_of import is_before
from savepoints.runtime.inputs import Inputs
from savepoints.sources.archive.progress import ArchiveProgress
from savepoints.sources.late import affected_entities
from savepoints.sources.late.affected_entities import BaseState
from savepoints.store.root import Store
from savepoints.store.savepoint import manifest
from savepoints.store.tables.merge_ledger import MergePolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FIRST = 0


@dataclass(frozen=True)
class Used:
    """A base that entities are replayed from."""

    base: BaseState
    savepoint: Savepoint | None
    entities: int

    def pinned(self, output: str) -> OutputVersion | None:
        """Return the version of an output there; None where entities begin with nothing."""
        outputs = self.savepoint.outputs if self.savepoint else ()
        return next((one for one in outputs if one.name == output), None)


@dataclass(frozen=True)
class Assignment:
    """The entities of a merge with their bases.

    Attributes:
        used: The bases, by number; with a policy that uses no savepoint, the empty state alone.
        replayed: The entities: `entity` string, `base` int, `control` boolean.
        pending: By input, what is replayed: columns of `archive.SCHEMA`, without the events that
            late ones take away. With the policy `exact`, what the bases have not seen.
    """

    affected: Affected
    used: Mapping[int, Used]
    replayed: DataFrame
    controls: int
    pending: Mapping[str, DataFrame]

    @property
    def live(self) -> LiveQuery:
        """The query as it stands."""
        return self.affected.live

    @property
    def spark(self) -> SparkSession:
        """The session of the merge."""
        return self.affected.spark

    @property
    def entities(self) -> int:
        """How many entities the late events touch."""
        return sum(one.entities for one in self.used.values())

    @property
    def touched(self) -> DataFrame:
        """The entities of the late events: `entity` string, `base` int."""
        return self.replayed.where("not control").select("entity", "base")

    @property
    def first_batch(self) -> int:
        """The first batch that the oldest base has not seen."""
        return min(
            one.savepoint.cut.batch_id + 1 if one.savepoint else 0 for one in self.used.values()
        )

    @property
    def savepoint_ids(self) -> list[str]:
        """The savepoints among the bases."""
        return [one.savepoint.id for one in self.used.values() if one.savepoint is not None]

    def base_versions(self, output: str) -> dict[str, int | None]:
        """Return the version of a table at each base; None where entities begin with nothing."""
        pinned = {str(number): one.pinned(output) for number, one in self.used.items()}
        return {number: None if one is None else one.version for number, one in pinned.items()}


def assign(affected: Affected, policy: MergePolicy) -> Assignment:
    """Find where the entities begin, by what the policy replays.

    Raises:
        IncompatibleError: If one would have to begin before something that no event tells of.
    """
    if policy == "exact":
        return _to_savepoints(affected)
    late = affected.late
    replayed = late.selectExpr("entity", f"{_FIRST} as base", "false as control").distinct()
    entities = replayed.count()
    used = {_FIRST: Used(BaseState(offsets=affected.live.beginning), None, entities)}
    if policy == "replay-all":
        affected.live.require_replayable(entities)
        everything = affected.live.all_events(affected.spark, affected.live.until)
        return Assignment(affected, used, replayed, 0, affected.with_late(everything))
    alone = {
        name: late if name == affected.input else late.limit(0)
        for name in affected.live.inputs.app.inputs
    }
    return Assignment(affected, used, replayed, 0, alone)


def keep_arrived(
    assignment: Assignment,
    since: KafkaOffsets,
    until: KafkaOffsets,
    directory: str,
    *,
    of_all: bool,
) -> dict[str, DataFrame]:
    """Read what has arrived of the replayed entities, or of all, since the batch was looked at.

    Args:
        directory: Where it is kept, of the merge's workspace.

    Returns:
        By input: columns of `archive.SCHEMA`.

    Raises:
        NotAlignedError: If one of the late events has come by itself: it would count twice.
    """
    whose = None if of_all else assignment.replayed.select("entity")
    work, live = assignment.affected.work, assignment.live
    found = {
        name: work.keep(
            live.events(work.spark, name, since=since, until=until, entities=whose),
            f"{directory}/{name}",
        )
        for name in live.inputs.app.inputs
    }
    assignment.affected.refuse_among(found[assignment.affected.input])
    return found


def count_events(assignment: Assignment) -> int:
    """Count the events that are replayed."""
    return sum(frame.count() for frame in assignment.pending.values())


def count_active_controls(assignment: Assignment) -> int:
    """Count the controls that have an event to be replayed."""
    controls = assignment.replayed.where("control").select("entity")
    found = controls.limit(0)
    for frame in assignment.pending.values():
        found = found.unionByName(frame.join(controls, "entity", "left_semi").select("entity"))
    return found.distinct().count()


def _to_savepoints(affected: Affected) -> Assignment:
    live, work = affected.live, affected.work
    candidates = _candidates(live)
    touched, counts = _assigned(affected, candidates, "assigned/candidates")
    if len(counts) > affected_entities.MOST_BASES:
        candidates = affected_entities.kept(counts, candidates)
        touched, counts = _assigned(affected, candidates, "assigned/bases")
    live.require_replayable(counts.get(len(candidates) - 1, 0))
    used = {}
    for number, count in counts.items():
        base = candidates[number]
        found = None if base.savepoint_id is None else live.store.catalog.find(base.savepoint_id)
        used[number] = Used(base, found, count)
    replayed = work.keep(
        touched.selectExpr("entity", "base", "false as control").unionByName(
            _spread(affected, list(used))
        ),
        "assigned/replayed",
    )
    bases = {number: one.base for number, one in used.items()}
    entities = replayed.select("entity", "base")
    pending = {
        name: work.keep(affected_entities.after(rows, entities, bases), f"assigned/pending/{name}")
        for name, rows in affected.with_late(affected.history).items()
    }
    return Assignment(affected, used, replayed, replayed.where("control").count(), pending)


def _assigned(
    affected: Affected, bases: Sequence[BaseState], name: str
) -> tuple[DataFrame, dict[int, int]]:
    """Return the entities of the late events with their bases, and how many each base has."""
    frames = [
        one.where("merge_id is not null").select("entity", "event_time", "merge_id")
        for one in affected.history.values()
    ]
    merged = reduce(lambda one, more: one.unionByName(more), frames)
    entities = affected.work.keep(affected_entities.assigned(affected.late, merged, bases), name)
    rows = entities.groupBy("base").count().collect()
    counts = {int(row["base"]): int(row["count"]) for row in rows}
    return entities, dict(sorted(counts.items()))


def _spread(affected: Affected, used: Sequence[int]) -> DataFrame:
    """Return the controls with bases: `entity` string, `base` int, `control` boolean.

    They are spread over the bases, since each may be wrong in its own way. Those with events of
    earlier merges are left out: not every base is possible for them.
    """
    numbers = ", ".join(map(str, used))
    base = f"element_at(array({numbers}), int(pmod(hash(entity), {len(used)})) + 1)"
    controls = affected.controls
    for frame in affected.history.values():
        controls = controls.join(
            frame.where("merge_id is not null").select("entity"), "entity", "left_anti"
        )
    return controls.selectExpr("entity", f"{base} as base", "true as control")


def _candidates(live: LiveQuery) -> list[BaseState]:
    """Return where its entities can begin, the newest first and the empty state last."""
    inputs, mine = live.inputs, layout.read(live.checkpoint)
    known = tuple((inputs.topic(name), inputs.arrivals(name)) for name in inputs.app.inputs)
    # What a state holds besides events may be of any time, though a topic has not been read.
    begun = {} if live.reach.ends_with else live.beginning
    savepoints = {one.id: one for one in live.savepoints()}
    bases = [
        one
        for one in _with_clocks(savepoints.values(), known, begun)
        if live.has_all_since(one.offsets)
    ]
    # Few are looked at closely: for each, files of the store and two versions of tables are read.
    *some, nothing = affected_entities.thinned(bases, BaseState(offsets=live.beginning))
    usable = in_parallel(
        lambda one: _is_usable(live.store, inputs, savepoints[one.savepoint_id or ""], mine), some
    )
    found = []
    for base, is_usable in zip(some, usable, strict=True):
        if is_usable:
            one = savepoints[base.savepoint_id or ""]
            has = live.history.in_effect(one.query, one.generation)
            # A query that was reset reads what was merged again, and has it only after that.
            seen = (each.id for each in has if is_before(each.offsets, base.offsets))
            found.append(replace(base, has=frozenset(seen)))
    return [*found, nothing]


def _with_clocks(
    savepoints: Iterable[Savepoint],
    known: Sequence[tuple[str, ArchiveProgress]],
    begun: KafkaOffsets,
) -> Iterator[BaseState]:
    """Return the savepoints with a time that nothing in them is later than; see `_clock`.

    Without those in which one source has read further in a topic than another: that is in the
    state, and a replay from where the other stands would give it again.
    """
    for one in savepoints:
        offsets = lowest_offsets(one.cut.offsets)
        if not sources_apart(one.cut.offsets) and (clock := _clock(known, offsets, begun)):
            yield BaseState(one.id, clock, offsets)


def _is_usable(store: Store, inputs: Inputs, savepoint: Savepoint, mine: Layout) -> bool:
    """Return True if a savepoint has the program's state layout and its outputs are there."""
    small = store.root / manifest.directory(savepoint.id) / "checkpoint"
    if layout.read(small) != mine:
        return False
    outputs = {one.name: one for one in savepoint.outputs}
    try:
        for name in inputs.app.outputs:
            correct.require_base(outputs[name], inputs.bound.outputs[name])
    except (KeyError, OutputVersionGoneError, IncompatibleError):
        return False
    return True


def _clock(
    known: Sequence[tuple[str, ArchiveProgress]], offsets: KafkaOffsets, begun: KafkaOffsets
) -> datetime | None:
    """Return a time that nothing before some offsets is later than.

    Args:
        known: By input, its topic and what is archived of that.
        begun: Where the query began: of a topic that it has not read further it has seen nothing.

    Returns:
        None if it is not known, or if there is nothing before the offsets at all.
    """
    times = []
    for topic, archived in known:
        mine = {topic: offsets.get(topic, {})}
        if topic in archived.end:
            try:
                times.append(archived.clock(mine))
            except NotAlignedError:
                return None
        elif not is_before(mine, {topic: begun.get(topic, {})}):
            return None
    return max((one for one in times if one is not None), default=None)
