"""Versions of tables that take rows out, as a rewind or a correction does: a stream fails there."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from savepoints.errors import IncompatibleError
from savepoints.io import in_parallel
from savepoints.outputs.delta import log


def refuse(versions: Mapping[str, range], query: str) -> None:
    """Refuse versions that a query would read next if one of them takes rows out.

    Source: `DeltaSource.validateCommitAndDecideAction`.

    Args:
        versions: By table; the logs have them.

    Raises:
        IncompatibleError: If there is one.
        NotAlignedError: If a commit is damaged.
    """
    for uri, numbers in versions.items():
        known = in_parallel(partial(log.commit, uri), list(numbers))
        found = next((one for one in known if one.removes_data), None)
        if found is not None:
            raise IncompatibleError(
                f"{query} would read version {found.version} of {uri}, which takes rows out "
                f"({found.operation or 'operation unknown'}), and a stream of a table fails at "
                "such a commit",
                hint=f"choose a savepoint that has read that version (savepoints list --query "
                f"{query}), roll back the query that writes the table as well (savepoints pipeline "
                f"rollback {query} TAG --all), or start over with the table as it is: savepoints "
                f"reset {query} --to-earliest --outputs truncate",
                uri=uri,
                version=found.version,
            )
