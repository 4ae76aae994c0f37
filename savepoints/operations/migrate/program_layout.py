"""The state layout of a changed program, found by running it on empty inputs; no event is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from savepoints.checkpoint.evolution import program_layout
from savepoints.checkpoint.evolution.operator_pairs import Functions
from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.offset_log import (
    CHECKPOINT_FORMAT_KEY,
    PARTITIONS_KEY,
    PROVIDER_KEY,
)
from savepoints.checkpoint.state import layout as state_layout
from savepoints.checkpoint.state.operators import PROVIDERS, is_metadata
from savepoints.config.settings import Settings
from savepoints.errors import IncompatibleError
from savepoints.io import Location, in_parallel
from savepoints.model import Provider, Savepoint
from savepoints.plan import Progress
from savepoints.runtime import app as apps
from savepoints.runtime.app import App, KeyMigration, ValueMigration
from savepoints.runtime.runner import run_on_nothing
from savepoints.runtime.scratch_query import inputs_in_order
from savepoints.spark.versions import SparkVersion
from savepoints.store.root import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA = re.compile(r"^state/\d+/(?:0/(?:[^/_][^/]*/)?_metadata/schema|_stateSchema/.+)$")


@dataclass(frozen=True)
class NewProgram:
    """A program, and what its state looks like.

    Attributes:
        files: Metadata and schemas of its state, by path in a checkpoint.
        outputs: The columns of each output, as Spark's JSON of a row type.
        notes: What its settings say that a restored query does not go by.
    """

    reference: str
    app: App
    operators: tuple[OperatorShape, ...]
    files: Mapping[str, bytes]
    topics: tuple[str, ...]
    outputs: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def values(self) -> dict[str, ValueMigration]:
        """Its functions for values."""
        return {
            name: one for name, one in self.app.migrate.items() if not isinstance(one, KeyMigration)
        }

    @property
    def keys(self) -> dict[str, KeyMigration]:
        """Its functions for keys."""
        return {
            name: one for name, one in self.app.migrate.items() if isinstance(one, KeyMigration)
        }

    @property
    def functions(self) -> Functions:
        """The names of its functions."""
        merging = {name: one.merge is not None for name, one in self.keys.items()}
        return Functions(frozenset(self.values), merging)


@dataclass(frozen=True)
class EmptyRun:
    """What a batch without events left of a program.

    Attributes:
        files: Metadata and schemas of its state, by path in a checkpoint.
        inputs: Its inputs, in the order of Spark's sources.
        offsets: The file of the offset log, which has the settings of the query.
        commit: The file of the commit log.
        delays_ms: The delays of its event-time watermarks, in milliseconds.
        result: The columns that it writes, as Spark's JSON of their type.
    """

    operators: tuple[OperatorShape, ...]
    files: Mapping[str, bytes]
    inputs: tuple[str, ...]
    offsets: bytes
    commit: bytes
    delays_ms: tuple[int, ...]
    result: str


def find_out(
    store: Store,
    savepoint: Savepoint,
    reference: str,
    settings: Settings,
    progress: Progress,
    provider: Provider | None,
) -> NewProgram:
    """Run a program on empty inputs, with the settings that a restored query will have."""
    from savepoints.spark.session import session
    from savepoints.state.storage import read as storage_read

    app = apps.load(reference)
    progress(f"running {reference} on empty inputs (starts Spark if it is not running)")
    spark = session(settings, f"savepoints upgrade {app.name}")
    own = storage_read.state_session(spark, savepoint.cut.checkpoint_format)
    notes = _notes(savepoint, spark.conf.get(PARTITIONS_KEY), spark.conf.get(PROVIDER_KEY))
    # The layout is the same for any number of partitions.
    conf = {**savepoint.settings, PARTITIONS_KEY: "1"}
    if provider is not None:
        conf[PROVIDER_KEY] = PROVIDERS[provider]
    for key, value in conf.items():
        own.conf.set(key, value)
    own.conf.set(CHECKPOINT_FORMAT_KEY, str(savepoint.cut.checkpoint_format))
    found = run_empty(own, store, app)
    bound = settings.queries.get(app.name)
    named = bound.topics if bound else {}
    topics = tuple(
        named.get(name, app.kafka_input(name).topic)
        for name in found.inputs
        if name not in app.table_inputs
    )
    outputs = {
        name: one.selection.type_of(found.result, name, spark) for name, one in app.outputs.items()
    }
    return NewProgram(reference, app, found.operators, found.files, topics, outputs, notes)


def run_empty(own: SparkSession, store: Store, app: App) -> EmptyRun:
    """Run a program once on empty inputs, in a session that has the settings of the query.

    Raises:
        IncompatibleError: If it keeps state that this version of Spark does not describe.
    """
    from savepoints.spark import private_api
    from savepoints.state import executed_plan

    with store.scratch() as scratch:
        query = run_on_nothing(own, app, scratch)
        begins = executed_plan.initial_buffers(query)
        delays, result = executed_plan.watermark_delays_ms(query), private_api.result_schema(query)
        made = scratch / "checkpoint"
        offsets, commit = made.get("offsets/0"), made.get("commits/0")
        conf = offset_log.parse(offsets, "offsets/0").conf
        found = program_layout.read(made, conf)
        _require_described(app, found, made)
        paths = [
            info.path
            for info in made.list("state")
            if is_metadata(info.path) or _SCHEMA.match(info.path)
        ]
        files = dict(zip(paths, in_parallel(made.get, paths), strict=True))
        inputs = tuple(inputs_in_order(made))
    operators = tuple(replace(one, starts=begins.get(one.operator_id)) for one in found)
    return EmptyRun(operators, files, inputs, offsets, commit, delays, result)


def _require_described(app: App, operators: Sequence[OperatorShape], made: Location) -> None:
    """Refuse a program whose state Spark has not described: it would pass for one without any."""
    if not operators and state_layout.read(made):
        raise not_described(app)


def not_described(app: App) -> IncompatibleError:
    """Return the refusal of a Spark that does not describe the state of programs."""
    return IncompatibleError(
        f"Spark {SparkVersion.installed()} does not describe the state of a program, so it is not "
        f"known what {app.name} keeps",
        hint="run the command where Spark 4.0 or newer is installed",
        query=app.name,
    )


def _notes(savepoint: Savepoint, partitions: str | None, provider: str | None) -> tuple[str, ...]:
    """Describe settings that a restored query takes from the savepoint, not from the session."""
    found = []
    cut = savepoint.cut
    if cut.partitions is not None and partitions != str(cut.partitions):
        found.append(
            f"the settings have {partitions} state partitions, but a restored query keeps the "
            f"{cut.partitions} of the savepoint unless restored with --partitions"
        )
    if savepoint.operators and provider != cut.provider:
        found.append(
            f"the settings have {_short(provider)}, but a restored query keeps "
            f"{_short(cut.provider)} unless restored with --provider"
        )
    return tuple(found)


def _short(provider: str | None) -> str:
    return (provider or "").rpartition(".")[2]
