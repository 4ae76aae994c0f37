"""What becomes of topics that a query writes when it goes back: the words of a plan."""

from __future__ import annotations

from collections.abc import Iterator

from savepoints.model import OutputTopic, lowest_offsets
from savepoints.operations.savepoint import history, reread_topics
from savepoints.store import bindings
from savepoints.store.root import Store
from savepoints.texts import offsets_text


def notes(store: Store, query: str, savepoint_id: str | None = None) -> Iterator[str]:
    """Say that topics keep what they have, and who reads it; and what the query reads again.

    Args:
        savepoint_id: What the query goes back to; None if that is not a savepoint.
    """
    known = store.catalog.all()
    saved = {
        topic.topic: topic for one in known if one.id == savepoint_id for topic in one.output_topics
    }
    newest = {one.query: one for one in reversed(known)}
    for topic in history.output_topics(known, query, bindings.complete(store)):
        readers = sorted(
            name
            for name, one in newest.items()
            if name != query and topic in lowest_offsets(one.cut.offsets)
        )
        what = (
            f"topic {topic} keeps the records of the batches that run again"
            f"{_since(saved.get(topic))}, and gets them a second time: its readers see both"
        )
        if readers:
            what += (
                f"; to roll back its readers ({', '.join(readers)}) as well: savepoints pipeline "
                f"rollback {query} NAME"
            )
        yield what
    for one in known:
        if one.id == savepoint_id:
            yield from reread_topics.notes(store, one)


def _since(topic: OutputTopic | None) -> str:
    """Say from which offsets on a topic has what a savepoint does not."""
    if topic is None or topic.ends is None:
        return ""
    earliest = "" if topic.is_exact else " at the earliest"
    return f", from offsets {offsets_text(topic.ends)} on{earliest}"
