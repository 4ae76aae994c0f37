"""The files of a checkpoint's state, to be seen which of them a verb wrote."""

from __future__ import annotations

from collections import defaultdict

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.state.files import partition_of
from savepoints.io import Location


def by_partition(checkpoint: Location) -> dict[int, set[str]]:
    """Return the names of the state files of the newest batch, by state partition."""
    found: dict[int, set[str]] = defaultdict(set)
    for info in (*(cut := read_cut(checkpoint)).state, *cut.ssts):
        place = partition_of(info.path)
        assert place is not None
        found[place[1]].add(info.path)
    return dict(found)
