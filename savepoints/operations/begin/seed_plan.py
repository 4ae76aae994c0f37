"""What a seed is going to do, found out from the program and the rows; nothing is written."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.kafka_position import kafka_position
from savepoints.checkpoint.logs.offset_log import (
    CHECKPOINT_FORMAT_KEY,
    PARTITIONS_KEY,
    PROVIDER_KEY,
)
from savepoints.checkpoint.state.operators import (
    ENCODING_KEY,
    ROCKSDB_PROVIDER,
    UNSAFE_ROW,
    is_metadata,
)
from savepoints.errors import IncompatibleError, NativeOnlyError, UsageError
from savepoints.io import Location
from savepoints.model import FORMS, Form, new_id
from savepoints.moments import epoch_ms, rfc3339, utc_now
from savepoints.operations.begin import given_tables, new_query
from savepoints.operations.begin.given_tables import GivenTable
from savepoints.operations.begin.new_query import BeginningPlan, NewQuery
from savepoints.operations.migrate import program_layout
from savepoints.operations.migrate.program_layout import EmptyRun
from savepoints.operations.rollback import journalled
from savepoints.plan import Progress, Step, silent
from savepoints.runtime.bounded import run_ends
from savepoints.runtime.bounded.bounded_run import KafkaEnd
from savepoints.sources.combined import availability
from savepoints.spark.versions import SparkVersion
from savepoints.state.seed import given, visible
from savepoints.state.seed.visible import Visible
from savepoints.state.typed import typed
from savepoints.store.locks import lease
from savepoints.store.root import Store
from savepoints.store.savepoint import native
from savepoints.texts import count_text
from savepoints.uri import spelled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERB = "seed"
BATCH = 0
_EPOCH_MS = 0
_EVENT_TIME = "EventTime"


@dataclass(frozen=True, kw_only=True)
class SeedPlan(BeginningPlan):
    """What `seed` is going to do.

    Attributes:
        tables: Where the rows of each state are.
        columns: The columns of each state, by its name.
        positions: Where each source of the program continues, as Spark's JSON.
        watermark_ms: The watermark that the query continues with, milliseconds since 1970; 0 for a
            program without one.
        partitions: Number of state partitions.
        provider: Class of the state store provider.
        checkpoint_format: Of the state stores.
    """

    tables: tuple[GivenTable, ...]
    columns: dict[str, tuple[str, ...]]
    positions: tuple[str, ...]
    watermark_ms: int
    partitions: int
    provider: str
    checkpoint_format: int

    @property
    def rows(self) -> int:
        """How many rows of state are given."""
        return sum(one.rows for one in self.tables)


@dataclass(frozen=True)
class SeededProgram:
    """A program, in a session with the settings that it will run with.

    Attributes:
        empty: What a batch without events left of it.
        visible: The columns of its states.
    """

    session: SparkSession
    empty: EmptyRun
    visible: tuple[Visible, ...]

    @property
    def conf(self) -> Mapping[str, str]:
        """The settings that are kept with the query."""
        return offset_log.parse(self.empty.offsets, f"offsets/{BATCH}").conf


def plan(
    store: Store,
    query: str,
    rows: str | Mapping[str, str] | Sequence[tuple[str, str]],
    *,
    until: str,
    watermark: datetime | None = None,
    forms: Sequence[Form] = FORMS[:1],
    progress: Progress = silent,
) -> SeedPlan:
    """Check rows of state against a program, and plan a query that begins with them.

    An interrupted seed with the same arguments is resumed: its own plan is returned.

    Args:
        rows: A Delta table or Parquet files with the rows of the program's state, in the columns in
            which `savepoints state` shows it. By name, where the program has several: operator and
            variable (`0.left`), or one of them where that is clear; `none` for no rows.
        until: Up to where the rows were computed, so where the query continues: offsets as JSON or
            the path of a file of them, a time, `latest`, or `version:N` of a table that it reads.
        watermark: The watermark to continue with: the newest event time before there, less the
            delay.
        forms: Forms of its first savepoint.

    Raises:
        TargetExistsError: If the query has run, or its checkpoint directory is not empty.
        SeedRowsError: If rows have nulls where the state allows none, or are of one key.
        IncompatibleError: If columns or types differ, or Spark cannot write the state of an
            operator, or the state store of the program.
        UsageError: If a watermark is missing, or rows for a state.
        SourceDataGoneError: If the records that come next are gone.
    """
    store = store.snapshot()
    named = _named(rows)
    command = _command(query, named, until, watermark)
    lease.refuse_held(store.root, query)
    begun = journalled.begun(SeedPlan, store, query, VERB, command)
    if begun is not None:
        return begun
    new = new_query.find(store, query, VERB)
    native.refuse_taken(Location.of(new.checkpoint), "")
    positions_by_input = _positions(store, new, until)
    program = find_program(store, new, progress)
    _require_seedable(program)
    watermark_ms = _watermark(query, program.empty, watermark)
    tables = given_tables.assigned(named, program.visible)
    checked = tuple(_counted(one, program, watermark_ms, progress) for one in tables)
    partitions, provider, checkpoint_format = settings_of(program)
    first, kept = new_id("sp", utc_now()), tuple(forms)
    positions = tuple(positions_by_input[name] for name in program.empty.inputs)
    made = SeedPlan(
        verb=VERB,
        query=query,
        steps=(),
        warnings=_warnings(new, watermark_ms),
        command=command,
        operation_id=new_id("op", utc_now()),
        savepoint_id=None,
        generation=new.generation,
        checkpoint=new.checkpoint,
        app=new.bound.app,
        outputs=new.outputs,
        query_id=str(uuid.uuid4()),
        first_savepoint=first,
        forms=kept,
        tables=checked,
        columns={given_tables.name_of(one): one.columns for one in program.visible},
        positions=positions,
        watermark_ms=watermark_ms,
        partitions=partitions,
        provider=provider,
        checkpoint_format=checkpoint_format,
    )
    return replace(made, steps=_steps(made))


def find_program(store: Store, new: NewQuery, progress: Progress) -> SeededProgram:
    """Run a program on empty inputs, with the settings that the query will run with."""
    from savepoints.spark.session import session
    from savepoints.state.storage import read

    installed = SparkVersion.installed()
    if installed is not None and not installed.reads_rows:
        raise program_layout.not_described(new.inputs.app)
    progress(f"running {new.bound.app} on empty inputs (starts Spark if it is not running)")
    spark = session(new.settings, f"savepoints {VERB} {new.inputs.app.name}")
    own = read.state_session(spark, int(str(spark.conf.get(CHECKPOINT_FORMAT_KEY))))
    for key, value in spark.conf.getAll.items():
        if key.startswith("spark.sql.") and spark.conf.isModifiable(key):
            own.conf.set(key, value)
    # What a program keeps is laid out alike for any number of partitions, and one is empty soonest.
    own.conf.set(PARTITIONS_KEY, "1")
    empty = program_layout.run_empty(own, store, new.inputs.app)
    own.conf.set(PARTITIONS_KEY, str(spark.conf.get(PARTITIONS_KEY)))
    conf = offset_log.parse(empty.offsets, f"offsets/{BATCH}").conf
    shapes = {one.operator_id: one for one in empty.operators}
    known = [
        visible.of(one, shapes[one.operator_id])
        for path, data in sorted(empty.files.items())
        if is_metadata(path)
        for one in typed.variables(data, path, conf)
        if one.kind != "store" and shapes[one.operator_id].native_only is None
    ]
    return SeededProgram(own, empty, tuple(known))


def settings_of(program: SeededProgram) -> tuple[int, str, int]:
    """Return the number of state partitions, the provider and the checkpoint format."""
    conf = program.session.conf
    return (
        int(str(conf.get(PARTITIONS_KEY))),
        str(conf.get(PROVIDER_KEY)),
        int(str(conf.get(CHECKPOINT_FORMAT_KEY))),
    )


def _named(rows: str | Mapping[str, str] | Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    if isinstance(rows, str):
        return [("", rows)]
    return list(rows.items()) if isinstance(rows, Mapping) else list(rows)


def _command(
    query: str, rows: Sequence[tuple[str, str]], until: str, watermark: datetime | None
) -> str:
    words = ["savepoints", VERB, query]
    for name, place in rows:
        words += ["--from", f"{name}={place}" if name else place]
    words += ["--until", until]
    if watermark is not None:
        words += ["--watermark", rfc3339(watermark)]
    return shlex.join([*words, "--yes"])


def _positions(store: Store, new: NewQuery, until: str) -> dict[str, str]:
    """Return where each input goes on, as Spark's JSON."""
    end = run_ends.resolve(store, new.inputs, until)
    if isinstance(end, KafkaEnd):
        topics = {name: new.inputs.topic(name) for name in new.inputs.app.inputs}
        found = {name: kafka_position({one: end.ends[one]}) for name, one in topics.items()}
        availability.require_available(
            tuple(found.values()), new.settings.kafka, archives=new.inputs.archives
        )
        return found
    by_uri = {one.uri: end.ends[one.table_id].text for one in end.tables}
    return {name: by_uri[spelled(new.inputs.table(name))] for name in new.inputs.app.inputs}


