"""Files of state partitions, copied beside those that are written."""

from __future__ import annotations

import pytest

from savepoints.checkpoint import state_partitions
from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.state.files import partition_of
from savepoints.errors import VerificationError
from savepoints.io import Location
from tests.samples import unpack


def test_all_files_of_the_other_partitions_are_copied(on_local: Location) -> None:
    checkpoint, target = unpack("join", on_local / "live"), on_local / "next"
    files = read_cut(checkpoint)
    of_others = {
        one.path: checkpoint.get(one.path)
        for one in files.all
        if (place := partition_of(one.path)) is not None and place != (0, 1)
    }

    state_partitions.copy_others(checkpoint, files, {0: {1}}, target)

    assert of_others
    assert {one.path: target.get(one.path) for one in target.list()} == of_others


def test_a_file_that_arrives_otherwise_is_found(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local / "live")
    files = read_cut(checkpoint)
    cut_off = next(one.path for one in files.all if partition_of(one.path) == (0, 0))
    checkpoint.put(cut_off, checkpoint.get(cut_off)[:-1])

    with pytest.raises(VerificationError, match=cut_off):
        state_partitions.copy_others(checkpoint, files, {0: {1}}, on_local / "next")
