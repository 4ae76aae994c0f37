"""`pipeline create`: savepoints of all queries of a pipeline that fit together, under one tag.

They are taken while the queries run, one after another: first of those whose tables nobody reads,
then of who writes what they have read. So what a reader has read by its savepoint is written before
the writer's. Only the batch that wrote it may not be committed yet: then the next is waited for.
Of a topic nothing says which batch wrote what has been read: then the batch is waited for that the
writer has begun by then (`topic_ends`).
Together they are a consistent cut (Chandy and Lamport, "Distributed Snapshots", 1985, where the
tables are the channels).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from savepoints import faults
from savepoints.checkpoint import position
from savepoints.errors import LockedError, NotAlignedError, SavepointNotFoundError
from savepoints.io import Location
from savepoints.model import Form, Savepoint, checked_tag
from savepoints.operations.maintain import tag
from savepoints.operations.pipeline import group_check, topic_check
from savepoints.operations.pipeline.group_check import GroupRead
from savepoints.operations.pipeline.pipeline import pipeline
from savepoints.operations.pipeline.pipeline_graph import (
    FindingKind,
    Pipeline,
    PipelineFinding,
    TopicEdge,
)
from savepoints.operations.pipeline.topic_check import GroupTopicRead
from savepoints.operations.savepoint import create, first_batch, topic_ends
from savepoints.operations.savepoint.create import CreatePlan
from savepoints.operations.savepoint.topic_ends import TopicObservation
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.result import Result
from savepoints.store.locks import lease
from savepoints.store.root import Store
from savepoints.store.savepoint import labels
from savepoints.store.tables import catalog, tags

_POLL_SECONDS = 0.2
_WAIT = timedelta(minutes=10)
_UNBEGUN: FindingKind = "no_batch"
# With any of these nobody knows who has to come first.
NO_ORDER: frozenset[FindingKind] = frozenset(
    {
        "cycle", "shared_table", "shared_topic", "copied_table", "replaced_table", "beyond_table",
        "unreadable_checkpoint", "no_batch", "no_position",
    }
)  # fmt: skip


@dataclass(frozen=True)
class GroupPlan(Plan):
    """What `pipeline create` is going to do.

    Attributes:
        tag: The name that each savepoint of the group gets.
        members: Names of the queries in the order in which they are saved, readers first.
        taken: Ids of savepoints that have the tag already, of a run that was interrupted.
        forms: Forms of the savepoints.
        topic_edges: The topics that some of them write and others read.
    """

    tag: str
    members: tuple[str, ...]
    taken: tuple[str, ...]
    forms: tuple[Form, ...]
    topic_edges: tuple[TopicEdge, ...] = ()

    @property
    def description(self) -> str:
        """That of its savepoints."""
        return f"part of the group {self.tag}"


@dataclass(frozen=True)
class Group(Result):
    """Savepoints of one pipeline that have one tag.

    Attributes:
        tag: The tag.
        savepoints: One of each query, in the order in which they were taken; of those in
            `ambiguous` several.
        reads: How much each has read of another's table; empty with `ambiguous`.
        missing: Queries of the pipeline without a savepoint of the tag.
        topic_reads: How much each has read of another's topic; empty with `ambiguous`.
        ambiguous: Queries of which several savepoints have the tag: a move of it was interrupted.
    """

    tag: str
    savepoints: tuple[Savepoint, ...]
    reads: tuple[GroupRead, ...]
    missing: tuple[str, ...]
    topic_reads: tuple[GroupTopicRead, ...] = ()
    ambiguous: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it cannot be restored as one, a sentence each; none when it can."""
        lacking = (f"{one} has no savepoint with the tag {self.tag}" for one in self.missing)
        moved = map(self._half_moved, self.ambiguous)
        return (*lacking, *moved, *self.broken, *_ahead((*self.reads, *self.topic_reads)))

    def _half_moved(self, query: str) -> str:
        ids = ", ".join(one.id for one in self.savepoints if one.query == query)
        return (
            f"a move of the tag was interrupted, so several savepoints of {query} have it ({ids}): "
            f"finish it with savepoints tag ID {self.tag} --move"
        )

    @property
    def broken(self) -> tuple[str, ...]:
        """Which of them `verify` has found broken, a sentence each."""
        return tuple(
            f"the savepoint {one.id} of {one.query} is broken: {one.state_reason}"
            for one in self.savepoints
            if one.state == "broken"
        )


