"""What a plan to go back says of the records that are read once more."""

from __future__ import annotations

import pytest

from savepoints.io import Location
from savepoints.operations.rollback import notes

THEN = '{"orders":{"0":10,"1":20}}'


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ('{"orders":{"0":1510,"1":21}}', ["1,501 records read since then will be read again"]),
        (THEN, []),
        ('{"orders":{"0":11,"1":20,"2":5}}', []),
        ('{"logOffset":7}', []),
    ],
    ids=["some", "none", "a new partition, which began nobody knows where", "files"],
)
def test_of_kafka_it_is_known_how_many(on_local: Location, now: str, said: list[str]) -> None:
    settings = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    (on_local / "live").put("offsets/4", f"v1\n{settings}\n{now}".encode())

    assert [*notes.of_records(str(on_local / "live"), 4, [THEN])] == said
    assert not [*notes.of_records(str(on_local / "live"), None, [THEN])]
    assert not [*notes.of_records(str(on_local / "gone"), 4, [THEN])]
