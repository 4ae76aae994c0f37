"""State partitions of a checkpoint, of which a merge writes some and copies the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.logs import commit_log
from savepoints.checkpoint.state.files import partition_of
from savepoints.errors import VerificationError
from savepoints.io import Location, in_parallel

# Numbers of state partitions by operator.
Partitions: TypeAlias = "Mapping[int, Collection[int]]"


def copy_others(
    checkpoint: Location, files: CutFiles, partitions: Partitions, target: Location
) -> None:
    """Copy the state of all partitions but these, to where it is in the checkpoint.

    Raises:
        VerificationError: If a file has another size where it arrives.
    """

    def is_other(path: str) -> bool:
        found = partition_of(path)
        return found is not None and found[1] not in partitions[found[0]]

    sizes = {one.path: one.size for one in files.all if is_other(one.path)}
    in_parallel(lambda path: target.copy_from(checkpoint, path, path), list(sizes))
    arrived = {one.path: one.size for one in target.list("state")}
    for path, size in sizes.items():
        if arrived.get(path) != size:
            raise VerificationError(
                f"{target}/{path} has {arrived.get(path, 0):,} bytes, but the file that it was "
                f"copied from, {checkpoint}/{path}, has {size:,}",
                hint="run the command again",
                file=path,
            )


def lay_out(
    checkpoint: Location, files: CutFiles, partitions: Partitions, target: Location
) -> None:
    """Make a checkpoint to be read and not to be started, with these state partitions alone.

    Spark's reader opens the store of each one, which takes longer than to read few rows from it. It
    cannot be asked for some of them, and expects them to be numbered from 0 without gaps.

    Args:
        files: Of the checkpoint, whose operators have no column families.
        partitions: At least one of each operator.
        target: An empty directory.
    """
    numbers = {
        operator: {partition: number for number, partition in enumerate(sorted(some))}
        for operator, some in partitions.items()
    }

    def place(path: str) -> str | None:
        found = partition_of(path)
        if found is None:
            return path
        operator, partition = found
        number = numbers[operator].get(partition)
        inner = path.split("/", 3)[3]
        return None if number is None else f"state/{operator}/{number}/{inner}"

    places = [(one.path, to) for one in files.all if (to := place(one.path)) is not None]
    in_parallel(lambda pair: target.copy_from(checkpoint, *pair), places)
    path = f"commits/{files.cut.batch_id}"
    data = checkpoint.get(path)
    if known := commit_log.parse(data, path).state_ids:
        ids = {one: [known[one][partition] for partition in numbers[one]] for one in known}
        target.put(path, commit_log.with_state_ids(data, path, ids))
