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
    later = [
        one
        for one in store.generations.all()
        if one.query != savepoint.query and one.went_on_after(savepoint)
    ]
    if not later:
        return
    known, settings = store.catalog.all(), bindings.complete(store)
    names = {one.query for one in later}
    written = {name: {*history.output_topics(known, name, settings)} for name in names}
    for writer in later:
        for topic in sorted(topics & written[writer.query]):
            yield (
                f"{savepoint.query} will read topic {topic} from the offsets of {savepoint.id} "
                f"on, but {writer.query}, which writes the topic, has since begun "
                f"generation {writer.generation} ({writer.begun_by}), so records in between that "
                "were rolled back will be read as well; to avoid this, choose a later savepoint"
            )
