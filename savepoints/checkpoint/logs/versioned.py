"""The framing of Spark's small files: a line with the version, then JSON.

Source: `HDFSMetadataLog.validateVersion`; the logs of offsets and commits and the metadata of
operators have it in common, and are damaged in the same ways.
"""

from __future__ import annotations

import json
import re
from typing import Any

from savepoints.errors import RESTORE_SAVEPOINT, IncompatibleError, UnsupportedFormatError

_VERSIONS = ("v1", "v2")
_A_VERSION = re.compile(r"v\d{1,9}")
# As in Scala's `getLines`, where a trailing end of line adds no line.
_END_OF_LINE = re.compile(r"\r\n|\n|\r")


def split(data: bytes, name: str, kind: str, hint: str) -> tuple[str, list[str]]:
    """Return the version and the lines that follow it.

    Raises:
        IncompatibleError: If it does not start with a version.
    """
    version, *lines = _END_OF_LINE.split(data.decode("utf-8", errors="replace"))
    if lines and not lines[-1]:
        lines.pop()
    if version not in _VERSIONS:
        raise refusal(version)(
            f"{name}: {kind} version {version[:40]!r} is not supported; only 'v1' and 'v2' are",
            hint=hint,
            file=name,
        )
    return version, lines


def refusal(version: str) -> type[IncompatibleError]:
    """Return the error for an unknown version: of a newer Spark, or damage."""
    return UnsupportedFormatError if _A_VERSION.fullmatch(version) else IncompatibleError


def parse_object(text: str, name: str, what: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = json.loads(text)
        if not isinstance(content, dict):
            raise TypeError(type(content).__name__)
    except (ValueError, TypeError) as error:
        raise damaged(name, what, error) from None
    return content


def join(version: str, content: dict[str, Any], *lines: str) -> bytes:
    """Write a file as Spark does."""
    return "\n".join([version, json.dumps(content, separators=(",", ":")), *lines]).encode()


def damaged(name: str, what: str, error: Exception) -> IncompatibleError:
    """Return the error for a damaged file; `what` is, for example, `a commit log file`."""
    return IncompatibleError(
        f"{name} is not {what} in Spark's format: {error!r}", hint=RESTORE_SAVEPOINT, file=name
    )
