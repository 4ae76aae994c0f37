"""`restore-native`: a checkpoint from the files of a savepoint, beside a copy of all its bytes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import savepoints
from benchmarks import state
from benchmarks.result import Result, Sample, copied, in_turns, seconds


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Restore a savepoint natively, and copy the checkpoint that it was taken of."""
    checkpoint = state.built(directory, keys)
    root = directory / "store-native"
    root.mkdir()
    store = savepoints.Store.at(str(root)).make()
    store.create(query="totals", checkpoint=str(checkpoint), forms=("native",)).execute()

    def restore(scratch: Path) -> Mapping[str, Sample]:
        begun = time.monotonic()
        done = store.savepoint("latest").restore(str(scratch / "restored"), form="native").execute()
        return {"restore": Sample(time.monotonic() - begun, done.bytes_written, done.objects)}

    def full_copy(scratch: Path) -> Mapping[str, Sample]:
        begun = time.monotonic()
        shutil.copytree(checkpoint, scratch / "copy")
        return {"full copy": Sample(time.monotonic() - begun, *copied(scratch))}

    samples = in_turns(directory, rounds, restore, full_copy)
    return Result(samples, seconds(samples["full copy"]) / seconds(samples["restore"]))
