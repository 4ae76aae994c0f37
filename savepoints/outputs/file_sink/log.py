"""The log of Spark's file sink as a file format: its entries, and which of them readers look at.

`FileStreamSinkLog` and `CompactibleFileStreamLog` of Spark: a file `<batch>` for each batch, or
`<batch>.compact`, which has what all batches up to it wrote; in it a line `v1`, then one JSON
object a data file. In force after a batch are the newest compact entry and those after it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from savepoints.io import Location, in_parallel

LOG = "_spark_metadata"
COMPACT = ".compact"
_NAME = re.compile(r"(\d+)(\.compact)?", re.ASCII)

# SHA-256 of each entry of a log, by its name.
Entries = Mapping[str, str]


def entries(sink: Location) -> list[str]:
    """Return the names of the log's entries."""
    return [info.path for info in (sink / LOG).list() if _NAME.fullmatch(info.path)]


def empty_entry(sink: Location, batch_id: int) -> str | None:
    """Return the entry of a batch that has no bytes, which a list does not show; None without."""
    for name in (f"{LOG}/{batch_id}", f"{LOG}/{batch_id}{COMPACT}"):
        with suppress(FileNotFoundError):
            if sink.head(name).size == 0:
                return name
    return None


def hashed(sink: Location, names: Collection[str] | None = None) -> dict[str, str]:
    """Return entries that are there, all or some, with their hashes."""
    log = sink / LOG
    found = [one for one in entries(sink) if names is None or one in names]
    return dict(zip(found, in_parallel(log.sha256, found), strict=True))


def needed(names: Iterable[str], batch_id: int) -> list[str] | None:
    """Return the entries that readers look at after a batch, in order; None if one is missing."""
    earlier = sorted((one for one in names if batch_of(one) <= batch_id), key=order)
    begin, start = 0, 0
    for position, name in enumerate(earlier):
        if name.endswith(COMPACT):
            begin, start = position, batch_of(name)
    found = earlier[begin:]
    return found if [batch_of(one) for one in found] == list(range(start, batch_id + 1)) else None


def begins_late(names: Iterable[str]) -> int:
    """Return the first batch of a log that begins after batch 0, 0 of one that is as it should be.

    What was compacted is not missing.
    """
    known = list(names)
    if any(name.endswith(COMPACT) for name in known):
        return 0
    return min(map(batch_of, known), default=0)


def fingerprint(state: Entries, names: Iterable[str]) -> str:
    """Return one hash for what readers look at."""
    lines = "".join(f"{name} {state[name]}\n" for name in names)
    return hashlib.sha256(lines.encode()).hexdigest()


def data_files(entry: bytes) -> list[str]:
    """Return the paths of the data files that an entry lists."""
    lines = entry.decode().splitlines()[1:]
    return [unquote(urlsplit(json.loads(line)["path"]).path) for line in lines if line]


def batch_of(name: str) -> int:
    """Return the batch of an entry."""
    return int(name.removesuffix(COMPACT))


def order(name: str) -> tuple[int, bool]:
    """Return what entries are sorted by: a compact one comes after the one that it replaced."""
    return batch_of(name), name.endswith(COMPACT)
