"""Bounded runs: a query reads exactly up to given offsets, by planned batches, and stops there.

Each batch is written into the offset log before it runs
(`savepoints.checkpoint.logs.planned_batch`), one at a time:
of several planned ones Spark runs the last and loses the rows of the others. Trigger `once`
keeps to a planned batch, where `availableNow` goes on to the newest record and, in a query with
timers in processing time, never ends. The batches are as large as `max_offsets_per_trigger` says;
Spark's own option of that name does not bind a planned batch.

When the end is reached and the last batch has moved the watermark, a batch without input evicts and
emits what that allows, as Spark does by itself under `availableNow`; not where
`spark.sql.streaming.noDataMicroBatches.enabled` is false.

Nothing here takes the query's lease: whoever calls it holds it, or works on a checkpoint that
nobody else knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from savepoints.checkpoint import position as checkpoint_position
from savepoints.checkpoint.logs.kafka_position import (
    KafkaOffsets,
    by_partition,
    kafka_offsets,
    kafka_position,
)
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.errors import IncompatibleError, NotAlignedError, UsageError
from savepoints.io import Location
from savepoints.plan import Progress, silent
from savepoints.runtime.bounded import planned_offsets
from savepoints.runtime.runner import Ended, Ran, Runner
from savepoints.sources.kafka.offsets import (
    count,
    require_new_partitions,
    require_reachable,
    step,
    with_new_partitions,
)
from savepoints.texts import count_text

if TYPE_CHECKING:
    from savepoints.sources.kafka.offsets import Range, Ranges


@dataclass(frozen=True)
class Limits:
    """What ends a run before its end.

    Attributes:
        max_records: So many more records, exactly; a batch that a killed run has begun is finished
            first and counts.
        deadline: No batch is begun after it, by `time.monotonic`.
    """

    max_records: int | None = None
    deadline: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether no other batch may be begun."""
        return self.deadline is not None and time.monotonic() >= self.deadline


@dataclass(frozen=True)
class _First:
    """A first batch, as Spark writes it.

    Attributes:
        data: Its offset log.
        topics: Of each position in it, in their order.
        sources: Of each source by its number. One that a program reads twice, such as a stream that
            is joined with itself, has two positions.
    """

    data: bytes
    topics: Sequence[Sequence[str]]
    sources: Mapping[int, Sequence[str]]

    @classmethod
    def of(cls, checkpoint: Location, position: CheckpointPosition) -> _First:
        return cls(
            checkpoint.get("offsets/0"),
            [sorted(_offsets(one)) for one in position.begun_positions],
            {number: sorted(_offsets(one)) for number, one in position.initial.items()},
        )


@dataclass(frozen=True)
class KafkaEnd:
    """Where a run ends: the offsets for every topic and partition, and what there is of them."""

    ends: KafkaOffsets
    ranges: Ranges

    def reached(self, now: CheckpointPosition) -> KafkaOffsets:
        """Return where a query stands, for all partitions that are in the ends.

        Partitions that it has not seen are at their earliest offset, where it will begin with them.
        """
        for position in now.positions:
            _offsets(position)
        return with_new_partitions(now.offsets, _of(self.ends, self.ranges))

    def is_reached(self, now: CheckpointPosition) -> bool:
        """Return True if a query has nothing to do to be there, before Spark is started.

        Raises:
            UsageError: If the end cannot be reached from where it is.
        """
        begin = self.beginning(now)
        begun = now.begun is not None and is_within(now.begun_positions, self.ends)
        return count(begin, self.ends) == 0 and not begun and not now.watermark_moved

    def beginning(self, now: CheckpointPosition) -> KafkaOffsets:
        """Return where a query stands, having refused ends that cannot be reached from there."""
        require_new_partitions(now.offsets, _of(self.ends, self.ranges))
        begin = self.reached(now)
        require_reachable(begin, self.ends, _of(self.ends, self.ranges, begin))
        _require_not_passed(now, begin, self.ends)
        return begin

    def run(
        self,
        runner: Runner,
        *,
        scratch: Location,
        through: Sequence[Sequence[str | None]] = (),
        limits: Limits = Limits(),
        check: Callable[[], None] = lambda: None,
        progress: Progress = silent,
    ) -> Ran:
        """Run a query until its sources are exactly there.

        Killed anywhere and run again it comes to the same end: a batch that was begun and lies
        within the ends is run again as it is, as Spark would.

        Args:
            scratch: An empty directory, used when the query has run nothing yet.
            through: Where each source is after each of the first batches, as Spark's JSON: those of
                another query that came to the ends from here. The query has run a batch already,
                and has begun none but the first of these.
            check: Called before each batch and all the time while it runs; raises when the run must
                not continue.
        """
        started = time.monotonic()
        run = _BoundedRun(runner, self, scratch, check, progress)
        for positions in through:
            if not runner.stopping:
                run.follow(positions)
        ended = run.go(limits)
        offsets = self.reached(run.position)
        remaining = count(offsets, self.ends)
        return runner.ran(
            ended,
            seconds=time.monotonic() - started,
            caught_up=remaining == 0,
            remaining_records=remaining,
            offsets=offsets,
        )


