"""What somebody on call asks first, answered for each query, with the command that mends it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from shlex import quote
from typing import Literal

from savepoints.errors import LayoutChangedError
from savepoints.model import Generation, Savepoint
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Operation
from savepoints.store.tables.events import NOT_COMPARED, Event
from savepoints.texts import bytes_text, count_text, moment_text, span_text
from savepoints.ui.facts import SourceFacts, StoreFacts

Level = Literal["good", "plain", "unknown", "bad"]

# Others are taken by verbs, in the middle of what they do.
_BY_CLOCK_OR_HAND = frozenset({"periodic", "manual"})
# Savepoints of which the usual interval is the median; fewer than three say nothing.
_USUAL_OF, _FEWEST = 20, 3
_SOON = timedelta(hours=24)
_OVERDUE = 2


@dataclass(frozen=True)
class Answer:
    """One answer.

    Attributes:
        question: In two words.
        value: The answer, in a few.
        note: What it is measured by, or why it is not known.
        level: `bad` is red and a problem.
    """

    question: str
    value: str
    note: str = ""
    level: Level = "plain"


@dataclass(frozen=True)
class Problem:
    """Something to act on.

    Attributes:
        other: Another way out, empty without one.
        unfinished: It is an operation that was begun and not finished.
    """

    text: str
    command: str
    other: str = ""
    unfinished: bool = False


@dataclass(frozen=True)
class QueryAnswers:
    """The answers about one query.

    Attributes:
        status: What it is doing, in words.
        program: Reference of the program of its present generation; empty when it is unknown.
        answers: In the order in which they are asked.
        problems: Empty when all is well.
    """

    query: str
    status: str
    program: str
    answers: tuple[Answer, ...]
    problems: tuple[Problem, ...]


def answers(facts: StoreFacts) -> tuple[QueryAnswers, ...]:
    """Answer for each query, those with problems first."""
    found = [
        _of_query(part, query, facts) for family, part in facts.families.items() for query in family
    ]
    return tuple(sorted(found, key=lambda one: (not one.problems, one.query)))


def usual_interval(savepoints: Sequence[Savepoint]) -> timedelta | None:
    """Return the median time between the newest savepoints; None where there are too few.

    Args:
        savepoints: Of one query; those that other verbs have taken do not count.
    """
    counted = (one.created_at for one in savepoints if one.kind in _BY_CLOCK_OR_HAND)
    taken = sorted(counted, reverse=True)
    if len(taken) < _FEWEST:
        return None
    gaps = [newer - older for newer, older in pairwise(taken[:_USUAL_OF])]
    return timedelta(seconds=statistics.median(one.total_seconds() for one in gaps))


def _of_query(facts: StoreFacts, query: str, all_facts: StoreFacts) -> QueryAnswers:
    mine = facts.of({query})
    sources = facts.sources.get(query, SourceFacts())
    current = next((one for one in mine.generations if one.status == "current"), None)
    whole = [one for one in mine.savepoints if one.state == "complete"]
    newest = facts.newest_alive(query)
    lives = current is not None or not mine.generations
    has_more = lives and not _is_saved(newest, current, sources)
    last = _last_savepoint(facts, newest, usual_interval(whole), may_be_overdue=has_more)
    until = _restorable(facts, sources, newest)
    if not lives:
        # Nobody has to act on these: the query is over.
        last, until = (
            replace(one, level="plain") if one.level == "bad" else one for one in (last, until)
        )
    verified = _verified(facts, query)
    drilled = _drilled(facts, query)
    if current is None:
        status = "ended" if mine.generations else "generation unknown"
    else:
        status = f"generation {current.generation}"
        if query in facts.busy:
            doing = facts.busy[query]
            status += ", running" if doing in ("run", "attach") else f", {doing} under way"
        else:
            status += ", not running as far as the store knows"
    return QueryAnswers(
        query,
        status,
        _program(sources, current, newest),
        (last, until, _lag(facts, sources), verified, drilled, _state(newest)),
        (
            *(
                Problem(f"{one.message}; {one.hint}.", "savepoints check")
                for one in facts.damaged.get(query, ())
            ),
            *(
                _of_operation(one, all_facts)
                for one in mine.operations
                if one.state == "unfinished"
            ),
            *(_of_life(mine, query, newest, last, until) if lives else ()),
            *_of_savepoints(mine, query, verified),
        ),
    )


def _program(sources: SourceFacts, current: Generation | None, newest: Savepoint | None) -> str:
    """Name the program of a generation: as it is bound, or as a savepoint of it says."""
    if sources.topology is not None:
        return sources.topology.application or ""
    if current and newest and newest.generation == current.generation:
        return newest.application or ""
    return ""


def _is_saved(newest: Savepoint | None, current: Generation | None, sources: SourceFacts) -> bool:
    """Say whether the newest batch is known to be saved: a quiet query is not overdue."""
    place = sources.topology
    return (
        newest is not None
        and current is not None
        and place is not None
        and newest.generation == current.generation
        and newest.cut.batch_id >= place.batch_id
    )


def _last_savepoint(
    facts: StoreFacts, newest: Savepoint | None, usual: timedelta | None, *, may_be_overdue: bool
) -> Answer:
    if newest is None:
        return Answer(
            "Last savepoint", "none", "no complete savepoint on the current timeline", "bad"
        )
    age = facts.at - newest.created_at
    note = f"batch {newest.cut.batch_id}, {newest.kind}"
    if usual is None:
        return Answer("Last savepoint", f"{span_text(age)} ago", f"{note}; no usual interval yet")
    overdue = may_be_overdue and age > _OVERDUE * usual
    return Answer(
        "Last savepoint",
        f"{span_text(age)} ago",
        f"{note}; usually every {span_text(usual)}",
        "bad" if overdue else "good",
    )


def _restorable(facts: StoreFacts, sources: SourceFacts, newest: Savepoint | None) -> Answer:
    question, found = "Restorable until", sources.newest
    if newest is None:
        return Answer(question, "-", "there is no savepoint", "unknown")
    if found is None:
        return Answer(question, "not checked", "Kafka was not asked", "unknown")
    if found.restorable != "yes":
        level: Level = "bad" if found.restorable == "no" else "unknown"
        value = "not restorable" if level == "bad" else "unknown"
        return Answer(question, value, found.reason, level)
    if found.until is None:
        return Answer(question, "no limit known", found.basis or found.reason, "good")
    left = found.until - facts.at
    return Answer(
        question,
        f"{span_text(left)} left",
        f"{moment_text(found.until)}; {found.basis}",
        "bad" if left < _SOON else "good",
    )


def _lag(facts: StoreFacts, sources: SourceFacts) -> Answer:
    place = sources.topology
    if place is None:
        return Answer("Lag", "unknown", sources.problem or "not checked", "unknown")
    behind = f"batch {place.batch_id} committed {span_text(facts.at - place.committed_at)} ago"
    kafka = [one for one in place.sources if one.kind == "kafka"]
    lags = [one.lag for one in kafka]
    if not kafka or None in lags:
        reason = next((one.problem for one in kafka if one.problem), "no Kafka source")
        return Answer("Lag", "unknown", f"{reason}; {behind}", "unknown")
    return Answer("Lag", count_text(sum(one or 0 for one in lags), "record"), behind)


def _verified(facts: StoreFacts, query: str) -> Answer:
    event = _newest(facts.events, "verify", query)
    if event is None:
        return Answer("Last verify", "never", "", "unknown")
    # One of all queries has failed for those that it names; for each, if it came to nothing.
    failed = event.result == "failed" and (not event.broken or query in event.broken)
    return Answer(
        "Last verify",
        f"{'failed ' if failed else ''}{span_text(facts.at - event.at)} ago",
        event.message if failed or event.query == query else "as part of verify --all",
        "bad" if failed else "good",
    )


def _drilled(facts: StoreFacts, query: str) -> Answer:
    event = _newest(facts.events, "drill", query)
    if event is None:
        return Answer("Last drill", "never", "", "unknown")
    how: tuple[str, Level] = ("", "good")
    if event.result == "failed":
        how = ("failed ", "bad")
    elif NOT_COMPARED in event.parameters:
        # What was not compared may be anything.
        how = ("partly ", "unknown")
    said, level = how
    return Answer("Last drill", f"{said}{span_text(facts.at - event.at)} ago", event.message, level)


def _newest(events: Sequence[Event], verb: str, query: str) -> Event | None:
    found = (
        one
        for one in events
        if one.verb == verb and one.query in (None, query) and one.result != "skipped"
    )
    return next(found, None)


def _state(newest: Savepoint | None) -> Answer:
    if newest is None:
        return Answer("State", "-", "there is no savepoint", "unknown")
    sizes = [one.state_bytes for one in newest.operators if one.state_bytes is not None]
    operators = count_text(len(newest.operators), "operator")
    if newest.rows is None:
        cost = newest.cost
        size = bytes_text(cost.bytes_copied + cost.bytes_shared)
        return Answer("State", size, f"files of {operators}; native only, rows not counted")
    return Answer(
        "State", count_text(newest.rows, "row"), f"{bytes_text(sum(sizes))} in {operators}"
    )


def _of_life(
    facts: StoreFacts, query: str, newest: Savepoint | None, last: Answer, until: Answer
) -> Iterator[Problem]:
    """Find what keeps a query that has not ended from being safe, or from running."""
    name = quote(query)
    if last.level == "bad" and newest is not None:
        text = f"The last savepoint is overdue: it was taken {last.value} ({last.note})."
        yield Problem(text, f"savepoints create {name}")
    elif newest is None:
        yield Problem("There is no complete savepoint.", f"savepoints create {name}")
    if until.level == "bad":
        what = (
            "The newest savepoint cannot be restored"
            if until.value == "not restorable"
            else "The newest savepoint can be restored for only "
            f"{until.value.removesuffix(' left')} more"
        )
        yield Problem(f"{what}: {until.note}.", f"savepoints create {name}")
    ran = _newest(facts.events, "run", query)
    begun = max((one.begun_at for one in facts.generations), default=facts.at)
    # A run of another generation has nothing to do with what would be run now.
    if ran and ran.result == "failed" and ran.at > begun and query not in facts.busy:
        what = f"The last run failed {span_text(facts.at - ran.at)} ago: {ran.message}."
        origins = (one.begun_from for one in facts.generations if one.status == "current")
        saved = newest.id if newest else next(origins, None)
        yield Problem(what, _after_failure(ran, saved))


def _of_savepoints(facts: StoreFacts, query: str, verified: Answer) -> Iterator[Problem]:
    broken = [one for one in facts.savepoints if one.state == "broken"]
    if broken:
        reason = f": {broken[0].state_reason}" if broken[0].state_reason else ""
        yield Problem(
            f"Savepoint {broken[0].id} is broken{reason} "
            f"({count_text(len(broken), 'broken savepoint')} in total).",
            f"savepoints verify {broken[0].id}",
        )
    elif verified.level == "bad":
        yield Problem(
            f"The last verify failed: {verified.note}.",
            f"savepoints verify --all --query {quote(query)}",
        )


def _after_failure(run: Event, savepoint: str | None) -> str:
    """Return what to type after a run that failed: not the same again where that must fail."""
    if run.error == LayoutChangedError.__name__ and savepoint is not None:
        app = quote(run.parameters.get("app", "MODULE:APP"))
        return f"savepoints upgrade check --app {app} --from {savepoint}"
    return f"savepoints run {quote(run.query or '')}"


def _of_operation(operation: Operation, facts: StoreFacts) -> Problem:
    what = f"{operation.verb} {operation.id} of {operation.query}"
    undo = f"savepoints operations undo {operation.id}"
    if journal.UNDOING in operation.done:
        return Problem(f"Undoing {what} is not finished.", undo, unfinished=True)
    done = f"done so far: {operation.done_text}"
    other = undo if operation.can_be_undone(facts.generations, facts.operations) else ""
    return Problem(f"{what} is not finished; {done}.", operation.command, other, unfinished=True)
