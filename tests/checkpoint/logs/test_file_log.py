"""The log of the file source, against one that Spark wrote."""

from __future__ import annotations

import pytest

from savepoints.checkpoint.logs import file_log
from savepoints.checkpoint.logs.file_log import ReadFile
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


def test_files_are_read() -> None:
    """Their paths unescaped, in order."""
    found = file_log.files(WRITTEN + b'\n{"path":"s3a://b/x","timestamp":1,"batchId":3}', "0/3")
    assert found == [
        ReadFile("file:///data/in put/replay_slice=2/a.parquet", 1770),
        ReadFile("s3a://b/x", 1),
    ]


def test_a_compact_entry_has_what_those_before_it_had() -> None:
    """Of each source by itself, by number and not by letter."""
    logs = {
        "0": ["1", "2", "4.compact", "9.compact", "10", "11"],
        "1": ["0", "1"],
        "named": ["1.compact", "0"],
    }
    paths = [f"sources/{source}/{one}" for source, of in logs.items() for one in of]

    def chosen(source: str) -> list[str]:
        return [one.removeprefix(f"sources/{source}/") for one in file_log.in_force(paths, source)]

    assert chosen("0") == ["9.compact", "10", "11"]
    assert chosen("1") == ["0", "1"]
    assert chosen("named") == ["1.compact"]
    assert chosen("2") == []


@pytest.mark.parametrize("damaged", [b"v1\n{", b'v1\n{"pat":1}', b"v1\n{}\nx"])
def test_damage_is_named(damaged: bytes) -> None:
    """The error says which file it is."""
    with pytest.raises(IncompatibleError, match="sources/0/3"):
        file_log.files(damaged, "sources/0/3")


def test_a_position_is_the_number_of_the_entry() -> None:
    """As the offset log has it."""
    assert file_log.position(3) == '{"logOffset":3}'
