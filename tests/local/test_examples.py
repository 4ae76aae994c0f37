"""Where the example applications are."""

from __future__ import annotations

from pathlib import Path

from savepoints.local import examples


def test_in_a_checkout_they_are_the_ones_at_its_top() -> None:
    assert examples.directory() == Path(__file__).resolve().parents[2]
