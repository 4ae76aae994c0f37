"""The log of a Delta table, read beside Delta itself."""

from __future__ import annotations

import pytest

from savepoints.errors import NotAlignedError
from savepoints.io import Location
from savepoints.outputs.delta import log
from savepoints.outputs.rewind import plan_text, rewind
from tests.outputs.tables import append, opened, rows

APP = "orders/totals/1"
_NEWEST = f"{2:020}.json"


@pytest.fixture
def uri(on_local: Location) -> str:
    """Return a table that a query wrote three batches into."""
    table = str(on_local / "totals")
    for batch in range(3):
        append(table, {"a": [batch]}, APP, batch)
    return table


def test_trap_a_table_whose_newest_version_is_only_in_a_checkpoint_is_unpacked_as_if_it_were_not(
    uri: str,
) -> None:
    """A plan to empty it ended with a raw ValueError, though deltalake reads it."""
    opened(uri).create_checkpoint()
    log.log_of(uri).delete([_NEWEST])

    plan = rewind.plan_empty("totals", uri, "orders/", (), "orders/totals/2")

    assert len(rows(uri)) == 3
    assert log.transactions(uri, 2) == {APP: 2}
    assert any("its log begins with version 3" in one for one in plan_text.notes(plan))


def test_trap_an_empty_line_of_a_commit_is_no_action(uri: str) -> None:
    """A plan ended with a raw JSONDecodeError, though Delta skips such lines."""
    before = log.parse_commit(2, log.log_of(uri).get(_NEWEST))
    log.log_of(uri).put(_NEWEST, log.log_of(uri).get(_NEWEST).replace(b"\n", b"\n \n") + b"\n")

    assert opened(uri).transaction_version(APP) == 2
    assert next(log.commits(uri, 2)) == before


@pytest.mark.parametrize("bytes_", [b'{"txn": ', b"[1]"])
def test_trap_a_damaged_commit_is_named(uri: str, bytes_: bytes) -> None:
    """One that deltalake did not need was a raw JSONDecodeError, or a commit of nothing."""
    opened(uri).create_checkpoint()
    log.log_of(uri).put(f"{1:020}.json", bytes_)

    with pytest.raises(NotAlignedError, match=f"_delta_log/{1:020}.json is damaged") as refused:
        list(log.commits(uri, 2))

    assert "put back an older version of this file" in refused.value.hint
