"""The file source's own log: `sources/<source>/<n>` names the files of its n-th batch.

Written by hand together with `offsets/N`, it makes a query read exactly these files in batch N.
Source: `FileStreamSourceLog`, `FileStreamSourceOffset`, `FileStreamSource.FileEntry`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

from savepoints.errors import IncompatibleError
from savepoints.uri import Uri

# Every so many entries Spark writes one file with all so far, under another name.
COMPACT_KEY = "spark.sql.streaming.fileSource.log.compactInterval"
_ENTRY = re.compile(r"^v1\n(\{.*)$", re.DOTALL)


def entry(number: int, files: Sequence[Uri], timestamp_ms: int) -> bytes:
    """Return the file `sources/<source>/<number>`.

    Args:
        number: From 0, without gaps.
        timestamp_ms: When they were last changed, milliseconds since 1970.
    """
    lines = ({"path": _path(one), "timestamp": timestamp_ms, "batchId": number} for one in files)
    return "\n".join(("v1", *(json.dumps(one, separators=(",", ":")) for one in lines))).encode()


def paths(data: bytes, name: str) -> list[str]:
    """Return the paths of the files that an entry of the log names.

    Raises:
        IncompatibleError: If it is not what Spark would write.
    """
    match = _ENTRY.match(data.decode(errors="replace"))
    try:
        lines = match.group(1).splitlines() if match else []
        return [unquote(str(json.loads(line)["path"])) for line in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise IncompatibleError(
            f"{name} is not an entry of the file source's log: {error!r}",
            hint="the directory is damaged: run the command again",
            file=name,
        ) from None


def _path(file: Uri) -> str:
    return quote(file.hadoop, safe=":/=").replace("file:/", "file:///", 1)


def position(number: int) -> str:
    """Return where the source is after its n-th batch, as the offset log has it."""
    return json.dumps({"logOffset": number}, separators=(",", ":"))
