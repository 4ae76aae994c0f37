"""Whether what runs a checkpoint on fits to it: the program, and the topics it reads.

Both go wrong without any error of Spark's: a state whose fields changed places, and offsets of a
topic that was deleted and recreated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import final

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import committed_in
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.state import avro, layout
from savepoints.checkpoint.state.layout import Layout
from savepoints.config.settings import KafkaSettings
from savepoints.errors import EnvironmentUnfitError, SavepointNotFoundError
from savepoints.io import Location
from savepoints.model import Generation, Savepoint
from savepoints.plan import Progress, silent
from savepoints.runtime.app import App
from savepoints.runtime.runner import Runner
from savepoints.sources.combined import availability
from savepoints.store import checked_programs, lineage
from savepoints.store.root import Store


def origin(store: Store, generation: Generation) -> Savepoint | None:
    """Return the savepoint that a generation began from, None for a fresh start."""
    if generation.begun_from is None:
        return None
    return store.manifest(generation.begun_from).savepoint


def is_restored(generation: Generation, begun_from: Savepoint) -> bool:
    """Say whether a generation has run no batch since it began from a savepoint."""
    newest = committed_in(Location.of(generation.checkpoint))[-1:]
    return newest == [begun_from.cut.batch_id]


@final
class ProgramLayout:
    """The state layout of the program that a run goes on with, found out once.

    It takes a run on empty inputs, some seconds, and depends on no checkpoint: so a run that is
    paused finds it out while it waits, and resumes at once in whatever generation there is then.
    """

    def __init__(self, store: Store, progress: Progress = silent) -> None:
        """Begin without a program."""
        self._store = store
        self._progress = progress
        self._runner: Runner | None = None
        self._known: tuple[App, Layout] | None = None

    def require(self, runner: Runner, app: str, origin: str | None) -> None:
        """Compare the layout of a runner's program with that of its checkpoint.

        Args:
            origin: Id of the savepoint that the checkpoint began from, None without one.

        Raises:
            LayoutChangedError: If fields of the state have other names or types in the program, or
                are more or fewer.
        """
        saved = layout.read(runner.checkpoint)
        if not saved:
            return
        self._progress(f"comparing {app} with the state that it continues")
        now = self._of(runner)
        if avro.is_used(_conf(runner.checkpoint)):
            saved = layout.as_read(saved, now, app)
        layout.require_types(
            saved, now, app, savepoint=lambda: self._newest(runner.query) or origin or "ID"
        )
        layout.require_names(saved, now, app)

    def require_once(
        self, runner: Runner, app: str, origin: str | None, *, accept_names: bool = False
    ) -> None:
        """Compare it unless this very program is known to fit the state of the generation.

        What runs is known from then on, also to merges: so it is called before each batch that
        becomes one of a generation, even of one that has not begun yet.

        Args:
            origin: Id of the savepoint that the generation began from, None without one.
            accept_names: Take what other names a program has as meant, from now on.

        Raises:
            LayoutChangedError: See `require`.
        """
        place = (self._store.root, runner.query, runner.generation)
        if not runner.declares_variables and runner.plan == checked_programs.find(*place):
            return
        if not accept_names:
            self.require(runner, app, origin)
        first_batch = max(committed_in(runner.checkpoint), default=-1) + 1
        checked_programs.write(*place, runner.plan, first_batch=first_batch)

    def _newest(self, query: str) -> str | None:
        """Return the newest savepoint of a query, None without one."""
        try:
            return self._store.catalog.find("latest", query=query).id
        except SavepointNotFoundError:
            return None

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


def _conf(checkpoint: Location) -> Mapping[str, str]:
    """Return the settings that the newest batch of a checkpoint ran with; none without one."""
    for newest in committed_in(checkpoint)[-1:]:
        return offset_log.read(checkpoint, newest).conf
    return {}


def _way_on(query: str) -> str:
    """Say how a query goes on with a topic that was recreated, also if it has read of it already.

    Spark reads on there where it is told to overlook losses, or has not looked in between.
    """
    return (
        f"go on with the new topic and the state that {query} has: savepoints reset {query} "
        "--to-earliest --state keep --allow-data-loss; if it has read the new topic already, "
        "replace --to-earliest with --from-file FILE, which has the offsets that it has reached "
        "there (a line each: topic,partition,offset)"
    )


def require_same_topics(
    store: Store,
    generation: Generation,
    settings: KafkaSettings,
    progress: Progress,
    archives: Collection[str] = (),
    *,
    has_all: bool = True,
) -> None:
    """Check that the topics are still those whose offsets a generation has, as far as is known.

    Args:
        has_all: Check, too, that all records from there on can still be read.
    """
    known = lineage.topic_ids(store, generation)
    if not known:
        return
    try:
        availability.require_same(known, settings, hint=_way_on(generation.query))
        if has_all:
            now = position.read(Location.of(generation.checkpoint))
            availability.require_available(now.positions, settings, archives=archives)
    except EnvironmentUnfitError as error:
        progress(f"could not check whether topics were recreated: {error.message}")