def run_on(
    runner: Runner,
    limits: Limits = Limits(),
    *,
    check: Callable[[], None] = lambda: None,
    until_caught_up: bool = False,
) -> Ran:
    """Run a query without an end, until it is asked to stop or its time is over.

    Args:
        until_caught_up: Until everything that its sources have now is read, by `availableNow`.
    """
    started, over = time.monotonic(), False

    def look() -> None:
        nonlocal over
        check()
        if limits.is_over and not runner.stopping:
            over = True
            runner.stop()

    runner.run(check=look, until_caught_up=until_caught_up)
    caught_up = until_caught_up and not runner.stopping
    return runner.ran(
        "max_duration" if over else "caught_up" if caught_up else "drained",
        caught_up=caught_up,
        seconds=time.monotonic() - started,
        offsets=checkpoint_position.read(runner.checkpoint).offsets,
    )


def replay(
    runner: Runner, recorded: Location, batches: Sequence[int], *, progress: Progress = silent
) -> None:
    """Run batches with the very offsets, watermarks and times that another checkpoint has of them.

    Args:
        runner: The query, whose newest committed batch is the one before the first of these.
        recorded: Where `offsets/N` of each batch lies.
    """
    for number, batch in enumerate(batches, 1):
        progress(f"running batch {batch} ({number} of {len(batches)})")
        runner.checkpoint.copy_from(recorded, f"offsets/{batch}", f"offsets/{batch}")
        runner.run_planned()