def _require_seedable(program: SeededProgram) -> None:
    if not program.empty.operators:
        raise UsageError(
            "the program keeps no state, so there is nothing to seed",
            hint="run it instead: savepoints run QUERY",
        )
    for one in program.empty.operators:
        if one.native_only:
            raise NativeOnlyError(
                f"the state of {one} cannot be built from rows: {one.native_only}",
                hint="compute the state from the query's input events instead: savepoints "
                "bootstrap QUERY",
                operator_id=one.operator_id,
            )
    _, provider, _ = settings_of(program)
    version = SparkVersion.of(program.session.version)
    if provider == ROCKSDB_PROVIDER and not version.writes_rows:
        raise NativeOnlyError(
            f"Spark {version} cannot write state rows to RocksDB, so no state can be built from "
            "rows here",
            hint="run the command where Spark 4.2 is installed; or let the program compute the "
            f"state: savepoints bootstrap QUERY; or keep the state in Spark's default store: "
            f"remove {PROVIDER_KEY} from [spark.conf]",
        )
    encoding = program.conf.get(ENCODING_KEY, UNSAFE_ROW)
    if encoding != UNSAFE_ROW:
        raise IncompatibleError(
            f"the state is encoded as {encoding}, but rows can be written only as {UNSAFE_ROW}",
            hint=f"remove {ENCODING_KEY} from [spark.conf], or let the program compute the "
            "state: savepoints bootstrap QUERY",
        )


