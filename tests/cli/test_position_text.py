"""Where a source is, as people read it; the positions are Spark's and Delta's own words."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from savepoints.cli.render import position_text
from savepoints.handle import Store
from tests.samples import savepoint

Call = Any

_TABLE = (
    '{"sourceVersion":1,"reservoirId":"5ea381b3-7379-4aec-bbf8-d744fd810f5e",'
    '"reservoirVersion":%d,"index":%d,"isStartingVersion":%s}'
)


@pytest.mark.parametrize(
    ("position", "shown"),
    [
        (None, "not started"),
        (_TABLE % (7, -1, "false"), "version 7 of table 5ea381b3"),
        (_TABLE % (7, 3, "false"), "version 7 of table 5ea381b3, after file 3"),
        (
            _TABLE % (7, 3, "true"),
            "version 7 of table 5ea381b3, after file 3, in the initial snapshot",
        ),
        ('{"logOffset":4}', '{"logOffset":4}'),
    ],
)
def test_a_position_is_named(position: str | None, shown: str) -> None:
    assert position_text.text(position) == shown


def test_trap_show_has_a_tables_position_below_topic(call: Call, local_store: Store) -> None:
    """As JSON it was wider than the screen, beside a partition and an offset that were empty."""
    made = savepoint(1)
    both = (_TABLE % (7, -1, "false"), '{"orders":{"1":5,"0":4}}')
    cut = dataclasses.replace(made.cut, offsets=both)
    local_store.catalog.add(dataclasses.replace(made, cut=cut))

    text = call("show", made.id, "--store", str(local_store.root)).out

    lines = [line.split() for line in text.partition("Offsets")[2].splitlines()]
    assert ["source", "position"] in lines
    assert ["0", "version", "7", "of", "table", "5ea381b3"] in lines
    at = lines.index(["source", "topic", "partition", "offset"])
    assert lines[at + 2 : at + 4] == [["1", "orders", "0", "4"], ["1", "orders", "1", "5"]]
