"""Labels: what may change about a savepoint, kept beside its manifest.

`savepoints/<id>/labels.json` is written before the catalog row, by conditional PUT, so that the
catalog can be made anew from the savepoints themselves. A savepoint that was never tagged, pinned
or found broken has none: its manifest says what it was born with.
"""

from __future__ import annotations

from collections.abc import Callable

from savepoints.errors import SavepointsError, UsageError, VerificationError
from savepoints.io import Location
from savepoints.model import Labels, Savepoint, checked_name, to_json
from savepoints.store.savepoint import manifest, sealed

SCHEMA_VERSION = 1
# Two people who tag one savepoint at one moment; the later one looks again.
_ATTEMPTS = 20


def labels_path(savepoint_id: str) -> str:
    """Return where a savepoint's labels lie in the store."""
    return f"{manifest.directory(savepoint_id)}/labels.json"


def read(root: Location, savepoint_id: str) -> Labels | None:
    """Return the labels of a savepoint, None when it has those that it was born with.

    Raises:
        VerificationError: If the file is damaged.
    """
    path = labels_path(savepoint_id)
    try:
        return parse(root.get(path), path)
    except FileNotFoundError:
        return None


def change(root: Location, savepoint: Savepoint, how: Callable[[Labels], Labels]) -> Labels:
    """Change the labels of a savepoint and return them as they are then.

    A damaged file is replaced by what the catalog has.

    Args:
        how: Makes the new labels from those that are there; maybe called several times.
    """
    path = labels_path(savepoint.id)
    for _ in range(_ATTEMPTS):
        etag, known = _current(root, savepoint)
        new = how(known or savepoint.labels)
        if new == known:
            return new
        try:
            if etag is None:
                root.create(path, to_bytes(new))
            else:
                root.replace(path, to_bytes(new), etag)
        except FileExistsError:
            continue
        return new
    raise SavepointsError(
        f"{root}/{path} was changed by others {_ATTEMPTS} times while this tried to",
        hint="run the command again",
        savepoint=savepoint.id,
    )


def to_bytes(labels: Labels) -> bytes:
    """Write labels as JSON with a checksum of themselves."""
    return sealed.seal({"schema_version": SCHEMA_VERSION, **to_json(labels)})


def parse(data: bytes, path: str) -> Labels:
    """Read a labels file.

    Raises:
        VerificationError: If it is not one, or of a newer version.
    """
    try:
        content = sealed.unseal(data)
        if (version := content.pop("schema_version")) != SCHEMA_VERSION:
            raise ValueError(f"schema_version {version!r}")
        checked_name(content["query"], "query")
        return Labels(**{**content, "tags": tuple(content["tags"])})
    except (KeyError, ValueError, TypeError, AttributeError, UsageError) as error:
        raise VerificationError(
            f"{path} is damaged or of a newer version: {error!r}",
            hint="write it anew from the catalog: savepoints tag with any change",
            file=path,
        ) from None


def _current(root: Location, savepoint: Savepoint) -> tuple[str | None, Labels | None]:
    """Return the entity tag of the file and what it says, None where there is nothing."""
    path = labels_path(savepoint.id)
    try:
        data, etag = root.get_version(path)
    except FileNotFoundError:
        return None, savepoint.labels
    try:
        return etag, parse(data, path)
    except VerificationError:
        return etag, None
