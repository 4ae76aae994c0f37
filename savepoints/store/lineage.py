"""From what the present of a query comes: merges, and batches that tell it from events alone.

A replay puts nothing but events together again. What somebody did to the state besides, by editing
it, by going to other offsets, or by letting another program or query go first, is not in them: so
no entity can be replayed from before such a thing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial

from savepoints.checkpoint.logs import source_positions
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition
from savepoints.io import Location, in_parallel
from savepoints.model import Generation, Place, Savepoint
from savepoints.store import batch_log, checked_programs
from savepoints.store.batch_log import Batch
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.root import Store
from savepoints.store.savepoint import native
from savepoints.store.tables import merge_ledger
from savepoints.store.tables.merge_ledger import Ancestry, Merge

# Generations that begin with nothing but events, or with a savepoint as it was taken.
_PLAIN = frozenset({"run", "merge", "restore", "bootstrap"})
# So does it, unless its sources were told to go on elsewhere than the savepoint was.
ROLLBACK = "rollback"
# What begins generations of several queries, of which readers go on behind what was taken back.
TOGETHER = "pipeline rollback"
# A reader begins it with a correction of its table in its state, and goes on behind that commit.
CASCADE = "cascade"
# They go on with the batch that was the newest, so that none comes again.
_STANDING_STILL = frozenset({"merge", CASCADE})
# Those that begin with what another program may have made of events.
_OF_ANOTHER_PROGRAM = frozenset({"fork", "promote", "pipeline fork", "pipeline promote"})
# It chooses offsets, also where it keeps the state.
RESET = "reset"
# They go on at other offsets only where somebody has given them for a source.
_MAY_CHOOSE_OFFSETS = frozenset({ROLLBACK, "create"})


@dataclass(frozen=True)
class GenerationHistory:
    """What a store knows of its generations, read once."""

    generations: Sequence[Generation]
    savepoints: Sequence[Savepoint]
    merges: Sequence[Merge]

    @classmethod
    def of(cls, store: Store) -> GenerationHistory:
        """Read it."""
        return cls(store.generations.all(), store.catalog.all(), store.ledger.all())

    def ancestry(self, query: str, generation: int) -> Ancestry:
        """Return the generations from which one descends."""
        return merge_ledger.ancestry(
            query, generation, self.generations, self.savepoints, self.merges
        )

    def in_effect(self, query: str, generation: int) -> list[Merge]:
        """Return the merges that a generation has in its state, the oldest first.

        Raises:
            NotAlignedError: If that cannot be said, because a savepoint is gone from which one of
                its generations began.
        """
        return merge_ledger.in_effect(self.merges, self.ancestry(query, generation))

    def begins_behind(self, live: Generation, merge: Merge, beginning: KafkaOffsets) -> bool:
        """Return True if a query was reset to offsets from which it does not read a merge again.

        Args:
            beginning: Where it began with empty state, as its checkpoint says.
        """
        known = self.ancestry(live.query, live.generation).generations
        reset = any(
            one.is_empty_reset and one.begun_at > merge.at
            for one in self.generations
            if one.place in known
        )
        return reset and all(
            beginning.get(topic, {}).get(part, 0) >= offset
            for topic, part, offset in by_partition(merge.offsets)
        )


@dataclass(frozen=True)
class Reach:
    """The generations whose batches made the present of a query, the newest first.

    Attributes:
        newest: By generation, the newest of its batches that counts; None for all.
        first: By generation, the first of its batches that counts.
        ends_with: What cannot be told from events, in words; empty if all batches can.
        is_promotion: Whether that is a promotion, or the start of a fork: events tell what was
            before, too, but another program may have read them.
        is_of_driver: Whether that is the beginning in a driver of the user's: nobody knows with
            what state, nor which program has read the events since.
        earlier: Those of the generations that lie before a promotion or the start of a fork.
        crossed: The newest of these, in words; empty without any.
    """

    newest: Mapping[Place, int | None]
    first: Mapping[Place, int]
    ends_with: str = ""
    is_promotion: bool = False
    is_of_driver: bool = False
    earlier: frozenset[Place] = frozenset()
    crossed: str = ""

    def has(self, savepoint: Savepoint) -> bool:
        """Return True if a savepoint lies within."""
        place = savepoint.place
        if place not in self.newest or savepoint.edit is not None:
            return False
        newest = self.newest[place]
        return newest is None or savepoint.cut.batch_id <= newest

    def oldest(self, savepoints: Sequence[Savepoint | None]) -> Savepoint | None:
        """Return the oldest of some that lie within; None, the first event, is older than all."""
        order = list(self.newest)

        def age(one: Savepoint | None) -> tuple[int, int]:
            if one is None:
                return len(order), 0
            return order.index(one.place), -one.cut.batch_id

        return max(savepoints, key=age)

    def crosses(self, savepoint: Savepoint | None) -> bool:
        """Return True if another program may have read events since a savepoint.

        Args:
            savepoint: None for the first event.
        """
        if savepoint is None:
            return bool(self.crossed)
        return savepoint.place in self.earlier


def reach(store: Store, query: str, *, across_promotions: bool = False) -> Reach:
    """Find out how far back it goes.

    Args:
        across_promotions: Go on before promotions and the starts of forks, into other queries.
    """
    generations = {one.place: one for one in store.generations.all()}
    savepoints = {one.id: one for one in store.catalog.all()}
    begun = cache(partial(journal.by_generation, store.root))  # Few lines need it, none twice.
    found = Reach({}, {})
    at: Generation = store.generations.current(query)
    until: int | None = None
    while True:
        found = _with(found, at, until, first=0)
        number = f"generation {at.generation}"
        where = number if at.query == query else f"{number} of {at.query}"
        may_cross = at.begun_by in _OF_ANOTHER_PROGRAM and at.begun_from is not None
        if not _begins_with_events(at, begun) and not (may_cross and across_promotions):
            return replace(
                found,
                ends_with=f"{where} was begun by {at.begun_by}",
                is_promotion=may_cross,
                is_of_driver=at.begun_by == "create",
            )
        if at.begun_from is None:
            return found
        origin = at.origin_among(savepoints)
        if origin is None:
            gone = f"{at.begun_from}, from which {where} began, no longer exists"
            return replace(found, ends_with=gone)
        found = _with(found, at, until, first=origin.batch_id + 1)
        if origin.is_edited:
            return replace(found, ends_with=f"the state of {at.begun_from} was edited")
        before = generations.get(origin.place)
        if before is None or (before.query != at.query and not may_cross):
            other = f"{where} began from {at.begun_from} of {origin.query}"
            return replace(found, ends_with=other)
        if may_cross and not found.crossed:
            found = replace(found, crossed=f"{where} was begun by {at.begun_by}")
        at, until = before, origin.batch_id


@dataclass(frozen=True)
class ReadOtherwise:
    """The newest batch of a query that another program has read than the one that is asked about.

    Attributes:
        place: The generation it is of.
        batch_id: None for all that the query has read last, and will read.
    """

    place: Place
    batch_id: int | None

    def text(self, app: str) -> str:
        """Say which batches another program than this one has read."""
        which = (
            "the newest batches"
            if self.batch_id is None
            else f"batches up to {self.batch_id} of generation {self.place[1]}"
        )
        return (
            f"{which} were read by another version of {app}, or with another time zone or version "
            "of Spark or Python"
        )


def read_otherwise(
    store: Store, known: Reach, plan: str, since: Savepoint | None
) -> ReadOtherwise | None:
    """Find it among the batches since a savepoint, as far as `checked_programs` tells.

    Args:
        plan: Digest of the program.
        since: One that lies within; None for the first batch.
    """
    first = dict(known.first)
    places = list(known.newest)
    if since is not None:
        oldest = since.place
        first[oldest] = since.cut.batch_id + 1
        places = places[: places.index(oldest) + 1]
    programs = in_parallel(lambda place: checked_programs.read(store.root, *place), places)
    for place, ran in zip(places, programs, strict=True):
        end = known.newest[place]
        for one in reversed(ran):
            begin = max(one.first_batch, first[place])
            if one.plan != plan and (end is None or begin <= end):
                return ReadOtherwise(place, end)
            end = one.first_batch - 1 if end is None else min(end, one.first_batch - 1)
    return None


def _with(found: Reach, one: Generation, until: int | None, *, first: int) -> Reach:
    """Return it with a generation, from its first batch that counts up to its newest one."""
    place = one.place
    return replace(
        found,
        newest={**found.newest, place: until},
        first={**found.first, place: first},
        earlier=found.earlier | {place} if found.crossed else found.earlier,
    )


def _begins_with_events(
    generation: Generation, begun: Callable[[], Mapping[Place, Operation]]
) -> bool:
    """Return True unless something else than events made what a generation begins with.

    Args:
        begun: Reads the operations that began generations.
    """
    if generation.begun_by in {ROLLBACK, TOGETHER}:
        return not goes_elsewhere(generation, begun().get(generation.place))
    return generation.begun_by in _PLAIN or generation.is_empty_reset


def goes_elsewhere(generation: Generation, by: Operation | None) -> bool:
    """Return True if a generation began elsewhere in its sources than the state that it has.

    Args:
        by: What began it; None if its journal is gone.
    """
    if generation.begun_by == ROLLBACK:
        return by is not None and bool(by.starts)
    if generation.begun_by == TOGETHER:
        # A reader of a topic is set behind the records that were taken back, which are still there.
        return by is None or bool(by.members.get(generation.query, {}).get("topic_reads"))
    return generation.begun_by == RESET and generation.begun_from is not None


def as_begun_with(generation: Generation, begun_from: Savepoint) -> Savepoint:
    """Return the savepoint with the ids of the topics in which a generation went on from there.

    Offsets that somebody has chosen are of the topics of that day, whatever is in the savepoint.
    """
    topics = begun_from.topics
    if generation.begun_by == RESET:
        topics = {}
    elif generation.begun_by in _MAY_CHOOSE_OFFSETS:
        starts = native.restored_sources(Location.of(generation.checkpoint))
        if starts:
            topics = source_positions.topics_kept(starts, begun_from.cut.offsets, topics)
    return replace(begun_from, topics=topics)


def reruns(generation: Generation, after: datetime) -> bool:
    """Return True if it began after a moment with an earlier batch than the one before it had.

    A merge, and what a reader takes over of it, go on with the batch that was the newest.
    """
    return generation.went_on_after(after) and generation.begun_by not in _STANDING_STILL


def of_topics(store: Store, generation: Generation) -> list[Savepoint]:
    """Return the savepoints that tell of which topics a generation's offsets are.

    They are its own, the newest first, and the one that it began from.
    """
    saved = store.catalog.all()
    own = [one for one in saved if one.place == generation.place]
    origin = [one for one in saved if one.id == generation.begun_from]
    return [*own, *(as_begun_with(generation, one) for one in origin)]


def topics_known(store: Store, generation: Generation) -> dict[str, Savepoint]:
    """Return by topic the savepoint of the newest batch that tells of which a generation's are."""
    found: dict[str, Savepoint] = {}
    for one in sorted(of_topics(store, generation), key=lambda one: one.cut.batch_id):
        found |= dict.fromkeys(one.topics, one)
    return found


def topic_ids(store: Store, generation: Generation) -> dict[str, str]:
    """Return the ids of the topics that a generation's offsets are of, as far as they are known."""
    known = topics_known(store, generation)
    return {topic: one.topics[topic] for topic, one in known.items()}


def batches(store: Store, known: Reach, checkpoint: Location | None = None) -> dict[int, Batch]:
    """Return the batches that made the present, by number, as far as the batch log has them.

    Args:
        checkpoint: That of the current generation, for batches that nobody has copied yet.
    """
    found: dict[int, Batch] = {}
    for (query, generation), until in known.newest.items():
        logged = batch_log.read(store.root, query, generation)
        if checkpoint is not None and until is None:
            newest = max(logged, default=-1)
            logged |= {one.batch_id: one for one in batch_log.kept(checkpoint, newest)}
        found |= {
            number: one
            for number, one in logged.items()
            if number >= known.first[query, generation] and (until is None or number <= until)
        }
    return found
