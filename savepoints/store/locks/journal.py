"""The journal: a verb with several steps can be killed anywhere and run again.

`operations/<id>.json` is written before the first step and after each one. While it exists, `run`
and every other mutating verb refuse the query. A finished operation is moved to
`operations/finished/`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from savepoints import faults
from savepoints.errors import LockedError, UnfinishedOperationError
from savepoints.io import Location, ObjectInfo, in_parallel
from savepoints.json_values import from_json, to_json
from savepoints.model import Generation, Place
from savepoints.moments import rfc3339, utc_now
from savepoints.store.savepoint.sealed import Document
from savepoints.store.tables.generations import Generations, begun

# A step of every operation that is taken back: from then on it cannot be finished any more.
UNDOING = "undoing"
# With it begin the steps by which several queries go back when their operation is undone.
UNDO = "undo."
# The step of every operation that gives a query its next generation.
GENERATION_BEGUN = "generation_begun"
# What it has added to a topic cannot be taken out again.
_ONLY_FINISHED = "append"
_UNFINISHED = "operations"
_FINISHED = "operations/finished"
# In the order of bytes behind all that is finished, and before what is not: ids begin with `op-`.
_BEHIND = "operations/finished0"


def undoes_the_last(command: str) -> bool:
    """Return True for the command that undoes the last operation on a query."""
    return "--undo" in command.split()


def is_undo(plan: Mapping[str, Any]) -> bool:
    """Return True for the plan of a rollback to what the operation before it had saved."""
    return undoes_the_last(str(plan.get("command"))) or bool(plan.get("undoes"))


@dataclass(frozen=True)
class Operation:
    """One run of a multi-step verb.

    Attributes:
        id: `op-…`.
        verb: For example `rollback`.
        query: Name of the query it mutates.
        plan: The plan it was begun with; a resumed operation follows it.
        command: How to finish it, as a command line.
        begun_at: When its first step began.
        done: Names of the finished steps, with their results.
        finished_at: When it was finished or undone, None while it is in progress.
        undone: Whether its steps were undone.
    """

    id: str
    verb: str
    query: str
    plan: Mapping[str, Any]
    command: str
    begun_at: str
    done: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    finished_at: str | None = None
    undone: bool = False

    @property
    def state(self) -> str:
        """Say how far it is: `unfinished`, `finished` or `undone`."""
        return "undone" if self.undone else "finished" if self.finished_at else "unfinished"

    @property
    def is_undo(self) -> bool:
        """Return True for a rollback to what the operation before it had saved of its queries."""
        return is_undo(self.plan)

    @property
    def follows(self) -> str | None:
        """Id of the merge whose correction a reader takes over with it; None for others."""
        followed: Mapping[str, str] = self.plan.get("follows", {})
        return followed.get("operation_id")

    @property
    def starts(self) -> tuple[str, ...]:
        """Where a rollback was told that each source goes on; empty if where the savepoint was."""
        return tuple(self.plan.get("sources") or ()) if self.verb == "rollback" else ()

    @property
    def generations_begun(self) -> tuple[Place, ...]:
        """The generations that it has begun so far, by query and number."""
        steps = (
            (step.removeprefix(self._prefix).rpartition("."), facts)
            for step, facts in self.done.items()
        )
        return tuple(
            (query or self.query, facts["generation"])
            for (query, _, step), facts in steps
            if step == GENERATION_BEGUN
        )

    def can_be_undone(self, known: Iterable[Generation], others: Iterable[Operation]) -> bool:
        """Return True if an interrupted one can be taken back: none of its generations has begun.

        What a reader takes over can once the merge that it follows was taken back.

        Args:
            known: All generations of the store: one may have begun and not be recorded here yet.
            others: All operations of the store.
        """
        if UNDOING in self.done:
            return True
        follows = any(one.id == self.follows and not one.undone for one in others)
        if follows or self.generations_begun or self.verb == _ONLY_FINISHED:
            return False
        members = (part for one in self.plan.get("members", ()) for part in one.values())
        plans = [one for one in (self.plan, *members) if isinstance(one, Mapping)]
        own = {(one.get("query"), one.get("generation"), one.get("checkpoint")) for one in plans}
        return own.isdisjoint(begun(known))

    def ways_out(self, root: Location, finish: str) -> str:
        """Return what to type of one that was interrupted, given what finishes it."""
        if not self.can_be_undone(Generations(root).all(), all_operations(root)):
            return finish
        return f"{finish}; or undo it: savepoints operations undo {self.id}"

    @property
    def members(self) -> Mapping[str, Mapping[str, Any]]:
        """What was planned for each query that went back with others, by query; none for others.

        Of an operation on several that was taken back, it is what took them back.
        """
        undo = self.done.get(UNDOING, {}).get("plan") or self.plan
        members = (one for one in undo.get("members", ()) if "rollback" in one)
        return {one["rollback"]["query"]: one for one in members}

    def step_of(self, query: str, step: str) -> Mapping[str, Any]:
        """Return what a finished step of one query of several has recorded."""
        return self.done[f"{self._prefix}{query}.{step}"]

    @property
    def _prefix(self) -> str:
        """Of the steps that count: those that take it back, if it was taken back."""
        return UNDO if UNDOING in self.done else ""

    @property
    def done_text(self) -> str:
        """The finished steps, for people."""
        return ", ".join(name.replace("_", " ") for name in self.done) or "no steps"

    def is_on(self, query: str) -> bool:
        """Return True if it mutates a query; one on a pipeline mutates several."""
        return query in (self.query, *self.plan.get("queries", ()))

    def concerns(self, query: str) -> bool:
        """Return True if a query must not be touched meanwhile: a promotion needs the forks."""
        forks = (self.plan.get("fork"), *self.plan.get("forks", ()))
        return self.is_on(query) or query in forks


class Journal:
    """Records the steps of one operation."""

    def __init__(self, root: Location, operation: Operation) -> None:
        """Keep the operation and where it is recorded."""
        self._root = root
        self.operation = operation

    @classmethod
    def begin(cls, root: Location, operation: Operation) -> Journal:
        """Record a new operation before its first step."""
        journal = cls(root, operation)
        journal._write(None)
        faults.reach(f"{operation.verb}.begun")
        return journal

    def is_done(self, step: str) -> bool:
        """Say whether a step was finished, maybe by a process that died later."""
        return step in self.operation.done

    def record(self, step: str, **facts: object) -> None:
        """Record that a step's effect is there."""
        self._record(step, facts, self.operation.done)

    def record_instead(self, of: str, step: str, **facts: object) -> None:
        """Record a step in place of all whose names begin in some way, which are done again."""
        kept = {name: one for name, one in self.operation.done.items() if not name.startswith(of)}
        self._record(step, facts, kept)

    def _record(
        self, step: str, facts: Mapping[str, object], done: Mapping[str, Mapping[str, Any]]
    ) -> None:
        faults.reach(f"{self.operation.verb}.{step}")
        before, now = self.operation, {"at": rfc3339(utc_now()), **to_json(facts)}
        self.operation = dataclasses.replace(before, done={**done, step: now})
        self._write(before)

    def finish(self, *, undone: bool = False) -> None:
        """Move the operation to the finished ones."""
        self.operation = dataclasses.replace(
            self.operation, finished_at=rfc3339(utc_now()), undone=undone
        )
        document(self._root, f"{_FINISHED}/{self.operation.id}.json").put(self.operation)
        faults.reach(f"{self.operation.verb}.finished")
        self._root.delete([_path(self.operation.id)])

    def part(self, name: str) -> JournalPart:
        """Return the part of the journal that is about one query of several."""
        return JournalPart(self, name)

    def _write(self, before: Operation | None) -> None:
        """Write the operation in place of what this process knows of it.

        Raises:
            LockedError: If another process has gone on with it, or ended it: one whose machine
                slept past its lease must not begin it again by what it writes last.
        """
        recorded = document(self._root, _path(self.operation.id))
        there, etag = recorded.read_version()
        known, found = (None if one is None else set(one.done) for one in (before, there))
        if found != known or not recorded.replace(self.operation, etag):
            raise LockedError(
                f"another process has worked on the operation {self.operation.id} meanwhile",
                hint=f"see what has become of it: savepoints operations show {self.operation.id}",
                operation=self.operation.id,
            )


