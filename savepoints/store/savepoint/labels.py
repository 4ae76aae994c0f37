"""Labels: what may change about a savepoint, kept beside its manifest.

`savepoints/<id>/labels.json` is written before the catalog row, by conditional PUT, so that the
catalog can be made anew from the savepoints themselves. A savepoint that was never tagged, pinned
or found broken has none: its manifest says what it was born with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from savepoints.errors import SavepointsError
from savepoints.io import Location
from savepoints.json_values import from_json
from savepoints.model import Labels, Savepoint, checked_name
from savepoints.store.savepoint import manifest
from savepoints.store.savepoint.sealed import Document

# Two people who tag one savepoint at one moment; the later one looks again.
_ATTEMPTS = 20


def labels_path(savepoint_id: str) -> str:
    """Return where a savepoint's labels lie in the store."""
    return f"{manifest.directory(savepoint_id)}/labels.json"


def read(root: Location, savepoint_id: str) -> Labels | None:
    """Return the labels of a savepoint, None when it has those that it was born with."""
    return document(root, savepoint_id).read()


def change(root: Location, savepoint: Savepoint, how: Callable[[Labels], Labels]) -> Labels:
    """Change the labels of a savepoint and return them as they are then.

    A damaged file is replaced by what the catalog has.

    Args:
        how: Makes the new labels from those that are there; maybe called several times.
    """
    labels = document(root, savepoint.id)
    for _ in range(_ATTEMPTS):
        known, etag = labels.read_version(mend=True)
        new = how(known or savepoint.labels)
        unchanged = savepoint.labels if etag is None else known
        if new == unchanged or labels.replace(new, etag):
            return new
    raise SavepointsError(
        f"{root}/{labels.path} was changed by other processes during each of {_ATTEMPTS} attempts "
        "to write it",
        hint="run the command again",
        savepoint=savepoint.id,
    )


def document(root: Location, savepoint_id: str) -> Document[Labels]:
    """Return the file of a savepoint's labels."""
    hint = (
        "add or remove any tag, which rewrites the file from the catalog: "
        f"savepoints tag {savepoint_id} TAG"
    )
    return Document(root, labels_path(savepoint_id), _parse, hint)


def _parse(fields: dict[str, Any]) -> Labels:
    checked_name(fields["query"], "query")
    return from_json(Labels, fields)
