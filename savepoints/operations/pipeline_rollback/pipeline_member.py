"""One query of a rollback of several."""

from __future__ import annotations

from dataclasses import dataclass

from savepoints.operations.pipeline.table_reads import TableRead
from savepoints.operations.pipeline.topic_reads import TopicRead
from savepoints.operations.rollback.rollback import RollbackPlan


@dataclass(frozen=True)
class PipelineMember:
    """One query that goes back.

    Attributes:
        rollback: The plan for this one alone.
        reads: The tables it reads that go back, too.
        writer: The function that builds its stream writer, `package.module:function`; null if
            nothing has to be read.
        ends: Where it is run on to from there, as Spark's JSON, in what does not go back: an object
            of offsets or a list of positions in tables; null to stay.
        topic_reads: The topics it reads whose writers go back, too.
        first_id: Id of the first savepoint of its next generation; null for none. No earlier one is
            behind what is rolled back in the tables and topics that it reads.
    """

    rollback: RollbackPlan
    reads: tuple[TableRead, ...]
    writer: str | None = None
    ends: str | None = None
    topic_reads: tuple[TopicRead, ...] = ()
    first_id: str | None = None

    @property
    def query(self) -> str:
        """Its name."""
        return self.rollback.query

    @property
    def is_behind(self) -> bool:
        """Whether it has to read something to be where its tables go back to."""
        left = [*(one.behind for one in self.reads), *(one.behind for one in self.topic_reads)]
        return any(left)
