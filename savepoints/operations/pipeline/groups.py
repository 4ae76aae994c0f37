"""`pipeline list` and `pipeline copy`: groups of savepoints, each as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from savepoints.errors import AmbiguousNameError, NotAlignedError
from savepoints.model import GROUP_TAG, Savepoint
from savepoints.operations.maintain import copy
from savepoints.operations.maintain.copy import Copied, CopyPlan
from savepoints.operations.pipeline import group_savepoint
from savepoints.operations.pipeline.group_savepoint import Group
from savepoints.operations.pipeline.pipeline import pipeline
from savepoints.operations.pipeline.pipeline_graph import TopicEdge
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.store.root import Store
from savepoints.store.tables import catalog, tags


@dataclass(frozen=True)
class GroupCopyPlan(Plan):
    """What `pipeline copy` is going to do.

    Attributes:
        tag: The tag of the group.
        destination: Root of the other store.
        copies: A copy for each savepoint.
    """

    tag: str
    destination: str
    copies: tuple[CopyPlan, ...]


def tag_of(moment: datetime) -> str:
    """Return the tag of a group that nobody names: `group-20261125T101500Z`."""
    return f"{GROUP_TAG}{moment:%Y%m%dT%H%M%SZ}"


def groups(store: Store, query: str) -> tuple[Group, ...]:
    """Return the groups of the pipeline that a query belongs to, newest first; needs no JVM.

    A group is the savepoints of several queries that share a tag. One whose tag is half moved is
    listed as such, since the others are none the worse for it.

    Raises:
        QueryNotFoundError: If the store has no query of that name.
    """
    store = store.snapshot()
    pipe = pipeline(store, query)
    members = [one.name for one in reversed(pipe.queries)]
    tagged: dict[str, list[Savepoint]] = {}
    for one in catalog.select(store.catalog.all()):
        if one.query in members:
            for tag in one.tags:
                tagged.setdefault(tag, []).append(one)
    found = [
        _group(tag, mine, members, pipe.topic_edges)
        for tag, mine in tagged.items()
        if len({one.query for one in mine}) > 1 or tag.startswith(GROUP_TAG)
    ]
    # By the youngest of its savepoints, since one may have been added later.
    return tuple(
        sorted(found, key=lambda one: max(it.created_at for it in one.savepoints), reverse=True)
    )


def _group(
    tag: str, mine: Sequence[Savepoint], members: Sequence[str], topics: Sequence[TopicEdge]
) -> Group:
    try:
        return group_savepoint.group_of(tag, tags.holders(mine, tag, members), members, topics)
    except AmbiguousNameError:
        counts = Counter(one.query for one in mine)
        return Group(
            tag,
            tuple(sorted(mine, key=lambda one: members.index(one.query))),
            reads=(),
            missing=tuple(one for one in members if not counts[one]),
            ambiguous=tuple(one for one in members if counts[one] > 1),
        )


def plan_copy(store: Store, query: str, destination: str, *, name: str) -> GroupCopyPlan:
    """Plan a copy of a group into another store; nothing is written.

    Args:
        query: Name of any query of the pipeline.
        destination: Root of the other store, which is created if it does not exist.
        name: The tag of the group.

    Raises:
        SavepointNotFoundError: If no query of the pipeline has a savepoint of the tag.
        NotAlignedError: If a query has none, or they do not fit together.
    """
    group = group_savepoint.read(store, query, name)
    if group.problems:
        raise NotAlignedError(
            f"the group {name} cannot be copied: {'; '.join(group.problems)}",
            hint="copy its savepoints individually instead: savepoints copy NAME DEST",
            query=query,
        )
    copies = tuple(copy.plan(store, one.id, destination) for one in group.savepoints)
    return GroupCopyPlan(
        verb="pipeline copy",
        query=query,
        steps=tuple(
            Step("copied", f"copy {one.savepoint_id} of {one.query} to {one.destination}")
            for one in copies
            if not one.done
        ),
        warnings=tuple(dict.fromkeys(text for one in copies for text in one.warnings)),
        tag=name,
        destination=destination,
        copies=copies,
    )


def execute_copy(
    plan: GroupCopyPlan, store: Store, *, progress: Progress = silent
) -> tuple[Copied, ...]:
    """Copy the savepoints; run again after a crash, it goes on."""
    return tuple(copy.execute(one, store, progress=progress) for one in plan.copies)
