"""Where the next checkpoint of a query goes that a driver of its own runs."""

from __future__ import annotations

import pytest

from savepoints.errors import UsageError
from savepoints.model import Generation
from savepoints.moments import utc_now
from savepoints.operations.rollback.query_context import beside


def generation(number: int, checkpoint: str) -> Generation:
    return Generation("clicks", number, checkpoint, "current", utc_now(), "attach")


@pytest.mark.parametrize(
    ("number", "checkpoint", "following"),
    [
        (1, "s3://lake/checkpoints/clicks", "s3://lake/checkpoints/clicks-2"),
        (2, "s3://lake/checkpoints/clicks-2", "s3://lake/checkpoints/clicks-3"),
        (1, "s3://lake/checkpoints/clicks/1", "s3://lake/checkpoints/clicks/2"),
        (2, "/data/clicks/2", "/data/clicks/3"),
        # A number that is not the generation's means something else.
        (2, "/data/clicks/7", "/data/clicks/7-3"),
        (1, "/data/clicks-7", "/data/clicks-7-2"),
    ],
)
def test_it_is_beside_the_current_one(number: int, checkpoint: str, following: str) -> None:
    assert str(beside(generation(number, checkpoint), number + 1)) == following


def test_beside_a_whole_bucket_there_is_nothing() -> None:
    with pytest.raises(UsageError, match="is the whole bucket s3://checkpoints") as refused:
        beside(generation(1, "s3://checkpoints/"), 2)
    assert "--to" in refused.value.hint