def plan(
    store: Store,
    query: str,
    *,
    name: str,
    forms: Sequence[Form] = ("native",),
    wait: timedelta = _WAIT,
    progress: Progress = silent,
) -> GroupPlan:
    """Plan savepoints of all queries of a pipeline; nothing is written.

    Args:
        query: Name of any query of the pipeline.
        name: Tag of the group's savepoints. No query may have a savepoint with it yet, unless this
            was interrupted.
        forms: `native`, which keeps the time between two savepoints short, or both.
        wait: How long to wait for the first batch of a query that runs: what it reads is not known
            before.

    Raises:
        QueryNotFoundError: If the store has no query of that name.
        NoCommittedBatchError: If a query does not finish its first batch within that time, or has
            none and does not run.
        NotAlignedError: If it cannot be known who reads whom, or queries read each other in a
            cycle.
    """
    checked_tag(name)
    found = _ordered(store, query, name, wait, progress)
    members = tuple(one.name for one in reversed(found.queries))
    taken = _tagged(store, members, name)
    todo = [one for one in members if one not in taken]
    return GroupPlan(
        verb="pipeline create",
        query=query,
        steps=(
            *(Step("taken", f"take a savepoint of {one}, tagged {name}") for one in todo),
            Step("checked", "check that no reader is ahead of its writer's savepoint"),
        ),
        warnings=tuple(one.what for one in found.findings),
        tag=name,
        members=members,
        taken=tuple(one.id for one in taken.values()),
        forms=tuple(forms),
        topic_edges=found.topic_edges,
    )


def _ordered(store: Store, query: str, name: str, wait: timedelta, progress: Progress) -> Pipeline:
    """Return a pipeline of which it is known who reads whom, after the first batch of each."""
    found = pipeline(store, query)
    obstacles = [one for one in found.findings if one.kind in NO_ORDER]
    if obstacles and all(one.kind == _UNBEGUN for one in obstacles):
        unbegun = [one.queries[0] for one in obstacles]
        first_batch.await_committed(store, unbegun, wait=wait, progress=progress)
        found = pipeline(store, query)
        obstacles = [one for one in found.findings if one.kind in NO_ORDER]
    for one in obstacles:
        if one.kind == _UNBEGUN:
            again = f"savepoints pipeline create {query} --tag {name}"
            raise first_batch.missing(store, one.queries[0], command=again)
    if obstacles:
        raise _no_order(query, obstacles)
    return found


def execute(
    plan: GroupPlan, store: Store, *, wait: timedelta = _WAIT, progress: Progress = silent
) -> Group:
    """Take the savepoints; run again after a crash, those that have the tag are not taken again.

    Args:
        wait: How long to wait, for each query, for the commit of a batch whose rows a reader has
            read already, and for a savepoint that another process takes.

    Raises:
        NotAlignedError: If a reader is ahead of what its writer commits within that time, or one
            that has the tag already is broken.
        LockedError: If another savepoint of a query is still being taken then.
    """
    for name in plan.members:
        taken = list(_tagged(store, plan.members, plan.tag).values())
        if any(one.query == name for one in taken):
            continue
        saved = _half_tagged(plan, store, name) or _fitting(
            plan, store, name, taken, time.monotonic() + wait.total_seconds(), progress
        )
        tag.execute(tag.plan(store, saved.id, add=[plan.tag]), store)
        progress(f"took the savepoint {saved.id} of {name}, batch {saved.cut.batch_id}")
        faults.reach("group.taken")
    made = _group(store, plan.members, plan.tag, plan.topic_edges)
    if made.broken:
        raise NotAlignedError(
            f"the group {plan.tag} cannot be completed: {'; '.join(made.broken)}",
            hint=f"take another group: savepoints pipeline create {plan.query} --tag OTHER",
            query=plan.query,
        )
    if made.problems:
        raise _unfit(plan, made.problems)
    return made


def _half_tagged(plan: GroupPlan, store: Store, name: str) -> Savepoint | None:
    """Return what an interrupted run has tagged in its labels, and not yet in the catalog."""
    for one in catalog.select(store.catalog.all(), query=name):
        if one.description == plan.description:
            said = labels.read(store.root, one.id)
            if said and plan.tag in said.tags:
                return one
    return None


def _fitting(
    plan: GroupPlan,
    store: Store,
    name: str,
    readers: Sequence[Savepoint],
    deadline: float,
    progress: Progress,
) -> Savepoint:
    """Take a savepoint of a query that holds all that was read of its tables, without the tag."""
    while True:
        saving, saved = _saved(plan, store, name, deadline, progress)
        faults.reach("group.saved")
        ahead = _ahead(
            (
                *group_check.reads(readers, [saved]),
                *topic_check.reads(readers, [saved], plan.topic_edges),
            )
        )
        if not ahead:
            return saved
        progress(
            f"waiting for {name} to commit batch {saved.cut.batch_id + 1}, because a reader "
            "has already read rows of that batch"
        )
        while _committed(saving) <= saved.cut.batch_id:
            if time.monotonic() > deadline:
                raise _unfit(plan, ahead)
            time.sleep(_POLL_SECONDS)


