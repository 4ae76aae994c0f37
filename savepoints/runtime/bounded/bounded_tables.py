"""Runs up to given versions of the Delta tables that a query reads, by a planned batch each time.

As `bounded_run` does for offsets of Kafka. One batch reads everything up to the end; a query that
has read nothing begins with the table as it is at that version, as it would begin with the newest
one without an end. Nothing here takes the query's lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from savepoints.checkpoint import position as checkpoint_position
from savepoints.checkpoint.logs import offset_log, table_position
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.errors import IncompatibleError, NotAlignedError, SourceDataGoneError, UsageError
from savepoints.io import Location
from savepoints.plan import Progress, silent
from savepoints.runtime.bounded import planned_offsets, table_ends
from savepoints.runtime.bounded.bounded_run import Limits
from savepoints.runtime.runner import Ended, Ran, Runner
from savepoints.sources import delta_versions
from savepoints.sources.delta_versions import TableVersions

# By table id.
Ends = Mapping[str, TablePosition]


@dataclass(frozen=True)
class TableEnd:
    """Where a run ends.

    Attributes:
        ends: Where each source of a table is to be, by table id.
    """

    ends: Ends
    tables: Sequence[TableVersions]

    @classmethod
    def of(cls, ends: Ends, uris: Iterable[str]) -> TableEnd:
        """Look up what there is of the tables now."""
        return cls(ends, delta_versions.read_each(uris))

    def is_reached(self, now: CheckpointPosition) -> bool:
        """Return True if a query has nothing to do, before Spark is started.

        Raises:
            UsageError: If it has read more already.
            SourceDataGoneError: If the log of a table no longer has the commits in between.
        """
        self.require_reachable(now.positions)
        if now.committed is None:
            return False
        return (
            self._wanted(now.positions) == list(map(_of_table, now.positions))
            and not (now.begun is not None and self.is_within(now.begun_positions))
            and not now.watermark_moved
        )

    def run(
        self,
        runner: Runner,
        *,
        scratch: Location,
        limits: Limits,
        check: Callable[[], None] = lambda: None,
        progress: Progress = silent,
    ) -> Ran:
        """Run a query until its sources are exactly there.

        Killed anywhere and run again it comes to the same end: a batch that was begun and lies
        within the ends is run again as it is.

        Args:
            scratch: An empty directory, used when the query has run nothing yet.
            check: Called before each batch and all the time while it runs; raises when the run must
                not continue.

        Raises:
            NotAlignedError: If a batch was begun that goes beyond the ends and is in an output
                already, or several are planned.
        """
        started = time.monotonic()
        ended = self._go(runner, scratch, limits, check, progress)
        now = checkpoint_position.read(runner.checkpoint)
        return runner.ran(
            ended,
            seconds=time.monotonic() - started,
            caught_up=ended == "caught_up",
            remaining_records=0 if ended == "caught_up" else None,
            offsets=now.offsets,
        )

    def _go(
        self,
        runner: Runner,
        scratch: Location,
        limits: Limits,
        check: Callable[[], None],
        progress: Progress,
    ) -> Ended:
        now = checkpoint_position.read(runner.checkpoint)
        while True:
            self.require_reachable(now.positions)
            finishes = now.begun is not None and self._is_to_be_finished(runner, now)
            first = b"" if now.committed is not None or finishes else _first(runner, now, scratch)
            wanted = None if finishes else self._next(runner, now, first)
            if not finishes and wanted is None:
                return "caught_up"
            check()
            if runner.stopping:
                return "drained"
            if limits.is_over:
                return "max_duration"
            if wanted is not None:
                texts = [one.text for one in wanted]
                planned_offsets.write(runner.checkpoint, now, first, texts, {})
            now = planned_offsets.run(runner, now.next_batch, check)
            progress(f"batch {now.committed}: {self._text(runner)}")

    def _next(
        self, runner: Runner, now: CheckpointPosition, first: bytes
    ) -> list[TablePosition] | None:
        """Return where each source is to be after the next batch; None when none is needed."""
        if now.committed is None:
            return self._wanted(offset_log.parse(first, "offsets/0").sources)
        wanted = self._wanted(now.positions)
        evicts = (
            now.watermark_moved
            and runner.needs_empty_batches
            and runner.checkpoint.list("state/0/_metadata")
        )
        return wanted if evicts or wanted != list(map(_of_table, now.positions)) else None

    def _wanted(self, positions: Sequence[str | None]) -> list[TablePosition]:
        """Return where each source is to be, in the order in which Spark counts them."""
        return [self.ends[_of_table(one).table_id] for one in positions]

    def is_within(self, positions: Sequence[str | None]) -> bool:
        """Return True if a batch that ends there goes beyond no end."""
        found = map(_of_table, positions)
        return all(not one.is_beyond(self.ends[one.table_id]) for one in found)

    def _is_to_be_finished(self, runner: Runner, now: CheckpointPosition) -> bool:
        """Say whether a batch that was begun is to be run again as it is.

        One that goes too far is planned again, unless it is in an output already.
        """
        if self.is_within(now.begun_positions):
            return True
        if written := runner.has_written(now.next_batch):
            raise NotAlignedError(
                f"batch {now.begun} of {runner.query} was started but not finished; it has "
                f"already been written to {', '.join(written)} and goes beyond the requested end",
                hint="finish the batch, and read on to the latest data (savepoints run "
                f"{runner.query} --until latest), or roll back: savepoints rollback latest --query "
                f"{runner.query}",
                query=runner.query,
                batch_id=now.begun,
            )
        return False

    def require_reachable(self, positions: Sequence[str | None]) -> None:
        """Check that a query can get there from some positions, as Spark's JSON.

        Raises:
            IncompatibleError: If a source is no table, or of a table that is not there now.
            UsageError: If it has read more already.
            SourceDataGoneError: If the log of a table no longer has the commits in between.
        """
        known = {one.table_id: one for one in self.tables}
        for text in positions:
            position = _of_table(text)
            table, end = known.get(position.table_id), self.ends.get(position.table_id)
            if table is None or end is None:
                raise IncompatibleError(
                    f"the query has read a table with the id {position.table_id}, but none of "
                    f"its tables has that id now: {', '.join(one.uri for one in self.tables)}",
                    hint="correct [queries.NAME.tables] in the settings; if the table was "
                    "deleted and recreated, it has a new id",
                    table_id=position.table_id,
                )
            if position.is_beyond(end):
                raise UsageError(
                    f"the query has already read {table.uri} beyond version {end.version - 1}: "
                    f"it would read version {position.version} next",
                    hint=f"choose version {position.version - 1} or later, or roll back first",
                    uri=table.uri,
                    wanted=end.version - 1,
                    next=position.version,
                )
            if position.version < min(table.oldest, end.version):
                raise SourceDataGoneError(
                    f"the query would read version {position.version} of {table.uri} next, but "
                    f"the log of the table now begins with version {table.oldest}",
                    hint="start over: savepoints reset QUERY --to-earliest; to keep the log "
                    "longer, raise delta.logRetentionDuration",
                    uri=table.uri,
                    wanted=position.version,
                    oldest=table.oldest,
                )

    def _text(self, runner: Runner) -> str:
        now = map(_of_table, checkpoint_position.read(runner.checkpoint).positions)
        read = table_ends.versions({one.table_id: one for one in now}, self.tables)
        return ", ".join(f"{uri} read up to version {version}" for uri, version in read.items())


def _first(runner: Runner, now: CheckpointPosition, scratch: Location) -> bytes:
    """Return the offset log of a first batch as Spark writes it."""
    if now.begun is not None:
        return runner.checkpoint.get("offsets/0")
    runner.begin_in(scratch)
    return scratch.get("offsets/0")


def _of_table(position: str | None) -> TablePosition:
    found = table_position.parse(position)
    if found is None:
        raise IncompatibleError(
            f"a source of the query is at {position}, which is not a position in a Delta table",
            hint="use --until latest; other values work only if the sources of the query are all "
            "Delta tables or all Kafka topics",
            position=position,
        )
    return found
