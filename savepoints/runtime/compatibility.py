"""Whether what runs a restored checkpoint on fits to it: the program, and the topics it reads.

Both go wrong without any error of Spark's: a state whose fields changed places, and offsets of a
topic that was deleted and recreated.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import final

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import committed_batches
from savepoints.checkpoint.state import layout
from savepoints.checkpoint.state.layout import Layout
from savepoints.config.settings import KafkaSettings
from savepoints.errors import EnvironmentUnfitError
from savepoints.io import Location
from savepoints.model import Generation, Savepoint
from savepoints.plan import Progress
from savepoints.runtime.app import App
from savepoints.runtime.runner import Runner
from savepoints.sources.combined import availability
from savepoints.store.root import Store

# It keeps the state, and chooses the offsets by itself.
_CHOOSES_OFFSETS = "reset"
# Its batch 0 is rows that somebody gave.
_SEEDED = "seed"


def origin(store: Store, generation: Generation) -> Savepoint | None:
    """Return the savepoint that a generation began from, None for a fresh start."""
    if generation.begun_from is None:
        return None
    return store.manifest(generation.begun_from).savepoint


def is_restored(generation: Generation, begun_from: Savepoint) -> bool:
    """Say whether a generation has run no batch since it began from a savepoint."""
    newest = committed_batches(Location.of(generation.checkpoint).list())[-1:]
    return newest == [begun_from.cut.batch_id]


def is_seeded(generation: Generation) -> bool:
    """Say whether a generation has run no batch since it was given rows of state."""
    newest = committed_batches(Location.of(generation.checkpoint).list())[-1:]
    return generation.begun_by == _SEEDED and newest == [0]


def require_layout(store: Store, runner: Runner, checkpoint: Location, app: str) -> None:
    """Compare the program's state layout with that of a checkpoint, on empty inputs, by name."""
    ProgramLayout(store).require(runner, checkpoint, app)


@final
class ProgramLayout:
    """The state layout of the program that a run goes on with, found out once.

    It takes a run on empty inputs, some seconds, and depends on no checkpoint: so a run that is
    paused finds it out while it waits, and resumes at once in whatever generation there is then.
    """

    def __init__(self, store: Store) -> None:
        """Begin without a program."""
        self._store = store
        self._runner: Runner | None = None
        self._known: tuple[App, Layout] | None = None

    def require(self, runner: Runner, checkpoint: Location, app: str) -> None:
        """Compare the layout of a runner's program with that of a checkpoint.

        Raises:
            LayoutChangedError: If fields of the state have other names or types in the program, or
                are more or fewer.
        """
        restored, now = layout.read(checkpoint), self._of(runner)
        layout.require_types(restored, now, app)
        layout.require_names(restored, now, app)

    def keep(self, runner: Runner) -> None:
        """Remember what runs, for `find_ahead`."""
        self._runner = runner

    def find_ahead(self) -> None:
        """Find out the layout of what ran last; where that fails, `require` will tell."""
        if self._runner is not None:
            # Whatever it is, a query that is paused must not end for it.
            with suppress(Exception):
                self._of(self._runner)

    def _of(self, runner: Runner) -> Layout:
        if self._known is None or self._known[0] != runner.app:
            with self._store.scratch() as scratch:
                runner.run_on_nothing(scratch)
                self._known = runner.app, layout.read(scratch / "checkpoint")
        return self._known[1]


def require_same_topics(
    generation: Generation,
    begun_from: Savepoint,
    settings: KafkaSettings,
    progress: Progress,
    archives: Collection[str] = (),
) -> None:
    """Check that the topics are still those whose offsets a generation began with."""
    if generation.begun_by == _CHOOSES_OFFSETS or not begun_from.topics:
        return
    now = position.read(Location.of(generation.checkpoint))
    try:
        availability.require_available(
            now.positions, settings, topics=begun_from.topics, archives=archives
        )
    except EnvironmentUnfitError as error:
        progress(f"could not check whether topics were recreated: {error.message}")