def _saved(
    plan: GroupPlan, store: Store, name: str, deadline: float, progress: Progress
) -> tuple[CreatePlan, Savepoint]:
    """Take a savepoint of a query, after the one that another process takes at this moment."""
    while True:
        saving = create.plan(store, query=name, forms=plan.forms, description=plan.description)
        try:
            before = _begun_is_committed(plan, store, saving, deadline, progress)
            return saving, create.execute(saving, store, before=before)
        except LockedError as error:
            if time.monotonic() > deadline:
                raise
            progress(f"waiting: {error.message}")
        while lease.files_holder(store.root, saving.query_id) and time.monotonic() <= deadline:
            time.sleep(_POLL_SECONDS)


def _begun_is_committed(
    plan: GroupPlan, store: Store, saving: CreatePlan, deadline: float, progress: Progress
) -> TopicObservation | None:
    """Wait until a query has committed all that it may have written into topics that are read."""
    read = sorted({one.topic for one in plan.topic_edges if one.writer == saving.query})
    if not read:
        return None
    checkpoint, kafka = Location.of(saving.checkpoint), store.settings.kafka
    seen = topic_ends.observe(checkpoint, read, kafka, progress)
    if seen is None:
        raise NotAlignedError(
            f"{saving.query} writes to topic {read[0]}, which another query of the pipeline "
            "reads, but the end offsets of the topic could not be read from Kafka",
            hint="check that [kafka] bootstrap_servers is set and that Kafka answers, then run the "
            "command again: it continues where it stopped",
            query=saving.query,
        )
    if not seen.holds(_committed(saving)):
        progress(
            f"waiting for {saving.query} to commit batch {seen.begun}, because a reader may "
            f"already have read records of that batch from topic {read[0]}"
        )
    while not seen.holds(_committed(saving)):
        if time.monotonic() > deadline:
            raise _unfit(plan, [f"{saving.query} has not committed batch {seen.begun}"])
        time.sleep(_POLL_SECONDS)
    return seen


def _ahead(reads: Sequence[GroupRead | GroupTopicRead]) -> tuple[str, ...]:
    return tuple(str(one) for one in reads if one.problem)


def _committed(plan: CreatePlan) -> int:
    newest = position.read(Location.of(plan.checkpoint)).committed
    return -1 if newest is None else newest


def _unfit(plan: GroupPlan, problems: Sequence[str]) -> NotAlignedError:
    return NotAlignedError(
        f"the savepoints of the group {plan.tag} do not fit together: {'; '.join(problems)}",
        hint="wait until the writer has committed its batch, then run the command again",
        query=plan.query,
    )


def read(store: Store, query: str, name: str) -> Group:
    """Return the savepoints with a tag, and whether they fit together; needs no JVM.

    Args:
        name: The tag.

    Raises:
        QueryNotFoundError: If the store has no query of that name.
        SavepointNotFoundError: If no query of the pipeline has a savepoint of the tag.
    """
    found = pipeline(store, query)
    members = [one.name for one in reversed(found.queries)]
    made = _group(store, members, name, found.topic_edges)
    if not made.savepoints:
        raise SavepointNotFoundError(
            f"no query in the pipeline of {query} has a savepoint with the tag {name!r}",
            hint=f"take a savepoint of each query: savepoints pipeline create {query} --tag {name}",
            query=query,
        )
    return made


def _group(store: Store, members: Sequence[str], name: str, topics: Sequence[TopicEdge]) -> Group:
    return group_of(name, _tagged(store, members, name), members, topics)


def group_of(
    name: str, tagged: Mapping[str, Savepoint], members: Sequence[str], topics: Sequence[TopicEdge]
) -> Group:
    """Return the group of the savepoints with a tag, by query; find out if they fit together."""
    savepoints = tuple(tagged[one] for one in members if one in tagged)
    return Group(
        name,
        savepoints,
        group_check.reads(savepoints, savepoints),
        tuple(one for one in members if one not in tagged),
        topic_check.reads(savepoints, savepoints, topics),
    )


def _tagged(store: Store, members: Sequence[str], name: str) -> dict[str, Savepoint]:
    """Return the savepoints with a tag, by query; also those that are broken."""
    return tags.holders(store.catalog.all(), name, members)


def _no_order(query: str, obstacles: Sequence[PipelineFinding]) -> NotAlignedError:
    return NotAlignedError(
        f"the queries in the pipeline of {query} cannot be saved as one group: "
        + "; ".join(one.what for one in obstacles),
        hint=f"show who reads whose tables: savepoints pipeline show {query}",
        query=query,
    )
