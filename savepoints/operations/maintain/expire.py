"""`expire`: remove the savepoints that no rule keeps.

What is kept is decided by `savepoints.store.retention_policy`. A savepoint is removed so that at
any moment it is either whole or has no name any more: it is marked as expired, its own files and
the shared files that no other savepoint names are deleted, its catalog row goes, and manifest and
labels go last. Killed anywhere, the next `expire` or `gc` goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from savepoints import faults
from savepoints.config.settings import RetentionSettings, Settings
from savepoints.errors import LockedError, UsageError
from savepoints.json_values import to_json
from savepoints.model import Labels, SavepointState
from savepoints.moments import utc_now
from savepoints.observe.recorder import recording
from savepoints.operations.maintain import removal
from savepoints.operations.maintain.removal import Removed
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.result import Result
from savepoints.store import bindings
from savepoints.store.locks import lease
from savepoints.store.locks.lease import Lease
from savepoints.store.retention_policy import Decision, RetentionPolicy, decide
from savepoints.store.root import Store
from savepoints.store.savepoint import inventory
from savepoints.store.savepoint.inventory import Inventory

_INTERRUPTED = "its removal was interrupted"


@dataclass(frozen=True)
class ExpiryDecision:
    """Whether one savepoint stays, and why.

    Attributes:
        savepoint_id: The savepoint.
        query: Name of its query.
        query_id: Spark's id of the query.
        generation: The generation that it is of.
        batch_id: The batch of its cut.
        created_at: When it was taken; savepoints are ordered by it.
        state: `expired` when an earlier removal was interrupted.
        kept: Whether it stays.
        reasons: Why it stays, or a remark.
        bytes: Bytes of the files that only it has; 0 when it stays.
    """

    savepoint_id: str
    query: str
    query_id: str
    generation: int
    batch_id: int
    created_at: datetime
    state: SavepointState
    kept: bool
    reasons: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class ExpirePlan(Plan):
    """What `expire` is going to do.

    Attributes:
        policies: The retention policy of each query.
        savepoints: All that were considered, newest first.
        shared_files: Shared files that nothing will need any more.
        shared_bytes: Their bytes.
    """

    policies: Mapping[str, RetentionPolicy]
    savepoints: tuple[ExpiryDecision, ...]
    shared_files: int
    shared_bytes: int

    @property
    def removed(self) -> tuple[ExpiryDecision, ...]:
        """Those that go."""
        return tuple(one for one in self.savepoints if not one.kept)

    @property
    def bytes(self) -> int:
        """All bytes that will be freed."""
        return self.shared_bytes + sum(one.bytes for one in self.savepoints)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        policies = {query: policy.to_json() for query, policy in self.policies.items()}
        return {**to_json(replace(self, policies={})), "policies": policies, "bytes": self.bytes}


@dataclass(frozen=True)
class Expired(Result):
    """What was removed.

    Attributes:
        removed: Ids of the savepoints that are gone.
        kept: Savepoints that were planned for removal but stayed, with the reasons.
        locked: Queries that were left alone because another process is working on their savepoints,
            with what it does.
        findings: What prevented shared files from being deleted.
        files: Files that were deleted.
        bytes: Their bytes.
        seconds: How long it took.
    """

    removed: tuple[str, ...]
    kept: Mapping[str, tuple[str, ...]]
    locked: Mapping[str, str]
    findings: tuple[str, ...]
    files: int
    bytes: int
    seconds: float


def plan(
    store: Store, policy: RetentionPolicy | None = None, *, query: str | None = None
) -> ExpirePlan:
    """Plan which savepoints to remove, with the reasons why the others stay; nothing is deleted.

    Args:
        policy: What to keep of each query; by default what the settings say.
        query: Only savepoints of this query.

    Raises:
        UsageError: If nothing says what to keep.
        QueryNotFoundError: If the store has no savepoint of the query.
    """
    store = store.snapshot()
    rows = store.catalog.all()
    if query is not None:
        store.catalog.require_query(query)
    queries = sorted({one.query for one in rows})
    asked = [query] if query is not None else queries
    settings = bindings.complete(store)
    policies = {name: policy or policy_of(settings, name) for name in asked}
    general = policy or RetentionPolicy.of(settings.retention)
    if all(one.is_empty for one in (general, *policies.values())):
        raise UsageError(
            "no retention rule was given, or only ones of 0, which keep nothing; so nothing was "
            "removed",
            hint="pass a rule, for example: savepoints expire --keep-last 10 --keep-daily 7, "
            "or set [retention] in the settings",
        )
    mine = [one for one in rows if one.query in policies]
    # Of all queries: one that is not asked about keeps its part of a group, and so the whole of it.
    decided = decide(rows, policies, removal.needed(store), now=utc_now())
    decisions = tuple(one for one in decided if one.savepoint.query in policies)
    interrupted = [one for one in mine if one.state == "expired"]
    going = [one.savepoint for one in decisions if not one.kept] + interrupted
    query_ids = sorted({one.query_id for one in going})
    there = inventory.list_directories(store.root, rows, query_ids) if going else Inventory({})
    decisions += tuple(Decision(one, kept=False, reasons=(_INTERRUPTED,)) for one in interrupted)
    shared: dict[str, int] = {}
    findings: tuple[str, ...] = ()
    for query_id in query_ids:
        files, problems = removal.freed(store, there, query_id, {one.id for one in going})
        shared |= files
        findings += problems
    return ExpirePlan(
        verb="expire",
        query=query or ", ".join(queries),
        steps=tuple(
            Step(
                "removed",
                f"delete the savepoint {one.id} (batch {one.cut.batch_id} of {one.query})",
            )
            for one in going
        ),
        warnings=findings,
        policies=policies,
        savepoints=tuple(
            sorted(
                (_verdict(one, there) for one in decisions),
                key=lambda one: one.created_at,
                reverse=True,
            )
        ),
        shared_files=len(shared),
        shared_bytes=sum(shared.values()),
    )


def execute(plan: ExpirePlan, store: Store, *, progress: Progress = silent) -> Expired:
    """Remove what was planned, except what something needs by now; never more.

    Raises:
        LockedError: If others work on the savepoints of the only query that is concerned.
    """
    begun = time.monotonic()
    groups: dict[str, list[ExpiryDecision]] = {}
    for one in plan.removed:
        groups.setdefault(one.query_id, []).append(one)
    locked: dict[str, str] = {}
    removed: list[Removed] = []
    parameters = {name: str(policy) for name, policy in plan.policies.items()}
    only = plan.query if plan.query in plan.policies else None
    with recording(store, plan.verb, query=only, parameters=parameters) as noted:
        with ExitStack() as stack:
            held: dict[str, Lease] = {}
            for query_id, verdicts in groups.items():
                name = verdicts[0].query
                try:
                    files = lease.hold_files(store.root, query_id, name, plan.verb)
                    held[query_id] = stack.enter_context(files)
                except LockedError as error:
                    if len(groups) == 1:
                        raise
                    locked[name] = error.message
            # Those of the others keep their part of a group, and so the whole of it.
            policies = {name: one for name, one in plan.policies.items() if name not in locked}
            for query_id, mine in held.items():
                ids = [one.savepoint_id for one in groups[query_id]]
                removed.append(_expire(policies, store, query_id, ids, mine, progress))
        done = Expired(
            removed=tuple(name for one in removed for name in one.ids),
            kept={name: why for one in removed for name, why in one.kept.items()},
            locked=locked,
            findings=tuple(text for one in removed for text in one.findings),
            files=sum(one.files for one in removed),
            bytes=sum(one.bytes for one in removed),
            seconds=time.monotonic() - begun,
        )
        noted.note(bytes=done.bytes, message=f"removed {', '.join(done.removed) or 'nothing'}")
    return done


def after_savepoint(store: Store, query: str) -> Expired | None:
    """Expire what the settings do not keep of a query, if they ask for it after each savepoint.

    Returns:
        None when they do not, when there is nothing to remove, and when another works on the
        savepoints of the query: there will be a next time.
    """
    if not section_of(store.settings, query).after_savepoint:
        return None
    planned = plan(store, query=query)
    if not planned.removed:
        return None
    try:
        return execute(planned, store)
    except LockedError:
        return None


def policy_of(settings: Settings, query: str) -> RetentionPolicy:
    """Return what the settings say is kept of a query."""
    return RetentionPolicy.of(section_of(settings, query))


def section_of(settings: Settings, query: str) -> RetentionSettings:
    """Return the section of the settings that says what is kept of a query."""
    configured = settings.queries.get(query)
    return (configured.retention if configured else None) or settings.retention


def _verdict(decision: Decision, there: Inventory) -> ExpiryDecision:
    one = decision.savepoint
    found = there.directories.get(one.id)
    size = sum(info.size for info in found.data) if found and not decision.kept else 0
    return ExpiryDecision(
        one.id,
        one.query,
        one.query_id,
        one.generation,
        one.cut.batch_id,
        one.created_at,
        one.state,
        decision.kept,
        decision.reasons,
        size,
    )


def _expire(
    policies: Mapping[str, RetentionPolicy],
    store: Store,
    query_id: str,
    ids: Sequence[str],
    held: Lease,
    progress: Progress,
) -> Removed:
    """Mark what may still go, and remove it, of one query id."""
    decisions = decide(store.catalog.all(), policies, removal.needed(store), now=utc_now())
    kept = {
        one.savepoint.id: one.reasons for one in decisions if one.kept and one.savepoint.id in ids
    }
    going = [one.savepoint for one in decisions if not one.kept and one.savepoint.id in ids]
    marked: set[str] = set()
    for query, policy in policies.items():
        mine = [one.id for one in going if one.query == query]
        if mine:
            held.check()
            changed = store.catalog.relabel(mine, _expired(policy))
            marked |= {one.id for one in changed if one.state == "expired"}
            kept |= {one.id: policy.protects(one.labels) for one in changed if one.id not in marked}
    faults.reach("expire.marked")
    done = removal.remove(store, query_id, ids, held, whole=marked, progress=progress)
    return replace(done, kept={**kept, **done.kept})


def _expired(policy: RetentionPolicy) -> Callable[[Labels], Labels]:
    """Mark as expired, unless somebody tagged or pinned it at this very moment."""

    def mark(labels: Labels) -> Labels:
        return labels if policy.protects(labels) else replace(labels, state="expired")

    return mark
