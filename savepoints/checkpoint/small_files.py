"""Adapt a savepoint's small files to the checkpoint that is restored.

Most are copied as they are. The offset log says how many state partitions the query looks for and
which provider keeps them; operator metadata of version 2 has absolute paths of schema files, which
would tie the copy to the directory that it came from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.source_positions import SourceMap
from savepoints.checkpoint.state import operators
from savepoints.uri import Uri

_OFFSETS = re.compile(r"^offsets/\d+$")


@dataclass(frozen=True)
class Skeleton:
    """Where and how a restored query will run.

    Attributes:
        partitions: Number of state partitions; None in a stateless query.
        sources: Where each source continues; None to leave that unchanged.
    """

    checkpoint: Uri
    partitions: int | None
    conf: Mapping[str, str]
    sources: SourceMap | None = None

    def changed(self, path: str, data: bytes) -> bytes:
        """Return a file as the restored checkpoint needs it."""
        if _OFFSETS.match(path):
            if self.sources is not None:
                data = offset_log.with_sources(data, path, self.sources)
            if self.partitions is None:
                return data
            # Also where nothing changes: the first run with offset log v2 leaves it out.
            partitions = {offset_log.PARTITIONS_KEY: str(self.partitions)}
            return offset_log.with_conf(data, path, {**self.conf, **partitions})
        if operators.is_metadata(path):
            return operators.moved(data, path, self.checkpoint.hadoop, self.partitions)
        return data


def may_change(path: str) -> bool:
    """Return True if a file must be rewritten; the object store can copy all others."""
    return bool(_OFFSETS.match(path) or operators.is_metadata(path))