class JournalPart(Journal):
    """The steps of one operation that concern one of its queries, by names of their own.

    What is recorded as `outputs_rewound` is `silver.outputs_rewound` in the whole.
    """

    def __init__(self, whole: Journal, name: str) -> None:
        """Be a part of a journal."""
        self._whole = whole
        self._prefix = f"{name}."

    @property
    def operation(self) -> Operation:  # type: ignore[override]
        """The operation, with the steps of this part alone."""
        whole, prefix = self._whole.operation, self._prefix
        done = {
            step.removeprefix(prefix): facts
            for step, facts in whole.done.items()
            if step.startswith(prefix)
        }
        return dataclasses.replace(whole, done=done)

    def record(self, step: str, **facts: object) -> None:
        """Record that a step's effect is there, in the whole."""
        self._whole.record(f"{self._prefix}{step}", **facts)

    def finish(self, *, undone: bool = False) -> None:
        """Finish the whole operation."""
        self._whole.finish(undone=undone)


def all_operations(root: Location) -> list[Operation]:
    """Return all operations, those under way and those that are finished, the newest first."""
    # In the order in which an operation is moved: one that ends meanwhile is in both, not in none.
    begun = {one.id: one for one in all_unfinished(root)}
    finished = {one.id: one for one in _read(root, root.list(_FINISHED))}
    # Killed in its last moment, an operation has both files, and is to be finished once more.
    twice = {id_ for id_ in begun.keys() & finished if root.exists(_path(id_))}
    found = {**begun, **{id_: one for id_, one in finished.items() if id_ not in twice}}
    return sorted(found.values(), key=lambda one: (one.begun_at, one.id), reverse=True)


