"""`pipeline fork` as a plan: which forks come to be, and which tables they read.

Each query goes on from a savepoint, all of one consistent cut, as in a rollback. What a fork reads
of another forked query is that one's own table, which begins with the rows of the savepoint as its
version 0: so a reader first reads the rest up to there from the original, and then goes on behind
version 0 of the copy. Tables of queries that are not forked are read as they are.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from savepoints.checkpoint.logs import table_position
from savepoints.errors import NotAlignedError, UsageError
from savepoints.io import Location
from savepoints.model import checked_name, new_id
from savepoints.moments import utc_now
from savepoints.operations.fork import fork_plan
from savepoints.operations.fork.fork_plan import ForkOptions, ForkPlan
from savepoints.operations.pipeline import table_reads
from savepoints.operations.pipeline.joint_plan import step_of
from savepoints.operations.pipeline.pipeline import pipeline
from savepoints.operations.pipeline.pipeline_graph import Pipeline
from savepoints.operations.pipeline.table_reads import TableRead
from savepoints.operations.pipeline_rollback import rollback_cut, rollback_refusals
from savepoints.operations.pipeline_rollback.rollback_cut import MemberCut
from savepoints.operations.rollback import journalled
from savepoints.operations.rollback.journalled import JournalledPlan
from savepoints.outputs.fork.isolated_copy import CopyMode
from savepoints.plan import Step
from savepoints.store import bindings
from savepoints.store.bindings import Binding
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.uri import spelled

VERB = "pipeline fork"


@dataclass(frozen=True)
class PipelineForkOptions:
    """What the forks are asked to be, besides their name.

    Attributes:
        apps: By query, the program of its fork (`package.module:attribute`); by default the same.
        way: `copy`: their tables get files of their own; `clone`: they read those of the originals.
        checkpoints: Directory below which they get their checkpoints, None for that of the origin.
        check_source: Whether to ask Kafka if it still has the records that come next.
    """

    apps: Mapping[str, str] = field(default_factory=dict)
    way: CopyMode = "copy"
    checkpoints: str | None = None
    check_source: bool = True

    def of(self, query: str) -> ForkOptions:
        """Return them for one query."""
        return ForkOptions(
            app=self.apps.get(query),
            way=self.way,
            checkpoints=self.checkpoints,
            check_source=self.check_source,
        )

    def words(self) -> list[str]:
        """Return them as options of a command line."""
        return [
            *(word for one, app in sorted(self.apps.items()) for word in ("--app", f"{one}={app}")),
            *(["--outputs", self.way] if self.way != "copy" else []),
            *(["--checkpoints", self.checkpoints] if self.checkpoints else []),
            *([] if self.check_source else ["--no-source-check"]),
        ]

    def command(self, query: str, point: str, name: str) -> str:
        """Return the command that makes the forks."""
        words = [*VERB.split(), query, point, name, *self.words()]
        return shlex.join(["savepoints", *words, "--yes"])


@dataclass(frozen=True)
class ForkedMember:
    """The fork of one of the queries.

    Attributes:
        fork: The plan for this one alone.
        reads: The tables of other forked queries that it reads: of the original, by its savepoint.
    """

    fork: ForkPlan
    reads: tuple[TableRead, ...]

    @property
    def query(self) -> str:
        """The name of the fork."""
        return self.fork.query


@dataclass(frozen=True, kw_only=True)
class PipelineForkPlan(JournalledPlan):
    """What `pipeline fork` is going to do.

    Attributes:
        name: Suffix of the forks' names, after the names of the queries.
        queries: Names of the forks, writers before readers.
        members: The plan of each fork.
        finished: The same forks exist already; nothing will be done.
        again: Command that makes others like them, with `NEW_NAME` for the suffix.
    """

    name: str
    queries: tuple[str, ...]
    members: tuple[ForkedMember, ...]
    finished: bool = False
    again: str = ""

    @property
    def copies(self) -> dict[str, str]:
        """By URI of a table, that of the copy which the forks have."""
        return _copies([one.fork for one in self.members])


def fork_name(query: str, name: str) -> str:
    """Return what the fork of a query is called."""
    return f"{query}_{name}"


def plan(
    store: Store,
    query: str,
    point: str,
    name: str,
    *,
    apps: Mapping[str, str] | None = None,
    outputs: CopyMode = "copy",
    checkpoints: str | None = None,
    check_source: bool = True,
) -> PipelineForkPlan:
    """Plan forks of a query and all that read from it; nothing is written.

    An interrupted fork by the same name is resumed: its own plan is returned.

    Args:
        query: Name of the first query that is forked.
        point: Id, prefix, tag, `latest`, `latest~2` or `@TIME` of its savepoint. Readers begin from
            theirs of that tag if it fits, else from their newest that has read nothing beyond.
        name: Suffix of the forks' names: `silver_NAME`, `gold_NAME`.
        apps: By query, the program of its fork (`package.module:attribute`); by default the same.
        outputs: `copy` gives the forks files of their own, `clone` lets them read the originals'.
        checkpoints: Directory below which the forks get their checkpoints.
        check_source: Whether to ask Kafka if it still has the records that come next.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        TargetExistsError: If a fork, a checkpoint or a table is there already.
        NotAlignedError: If it is not known who reads whom, no savepoints fit together, or a table
            of a query that is not forked was taken back since.
        UsageError: If a program is not known.
    """
    store = store.snapshot()
    checked_name(name, "fork")
    options = PipelineForkOptions(dict(apps or {}), outputs, checkpoints, check_source)
    command = options.command(query, point, name)
    if (known := _known(store, fork_name(query, name), command)) is not None:
        return known
    found = pipeline(store, query)
    _refuse_unknown_order(found)
    _refuse_topics(found)
    cuts = rollback_cut.choose(store, found, point, every=False)
    _refuse_other_apps(cuts, options)
    for cut in cuts:
        _refuse_unreadable(found, cut)
    operation_id = new_id("op", utc_now())
    members = _members(store, cuts, name, options, command, operation_id)
    fork_plan.refuse_overlaps([place for one in members for place in fork_plan.places(one.fork)])
    return PipelineForkPlan(
        verb=VERB,
        query=fork_name(query, name),
        steps=tuple(_steps(members)),
        warnings=tuple(_warnings(found, cuts, members)),
        command=command,
        operation_id=operation_id,
        name=name,
        queries=tuple(one.query for one in members),
        members=members,
        # What is the latest now need not be the latest then.
        again=options.command(query, members[0].fork.savepoint_id, "NEW_NAME"),
    )


def _known(store: Store, fork: str, command: str) -> PipelineForkPlan | None:
    """Return the plan of the same forks, whether interrupted or finished; None for new ones."""
    lease.refuse_held(store.root, fork)
    if (begun := journalled.begun(PipelineForkPlan, store, fork, VERB, command)) is not None:
        return begun
    if not store.generations.all(fork):
        return None
    for one in journal.all_operations(store.root):
        if (one.verb, one.plan.get("command"), one.state) == (VERB, command, "finished"):
            done = PipelineForkPlan.from_json(one.plan)
            return replace(done, steps=(), warnings=(), finished=True)
    return None


def _members(
    store: Store,
    cuts: Sequence[MemberCut],
    name: str,
    options: PipelineForkOptions,
    command: str,
    operation_id: str,
) -> tuple[ForkedMember, ...]:
    members: list[ForkedMember] = []
    for cut in cuts:
        saved = cut.savepoint
        fork = fork_name(saved.query, name)
        fork_plan.refuse_known(store, fork)
        alone = fork_plan.plan_one(
            store, saved, fork, options.of(saved.query), command=command, operation_id=operation_id
        )
        binding = _reading(store, alone, cut, _copies([one.fork for one in members]))
        alone = replace(alone, verb=VERB, binding=binding)
        members.append(ForkedMember(alone, cut.reads))
    return tuple(members)


def _reading(store: Store, fork: ForkPlan, cut: MemberCut, copies: Mapping[str, str]) -> Binding:
    """Return what a fork is bound to: where its origin reads a forked table, it reads the copy."""
    bound = fork.binding.settings()
    given = store.settings.queries.get(fork.query)
    origin = bindings.complete(store).queries.get(cut.savepoint.query)
    tables = dict(origin.tables if origin else bound.tables)
    there = {name: str(Location.of(uri)) for name, uri in tables.items()}
    for read in cut.reads:
        if read.table_uri not in there.values():
            raise UsageError(
                f"{cut.savepoint.query} reads {read.table_uri}, which is not among its inputs in "
                f"the settings: {', '.join(there.values()) or 'none'}",
                hint=f"add the table to [queries.{cut.savepoint.query}.tables]",
                query=cut.savepoint.query,
                uri=read.table_uri,
            )
    tables = {name: copies.get(there[name], uri) for name, uri in tables.items()}
    if given is not None and _spelled(given.tables) != _spelled(tables):
        raise UsageError(
            f"[queries.{fork.query}.tables] in the settings names "
            f"{', '.join(given.tables.values()) or 'no table'}, but the fork would read "
            f"{', '.join(tables.values()) or 'none'}",
            hint=f"remove [queries.{fork.query}] from the settings, or have it name the "
            "tables that the fork would read",
            query=fork.query,
        )
    return replace(fork.binding, bound={**fork.binding.bound, "tables": tables})


def _spelled(tables: Mapping[str, str]) -> dict[str, str]:
    return {name: spelled(uri) for name, uri in tables.items()}


def _copies(forks: Sequence[ForkPlan]) -> dict[str, str]:
    return {output.output.uri: output.uri for one in forks for output in one.outputs}


def _refuse_unknown_order(found: Pipeline) -> None:
    if unknown := rollback_refusals.unknown_order(found, every=False):
        raise NotAlignedError(
            f"{found.query} and the queries that read from it cannot be forked together: "
            + "; ".join(one.what for one in unknown),
            hint=f"see who reads whose tables: savepoints pipeline show {found.query}; or fork "
            f"one query: savepoints fork SAVEPOINT NAME --query {found.query}",
            query=found.query,
        )


def _refuse_topics(found: Pipeline) -> None:
    """Refuse readers of topics: a topic has no copy that a fork could read on in."""
    forked = {found.query, *found.downstream}
    for edge in found.topic_edges:
        if edge.writer in forked:
            raise NotAlignedError(
                f"{edge.reader} reads topic {edge.topic}, which {edge.writer} writes, and a topic "
                f"cannot be forked: the fork of {edge.reader} would continue with the live records",
                hint="fork the queries one by one (savepoints fork SAVEPOINT NAME --query QUERY), "
                "or start with the query that reads the topic: savepoints pipeline fork "
                f"{edge.reader} SAVEPOINT NAME",
                query=edge.reader,
                topic=edge.topic,
            )


def _refuse_other_apps(cuts: Sequence[MemberCut], options: PipelineForkOptions) -> None:
    forked = [cut.savepoint.query for cut in cuts]
    if others := sorted(options.apps.keys() - {*forked}):
        raise UsageError(
            f"--app was given for the query {others[0]}, which is not part of this fork; its "
            f"queries are {', '.join(forked)}",
            hint="correct the query name in --app QUERY=MODULE:ATTR",
            query=others[0],
        )


def _refuse_unreadable(found: Pipeline, cut: MemberCut) -> None:
    """Refuse a fork that could not read on in a table of a query that is not forked."""
    mine, query = {read.source for read in cut.reads}, cut.savepoint.query
    tables = {edge.table_id: edge for edge in found.edges if edge.reader == query}
    for number, text in enumerate(cut.savepoint.cut.offsets):
        position = table_position.parse(text)
        edge = tables.get(position.table_id) if position else None
        if position is None or edge is None or number in mine:
            continue
        if edge.table_uri is None or edge.version is None:
            continue  # Nobody knows where it is: told as a warning.
        _, problem = table_reads.behind_of(position, edge.table_uri, edge.version)
        if problem:
            raise NotAlignedError(
                f"{cut.savepoint.id} of {query} {problem}",
                hint=f"choose a later savepoint: savepoints list --query {query}; or also "
                "fork the query that writes the table",
                query=query,
                uri=edge.table_uri,
            )


def _steps(members: Sequence[ForkedMember]) -> Iterator[Step]:
    yield from (
        step_of(one.query, step)
        for one in members
        for step in one.fork.steps
        if step.name != "generation_begun"
    )
    copies = _copies([one.fork for one in members])
    for one in members:
        for read in one.reads:
            if read.behind:
                what = f"read {read.table_uri} up to version {read.version}"
                yield step_of(one.query, Step("followed", what))
            what = f"continue in {copies[read.table_uri]} after version 0"
            yield step_of(one.query, Step("followed", what))
    yield from (
        step_of(one.query, Step("generation_begun", f"begin generation {fork_plan.FIRST}"))
        for one in members
    )


def _warnings(
    found: Pipeline, cuts: Sequence[MemberCut], members: Sequence[ForkedMember]
) -> Iterator[str]:
    yield from dict.fromkeys(
        f"{one.query}: {note}" for one in members for note in one.fork.warnings
    )
    forked = {cut.savepoint.query for cut in cuts}
    for edge in found.edges:
        if edge.reader in forked and edge.writer not in forked:
            where = edge.table_uri or f"the table {edge.table_id}"
            whose = f"written by {edge.writer}" if edge.writer else "from outside the pipeline"
            yield (
                f"{where}, {whose}, is not forked: {edge.reader} and its fork both read it, "
                "including what is written to it from now on"
            )
