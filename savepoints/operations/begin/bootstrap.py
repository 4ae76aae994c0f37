"""`bootstrap`: a query begins with everything that a program makes of the events before.

The program is run over archive and Kafka, or over the tables that it reads, by planned batches up
to exact positions; then its first generation begins in that very checkpoint, and a savepoint of it
is taken. What is run is what `run` would have run from the first event on, so all else that is
known of a query, such as what it dropped as late, is known of this one.
"""

from __future__ import annotations

import shlex
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import read_query_id
from savepoints.checkpoint.logs.kafka_position import kafka_position
from savepoints.config.settings import Settings
from savepoints.errors import IncompatibleError, TargetExistsError
from savepoints.io import Location
from savepoints.model import FORMS, Form, new_id
from savepoints.moments import utc_now
from savepoints.observe.recorder import recorded
from savepoints.operations.begin import batch_size, new_query
from savepoints.operations.begin.new_query import BeginningPlan, Begun, NewQuery
from savepoints.operations.migrate import program_layout
from savepoints.operations.rollback import generation_change, journalled, taking_back
from savepoints.operations.rollback.generation_change import NewCheckpoint
from savepoints.operations.rollback.run_to_point import RestoredQuery
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.write import app_id, owner_prefix
from savepoints.outputs.rewind import rewind
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.runtime.bounded import run_ends, table_ends
from savepoints.runtime.bounded.bounded_run import KafkaEnd
from savepoints.runtime.bounded.bounded_tables import TableEnd
from savepoints.sources.kafka.offsets import count, require_reachable, with_new_partitions
from savepoints.store import bindings
from savepoints.store.batch_log import Recorder
from savepoints.store.locks import lease
from savepoints.store.root import Store
from savepoints.store.savepoint import native
from savepoints.texts import count_text

VERB = "bootstrap"
Outputs = Literal["write", "none"]


@dataclass(frozen=True, kw_only=True)
class BootstrapPlan(BeginningPlan):
    """What `bootstrap` is going to do.

    Attributes:
        ends: Where the run ends: offsets, or the positions of tables, as JSON.
        records: How many records that is; None for tables.
        batch_records: Most records of a source in one batch; None for no limit.
        writes: Whether the batches write to the query's own tables, which have no rows yet;
            otherwise their output is discarded, because the tables already have it.
    """

    ends: str
    records: int | None
    batch_records: int | None
    writes: bool


@dataclass(frozen=True, kw_only=True)
class Bootstrapped(Begun):
    """What a bootstrap did.

    Attributes:
        ends: Where the query continues, as JSON.
        batches: How many batches were run.
        records: How many records they read; None for tables.
    """

    ends: str
    batches: int
    records: int | None


def plan(
    store: Store,
    query: str,
    *,
    until: str,
    batch_records: int | None = None,
    outputs: Outputs = "write",
    forms: Sequence[Form] = FORMS[:1],
    progress: Progress = silent,
) -> BootstrapPlan:
    """Plan to begin a query with the state its program computes from the events so far.

    An interrupted bootstrap with the same arguments is resumed: its own plan is returned.

    Args:
        until: Where it ends and the query continues: `latest`, a time, offsets as JSON or a file of
            them, or `version:N` of a table.
        batch_records: Most records of a source in one batch, instead of the query's
            `max_offsets_per_trigger`.
        outputs: `write` to the query's own tables, which must have no rows; `none` to leave them as
            they are.
        forms: Forms of its first savepoint.

    Raises:
        TargetExistsError: If the query has run, or an output that is to be written has rows.
        NotFoundError: If an output that is not to be written does not exist.
        IncompatibleError: If batches of that size would come to another result than streaming.
        SourceDataGoneError: If neither archive nor Kafka has the events any more.
    """
    batch_size.require_size(batch_records)
    store = store.snapshot()
    command = _command(query, until, batch_records, outputs)
    lease.refuse_held(store.root, query)
    begun = journalled.begun(BootstrapPlan, store, query, VERB, command)
    if begun is not None:
        return begun
    new = new_query.find(store, query, VERB)
    native.refuse_taken(Location.of(new.checkpoint), "")
    tables = new.outputs
    if outputs == "write":
        _refuse_filled(query, tables)
    else:
        for uri in tables.values():
            batch_version.open_table(uri)
    end = run_ends.resolve(store, new.inputs, until)
    operation_id = new_id("op", utc_now())
    if batch_records not in (None, new.bound.max_offsets_per_trigger):
        _require_same_result(store, new, end, operation_id, progress)
    ends, records = _ends(end)
    most = batch_records or new.bound.max_offsets_per_trigger
    first, kept = new_id("sp", utc_now()), tuple(forms)
    return BootstrapPlan(
        verb=VERB,
        query=query,
        steps=(
            Step("checkpoint_written", _what(new, ends, records, most, outputs)),
            *new_query.last_steps(new.generation, first, kept),
        ),
        warnings=_warnings(query, tables, outputs),
        command=command,
        operation_id=operation_id,
        savepoint_id=None,
        generation=new.generation,
        checkpoint=new.checkpoint,
        app=new.bound.app,
        outputs=tables,
        query_id=str(uuid.uuid4()),
        first_savepoint=first,
        forms=kept,
        ends=ends,
        records=records,
        batch_records=most,
        writes=outputs == "write",
    )