def by_generation(root: Location) -> dict[Place, Operation]:
    """Return the operation that began each generation, by query and number, if one did."""
    return {generation: one for one in all_operations(root) for generation in one.generations_begun}


def undone_by(operations: Sequence[Operation]) -> dict[str, str]:
    """Return which finished operations were undone, and by which: ids by ids.

    What readers took over of a merge was undone with it.

    Args:
        operations: The newest first.
    """
    saved: dict[Any, str] = {
        one.plan["safety_id"]: one.id for one in operations if one.plan.get("safety_id")
    }
    found: dict[str, str] = {
        undone: one.id
        for one in reversed(operations)
        if one.is_undo
        and one.state == "finished"
        and (undone := one.plan.get("undoes") or saved.get(one.plan.get("savepoint_id")))
    }
    return found | {one.id: found[one.follows] for one in operations if one.follows in found}


def all_unfinished(root: Location) -> list[Operation]:
    """Return the operations on all queries that were begun and not finished.

    Each verb asks, and each start of a query, so that finished ones, which stay, are not listed.
    """
    return _read(root, root.list(_UNFINISHED, after=_BEHIND))


def unfinished(root: Location, query: str) -> Operation | None:
    """Return the operation on a query that was begun and not finished, None if there is none.

    A promotion is one on the live query and on its fork.
    """
    return next((one for one in all_unfinished(root) if one.concerns(query)), None)


def document(root: Location, path: str) -> Document[Operation]:
    """Return the file of an operation."""
    hint = (
        "restore an older version of this file in the store; without one the operation cannot be "
        "finished or undone, and savepoints check says what to do"
    )
    return Document(root, path, partial(from_json, Operation), hint)


def _read(root: Location, files: Iterable[ObjectInfo]) -> list[Operation]:
    found = in_parallel(lambda one: document(root, one.path).read(), [*files])
    return [one for one in found if one is not None]  # None: it was finished at this moment.


def refuse_unfinished(root: Location, query: str) -> None:
    """Refuse to touch a query while an operation on it is unfinished."""
    operation = unfinished(root, query)
    if operation is not None:
        raise refusal(root, operation)


def refusal(root: Location, operation: Operation) -> UnfinishedOperationError:
    """Return the error that says an operation must be finished first."""
    if UNDOING in operation.done:
        return UnfinishedOperationError(
            f"the undo of {operation.verb} {operation.id} of {operation.query} was interrupted",
            hint=f"finish it: savepoints operations undo {operation.id}",
            query=operation.query,
            operation=operation.id,
        )
    return UnfinishedOperationError(
        f"{operation.verb} {operation.id} of {operation.query} was interrupted; done so far: "
        f"{operation.done_text}",
        hint=operation.ways_out(root, f"finish it first: {operation.command}"),
        query=operation.query,
        operation=operation.id,
    )


def _path(operation_id: str) -> str:
    return f"{_UNFINISHED}/{operation_id}.json"
