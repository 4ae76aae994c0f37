"""Positions of Delta sources, and which kind of source a position is of."""

from __future__ import annotations

import json

import pytest

from savepoints.checkpoint.logs import source_kind, table_position
from savepoints.checkpoint.logs.table_position import TablePosition
from tests.pipelines import next_version

ID = "60d6b7a5-9d6d-4e0b-9f0a-0d1ac4dd5f3e"


@pytest.mark.parametrize(
    ("version", "index", "snapshot", "unread_of_versions_0_to_9"),
    [
        # Versions 0 to 2 are read, all of them.
        (3, -1, False, [3, 4, 5, 6, 7, 8, 9]),
        # Of version 3 some files are, which is not all of it.
        (3, 4, False, [3, 4, 5, 6, 7, 8, 9]),
        (3, 4, True, [3, 4, 5, 6, 7, 8, 9]),
        # Before and after a change of the schema.
        (3, -20, False, [3, 4, 5, 6, 7, 8, 9]),
        (9, -1, False, [9]),
        (10, -1, False, []),
        (0, -1, True, list(range(10))),
    ],
)
def test_a_position_says_which_versions_are_not_read(
    version: int, index: int, snapshot: bool, unread_of_versions_0_to_9: list[int]
) -> None:
    position = table_position.parse(next_version(ID, version, index=index, snapshot=snapshot))

    assert position == TablePosition(ID, version, index, snapshot)
    assert position.behind(9) == len(unread_of_versions_0_to_9)


def test_a_position_beyond_the_end_of_the_table_is_told_by_its_sign() -> None:
    assert TablePosition(ID, 12, -1, in_snapshot=False).behind(9) == -2


@pytest.mark.parametrize(
    ("position", "kind"),
    [
        (None, "unknown"),
        ("", "unknown"),
        ("7", "unknown"),
        ("[]", "unknown"),
        ('"reservoirId"', "unknown"),
        ('{"shard":{"0":"49590"}}', "unknown"),
        ('{"logOffset":3}', "files"),
        ('{"orders":{"0":3}}', "kafka"),
        ('{"reservoirId":{"0":3}}', "kafka"),
        (json.dumps({"reservoirId": ID, "reservoirVersion": "x"}), "delta"),
        (json.dumps({"reservoirId": ID}), "delta"),
    ],
)
def test_other_positions_are_not_of_a_table(position: str | None, kind: str) -> None:
    assert source_kind.kind_of(position) == kind
    assert table_position.parse(position) is None
