"""Which batches a query runs to see what another saw, from positions written down by hand."""

from __future__ import annotations

from dataclasses import replace

from savepoints.checkpoint.position import CheckpointPosition
from savepoints.operations.fork.same_batches import Positions, approach


def at(offset: int) -> Positions:
    return (f'{{"t":{{"0":{offset}}}}}',)


def position(batch: int | None, offset: int, begun: int | None = None) -> CheckpointPosition:
    """Make a query that stands at an offset, and may have begun a batch up to another."""
    following = 0 if batch is None else batch + 1
    return CheckpointPosition(
        batch,
        () if batch is None else at(offset),
        None if begun is None else following,
        () if begun is None else at(begun),
        {},
        watermark_moved=False,
        next_watermark_ms=0,
    )


# The one that is furthest: batch 5 ended at 10, then 14, 14 (without input) and 20.
LOG = {4: at(6), 5: at(10), 6: at(14), 7: at(14), 8: at(20)}
FURTHEST = position(8, 20)


def test_queries_at_one_place_take_the_same_steps_by_themselves() -> None:
    """Numbers of batches may differ, offsets not; JSON may be written in another way."""
    assert approach("b", position(5, 10), "a", position(5, 10), LOG.get).through == ()
    spaced = replace(position(9, 20), positions=('{"t": {"0": 20}}',))
    assert approach("b", spaced, "a", FURTHEST, LOG.get) == approach(
        "b", FURTHEST, "a", FURTHEST, LOG.get
    )
    assert approach("b", position(None, 0), "a", position(None, 0), LOG.get).problem is None


def test_one_that_is_behind_runs_what_the_other_ran() -> None:
    """Also the batch without input, in which its own watermark may do something."""
    found = approach("b", position(5, 10), "a", FURTHEST, LOG.get)
    assert (found.through, found.problem) == ((at(14), at(14), at(20)), None)


def test_what_the_other_has_begun_is_followed_too() -> None:
    """A comparison was killed in that batch."""
    found = approach("b", position(7, 14), "a", position(8, 20, begun=25), LOG.get)
    assert found.through == (at(20), at(25))
    assert approach("b", FURTHEST, "a", position(8, 20, begun=25), LOG.get).through == (at(25),)


def test_its_own_begun_batch_must_be_that_of_the_other() -> None:
    """It may be in an output already, so it cannot become another."""
    same = approach("b", position(5, 10, begun=14), "a", FURTHEST, LOG.get)
    assert same.through == (at(14), at(14), at(20))
    other = approach("b", position(5, 10, begun=13), "a", FURTHEST, LOG.get)
    assert other.problem == "b has started batch 6 with different offsets from a"
    alone = approach("b", position(8, 20, begun=25), "a", FURTHEST, LOG.get)
    assert alone.problem, "nobody says where the other will end that batch"


def test_it_says_why_batches_cannot_be_the_same() -> None:
    """Another way to the same place, an offset log that was cleaned up, another beginning."""
    elsewhere = approach("b", position(5, 11), "a", FURTHEST, LOG.get)
    assert elsewhere.through == ()
    assert elsewhere.problem == (
        "b is at batch 5, and a was never at those offsets in that batch, or no longer retains "
        "that batch"
    )
    cleaned = {batch: one for batch, one in LOG.items() if batch != 6}
    gone = approach("b", position(5, 10), "a", FURTHEST, cleaned.get)
    assert gone.problem
    assert "no longer retains the offsets of all batches since 5" in gone.problem
    fresh = approach("b", position(None, 0), "a", FURTHEST, LOG.get)
    assert fresh.problem == "b and a did not start at the same offsets"
