"""Which batches tell what the watermark dropped."""

from __future__ import annotations

import json

import pytest

from savepoints.errors import IncompatibleError
from savepoints.operations.merge import dropped
from savepoints.store.batch_log import Batch


def batch(number: int, watermark: int, *ends: int) -> Batch:
    """Return a batch whose sources read one topic up to these offsets."""
    offsets = tuple(json.dumps({"events": {"0": end, "1": 5}}) for end in ends)
    return Batch(number, offsets, watermark, 1_000_000 + 1000 * number)


def test_trap_two_inputs_read_a_topic_to_different_offsets_in_a_batch() -> None:
    """What lay between was judged by the next batch's watermark, though it was read before."""
    all_of = [batch(3, 100, 10, 10), batch(4, 200, 12, 15), batch(5, 300, 20, 20)]
    known = {one.batch_id: one for one in all_of}

    for first in (4, 5):
        with pytest.raises(IncompatibleError, match=r"in batch 4 .* offsets, 12 and 15") as why:
            dropped.require_one_end("pairs", known, first)
        assert "savepoints run pairs" in why.value.hint
    known[6] = batch(6, 300, 20, 20)
    with pytest.raises(IncompatibleError) as why:
        dropped.require_one_end("pairs", known, 4)
    assert "--since 1970-01-01T00:16:46" in why.value.hint
    dropped.require_one_end("pairs", known, 6)


def test_trap_the_first_batch_dropped_nothing_whatever_its_own_watermark_became() -> None:
    known = {0: batch(0, 100, 12, 15), 1: batch(1, 100, 20, 20)}

    with pytest.raises(IncompatibleError, match="in batch 0"):
        dropped.require_one_end("pairs", known, 0)


def test_at_the_same_watermark_it_does_not_matter_who_read_an_event_first() -> None:
    known = {3: batch(3, 100, 10, 10), 4: batch(4, 100, 12, 15), 5: batch(5, 200, 20, 20)}
    dropped.require_one_end("pairs", known, 4)
    dropped.require_one_end("pairs", {3: batch(3, 100, 10), 4: batch(4, 200, 15)}, 4)
