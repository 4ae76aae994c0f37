"""Running a restored checkpoint on to exact positions, before its generation begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from savepoints.checkpoint import position
from savepoints.checkpoint.logs.kafka_position import by_partition, kafka_offsets
from savepoints.checkpoint.position import CheckpointPosition
from savepoints.config.settings import Settings
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import Savepoint
from savepoints.operations.rollback.generation_change import GenerationPlan
from savepoints.plan import Progress, silent
from savepoints.runtime import app as apps
from savepoints.runtime import compatibility
from savepoints.runtime.archive_of import archives_of, runner_of
from savepoints.runtime.bounded import table_ends
from savepoints.runtime.bounded.bounded_run import KafkaEnd, Limits
from savepoints.runtime.bounded.bounded_tables import TableEnd
from savepoints.runtime.inputs import Inputs
from savepoints.runtime.runner import Ran, Runner
from savepoints.sources.combined import availability
from savepoints.store import bindings
from savepoints.store.root import Store


def application_of(
    query: str, settings: Settings, app: str | None = None, *, rewind_outputs: bool
) -> str:
    """Return what runs a query on to exact ends, having refused what would not be exact.

    Args:
        app: What runs it, if not the application in the settings.
    """
    bound = settings.queries.get(query)
    application = app or (bound.app if bound else None)
    if bound is None or application is None:
        raise UsageError(
            f"no savepoint lies exactly at the point, so {query} has to run to reach it, but "
            f"{query} is not in the settings",
            hint="use the newest savepoint before that time (--at without --exact), or choose a "
            f"savepoint: savepoints list --query {query}; to reach the point itself, which "
            f"requires an App, add a section [queries.{query}] with app, checkpoints and outputs "
            "to the settings",
            query=query,
        )
    if not rewind_outputs:
        raise UsageError(
            f"no savepoint lies exactly at the point, so {query} has to run to reach it; the run "
            "writes to the query's outputs, which must be rewound first",
            hint=f"omit --outputs none, or choose a savepoint: savepoints list --query {query}",
            query=query,
        )
    apps.load_for(query, bound.model_copy(update={"app": application}))
    return application


@dataclass(frozen=True, kw_only=True)
class RestoredQuery:
    """A query in a restored checkpoint, with what is to run it there.

    Attributes:
        begun_from: The savepoint that the generation begins from, where it has not begun yet.
        is_copy: The checkpoint becomes that of no generation, so nobody asks later what ran there.
    """

    query: str
    app: str
    settings: Settings
    generation: int
    checkpoint: Location
    store: Store
    begun_from: Savepoint | None = None
    is_copy: bool = False
    progress: Progress = silent

    @classmethod
    def of(
        cls, plan: GenerationPlan, store: Store, progress: Progress, app: str | None = None
    ) -> RestoredQuery:
        """Return the query of a plan, with the program and tables of the generation to be.

        Args:
            app: What runs it, if not the application that the generation is bound to.
        """
        settings = bindings.complete(store, generations={plan.query: plan.generation})
        return cls(
            query=plan.query,
            app=app or settings.queries[plan.query].app,
            settings=settings,
            generation=plan.generation,
            checkpoint=Location.of(plan.checkpoint),
            store=store,
            begun_from=store.manifest(str(plan.savepoint_id)).savepoint,
            progress=progress,
        )

    def run_to(
        self,
        ends: str,
        *,
        check: Callable[[], None] = lambda: None,
        committed: Callable[[int | None], None] = lambda _batch: None,
    ) -> Ran:
        """Run it on to exactly these positions; run again after a crash, it goes on.

        Args:
            check: Called all the time; raises when the run must not continue.
            committed: Told, as often, the newest batch that this run has committed.
        """
        runner = self.runner()
        self.progress(f"running {self.app} to {what(ends)}")
        if beside := runner.tables_beside:
            self.progress(f"{self.app} also reads {', '.join(beside)}: it sees the current rows")
        tables = table_ends.parse(ends)
        end: KafkaEnd | TableEnd
        if tables is not None:
            end = TableEnd.of(tables, self.settings.queries[self.query].tables.values())
        else:
            wanted, kafka = kafka_offsets(ends) or {}, self.settings.kafka
            archives = archives_of(self.settings, self.query)
            end = KafkaEnd(wanted, availability.ranges(list(wanted), kafka, archives))

        def look() -> None:
            check()
            committed(runner.last_batch)

        with self.store.scratch() as scratch:
            return end.run(
                runner, scratch=scratch, limits=Limits(), check=look, progress=self.progress
            )

    def runner(self) -> Runner:
        """Start Spark and bind the program to the checkpoint, having compared the two."""
        from savepoints.spark.session import session

        self.progress("starting Spark")
        spark = session(self.settings, f"savepoints run to a point of {self.query}")
        bound = self.settings.queries[self.query].model_copy(update={"app": self.app})
        runner = runner_of(
            spark,
            self.store,
            Inputs(apps.load_for(self.query, bound), bound, self.settings.kafka),
            generation=self.generation,
            checkpoint=self.checkpoint,
            position=position.read(self.checkpoint).offsets,
            begun_from=self.begun_from,
        )
        layouts = compatibility.ProgramLayout(self.store, self.progress)
        require = layouts.require if self.is_copy else layouts.require_once
        require(runner, self.app, self.begun_from.id if self.begun_from else None)
        return runner


def what(ends: str) -> str:
    """Return ends as a person reads them."""
    tables = table_ends.parse(ends)
    if tables is None:
        return ends
    read = (f"version {one.version - 1} of table {one.table_id}" for one in tables.values())
    return ", ".join(read)


def is_beyond(now: CheckpointPosition, ends: str) -> bool:
    """Return True if a checkpoint has read more than up to some ends."""
    tables = table_ends.parse(ends)
    if tables is not None:
        return not TableEnd(tables, ()).is_within(now.positions)
    wanted = kafka_offsets(ends) or {}
    return any(
        offset > wanted.get(topic, {}).get(partition, -1)
        for topic, partition, offset in by_partition(now.offsets)
    )
