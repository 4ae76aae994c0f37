"""The public handles: a store, its queries and its savepoints, with the verbs as methods.

What reads returns values at once. What changes something returns a `BoundPlan`: print it, or
execute it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from savepoints.bound_plan import BoundPlan, Context, calls, calls_about, named, plans, plans_about
from savepoints.model import Form, Generation, Savepoint
from savepoints.operations.begin import bootstrap as _bootstrap
from savepoints.operations.begin import seed as _seed
from savepoints.operations.begin import seed_plan as _seed_plan
from savepoints.operations.cascade import cascade as _cascade
from savepoints.operations.cascade import on_schedule as _on_schedule
from savepoints.operations.cascade.cascade import Downstream, MergedThrough
from savepoints.operations.check import check as _check
from savepoints.operations.fork import compare as _compare
from savepoints.operations.fork import fork as _fork
from savepoints.operations.fork import fork_plan as _fork_plan
from savepoints.operations.fork import promote as _promote
from savepoints.operations.fork import promote_plan as _promote_plan
from savepoints.operations.fork.compare_savepoints import SAMPLE
from savepoints.operations.fork.fork import Forked
from savepoints.operations.fork.fork_plan import ForkOptions, ForksPlan
from savepoints.operations.fork.verdict import Comparison
from savepoints.operations.inspect import diff as _diff
from savepoints.operations.inspect import drill as _drill
from savepoints.operations.inspect import estimate as _estimate
from savepoints.operations.inspect import lineage as _lineage
from savepoints.operations.inspect import locate as _locate
from savepoints.operations.inspect import read_state as _read_state
from savepoints.operations.inspect import topology as _topology
from savepoints.operations.inspect import verify as _verify
from savepoints.operations.maintain import copy as _copy
from savepoints.operations.maintain import expire as _expire
from savepoints.operations.maintain import gc as _gc
from savepoints.operations.maintain import rebuild_catalog as _rebuild_catalog
from savepoints.operations.maintain import rename as _rename
from savepoints.operations.maintain import tag as _tag
from savepoints.operations.merge import late as _late
from savepoints.operations.merge import merge as _merge
from savepoints.operations.merge.plan import MergePlan
from savepoints.operations.merge.prepare import MergeRequest
from savepoints.operations.merge.result import Merged
from savepoints.operations.migrate import edit as _edit
from savepoints.operations.migrate import migrate as _migrate
from savepoints.operations.migrate import upgrade_check as _upgrade_check
from savepoints.operations.migrate.migrate import MigrationOptions
from savepoints.operations.pipeline import end as _end
from savepoints.operations.pipeline import group_savepoint as _group_savepoint
from savepoints.operations.pipeline import groups as _groups
from savepoints.operations.pipeline import periodic_groups as _periodic_groups
from savepoints.operations.pipeline import pipeline as _pipeline
from savepoints.operations.pipeline_fork import pipeline_compare as _pipeline_compare
from savepoints.operations.pipeline_fork import pipeline_fork as _pipeline_fork
from savepoints.operations.pipeline_fork import pipeline_fork_plan as _pipeline_fork_plan
from savepoints.operations.pipeline_fork import pipeline_promote as _pipeline_promote
from savepoints.operations.pipeline_rollback import pipeline_rollback as _pipeline_rollback
from savepoints.operations.pipeline_rollback import rollback_plan as _rollback_plan
from savepoints.operations.rollback import reset as _reset
from savepoints.operations.rollback import restore_point as _restore_point
from savepoints.operations.rollback import rollback as _rollback
from savepoints.operations.run import pause as _pause
from savepoints.operations.savepoint import create as _create
from savepoints.operations.savepoint import export as _export
from savepoints.operations.savepoint import restore as _restore
from savepoints.outputs.fork.isolated_copy import CopyMode
from savepoints.plan import Progress, silent
from savepoints.state.change.edit import StateEdit
from savepoints.store import root
from savepoints.store.tables import catalog
from savepoints.store.tables.merge_ledger import MergePolicy
from savepoints.ui import page as _page
from savepoints.uri import Uri, written


@named()
@dataclass(frozen=True)
class Store(root.Store):
    """The place where savepoints live: `s3://bucket/prefix` or a local directory.

    `Store.open(uri)` opens one; `Store.at(uri).make()` also makes it when it is not there. Each
    method looks at the store as it is now, and reads each of its tables once.

    Attributes:
        root: Where it is.
        any_line: Whether `latest` and `@TIME` also find savepoints that were rolled back.
        settings: What `savepoints.toml` and `SAVEPOINTS_*` say of its queries.
        read: Tables that were read already, of a `snapshot`.

    Examples:
        >>> store = savepoints.Store.open(uri)
        >>> store.queries()
        ['clicks']
        >>> store.savepoint("latest").id == store.query("clicks").latest.id
        True
        >>> print(store.gc())
        gc:
    """

    @property
    def context(self) -> Context:
        """What its methods know."""
        return Context(self, "")

    def queries(self) -> list[str]:
        """Return the names of the queries that have savepoints or checkpoints here, sorted."""
        return sorted({one.query for one in self.generations.all()})

    def query(self, name: str) -> Query:
        """Return the handle of a query, whether or not the store knows it yet.

        Args:
            name: Its name; `queries` lists those that the store knows.
        """
        return Query(self, name)

    def savepoint(self, name: str, *, query: str | None = None) -> SavepointHandle:
        """Return the handle of a savepoint; it stays with that one, whatever is taken later.

        Args:
            name: An id, the beginning of one, a tag, `latest`, `latest~2` (the second before it),
                or `@TIME` (the newest committed by then).
            query: Only savepoints of this query.

        Raises:
            SavepointNotFoundError: If there is none.
            AmbiguousNameError: If there are several.
        """
        return SavepointHandle(self, self.catalog.find(name, query=query).id)

    def compare(
        self,
        *queries: str,
        until: str = "latest",
        keys: Mapping[str, Sequence[str]] | None = None,
        metrics: Mapping[str, str] | None = None,
        sample: int = SAMPLE,
        state: bool = True,
    ) -> BoundPlan[_compare.ComparePlan, ..., Comparison]:
        """Plan to run queries to one end and compare their outputs, state and metrics.

        All of them read Kafka. Forks need no settings of their own. For programs that read tables,
        make the fork with `Query.fork_pipeline` and compare with `Query.compare_pipeline`.

        Args:
            queries: Their names, two or more; the first is what the others are compared with.
            until: `latest`, a time, offsets as JSON, or a savepoint.
            keys: Columns that identify a row, by output.
            metrics: SQL over the outputs, by name.
            sample: How many differing rows to give of each output.
            state: Also compare the state.

        Raises:
            QueryNotFoundError: If the store has no such query.
            UsageError: If a query that is no fork is not in the settings, one reads a table, or
                they read different topics.
        """
        plan = _compare.plan(
            self, queries, until=until, keys=keys, metrics=metrics,
            sample=sample, state=state,
        )  # fmt: skip
        return BoundPlan(plan, self, _compare.execute)

    check = calls(_check.check)

    create = plans(_create.plan, _create.execute)
    expire = plans(_expire.plan, _expire.execute)
    gc = plans(_gc.plan, _gc.execute)
    lineage = calls(_lineage.lineage)
    page = calls(_page.page)
    rebuild_catalog = plans(_rebuild_catalog.plan, _rebuild_catalog.execute)
    topology = calls(_topology.topology)
    verify = calls(_verify.verify_all)


@named("query")
@dataclass(frozen=True)
class Query:
    """A query of a store, by its name.

    Attributes:
        store: Where its savepoints are.
        name: Its name.

    Examples:
        >>> clicks = savepoints.Store.open(uri).query("clicks")
        >>> [one.cut.batch_id for one in clicks.savepoints()]
        [3, 1]
        >>> plan = clicks.rollback("latest~1", to=target)
        >>> print(plan)
        rollback clicks:
          1. take a safety savepoint of batch 3 in ...
        >>> plan.execute().batch_id
        1
    """

    store: Store
    name: str

    @property
    def context(self) -> Context:
        """What its methods know."""
        return Context(self.store, self.name, self.name)

    @property
    def latest(self) -> Savepoint:
        """The newest savepoint on the current timeline: none that was rolled back or edited.

        Raises:
            SavepointNotFoundError: If there is none.
        """
        return self.store.catalog.find("latest", query=self.name)

    @property
    def generation(self) -> Generation:
        """The query's present, with its checkpoint as a driver gives it to Spark (`s3a://…`).

        Raises:
            QueryNotFoundError: If the store does not know the query.
        """
        current = self.store.generations.current(self.name)
        return replace(current, checkpoint=Uri.parse(current.checkpoint).for_spark)

    def savepoints(self) -> list[Savepoint]:
        """Return its savepoints, newest first, including those that were rolled back."""
        return catalog.select(self.store.catalog.all(), query=self.name)

    def merge(
        self,
        batch: str | os.PathLike[str] | None,
        *,
        since: datetime | None = None,
        input_name: str | None = None,
        controls: int | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        policy: MergePolicy = "exact",
        until: datetime | None = None,
        partial_history: bool = False,
        across_promotions: bool = False,
        progress: Progress = silent,
    ) -> BoundPlan[MergePlan, ..., Merged]:
        """Plan to merge late events into live state and outputs, as if they had arrived on time.

        Args:
            batch: URI of files or of a Delta table; None for what Spark dropped as late.
            since: Of those, only events dropped by batches planned since then; None for all.
            input_name: The input that it belongs to; not needed for an application with only one.
            controls: How many entities are replayed as a proof; by default as the settings say.
            quarantine: Where rows go that are not events; without it, such rows are refused.
            policy: `exact`, or what to give up.
            until: Merge only events from before this time.
            partial_history: Compare the batch with what archive and Kafka still have, although the
                query's first events are gone: it has not seen what is not among them, and what is
                gone is older.
            across_promotions: Also replay entities from before a promotion, or the start of a fork,
                through the present program, whatever program read their events at the time.
            progress: Called with one line for each step of the planning.

        Raises:
            LateBatchError: If rows of the batch are not events of the input.
            SourceDataGoneError: If neither archive nor Kafka has the events before.
        """
        asked = MergeRequest(
            self.name,
            written(batch),
            input_name,
            controls,
            written(quarantine),
            policy,
            until,
            since,
            partial_history,
            across_promotions,
        )
        made = _merge.prepare(self.store, asked, progress=progress)

        def execute(_plan: MergePlan, store: root.Store, **options: Any) -> Merged:  # noqa: ANN401
            return _merge.execute(made, store, **options)

        plan = made if isinstance(made, MergePlan) else made.plan
        return BoundPlan(plan, self.store, execute)

    def merge_through(
        self,
        batch: str | os.PathLike[str],
        *,
        downstream: Downstream = "merge",
        input_name: str | None = None,
        controls: int | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        until: datetime | None = None,
        across_promotions: bool = False,
        progress: Progress = silent,
    ) -> BoundPlan[MergePlan, ..., MergedThrough]:
        """Plan to merge late events exactly, into this query and all that read its tables.

        Args:
            batch: URI of files or of a Delta table.
            downstream: `plan` finds out what would change in each reader, and changes nothing.
            input_name: The input that it belongs to; not needed for an application with only one.
            controls: How many entities of this query are replayed as a proof; by default as the
                settings say.
            quarantine: Where rows go that are not events; without it, such rows are refused.
            until: Merge only events from before this time.
            across_promotions: As for `merge`.
            progress: Called with one line for each step of the planning.

        Raises:
            IncompatibleError: If a reader cannot take over corrections exactly.
            LateBatchError: If rows of the batch are not events of the input.
        """
        late, left = written(batch), written(quarantine)
        asked = MergeRequest(
            self.name,
            late,
            input_name,
            controls,
            left,
            until=until,
            across_promotions=across_promotions,
        )
        made = _cascade.prepare(self.store, asked, downstream, progress=progress)

        def execute(_plan: MergePlan, store: root.Store, **options: Any) -> MergedThrough:  # noqa: ANN401
            return _cascade.execute(made, store, downstream, **options)

        plan = made if isinstance(made, MergePlan) else made.plan
        return BoundPlan(plan, self.store, execute)

    bootstrap = plans_about(_bootstrap.plan, _bootstrap.execute)
    create = plans(_create.plan, _create.execute)
    end = plans_about(_end.plan, _end.execute)
    estimate = calls_about(_estimate.estimate)
    expire = plans(_expire.plan, _expire.execute)
    late = calls_about(_late.late)
    lineage = calls(_lineage.lineage)
    page = calls(_page.page)
    locate = calls_about(_locate.locate)
    pause = calls_about(_pause.pause)
    pipeline = calls_about(_pipeline.pipeline)
    create_group = plans_about(_group_savepoint.plan, _group_savepoint.execute)
    group = calls_about(_group_savepoint.read)
    periodic_groups = calls_about(_periodic_groups.periodic_groups)
    groups = calls_about(_groups.groups)
    copy_group = plans_about(_groups.plan_copy, _groups.execute_copy)
    rollback_pipeline = plans_about(_rollback_plan.plan, _pipeline_rollback.execute)
    fork_pipeline = plans_about(_pipeline_fork_plan.plan, _pipeline_fork.execute)
    compare_pipeline = plans_about(_pipeline_compare.plan, _pipeline_compare.execute)
    promote_pipeline = plans_about(_pipeline_promote.plan, _pipeline_promote.execute)
    promote = plans_about(_promote_plan.plan, _promote.execute)
    rename = plans_about(_rename.plan, _rename.execute)
    reset = plans_about(_reset.plan, _reset.execute)
    restore = plans(_restore_point.plan, _restore_point.execute)
    resume = calls_about(_pause.resume)
    rollback = plans(_rollback.plan, _rollback.execute)
    run = calls_about(_on_schedule.run)
    seed = plans_about(_seed_plan.plan, _seed.execute)
    topology = calls(_topology.topology)
    verify = calls(_verify.verify_all)


@named("query")
@dataclass(frozen=True)
class SavepointHandle:
    """A savepoint of a store, by its id.

    Attributes:
        store: Where it is.
        id: Its id.

    Examples:
        >>> good = savepoints.Store.open(uri).savepoint("latest")
        >>> good.verify(depth="checksums").grade
        'ok'
        >>> good.tag(add=["before-release"]).execute().tags
        ('before-release',)
        >>> print(good.restore(target))
        restore clicks:
          1. copy 14 files to ...
    """

    store: Store
    id: str

    @property
    def context(self) -> Context:
        """What its methods know."""
        return Context(self.store, self.id)

    @property
    def row(self) -> Savepoint:
        """What the catalog says of it.

        Raises:
            SavepointNotFoundError: If it was removed.
        """
        return self.store.catalog.find(self.id)

    def fork(
        self,
        *names: str,
        app: str | None = None,
        outputs: CopyMode = "copy",
        tables: Mapping[str, str | os.PathLike[str]] | None = None,
        checkpoints: str | os.PathLike[str] | None = None,
        form: Form | None = None,
        check_source: bool = True,
        even_broken: bool = False,
        migration: MigrationOptions | None = None,
    ) -> BoundPlan[ForksPlan, ..., tuple[Forked, ...]]:
        """Plan new queries that begin with this state, each with outputs of its own.

        Forks need no settings of their own, since the store keeps their programs and tables; the
        origin's tells what they run. All names of one call run one program, whose `App` keeps the
        name of the origin's; for two programs call it twice. `compare` of forks is for programs
        that read Kafka; for those that read tables there is `Query.fork_pipeline`. For a query
        without an `App`, `restore` begins a second version; it has an example.

        Args:
            names: Their names.
            app: What they run, `module:name`; by default what the origin runs.
            outputs: `copy` gives them files of their own, `clone` lets them read the originals'.
            tables: URIs of outputs, by name, that do not go to `<original>_forks/<name>`.
            checkpoints: Directory below which they get their checkpoints.
            form: The form to restore; by default native if the savepoint has it.
            check_source: Ask Kafka whether it still has the records that come next.
            even_broken: Accept a savepoint that `verify` found broken.
            migration: Convert the state for `app`, if that cannot continue with it as it is; such
                as `MigrationOptions(maps=("max=most",))`. See `migrate`.

        Raises:
            TargetExistsError: If a checkpoint or table is there already.
            LayoutChangedError: If the state cannot be converted.
            SourceDataGoneError: If Kafka no longer has the records that come next.
            UsageError: If the program is not known.
        """
        options = ForkOptions(
            app,
            outputs,
            written(checkpoints),
            written(tables),
            form,
            check_source,
            even_broken,
            migration,
        )
        plan = _fork_plan.plan_all(self.store, self.id, names, options)
        return BoundPlan(plan, self.store, _fork.execute_all)

    def edit(
        self,
        change: StateEdit,
        *,
        reason: str,
        operator: int | None = None,
        variable: str | None = None,
        at_most: int = _edit.AT_MOST,
    ) -> BoundPlan[_edit.EditPlan, ..., Savepoint]:
        """Plan a savepoint with chosen state rows changed.

        Args:
            change: Which rows to change, and how.
            reason: Why; it stays with the savepoint.
            operator: Id of the operator; not needed for a query with only one.
            variable: Of `transformWithState`: the state variable.
            at_most: Refuse to change more rows than this.

        Raises:
            UsageError: If the change does not fit the state, or concerns no row or too many.
        """
        plan = _edit.plan(
            self.store, self.id, change, reason=reason, operator=operator, variable=variable,
            at_most=at_most,
        )  # fmt: skip
        return BoundPlan(plan, self.store, partial(_edit.execute, change=change))

    copy = plans_about(_copy.plan, _copy.execute)
    diff = calls_about(_diff.diff)
    drill = calls_about(_drill.drill)
    export = plans_about(_export.plan, _export.execute)
    migrate = plans_about(_migrate.plan, _migrate.execute)
    read_state = calls_about(_read_state.read_state)
    restore = plans_about(_restore.plan, _restore.execute)
    rollback = plans_about(_rollback.plan, _rollback.execute)
    tag = plans_about(_tag.plan, _tag.execute)
    upgrade_check = calls_about(_upgrade_check.upgrade_check)
    verify = calls_about(_verify.verify)
