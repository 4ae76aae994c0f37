"""The manifest: the commit point of a savepoint's own data.

`savepoints/<id>/manifest.json` is written once, last of the savepoint's files and never changed. It
lists every file with its size and SHA-256, so that a savepoint can be verified, copied and found
again without the catalog.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from savepoints.errors import UsageError, VerificationError
from savepoints.model import Savepoint, to_json

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class StoredFile:
    """One file of a savepoint.

    Attributes:
        path: Where it lies in a checkpoint (native files) or in the savepoint's canonical table.
        stored_at: Where it lies in the store, relative to the store's root.
        size: Bytes.
        sha256: In hex.
    """

    path: str
    stored_at: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """A savepoint and all its files.

    Attributes:
        savepoint: What the catalog shows too.
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

    def to_bytes(self) -> bytes:
        """Write the manifest as JSON with a checksum of itself; equal manifests are equal bytes."""
        data = {"schema_version": SCHEMA_VERSION, **to_json(self)}
        return json.dumps({**data, "sha256": _checksum(data)}, indent=1, sort_keys=True).encode()

    @classmethod
    def parse(cls, data: bytes, path: str) -> Manifest:
        """Read a manifest.

        Raises:
            VerificationError: If it is not one, or of a newer version.
        """
        try:
            content = json.loads(data)
            recorded = content.pop("sha256")
            if recorded != _checksum(content):
                raise ValueError("its SHA-256 is not the recorded one")
            if content["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema_version {content['schema_version']!r}")
            return cls(
                Savepoint.from_json(content["savepoint"]),
                tuple(StoredFile(**one) for one in content["native"]),
                tuple(StoredFile(**one) for one in content["canonical"]),
            )
        except (KeyError, ValueError, TypeError, AttributeError, UsageError) as error:
            raise VerificationError(
                f"{path} is damaged or of a newer version: {error!r}",
                hint="restore another savepoint: savepoints list",
                file=path,
            ) from None


def _checksum(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def directory(savepoint_id: str) -> str:
    """Return where a savepoint's own files lie in the store."""
    return f"savepoints/{savepoint_id}"


def manifest_path(savepoint_id: str) -> str:
    """Return where a savepoint's manifest lies in the store."""
    return f"{directory(savepoint_id)}/manifest.json"
