"""JSON documents with a checksum of themselves: manifests, labels, journals, sums.

A flipped bit in them must never read as another value.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any


def seal(content: dict[str, Any]) -> bytes:
    """Write a document with its checksum, which does not depend on the order of its fields."""
    return json.dumps({**content, "sha256": _checksum(content)}, indent=1).encode()


def unseal(data: bytes) -> dict[str, Any]:
    """Read a document and return it without its checksum.

    Raises:
        ValueError: If it is no JSON object, or has another checksum or none.
    """
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004  (of the document, not of a value)
    if content.pop("sha256", None) != _checksum(content):
        raise ValueError("its SHA-256 is not the recorded one")
    return content


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
