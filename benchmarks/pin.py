"""`pin`: fixing a cut, beside copying the checkpoint's files.

The pin makes hard links on one file system, so its time must not depend on the size of the state;
the checksums, for which what was copied is read once, do.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import savepoints
from benchmarks import state
from benchmarks.result import Result, Sample, Side, copied, in_turns, seconds

# The other size at which the pin is measured.
_SMALLER = 10


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Pin states of two sizes, and copy the larger one."""
    small = state.built(directory, keys // _SMALLER)
    large = state.built(directory, keys)
    samples = in_turns(
        directory,
        rounds,
        _pinned(large, keys),
        _pinned(small, keys // _SMALLER),
        lambda scratch: _full_copy(large, scratch),
    )
    ours, smaller = (seconds(samples[f"pin, {n} keys"]) for n in (keys, keys // _SMALLER))
    return Result(
        samples,
        seconds(samples["full copy"]) / ours,
        (f"{_SMALLER} times the state takes {ours / smaller:.2f} times as long to pin",),
    )


def _pinned(checkpoint: Path, keys: int) -> Side:
    def side(scratch: Path) -> Mapping[str, Sample]:
        store = savepoints.Store.at(str(scratch)).make()
        begun = time.monotonic()
        taken = store.create(
            query="totals", checkpoint=str(checkpoint), forms=("native",)
        ).execute()
        whole = time.monotonic() - begun
        cost = taken.cost
        return {
            f"pin, {keys} keys": Sample(cost.pin_seconds, cost.bytes_copied, cost.objects_copied),
            f"create --format native, {keys} keys": Sample(
                whole, cost.bytes_copied, cost.objects_copied
            ),
        }

    return side


def _full_copy(checkpoint: Path, scratch: Path) -> Mapping[str, Sample]:
    begun = time.monotonic()
    shutil.copytree(checkpoint, scratch / "copy")
    return {"full copy": Sample(time.monotonic() - begun, *copied(scratch))}
