"""The log of the file source, against one that Spark wrote."""

from __future__ import annotations

import pytest

from savepoints.checkpoint.logs import file_log
from savepoints.errors import IncompatibleError
from savepoints.uri import Uri

# As Spark 4.2 writes `sources/0/3`.
WRITTEN = (
    b'v1\n{"path":"file:///data/in%20put/replay_slice=2/a.parquet","timestamp":1770,"batchId":3}'
)


def test_an_entry_is_what_spark_writes() -> None:
    """Byte for byte, with the characters escaped that a URI cannot have."""
    place = Uri.parse("/data/in put") / "replay_slice=2/a.parquet"
    assert file_log.entry(3, [place], 1770) == WRITTEN


def test_paths_are_read() -> None:
    """Unescaped, in order."""
    found = file_log.paths(WRITTEN + b'\n{"path":"s3a://b/x","timestamp":1,"batchId":3}', "0/3")
    assert found == ["file:///data/in put/replay_slice=2/a.parquet", "s3a://b/x"]


@pytest.mark.parametrize("damaged", [b"v1\n{", b'v1\n{"pat":1}', b"v1\n{}\nx"])
def test_damage_is_named(damaged: bytes) -> None:
    """The error says which file it is."""
    with pytest.raises(IncompatibleError, match="sources/0/3"):
        file_log.paths(damaged, "sources/0/3")


def test_a_position_is_the_number_of_the_entry() -> None:
    """As the offset log has it."""
    assert file_log.position(3) == '{"logOffset":3}'
