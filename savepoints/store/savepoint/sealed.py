"""JSON documents with a checksum of themselves: manifests, labels, journals, bindings, requests.

A flipped bit in them must never read as another value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from savepoints.errors import UsageError, VerificationError
from savepoints.io import Location
from savepoints.json_values import to_json

SCHEMA_VERSION = 1

T = TypeVar("T")


@dataclass(frozen=True)
class Document(Generic[T]):
    """One document of a store, a dataclass as JSON.

    Attributes:
        parse: Makes the value of the fields; whatever it raises means that they are damaged.
        hint: What to do about a damaged one.
    """

    root: Location
    path: str
    parse: Callable[[dict[str, Any]], T]
    hint: str

    def read(self) -> T | None:
        """Return the value, None without a document; VerificationError if it is damaged."""
        try:
            return self.decode(self.root.get(self.path))
        except FileNotFoundError:
            return None

    def read_version(self, *, mend: bool = False) -> tuple[T | None, str | None]:
        """Return value and entity tag, both None when there is no such document.

        Args:
            mend: A damaged one has a tag and no value, so that it can be replaced.
        """
        try:
            data, etag = self.root.get_version(self.path)
        except FileNotFoundError:
            return None, None
        try:
            return self.decode(data), etag
        except VerificationError:
            if not mend:
                raise
            return None, etag

    def put(self, value: T) -> None:
        """Write the value whatever was there: for who holds the lease on what it is about."""
        self.root.put(self.path, encode(value))

    def replace(self, value: T, etag: str | None) -> bool:
        """Write the value in place of what was read, by conditional PUT.

        Returns:
            False when somebody else was faster; then nothing was written.
        """
        try:
            if etag is None:
                self.root.create(self.path, encode(value))
            else:
                self.root.replace(self.path, encode(value), etag)
        except (FileExistsError, FileNotFoundError):
            return False
        return True

    def decode(self, data: bytes) -> T:
        """Read the value from bytes; VerificationError if damaged, or of a newer version."""
        try:
            content = unseal(data)
            if (version := content.pop("schema_version")) != SCHEMA_VERSION:
                raise ValueError(f"schema_version is {version!r}, not {SCHEMA_VERSION}")
            return self.parse(content)
        except (ValueError, TypeError, KeyError, AttributeError, UsageError) as error:
            raise VerificationError(
                f"{self.path} is damaged or was written by a newer version of savepoints: "
                f"{error!r}",
                hint=self.hint,
                file=self.path,
            ) from None


def encode(value: object) -> bytes:
    """Write a dataclass as a sealed document."""
    return seal({"schema_version": SCHEMA_VERSION, **to_json(value)})


def seal(content: dict[str, Any]) -> bytes:
    """Write a document with its checksum, which does not depend on the order of its fields."""
    return json.dumps({**content, "sha256": _checksum(content)}, indent=1).encode()


def unseal(data: bytes) -> dict[str, Any]:
    """Read a document and return it without its checksum.

    Raises:
        ValueError: If it is not a JSON object, or has another checksum or none.
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  (the document, not a value)
    if content.pop("sha256", None) != _checksum(content):
        raise ValueError("its SHA-256 does not match the recorded one")
    return content


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