@recorded
def execute(plan: BootstrapPlan, store: Store, *, progress: Progress = silent) -> Bootstrapped:
    """Run the batches, begin the generation and take its savepoint, holding the lease.

    Goes on where an earlier attempt was killed, with the batch that was begun.

    Raises:
        StalePlanError: If the query has changed since the plan was made.
        SavepointsError: If the program fails; the command can be run again, or undone.
    """
    started = time.monotonic()

    def refuse_stale() -> None:
        new_query.refuse_changed(plan, store)
        if plan.writes:
            _refuse_filled(plan.query, plan.outputs)

    with lease.hold(store.root, plan.query, VERB) as held:
        log = journalled.begin_or_resume(plan, store, refuse_stale)
        with generation_change.new_generation(
            plan, store, lambda: _run(plan, store, held.check, progress), log, held
        ):
            if not plan.writes:
                ended = position.read(Location.of(plan.checkpoint)).committed or 0
                new_query.take_over_outputs(
                    plan, ended, store.settings, check=held.check, progress=progress
                )
        saved = new_query.save(plan, store, log, "final", check=held.check, progress=progress)
        log.finish()
    return Bootstrapped(
        **{**generation_change.summary(plan, time.monotonic() - started), "savepoint_id": saved.id},
        batch_id=saved.cut.batch_id,
        ends=plan.ends,
        batches=saved.cut.batch_id + 1,
        records=plan.records,
    )


def undo_plan(plan: BootstrapPlan) -> Plan:
    """Say what taking an interrupted bootstrap back would do."""
    written = plan.outputs if plan.writes else {}
    emptied = (
        Step(f"output_{name}", f"delete the rows of {uri} if this operation wrote them")
        for name, uri in written.items()
    )
    return taking_back.undo_plan(plan, emptied)


def undo(plan: BootstrapPlan, store: Store, *, progress: Progress = silent) -> None:
    """Take back what an interrupted bootstrap has made; killed, it is run again."""

    def empty(check: Callable[[], None]) -> None:
        for name, uri in plan.outputs.items() if plan.writes else ():
            check()
            if not new_query.has_rows(uri):
                continue
            progress(f"deleting the rows of {uri}")
            own = app_id(plan.query, name, plan.generation)
            emptied = rewind.plan_empty(name, uri, owner_prefix(plan.query), (), own)
            spark = rewind.session_for([emptied], store.settings)
            rewind.execute(emptied, plan.operation_id, spark)

    taking_back.take_back(plan, store, empty, progress)


