"""What others have altered of a table besides its rows: columns, properties, name and comment.

A commit that takes a whole table back has all of its description, too. The plan says what of that
goes back; what is altered after the plan must not go back silently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.errors import NotAlignedError
from savepoints.outputs.delta import batch_version
from savepoints.outputs.rewind.planned_rewind import Rewind

if TYPE_CHECKING:
    from deltalake import DeltaTable


def refuse(rewind: Rewind, hint: str) -> None:
    """Refuse to take back what others have altered since the plan, or since the rewind was done.

    Nothing is lost of a table of which only some rows go back, nor where Delta's own engine does
    it, which only exchanges files.

    Raises:
        NotAlignedError: If somebody has altered the table.
    """
    output, ours = rewind.output, tuple(rewind.transactions)
    if output.kind == "files" or rewind.own_rows is not None or rewind.engine == "spark":
        return
    later = batch_version.commits_since(output.uri, rewind.newest)
    own = (one.version for one in later if one.written_by(rewind.owner, ours))
    since = next(own, rewind.newest)
    if not later or later[0].version == since:
        return
    then, now = batch_version.open_table(output.uri, since), batch_version.open_table(output.uri)
    if found := differences(then, now):
        raise NotAlignedError(
            f"{output.uri} has been altered after version {since}, which would silently be "
            f"undone: {', '.join(found)}",
            hint=hint,
            uri=output.uri,
            version=since,
            altered=found,
        )


def differences(then: DeltaTable, now: DeltaTable) -> list[str]:
    """Name what differs between two versions of a table besides rows and protocol."""
    before, after = ({one.name: one for one in at.schema().fields} for at in (then, now))
    names = dict.fromkeys([*before, *after])
    found = [f"column {name}" for name in names if before.get(name) != after.get(name)]
    found += [f"property {key}" for key in properties(then, now)]
    return found + description(then, now)


def description(then: DeltaTable, now: DeltaTable) -> list[str]:
    """Name which of a table's name, comment and partitioning differ between two versions."""
    old, new = then.metadata(), now.metadata()
    pairs = {
        "name": (old.name, new.name),
        "comment": (old.description, new.description),
        "partitioning": (old.partition_columns, new.partition_columns),
    }
    return [what for what, (before, after) in pairs.items() if before != after]


def properties(then: DeltaTable, now: DeltaTable) -> list[str]:
    """Name the properties that differ between two versions of a table."""
    before, after = then.metadata().configuration, now.metadata().configuration
    return sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
