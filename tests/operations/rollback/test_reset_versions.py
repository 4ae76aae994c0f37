"""The words of `reset` as versions of a table that deltalake wrote."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from savepoints.checkpoint.logs import table_position
from savepoints.config.settings import QuerySettings
from savepoints.errors import SourceDataGoneError, UsageError
from savepoints.io import Location
from savepoints.operations.rollback import reset_versions
from savepoints.sources.kafka.reset_targets import Target
from tests.outputs import tables

READ = 3


@pytest.fixture
def uri(on_local: Location) -> str:
    found = str(on_local / "events")
    for number in range(6):
        write_deltalake(found, pa.table({"n": [number]}), mode="append")
    return found


def next_version(uri: str, target: Target, *, allow_data_loss: bool = False) -> int:
    """Return the version that is read next after a reset of a query that has read three."""
    now = table_position.after(str(DeltaTable(uri).metadata().id), READ)
    bound = QuerySettings(app="m:a", checkpoints="c", tables={"events": uri})
    (text,) = reset_versions.resolve(
        target, [now], bound, query="q", allow_data_loss=allow_data_loss
    )
    found = table_position.parse(text)
    assert found is not None
    assert found == table_position.after(now.table_id, found.version - 1)
    return found.version


@pytest.mark.parametrize(
    ("target", "version"),
    [
        (Target("earliest"), 0),
        (Target("latest"), 6),
        (Target("current"), 4),
        (Target("offset", 2), 2),
        (Target("offset", 6), 6),
        (Target("shift", -3), 1),
        (Target("shift", 2), 6),
    ],
)
def test_a_target_is_the_version_that_is_read_next(uri: str, target: Target, version: int) -> None:
    assert next_version(uri, target) == version


@pytest.mark.parametrize("target", [Target("offset", 7), Target("shift", -5), Target("shift", 3)])
def test_what_the_table_does_not_have_is_refused(uri: str, target: Target) -> None:
    with pytest.raises(UsageError, match=r"is out of range"):
        next_version(uri, target)


def test_commits_that_are_gone_are_lost_only_by_choice(uri: str) -> None:
    DeltaTable(uri).create_checkpoint()
    tables.clean_up(uri, 2)

    with pytest.raises(SourceDataGoneError, match="no longer has versions before 2"):
        next_version(uri, Target("earliest"))
    assert next_version(uri, Target("earliest"), allow_data_loss=True) == 2


def test_a_table_that_nobody_named_is_asked_for(uri: str) -> None:
    now = table_position.after("another", READ)
    bound = QuerySettings(app="m:a", checkpoints="c", tables={"events": uri})

    with pytest.raises(UsageError, match="the Delta table with the id another") as refused:
        reset_versions.resolve(Target("latest"), [now], bound, query="q", allow_data_loss=False)
    assert "[queries.q.tables]" in refused.value.hint
