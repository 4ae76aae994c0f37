"""The file source's own log: `sources/<source>/<n>` names the files of its n-th batch.

Written by hand together with `offsets/N`, it makes a query read exactly these files in batch N.
Source: `FileStreamSourceLog`, `FileStreamSourceOffset`, `FileStreamSource.FileEntry`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from savepoints.errors import IncompatibleError
from savepoints.uri import Uri

# After this many entries Spark merges them into one file with another name.
COMPACT_KEY = "spark.sql.streaming.fileSource.log.compactInterval"
_ENTRY = re.compile(r"^v1\n(\{.*)$", re.DOTALL)
# An entry by its path in the checkpoint: source, number, and whether it is a compact one.
NAME = re.compile(r"^sources/([^/]+)/(\d+)(\.compact)?$", re.ASCII)


@dataclass(frozen=True)
class ReadFile:
    """A file that a source has read, as its log has it.

    Attributes:
        modified_ms: When it was last changed, milliseconds since 1970.
    """

    path: str
    modified_ms: int


def entry(number: int, files: Sequence[Uri], timestamp_ms: int) -> bytes:
    """Return the file `sources/<source>/<number>`.

    Args:
        timestamp_ms: When they were last changed, milliseconds since 1970.
    """
    lines = ({"path": _path(one), "timestamp": timestamp_ms, "batchId": number} for one in files)
    return "\n".join(("v1", *(json.dumps(one, separators=(",", ":")) for one in lines))).encode()


def files(data: bytes, name: str) -> list[ReadFile]:
    """Return the files that an entry of the log names."""
    match = _ENTRY.match(data.decode(errors="replace"))
    try:
        lines = map(json.loads, match.group(1).splitlines() if match else [])
        return [ReadFile(unquote(str(one["path"])), int(one["timestamp"])) for one in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise IncompatibleError(
            f"{name} is not a valid entry of the file source's log: {error!r}",
            hint="run the command again",
            file=name,
        ) from None


def in_force(paths: Iterable[str], source: str) -> list[str]:
    """Choose the entries of a source that together name each file that it has read.

    These are the newest compact entry, which has all files of those before it, and the later ones.
    """
    found = sorted(
        (int(match[2]), bool(match[3]), path)
        for path in paths
        if (match := NAME.match(path)) and match[1] == source
    )
    first = max((at for at, (_, compact, _) in enumerate(found) if compact), default=0)
    return [path for _, _, path in found[first:]]


def _path(file: Uri) -> str:
    return quote(file.hadoop, safe=":/=").replace("file:/", "file:///", 1)


def position(number: int) -> str:
    """Return the source's position after its n-th batch, as in the offset log."""
    return json.dumps({"logOffset": number}, separators=(",", ":"))
