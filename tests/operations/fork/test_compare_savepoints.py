"""What `compare_at` refuses before Spark is started."""

from __future__ import annotations

import pytest

from savepoints.config.settings import Settings
from savepoints.errors import NotAlignedError, UsageError
from savepoints.handle import Store
from savepoints.model import OutputVersion
from savepoints.operations.fork.compare_savepoints import compare_at
from tests.samples import KAFKA, savepoint

OUTPUT = OutputVersion("totals", "/nowhere/totals", "1", 3, "a/totals/1", 1)


def test_savepoints_of_other_offsets_are_not_compared(local_store: Store) -> None:
    """Both places are said; how the JSON is written is no difference."""
    spaced = KAFKA.replace(":", ": ").replace('"0": 1200,"1": 1180', '"1": 1180,"0": 1200')
    further = KAFKA.replace("1200", "1201")
    for number, (query, offsets) in enumerate({"a": KAFKA, "b": spaced, "c": further}.items()):
        local_store.catalog.add(
            savepoint(number, query=query, offsets=(offsets,), outputs=(OUTPUT,), tags=(query,))
        )
    with pytest.raises(NotAlignedError) as raised:
        compare_at(local_store.with_settings(Settings()), ["a", "c"])
    assert '"0":1200' in raised.value.message
    assert '"0":1201' in raised.value.message
    assert raised.value.hint.endswith("compare them there: savepoints compare a c")

    with pytest.raises(UsageError, match="a has no output 'sums'") as unknown:
        compare_at(local_store.with_settings(Settings()), ["a", "b"], keys={"sums": ("k",)})
    assert unknown.value.hint == "name one of its outputs: totals"
    for names in (["a"], ["a", "a"], []):
        with pytest.raises(UsageError, match="two or more different queries"):
            compare_at(local_store.with_settings(Settings()), names)


def test_trap_one_of_two_sources_has_read_further_in_their_topic(local_store: Store) -> None:
    """What it has read more would be told as a difference of the programs."""
    further = KAFKA.replace("1200", "1203")
    for number, (query, offsets) in enumerate({"a": (KAFKA, KAFKA), "b": (KAFKA, further)}.items()):
        local_store.catalog.add(
            savepoint(number, query=query, offsets=offsets, outputs=(OUTPUT,), tags=(query,))
        )
    with pytest.raises(NotAlignedError, match="savepoints at different offsets"):
        compare_at(local_store.with_settings(Settings()), ["a", "b"])
