"""Whether everything is still there that reading an older version of an output needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from savepoints.errors import LEAVE_OUTPUTS, NotAlignedError
from savepoints.io import Location
from savepoints.model import OutputVersion
from savepoints.outputs.delta import batch_version, snapshot
from savepoints.outputs.file_sink import file_sink

if TYPE_CHECKING:
    from deltalake import DeltaTable

_VECTOR = re.compile(r"deletion_vector_[0-9a-f-]+\.bin")


def unreadable_files(output: OutputVersion) -> list[str]:
    """Return the files of a pinned version that are gone, for example by VACUUM.

    Those are data files; when none of them is gone, the first deletion vector that is.

    Raises:
        FileSinkError: If that of a file sink is.
    """
    if output.kind == "files":
        return file_sink.unreadable_files(output)
    location = Location.of(output.uri)
    table = batch_version.open_table(output.uri, output.version)
    # As they are in the log: `file_uris` also escapes the path of the table, but not that of files.
    paths = [str(path) for path in table.get_add_actions().column("path").to_pylist()]
    # A shallow clone reads files of another directory.
    if any(map(snapshot.is_absolute, paths)):
        return snapshot.missing_files(snapshot.read(output.uri, output.version), location)
    there = {info.path for info in location.list()}
    wanted = [snapshot.file_at(path, location).path for path in paths]
    gone = [f"{location}/{path}" for path in wanted if path not in there]
    return gone or _lost_vectors(table, output)


def _lost_vectors(table: DeltaTable, output: OutputVersion) -> list[str]:
    """Read the deletion vectors, without which rows that were deleted would come back."""
    from deltalake.exceptions import DeltaError

    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return []
    try:
        for _ in table.deletion_vectors():
            pass
    except DeltaError as error:
        lost = _VECTOR.search(str(error))
        if lost is None or "not found" not in str(error).lower():
            raise NotAlignedError(
                f"the deletion vectors of version {output.version} of {output.uri} cannot be "
                f"read: {str(error)[:300]}",
                hint=LEAVE_OUTPUTS,
                uri=output.uri,
            ) from None
        return [lost.group()]
    return []