def _run(
    plan: BootstrapPlan, store: Store, check: Callable[[], None], progress: Progress
) -> NewCheckpoint:
    """Run the program up to the end in the checkpoint of the generation to be."""
    begun, target = time.monotonic(), Location.of(plan.checkpoint)
    native.claim(target, plan.operation_id)
    settings = bindings.complete(store)
    recorder = Recorder(
        store.root, plan.query, plan.generation, target, retained=settings.spark.retained_batches
    )
    with store.scratch() as scratch, recorder:
        RestoredQuery(
            query=plan.query,
            app=plan.app,
            settings=_bound(plan, settings, scratch),
            generation=plan.generation,
            checkpoint=target,
            store=store,
            progress=progress,
        ).run_to(plan.ends, check=check, committed=recorder.committed)
    read_query_id(target)
    size = sum(info.size for info in target.list())
    return NewCheckpoint(time.monotonic() - begun, size)


def _bound(plan: BootstrapPlan, settings: Settings, scratch: Location) -> Settings:
    """Return settings with the batches and the outputs of a plan."""
    changed: dict[str, object] = {"max_offsets_per_trigger": plan.batch_records}
    if not plan.writes:
        changed["outputs"] = {name: str(scratch / "outputs" / name) for name in plan.outputs}
    bound = settings.queries[plan.query].model_copy(update=changed)
    return settings.model_copy(update={"queries": {**settings.queries, plan.query: bound}})


def _require_same_result(
    store: Store, new: NewQuery, end: KafkaEnd | TableEnd, operation_id: str, progress: Progress
) -> None:
    """Refuse batches of another size than streaming had where they come to another result."""
    from savepoints.spark.session import session
    from savepoints.state.storage import read

    query = new.inputs.app.name
    progress(f"running {new.bound.app} on empty inputs (starts Spark if it is not running)")
    spark = session(new.settings, f"savepoints {VERB} {query}")
    try:
        empty = program_layout.run_empty(read.state_session(spark, 1), store, new.inputs.app)
    except IncompatibleError as error:  # Batches as streaming has them need not be judged.
        error.hint = f"omit --batch-records, so that nothing has to be compared; or {error.hint}"
        raise
    batch_size.require_free(query, empty.operators)
    if isinstance(end, KafkaEnd):
        delays = [timedelta(milliseconds=one) for one in empty.delays_ms]
        batch_size.require_nothing_late(spark, store, new, end, delays, operation_id, progress)


def _ends(end: KafkaEnd | TableEnd) -> tuple[str, int | None]:
    if isinstance(end, TableEnd):
        return table_ends.to_text(end.ends), None
    begin = with_new_partitions({}, end.ranges)
    require_reachable(begin, end.ends, end.ranges)
    return kafka_position(end.ends), count(begin, end.ends)


def _refuse_filled(query: str, tables: Mapping[str, str]) -> None:
    """Refuse to write to tables that have rows, which nobody could tell from the query's."""
    for name, uri in tables.items():
        if new_query.has_rows(uri):
            raise TargetExistsError(
                f"the output {name} of {query} already has rows: {uri}",
                hint="pass --outputs none if these are the rows that the query would have "
                "written up to --until; otherwise name another table in the settings: "
                f'[queries.{query}.outputs] {name} = "s3://…"',
                query=query,
                uri=uri,
            )


def _command(query: str, until: str, batch_records: int | None, outputs: Outputs) -> str:
    words = ["savepoints", VERB, query, "--until", until]
    if batch_records is not None:
        words += ["--batch-records", str(batch_records)]
    if outputs != "write":
        words += ["--outputs", outputs]
    return shlex.join([*words, "--yes"])


def _what(new: NewQuery, ends: str, records: int | None, most: int | None, outputs: Outputs) -> str:
    size = f" in batches of at most {most}" if most else ""
    read = (
        f"{count_text(records, 'record')}{size}"
        if records is not None
        else "the tables that it reads"
    )
    into = "discard its output" if outputs == "none" else "fill its output tables"
    return (
        f"run {new.bound.app} over {read}, up to exactly {ends}, with the checkpoint "
        f"{new.checkpoint}, and {into}"
    )


def _warnings(query: str, tables: Mapping[str, str], outputs: Outputs) -> tuple[str, ...]:
    if outputs == "write":
        return ()
    listed = ", ".join(tables.values())
    note = f"{listed} must already contain everything that {query} writes up to that point"
    return (f"{note}: it will not be written",)