@dataclass
class _BoundedRun:
    """One bounded run under way."""

    runner: Runner
    end: KafkaEnd
    scratch: Location
    check: Callable[[], None]
    progress: Progress

    def __post_init__(self) -> None:
        self.position = checkpoint_position.read(self.runner.checkpoint)

    def go(self, limits: Limits) -> Ended:
        begin = self.end.beginning(self.position)
        left = limits.max_records
        if self.position.begun is not None and self._is_to_be_finished(self.position.begun):
            if halted := self._halted(limits):
                return halted
            self._run()
            if left is not None:
                left = max(0, left - count(begin, self._reached()))
            begin = self._reached()
        aim = self.end.ends if left is None else step(begin, self.end.ends, left) if left else begin
        _require_not_passed(self.position, begin, aim)
        while (positions := self._next(aim)) is not None:
            if halted := self._halted(limits):
                return halted
            self._plan(positions)
            self._run()
        return "caught_up" if aim == self.end.ends else "max_records"

    def follow(self, positions: Sequence[str | None]) -> None:
        """Run one batch that ends there, whether it reads anything or not."""
        self.check()
        if self.position.begun is None:
            self._plan([_offsets(one) for one in positions])
        self._run()

    def _reached(self) -> KafkaOffsets:
        return self.end.reached(self.position)

    def _halted(self, limits: Limits) -> Ended | None:
        self.check()
        return "drained" if self.runner.stopping else "max_duration" if limits.is_over else None

    def _is_to_be_finished(self, batch: int) -> bool:
        """Say whether a batch that was begun is to be run again as it is.

        It may be in some outputs already: then it must be, or its rows would be doubled. One that
        goes too far and is in none is planned anew.
        """
        if is_within(self.position.begun_positions, self.end.ends):
            return True
        written = self.runner.has_written(batch)
        if not written:
            return False
        beyond = "; ".join(one for one in self.position.begun_positions if one is not None)
        raise NotAlignedError(
            f"batch {batch} of {self.runner.query} was started but not finished; it has "
            f"already been written to {', '.join(written)} and ends at {beyond}, beyond the "
            "requested end",
            hint=f"finish the batch (savepoints run {self.runner.query} --until latest, or "
            "--until FILE with these offsets), or roll back: savepoints rollback latest "
            f"--query {self.runner.query}",
            query=self.runner.query,
            batch_id=batch,
            offsets=beyond,
        )

    def _run(self) -> None:
        """Run the batch that is planned."""
        before, batch = self._reached(), self.position.next_batch
        self.position = planned_offsets.run(self.runner, batch, self.check)
        after = self._reached()
        self.progress(
            f"batch {batch}: {count_text(count(before, after), 'record')}, "
            f"{count(after, self.end.ends)} to go"
        )

    def _next(self, aim: KafkaOffsets) -> tuple[KafkaOffsets, ...] | None:
        """Return where each source is to be after the next batch; None when none is needed."""
        begin = self._reached()
        if count(begin, aim) > 0:
            return tuple(self._step(start, aim) for start in self._starts())
        evicts = (
            aim == self.end.ends
            and self.position.watermark_moved
            and self.runner.needs_empty_batches
            and self.runner.checkpoint.list("state/0/_metadata")
        )
        return tuple(self._starts()) if evicts else None

    def _step(self, start: KafkaOffsets, aim: KafkaOffsets) -> KafkaOffsets:
        end = {topic: aim[topic] for topic in start}
        begin = with_new_partitions(start, _of(end, self.end.ranges))
        archived = self.runner.archived
        return step(begin, archived.within(begin, end) if archived else end, self.runner.most)

    def _starts(self) -> list[KafkaOffsets]:
        """Return where each source is, in the order in which Spark counts them."""
        if self.position.committed is not None:
            return [_offsets(one) for one in self.position.positions]
        return [self._of(topics) for topics in self._first.topics]

    def _of(self, topics: Iterable[str]) -> KafkaOffsets:
        begin = self._reached()
        return {topic: begin[topic] for topic in topics}

    @cached_property
    def _first(self) -> _First:
        if self.position.begun is not None:
            return _First.of(self.runner.checkpoint, self.position)
        self.runner.begin_in(self.scratch)
        return _First.of(self.scratch, checkpoint_position.read(self.scratch))

    def _plan(self, positions: Sequence[KafkaOffsets]) -> None:
        """Write the next batch into the offset log."""
        begins: dict[int, str] = {}
        first = b""
        if self.position.committed is None:
            first = self._first.data
            begins = {
                number: kafka_position(self._of(topics))
                for number, topics in self._first.sources.items()
            }
        texts = [kafka_position(one) for one in positions]
        planned_offsets.write(self.runner.checkpoint, self.position, first, texts, begins)


def _require_not_passed(now: CheckpointPosition, begin: KafkaOffsets, ends: KafkaOffsets) -> None:
    """Refuse to go where one of two sources that read the same partition is already beyond."""
    if count(begin, ends) == 0:
        return
    for position in now.positions:
        for topic, part, offset in by_partition(_offsets(position)):
            behind, end = begin[topic][part], ends[topic][part]
            if offset > end:
                raise UsageError(
                    f"two sources of the query read topic {topic} partition {part}, one "
                    f"from offset {behind} and one from {offset}, so they cannot both end "
                    f"at {end}",
                    hint=f"choose an end at offset {offset} or later",
                    topic=topic,
                    partition=part,
                    wanted=end,
                    offsets=[behind, offset],
                )


def is_within(positions: Sequence[str | None], ends: KafkaOffsets) -> bool:
    """Say whether a batch that ends there goes beyond no end."""
    return all(
        offset <= ends.get(topic, {}).get(part, -1)
        for position in positions
        for topic, part, offset in by_partition(_offsets(position))
    )


def _offsets(position: str | None) -> KafkaOffsets:
    found = kafka_offsets(position)
    if found is None:
        raise IncompatibleError(
            f"a source of the query is at {position}, which is not a Kafka offset",
            hint="use --until latest; other values work only if the sources of the query are all "
            "Kafka topics or all Delta tables",
            position=position,
        )
    return found


def _of(ends: KafkaOffsets, ranges: Ranges, begin: KafkaOffsets | None = None) -> Ranges:
    """Return what Kafka has of the partitions in some positions, and of no others."""
    named = [(t, p) for one in (ends, begin or {}) for t, parts in one.items() for p in parts]
    found: dict[str, dict[int, Range]] = {}
    for topic, part in named:
        if part in ranges.get(topic, {}):
            found.setdefault(topic, {})[part] = ranges[topic][part]
    return found