def _watermark(query: str, empty: EmptyRun, watermark: datetime | None) -> int:
    if watermark is not None and not empty.delays_ms:
        raise UsageError(f"{query} has no watermark", hint="omit --watermark", query=query)
    if watermark is None and empty.delays_ms:
        raise UsageError(
            f"{query} has a watermark, whose current value cannot be derived from state rows",
            hint="pass it with --watermark TIME: the latest event time included in the rows, "
            "minus the delay given to withWatermark",
            query=query,
        )
    return _EPOCH_MS if watermark is None else epoch_ms(watermark)


def _counted(
    table: GivenTable, program: SeededProgram, watermark_ms: int, progress: Progress
) -> GivenTable:
    """Check the rows of a table, and count them."""
    if table.place is None:
        return table
    progress(f"checking the rows in {table.place}")
    known = next(
        one
        for one in program.visible
        if (one.variable.operator_id, one.variable.name) == (table.operator_id, table.variable)
    )
    bound = given.bound(table.read(program.session, known), known)
    operator = shapes(program.empty)[table.operator_id]
    timers = known.variable.kind == "timers"
    by_event_time = timers and operator.properties["timeMode"] == _EVENT_TIME
    rows = given.checked(bound, known, watermark_ms if by_event_time else None)
    return replace(table, rows=rows)


def _warnings(new: NewQuery, watermark_ms: int) -> tuple[str, ...]:
    outputs = ", ".join(new.outputs.values())
    note = f"no rows are written to {outputs}: write the earlier results there yourself"
    found = [f"{note}; a table that has rows gets an empty commit, which records the first batch"]
    if watermark_ms:
        found.append(
            "given rows that the watermark has already passed stay in the state until the first "
            "batch that moves the watermark, which writes them to the outputs and removes them"
        )
    return tuple(found)


def _steps(plan: SeedPlan) -> tuple[Step, ...]:
    given_rows = "; ".join(
        f"{count_text(one.rows, 'row')} of {one.name} from {one.place}"
        if one.place
        else f"no rows of {one.name}"
        for one in plan.tables
    )
    return (
        Step(
            "checkpoint_written",
            f"write {given_rows} to {plan.checkpoint} as the state of batch {BATCH} "
            f"({plan.partitions} partitions, {plan.provider.rpartition('.')[2]}), and continue at "
            f"{'; '.join(plan.positions)}",
        ),
        *new_query.last_steps(plan.generation, plan.first_savepoint, plan.forms),
    )


def shapes(empty: EmptyRun) -> dict[int, OperatorShape]:
    """Return the operators of a program by number."""
    return {one.operator_id: one for one in empty.operators}
