"""The manifest: the commit point of a savepoint's own data.

`savepoints/<id>/manifest.json` is written once, last of the savepoint's files and never changed. It
lists every file with its size and SHA-256, so that a savepoint can be verified, copied and found
again without the catalog.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import unquote

from savepoints.checkpoint.state.files import is_state_data
from savepoints.errors import SavepointsError, UsageError, VerificationError
from savepoints.json_values import from_json, to_json
from savepoints.model import Savepoint, checked_name
from savepoints.store.savepoint import sealed

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class StoredFile:
    """One file of a savepoint.

    Attributes:
        stored_at: Its place in the store, relative to the store's root.
        etag: Entity tag that its source had, by which the next savepoint knows it again; empty for
            what is not shared, or by its name.
    """

    path: str
    stored_at: str
    size: int
    sha256: str
    etag: str = ""


@dataclass(frozen=True)
class Manifest:
    """A savepoint and all its files.

    Attributes:
        native: The files of the checkpoint; without state files when the savepoint is canonical
            only.
        canonical: The files of the Delta table `state/`.
    """

    savepoint: Savepoint
    native: tuple[StoredFile, ...]
    canonical: tuple[StoredFile, ...] = ()

    @property
    def files(self) -> tuple[StoredFile, ...]:
        """All files."""
        return self.native + self.canonical

    @property
    def small_files(self) -> tuple[StoredFile, ...]:
        """The files of the checkpoint without those that hold state."""
        return tuple(file for file in self.native if not is_state_data(file.path))

    def without_native(self) -> Manifest:
        """Return the manifest of the canonical form alone: rows, and a checkpoint without state."""
        savepoint = replace(self.savepoint, forms=("canonical",))
        return replace(self, savepoint=savepoint, native=self.small_files)

    def to_bytes(self) -> bytes:
        """Write the manifest as JSON with a checksum of itself."""
        return sealed.seal({"schema_version": SCHEMA_VERSION, **to_json(self)})

    @classmethod
    def parse(cls, data: bytes, path: str) -> Manifest:
        """Read a manifest; VerificationError if it is none, or of a newer version."""
        try:
            content = sealed.unseal(data)
            if (version := content.pop("schema_version")) != SCHEMA_VERSION:
                raise ValueError(f"it has schema_version {version!r} instead of {SCHEMA_VERSION}")
            found = from_json(cls, content)
            savepoint = found.savepoint
            if manifest_path(savepoint.id) != path:
                raise ValueError(f"it is the manifest of {savepoint.id}")
            homes = (f"{directory(savepoint.id)}/", f"files/{_checked(savepoint.query_id)}/")
            for file in found.files:
                _refuse_outside(file, homes)
        except (KeyError, ValueError, TypeError, AttributeError, SavepointsError) as error:
            raise VerificationError(
                f"{path} is damaged or was written by a newer version of savepoints: {error!r}",
                hint="use another savepoint (to list them: savepoints list), or upgrade savepoints "
                "if a newer version wrote the file",
                file=path,
            ) from None
        return found


def _refuse_outside(file: StoredFile, homes: tuple[str, ...]) -> None:
    """Refuse an entry that names a place outside: what lies in a store is never trusted."""
    if not _checked(file.stored_at).startswith(homes):
        raise ValueError(f"{file.stored_at!r} is not a file of this savepoint")
    _checked(file.path)


def _checked(path: str) -> str:
    """Return a relative path that goes down only, however it is written."""
    parts = unquote(path).replace("\\", "/").split("/")
    if any(part in {"", ".", ".."} for part in parts) or not path.isprintable():
        raise ValueError(f"{path!r} is not a valid path in the store")
    return path


def directory(savepoint_id: str) -> str:
    """Return where a savepoint's files lie; VerificationError for what is no id, but a path."""
    try:
        checked_name(savepoint_id, "savepoint")
    except UsageError:
        raise VerificationError(
            f"the store contains a savepoint named {savepoint_id!r}, which is not a valid id",
            hint="find out what else was changed in the store: savepoints check",
            savepoint=savepoint_id,
        ) from None
    return f"savepoints/{savepoint_id}"


def manifest_path(savepoint_id: str) -> str:
    """Return where a savepoint's manifest lies in the store."""
    return f"{directory(savepoint_id)}/manifest.json"
