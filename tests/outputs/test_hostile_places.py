"""Tables in directories whose names URIs escape: taken back exactly, or refused by their reason."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import OutputVersion
from savepoints.outputs.delta import batch_version, missing_files, write
from savepoints.outputs.fork import isolated_copy
from savepoints.outputs.rewind import rewind
from tests.outputs.tables import recorded, rows

APP, NEXT = "orders/totals/1", "orders/totals/2"
OPERATION = "op-20261121-101530-k3f9ab"


def written(directory: Path) -> str:
    """Write two batches, in partitions whose directories have escapes, and return the URI."""
    for batch in range(2):
        data = pa.table({"a": [batch], "p": ["x y%+ü"]})
        properties = recorded(APP, batch)
        write_deltalake(
            "plain", data, mode="append", partition_by=["p"], commit_properties=properties
        )
    directory.mkdir()
    return str(shutil.move("plain", directory / "totals"))


def pinned(uri: str) -> OutputVersion:
    """Return what a savepoint of the first batch says of it."""
    table = batch_version.open_table(uri)
    return OutputVersion("totals", uri, batch_version.table_id(table), 0, APP, 0)


@pytest.mark.parametrize("name", ["a b", "a+b", "a#b?", "ä", "a%b"])
def test_trap_the_files_of_a_table_at_a_path_with_a_space_are_all_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So no query that wrote one could be rolled back."""
    monkeypatch.chdir(tmp_path)
    uri = written(tmp_path / name)
    before, output = rows(uri, 0), pinned(uri)

    assert missing_files.unreadable_files(output) == []
    rewind.execute(rewind.plan(output, "orders/", NEXT), OPERATION)

    assert rows(uri) == before
    Location.of(uri).delete(
        one.path for one in Location.of(uri).list() if one.path.startswith("p=")
    )
    (lost,) = missing_files.unreadable_files(output)
    assert lost.startswith(f"{uri}/p=x%20y")


def test_trap_deltalake_opens_the_table_of_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`a%20b` was `a b`, and what was read, rewound or made there was somebody else's table."""
    monkeypatch.chdir(tmp_path)
    others = written(tmp_path / "a b")
    mine = str(tmp_path / "a%20b" / "totals")
    shutil.copytree(others, mine)

    for use in (
        lambda: batch_version.open_table(mine),
        lambda: write.ensure_table(Location.of(f"{mine}-2").uri, json.dumps({})),
        lambda: isolated_copy.refuse_taken(f"{mine}-2"),
        lambda: batch_version.open_table(str(tmp_path / "a\\b")),
    ):
        with pytest.raises(UsageError, match=r"deltalake takes for '[ /]'"):
            use()


@pytest.mark.parametrize("character", list("[]^|"))
def test_trap_deltalake_panics_at_characters_in_the_path_of_an_output(
    character: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read such tables, so savepoints had them; the rollback ended in the panic."""
    monkeypatch.chdir(tmp_path)
    uri = written(tmp_path / f"a{character}b")

    with pytest.raises(UsageError, match="deltalake writes no tables") as refused:
        rewind.plan(pinned(uri), "orders/", NEXT)

    assert "--outputs none" in refused.value.hint
    assert len(rows(uri)) == 2
