"""Topics that a restored query reads again, across a rollback of who writes them.

A table cannot be read across its rewind: Delta fails. A topic keeps what was rolled back, and reads
as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from savepoints.model import Savepoint, lowest_offsets
from savepoints.operations.savepoint import history
from savepoints.store import bindings
from savepoints.store.root import Store


def notes(store: Store, savepoint: Savepoint, *, besides: Collection[str] = ()) -> Iterator[str]:
    """Say which topics may have records after a savepoint's offsets that were rolled back.

    Args:
        besides: Topics that are not read again from there.
    """
    topics = lowest_offsets(savepoint.cut.offsets).keys() - {*besides}
    if not topics:
        return
    settings = bindings.complete(store)
    for writer in store.generations.all():
        if (
            writer.query == savepoint.query
            or writer.begun_from is None
            or writer.begun_at <= savepoint.created_at
        ):
            continue
        for topic in sorted(topics & {*history.output_topics(store, writer.query, settings)}):
            yield (
                f"{savepoint.query} will read topic {topic} from the offsets of {savepoint.id} on, "
                f"and {writer.query}, which writes it, began generation {writer.generation} after "
                f"that ({writer.begun_by}): records in between that were rolled back will be read, "
                "too; to avoid this, choose a later savepoint"
            )
