"""Which savepoint each query of a pipeline goes back to, so that all of them fit together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from savepoints.checkpoint.logs import table_position
from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.errors import NotAlignedError, SavepointNotFoundError
from savepoints.model import Savepoint
from savepoints.operations.pipeline import table_reads, topic_reads
from savepoints.operations.pipeline.pipeline_graph import Pipeline, PipelineEdge, TopicEdge
from savepoints.operations.pipeline.table_reads import TableRead
from savepoints.operations.pipeline.topic_reads import TopicRead
from savepoints.operations.pipeline_rollback import exact_time
from savepoints.operations.rollback import run_to_point
from savepoints.operations.savepoint.history import history
from savepoints.runtime.bounded import table_ends
from savepoints.store.root import Store
from savepoints.store.tables import tags
from savepoints.texts import offsets_text


@dataclass(frozen=True)
class MemberCut:
    """What one query goes back to.

    Attributes:
        reads: The tables it reads that go back, too.
        ends: Where it is run on to from there; see `PipelineMember`.
        topic_reads: The topics it reads whose writers go back, too.
    """

    savepoint: Savepoint
    reads: tuple[TableRead, ...]
    ends: str | None = None
    topic_reads: tuple[TopicRead, ...] = ()


def choose(
    store: Store, found: Pipeline, name: str, *, every: bool, exact: bool = False
) -> tuple[MemberCut, ...]:
    """Choose a savepoint for each query that goes back, writers before readers.

    Args:
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME` of savepoints of the queries that
            come first. Readers go to their savepoint of that tag if it is whole and fits, else
            to their newest that fits.
        every: All queries of the pipeline; else the query of `found` and all that read from it.
        exact: All are run on from there to exactly the time that the name is.

    Raises:
        SavepointNotFoundError: If there is no such savepoint, or one of a group is missing.
        AmbiguousNameError: If two savepoints of a query have that tag.
        NotAlignedError: If a reader has none that can be brought to where its tables go back to.
    """
    moment = exact_time.moment_of(name) if exact else None
    scope = [one.name for one in found.queries]
    if not every:
        scope = [one for one in scope if one in {found.query, *found.downstream}]
    if moment is not None:
        exact_time.refuse_topics(found, scope)
    tagged = tags.holders(store.catalog.all(), name, scope)
    if every and tagged and (missing := [one for one in scope if one not in tagged]):
        raise SavepointNotFoundError(
            f"the group {name} is incomplete: it has no savepoint of {', '.join(missing)}",
            hint="roll back only a part of the pipeline: savepoints pipeline rollback QUERY "
            f"{name}; or check the group: savepoints pipeline verify {found.query} --tag {name}",
            query=found.query,
        )
    chosen: dict[str, MemberCut] = {}
    for query in scope:
        edges = _Edges.of(found, query, chosen)
        if not edges and moment is not None:
            savepoint, ends = exact_time.start_of(store, query, moment)
            chosen[query] = MemberCut(savepoint, (), ends)
        elif not edges:
            chosen[query] = MemberCut(store.catalog.find(name, query=query), ())
        elif moment is not None:
            going_back = {one.table_uri for one in edges.tables if one.table_uri}
            others = exact_time.elsewhere(store, query, going_back, moment)
            cut = _fitting(store, query, history(store, query), chosen, edges, others)
            chosen[query] = replace(cut, ends=table_ends.to_text(others))
        else:
            only = [tagged[query]] if query in tagged else []
            whole = [one for one in only if one.state == "complete"]
            candidates = only if every and only else [*whole, *history(store, query)]
            chosen[query] = _fitting(store, query, candidates, chosen, edges)
    return tuple(chosen.values())


def given(store: Store, found: Pipeline, ids: Mapping[str, str]) -> tuple[MemberCut, ...]:
    """Return what queries go back to whose savepoints are known, by name.

    Raises:
        NotAlignedError: If they do not fit together.
    """
    chosen: dict[str, MemberCut] = {}
    for query in (one.name for one in found.queries if one.name in ids):
        candidates = [store.catalog.find(ids[query], query=query)]
        edges = _Edges.of(found, query, chosen)
        chosen[query] = _fitting(store, query, candidates, chosen, edges)
    return tuple(chosen.values())


@dataclass(frozen=True)
class _Edges:
    """What a query reads of others that go back."""

    tables: tuple[PipelineEdge, ...]
    topics: tuple[TopicEdge, ...]

    @classmethod
    def of(cls, found: Pipeline, query: str, chosen: Collection[str]) -> _Edges:
        return cls(
            tuple(one for one in found.edges if one.reader == query and one.writer in chosen),
            tuple(one for one in found.topic_edges if one.reader == query and one.writer in chosen),
        )

    def __bool__(self) -> bool:
        return bool(self.tables or self.topics)

    @property
    def writers(self) -> set[str | None]:
        return {*(one.writer for one in self.tables), *(one.writer for one in self.topics)}


def _fitting(
    store: Store,
    query: str,
    candidates: Sequence[Savepoint],
    chosen: Mapping[str, MemberCut],
    edges: _Edges,
    ends: Mapping[str, TablePosition] | None = None,
) -> MemberCut:
    """Return the first of some savepoints of a reader that fits to what its writers go back to.

    Args:
        ends: Where it is to end in other tables, if it is run on to an exact time.
    """
    writers = edges.writers
    held = [one.savepoint for name, one in chosen.items() if name in writers]
    tables = {one.table_id for one in edges.tables}
    generations = store.generations.all()
    problems = []
    for savepoint in candidates:
        reads, problem = table_reads.reads_of(savepoint, held)
        of_topics, topic_problem = topic_reads.reads_of(savepoint, held, edges.topics, generations)
        problem = problem or _unread(reads, tables) or topic_problem
        if not problem and ends is not None:
            problem = exact_time.beyond(savepoint, ends)
        if not problem:
            return MemberCut(savepoint, reads, topic_reads=of_topics)
        problems.append(f"{savepoint.id}: {problem}")
    where = ", ".join(f"{one.query} at {one.id}" for one in held)
    is_fork = any(one.query == query and one.begun_by.endswith("fork") for one in generations)
    end = f"end the fork if you no longer need it: savepoints end {query}; or "
    raise NotAlignedError(
        f"no savepoint of {query} is consistent with {where}: "
        f"{'; '.join(problems[-1:]) or 'the query has no savepoints'}",
        hint=f"{end if is_fork else ''}choose a later savepoint: savepoints list --query "
        f"{held[0].query}; in the future, save all queries as one group: savepoints pipeline "
        f"create {query} --tag NAME",
        query=query,
    )


def _unread(reads: Sequence[TableRead], tables: set[str]) -> str:
    """Say which table a savepoint has no position of, that its query reads now."""
    missing = sorted(tables - {one.table_id for one in reads})
    return f"it has no position in the table {missing[0]}" if missing else ""


def described(cut: MemberCut) -> Iterator[str]:
    """Say how far a reader has to read to be where its tables go back to."""
    for read in cut.reads:
        what = f"{read.writer}'s {read.table_uri}"
        if read.behind:
            yield f"read {what} from {_next(read)} to version {read.version}"
        yield f"continue after the rewind of {what}"
    for topic in cut.topic_reads:
        what = f"{topic.writer}'s topic {topic.topic}"
        if topic.behind:
            yield f"read {what} up to offsets {offsets_text(topic.ends)}"
        yield f"continue at the end of {what}, after what is rolled back"


def _next(read: TableRead) -> str:
    position = table_position.parse(read.position)
    return f"version {position.version}" if position else read.position


def run_on_text(cut: MemberCut) -> str:
    """Say where a query is run on to that goes to an exact time."""
    ends = [f"the end of {one.writer}'s {one.table_uri}" for one in cut.reads]
    if cut.ends not in (None, "[]"):
        ends.append(f"exactly {run_to_point.what(str(cut.ends))}")
    return f"run to {' and '.join(ends)}"
