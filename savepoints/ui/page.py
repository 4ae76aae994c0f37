"""`page`: a store as one page of HTML that stands by itself, with the answers first.

No script, nothing loaded from elsewhere; text from the store is escaped, and secrets are masked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from savepoints import whole_file
from savepoints.errors import UsageError
from savepoints.store.root import Store
from savepoints.texts import count_text, moment_text
from savepoints.ui import savepoint_rows, timeline
from savepoints.ui.answers import QueryAnswers, answers
from savepoints.ui.environment import environment
from savepoints.ui.facts import StoreFacts
from savepoints.ui.gather import gather
from savepoints.ui.growth import Growth, growth
from savepoints.ui.history import Entry, history
from savepoints.ui.operation_rows import log
from savepoints.ui.savepoint_rows import Row
from savepoints.ui.timeline import Timeline


@dataclass(frozen=True)
class FamilySection:
    """What the page has of a family.

    Attributes:
        anchor: Id of its heading.
        name: Its first query, and how many forks it has.
        rows: The newest savepoints.
        older: The others, which are folded.
        asked: Whether Kafka was asked which of them are restorable.
    """

    anchor: str
    name: str
    queries: tuple[str, ...]
    timeline: Timeline | None
    history: tuple[Entry, ...]
    rows: tuple[Row, ...]
    older: tuple[Row, ...]
    asked: bool
    growth: tuple[tuple[str, tuple[Growth, ...]], ...]


def page(
    store: Store, *, query: str | None = None, since: datetime | None = None, sources: bool = True
) -> str:
    """Return the store as one page of HTML. Needs no JVM, and changes nothing.

    Args:
        query: Only this query, what it was forked from, and its forks.
        since: Show only savepoints, operations and events from then on.
        sources: Also read the current checkpoints and ask Kafka, which gives the lag, and until
            when the newest savepoint is restorable.

    Raises:
        QueryNotFoundError: If the store does not know the query.
        MissingExtraError: If jinja2 is not installed.
    """
    return render(gather(store, query=query, since=since, sources=sources))


def require_place(path: Path, option: str) -> None:
    """Check that a page can be written to a file, before anything is done for one.

    Args:
        option: By which the file was named.

    Raises:
        UsageError: If the name is empty, or its directory does not exist.
    """
    if not path.name:
        raise UsageError(f"{option} is empty", hint=f"name a file: {option} FILE.html")
    if not path.absolute().parent.is_dir():
        raise UsageError(
            f"the directory {path.absolute().parent} of {option} does not exist",
            hint=f"create the directory, or choose another path with {option}",
        )


def write(html: str, path: Path) -> None:
    """Write a page to a file, in one move: whoever looks at it sees the old one or the new one.

    Raises:
        UsageError: If it cannot be written there.
    """
    try:
        whole_file.write(path, html)
    except OSError as error:
        raise UsageError(
            f"the page cannot be written: {error}", hint="write to another path with --out"
        ) from None


def render(facts: StoreFacts, *, live: str = "") -> str:
    """Write facts as a page.

    Args:
        live: The address at which it is served, empty for a file.
    """
    found = answers(facts)
    calm = {one.query for one in found if not one.problems}
    groups = sorted(facts.families, key=calm.issuperset)
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            headline=headline(found),
            store=facts.store,
            at=moment_text(facts.at),
            since=moment_text(facts.since) if facts.since else "",
            live=live,
            made_by="savepoints ui" if live else "savepoints page",
            troubled=[one for one in found if one.problems],
            queries=found,
            families=[
                _section(facts.families[group], group, at) for at, group in enumerate(groups)
            ],
            log=log(facts),
        )
    )


def headline(found: Sequence[QueryAnswers]) -> str:
    """Say in a line whether somebody has to get up."""
    if not found:
        return "No savepoints yet"
    troubled = [one for one in found if one.problems]
    if not troubled:
        return "Everything is in order" if found[1:] else f"{found[0].query} is in order"
    if found[1:]:
        verb = "needs" if len(troubled) == 1 else "need"
        return f"{len(troubled)} of {len(found)} queries {verb} attention"
    return f"{found[0].query} needs attention"


def _section(facts: StoreFacts, family: tuple[str, ...], number: int) -> FamilySection:
    forks = f" and {count_text(len(family) - 1, 'fork')}" if family[1:] else ""
    # Ids of elements have no spaces; the number keeps them apart whatever the names are.
    anchor = f"q{number}-{re.sub(r'[^A-Za-z0-9_-]', '-', family[0])}"
    rows = savepoint_rows.rows(facts, family)
    return FamilySection(
        anchor,
        family[0] + forks,
        family,
        timeline.timeline(facts, family),
        history(facts, family),
        rows[: savepoint_rows.NEWEST],
        rows[savepoint_rows.NEWEST :],
        any(one.restorable != "-" for one in rows),
        tuple((query, growth(facts, query)) for query in family),
    )
