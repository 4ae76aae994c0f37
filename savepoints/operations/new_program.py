"""The state layout of a changed program, found by running it on empty inputs; no event is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from savepoints import app as apps
from savepoints.app import App, KeyMigration, ValueMigration
from savepoints.checkpoint import program
from savepoints.checkpoint.families import Functions
from savepoints.checkpoint.offset_log import CHECKPOINT_FORMAT_KEY, PARTITIONS_KEY, PROVIDER_KEY
from savepoints.checkpoint.operators import is_metadata
from savepoints.checkpoint.program import OperatorShape
from savepoints.config import Settings
from savepoints.io import in_parallel
from savepoints.model import Savepoint
from savepoints.operations.plan import Progress
from savepoints.runner import run_on_nothing
from savepoints.store.root import Store

_SCHEMA = re.compile(r"^state/\d+/(?:0/(?:[^/_][^/]*/)?_metadata/schema|_stateSchema/.+)$")


@dataclass(frozen=True)
class NewProgram:
    """A program, and what its state looks like.

    Attributes:
        reference: `package.module:attribute`.
        app: The program.
        operators: Its stateful operators, from the sink.
        files: Metadata and schemas of its state, by path in a checkpoint.
        topics: The topics that it reads.
        notes: What its settings say that a restored query does not go by.
    """

    reference: str
    app: App
    operators: tuple[OperatorShape, ...]
    files: Mapping[str, bytes]
    topics: frozenset[str]
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


def find_out(
    store: Store, savepoint: Savepoint, reference: str, settings: Settings, progress: Progress
) -> NewProgram:
    """Run a program on empty inputs, with the settings that a restored query will have.

    Raises:
        UsageError: If it cannot be imported.
        SavepointsError: If it fails.
    """
    from savepoints.spark import session
    from savepoints.state import raw, starts

    app = apps.load(reference)
    progress(f"running {reference} on empty inputs (starts Spark if it does not run yet)")
    spark = session(settings, f"savepoints upgrade {app.name}")
    own = raw.state_session(spark, savepoint.cut.checkpoint_format)
    notes = _notes(savepoint, spark.conf.get(PARTITIONS_KEY), spark.conf.get(PROVIDER_KEY))
    # The layout is the same for any number of partitions.
    for key, value in {**savepoint.settings, PARTITIONS_KEY: "1"}.items():
        own.conf.set(key, value)
    own.conf.set(CHECKPOINT_FORMAT_KEY, str(savepoint.cut.checkpoint_format))
    with store.scratch() as scratch:
        begins = starts.of(run_on_nothing(own, app, scratch))
        made = scratch / "checkpoint"
        found = program.read(made, savepoint.settings)
        paths = [
            info.path
            for info in made.list("state")
            if is_metadata(info.path) or _SCHEMA.match(info.path)
        ]
        files = dict(zip(paths, in_parallel(made.get, paths), strict=True))
    bound = settings.queries.get(app.name)
    topics = {
        bound.topics.get(name, one.topic) if bound else one.topic
        for name, one in app.inputs.items()
    }
    operators = tuple(replace(one, starts=begins.get(one.operator_id)) for one in found)
    return NewProgram(reference, app, operators, files, frozenset(topics), notes)


def _notes(savepoint: Savepoint, partitions: str | None, provider: str | None) -> tuple[str, ...]:
    """Say where a restored query goes by the savepoint and not by the session."""
    found = []
    cut = savepoint.cut
    if cut.partitions is not None and partitions != str(cut.partitions):
        found.append(
            f"the settings say {partitions} state partitions; a restored query keeps the "
            f"{cut.partitions} of the savepoint, unless it is restored with --partitions"
        )
    if savepoint.operators and provider != cut.provider:
        found.append(
            f"the settings say {_short(provider)}; a restored query keeps {_short(cut.provider)}, "
            "unless it is restored with --provider"
        )
    return tuple(found)


def _short(provider: str | None) -> str:
    return (provider or "").rpartition(".")[2]
