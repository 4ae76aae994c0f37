"""Positions of Delta sources, and which kind of source a position is of."""

from __future__ import annotations

import json
from itertools import pairwise

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


def spark_text(source_version: int, version: int, index: int, snapshot: str) -> str:
    """Return a position, byte for byte as Delta 4.4 writes it on Spark 4.2."""
    return (
        f'{{"sourceVersion":{source_version},"reservoirId":"{ID}","reservoirVersion":{version},'
        f'"index":{index},"isStartingVersion":{snapshot}}}'
    )


@pytest.mark.parametrize(
    "text",
    [
        # After version 1, in the first snapshot, at a change of the schema.
        spark_text(1, 2, -1, "false"),
        spark_text(1, 4, 7, "true"),
        spark_text(3, 4, -20, "false"),
    ],
)
def test_a_position_is_written_as_delta_writes_it(text: str) -> None:
    position = table_position.parse(text)

    assert position is not None
    assert position.text == text


def test_trap_the_position_after_a_version_names_the_next_one() -> None:
    position = table_position.after(ID, 1)

    assert position == table_position.parse(next_version(ID, 2))
    assert position.behind(1) == 0


def test_positions_of_one_table_have_an_order() -> None:
    in_order = [
        table_position.after(ID, 2),  # Before all of version 3, though written as -1.
        TablePosition(ID, 3, -20, in_snapshot=False),
        TablePosition(ID, 3, -19, in_snapshot=False),
        TablePosition(ID, 3, 0, in_snapshot=False),
        TablePosition(ID, 3, 5, in_snapshot=True),
        table_position.after(ID, 3),
    ]

    for one, other in pairwise(in_order):
        assert other.is_beyond(one)
        assert not one.is_beyond(other)
    assert not in_order[0].is_beyond(in_order[0])
