"""`reset` reads files as people's programs write them; the verb has its own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.handle import Store
from tests.cli.conftest import Call


@pytest.mark.parametrize(
    ("written", "code", "said"),
    [
        # Read, it is for the query to be found: the store has none.
        (b"\xef\xbb\xbforders,0,5\r\n", 10, "no query"),
        (b"orders,0,5\n", 10, "no query"),
        ("orders,0,5\n".encode("utf-16"), 2, "cannot be read: 'utf-8' codec"),
    ],
)
def test_trap_a_file_that_a_spreadsheet_wrote(
    call: Call, local_store: Store, tmp_path: Path, written: bytes, code: int, said: str
) -> None:
    """Its mark was taken for a part of the topic, and another encoding for an error of ours."""
    file = tmp_path / "offsets.csv"
    file.write_bytes(written)

    done = call(
        "reset", "totals", "--from-file", str(file), "--store", str(local_store.root), "--dry-run"
    )

    assert (done.code, said in done.err) == (code, True), done.err
