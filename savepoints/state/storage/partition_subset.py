"""A checkpoint with some of the state partitions of another one, to be read and not to be started.

Spark's reader opens the store of each state partition, which takes longer than to read few rows
from it, and has no way to be asked for some of them.
"""

from __future__ import annotations

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.logs import commit_log
from savepoints.checkpoint.state.files import partition_of
from savepoints.io import Location, in_parallel
from savepoints.state.storage.bulk_load import Partitions


def lay_out(checkpoint: Location, files: CutFiles, wanted: Partitions, target: Location) -> None:
    """Copy what a reader needs, with the state partitions numbered from 0, as it expects them.

    Args:
        files: Of the checkpoint, whose operators have no column families.
        wanted: At least one state partition of each operator.
        target: An empty directory.
    """
    numbers = {
        operator: {partition: number for number, partition in enumerate(sorted(partitions))}
        for operator, partitions in wanted.items()
    }

    def place(path: str) -> str | None:
        found = partition_of(path)
        if found is None:
            return path
        operator, partition = found
        number = numbers[operator].get(partition)
        inner = path.split("/", 3)[3]
        return None if number is None else f"state/{operator}/{number}/{inner}"

    places = [(one.path, place(one.path)) for one in files.all]
    in_parallel(
        lambda pair: target.copy_from(checkpoint, *pair),
        [(path, to) for path, to in places if to is not None],
    )
    path = f"commits/{files.cut.batch_id}"
    data = checkpoint.get(path)
    if known := commit_log.parse(data, path).state_ids:
        ids = {one: [known[one][partition] for partition in sorted(wanted[one])] for one in known}
        target.put(path, commit_log.with_state_ids(data, path, ids))
