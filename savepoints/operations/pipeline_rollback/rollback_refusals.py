"""What is refused before queries go back together."""

from __future__ import annotations

from collections.abc import Sequence

from savepoints.config.settings import Settings
from savepoints.errors import NotAlignedError, QueryRunningError, UsageError
from savepoints.operations.pipeline import follow, table_reads
from savepoints.operations.pipeline.group_savepoint import NO_ORDER
from savepoints.operations.pipeline.pipeline_graph import Pipeline, PipelineFinding
from savepoints.operations.pipeline_rollback.pipeline_member import PipelineMember
from savepoints.runtime import app as apps
from savepoints.store.locks import journal, lease
from savepoints.store.root import Store
from savepoints.texts import count_text


def running(store: Store, queries: Sequence[str]) -> tuple[str, ...]:
    """Return the queries whose runs can be paused; refuse those that others drive."""
    held = {one: holder for one in queries if (holder := lease.holder(store.root, one))}
    others = {one: holder for one, holder in held.items() if holder.verb != lease.RUN}
    if len(others) > 1 and all(holder.runs for holder in others.values()):
        raise QueryRunningError(
            "these queries are running in their own drivers: "
            + ", ".join(f"{query} ({holder.who})" for query, holder in others.items()),
            hint="stop each of them in its driver with attached.stop(), which finishes the "
            "batch and takes a savepoint",
            query=next(iter(others)),
            queries=list(others),
        )
    for query in others:
        lease.refuse_held(store.root, query)
    return tuple(held)


def refuse_unknown_order(found: Pipeline, *, every: bool) -> None:
    """Refuse queries of which it is not known who reads whom."""
    if unknown := unknown_order(found, every=every):
        raise NotAlignedError(
            f"{found.query} and the queries that read from it cannot be rolled back together: "
            + "; ".join(one.what for one in unknown),
            hint=f"see who reads whose tables: savepoints pipeline show {found.query}; or roll "
            f"the queries back one by one: savepoints rollback NAME --query {found.query}",
            query=found.query,
        )


def unknown_order(found: Pipeline, *, every: bool) -> list[PipelineFinding]:
    """Return why it is not known who reads whom: of all queries, or of one and its readers."""
    scope = {one.name for one in found.queries} if every else {found.query, *found.downstream}
    return [one for one in found.findings if one.kind in NO_ORDER and scope & {*one.queries}]


def refuse_unknown_outputs(found: Pipeline, queries: Sequence[str]) -> None:
    """Refuse queries whose effects are elsewhere: they would stay, and happen once more."""
    for one in found.queries:
        if one.name in queries and not (one.outputs or one.output_topics):
            raise NotAlignedError(
                f"the outputs of {one.name} are unknown, so the rows that it has written since the "
                "savepoint would stay in them and be written a second time",
                hint=f"add its tables to [queries.{one.name}.outputs] in the settings; or roll "
                "back one query at a time: savepoints rollback NAME --query "
                f"{one.name} --outputs none",
                query=one.name,
            )


def refuse_left_behind(store: Store, found: Pipeline, queries: Sequence[str]) -> None:
    """Refuse to leave a reader of a topic behind: it would keep what is rolled back, unnoticed.

    Of a table it is not left behind so: its stream fails at the rewind.
    """
    _refuse_being_forked(store, found, queries)
    for edge in found.topic_edges:
        if edge.writer in queries and edge.reader not in queries:
            raise NotAlignedError(
                f"{edge.reader} reads {edge.writer}'s topic {edge.topic}, but is not among the "
                f"queries that go back ({', '.join(queries)}), so it would keep the records that "
                "are rolled back",
                hint=f"end it if you no longer need it: savepoints end {edge.reader}; or roll all "
                "of them back to a group that it is part of: savepoints pipeline rollback "
                f"{found.query} TAG",
                query=edge.reader,
                topic=edge.topic,
            )


def _refuse_being_forked(store: Store, found: Pipeline, queries: Sequence[str]) -> None:
    """Refuse readers of a topic of which forks are being made, which are no readers yet."""
    readers = {edge.reader for edge in found.topic_edges if edge.writer in queries}
    for one in journal.all_unfinished(store.root):
        forks = [
            one.plan,
            *(member["fork"] for member in one.plan.get("members", ()) if "fork" in member),
        ]
        if readers & {fork.get("origin") for fork in forks}:
            raise journal.refusal(store.root, one)


def _left(member: PipelineMember) -> str:
    """Say what a reader has to read of a table or topic."""
    for read in member.reads:
        if read.behind:
            more = count_text(read.behind, "more version")
            return f"{more} of {read.table_uri} (up to version {read.version})"
    topic = next(one for one in member.topic_reads if one.behind)
    return f"{count_text(topic.behind, 'more offset')} of topic {topic.topic}"


def refuse_unreachable(members: Sequence[PipelineMember], settings: Settings) -> None:
    """Refuse readers that cannot be brought to where their tables go back to."""
    shared = {
        output.output.uri: output.own_rows
        for one in members
        for output in one.rollback.outputs
        if output.own_rows is not None
    }
    for one in members:
        for read in one.reads:
            if read.table_uri in shared:
                raise NotAlignedError(
                    f"{read.table_uri} is shared, and only its rows with "
                    f"{shared[read.table_uri]} would be rewound, so {one.query}, which reads the "
                    "table, would skip the rows that other writers have added since the savepoint",
                    hint="give the writing query a table of its own, or roll the queries back one "
                    f"by one: savepoints rollback NAME --query {one.query}",
                    query=one.query,
                    uri=read.table_uri,
                )
            if gone := table_reads.unreadable_files(read):
                raise NotAlignedError(
                    f"{one.query} has to read {read.table_uri} up to version {read.version}, "
                    f"but the table is missing {count_text(len(gone), 'file')} of that version, "
                    f"removed by VACUUM or by hand (first: {gone[0]})",
                    hint=f"choose a later savepoint of {read.writer}, or one of {one.query} "
                    "taken after it had read these files: savepoints list",
                    query=one.query,
                    uri=read.table_uri,
                    files=gone,
                )
        if one.is_behind and one.writer is None and one.query in settings.queries:
            apps.load_for(one.query, settings.queries[one.query])
        elif one.is_behind and one.writer is None:
            raise UsageError(
                f"{one.query} must read {_left(one)} before its inputs are rolled back, but "
                "its program is unknown",
                hint=f"add [queries.{one.query}] with its app to the settings; or pass "
                f"--writer {one.query}=MODULE:FUNCTION, where FUNCTION takes the SparkSession and "
                "returns the query's DataStreamWriter without starting it",
                query=one.query,
            )
        elif one.is_behind and one.writer is not None:
            follow.load_writer(one.query, one.writer)
