"""The settings file that is made from a checkpoint."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.config import settings as config_settings
from savepoints.config.settings import Settings
from savepoints.errors import CheckpointNotFoundError, NoCommittedBatchError, UsageError
from savepoints.io import Location
from savepoints.operations.maintain import init
from savepoints.operations.maintain.init import CheckpointFacts, Source
from savepoints.operations.rollback.query_context import checkpoint_of
from tests.samples import KAFKA, unpack

FOUND = CheckpointFacts(
    checkpoint="s3://bucket/checkpoints/clicks",
    query="clicks",
    query_id="c8a54052-ae64-4515-a59b-49b09fc453cb",
    first_batch=3,
    last_batch=102,
    seconds_per_batch=2.5,
    operators=("0 stateStoreSave (200 partitions)",),
    provider="org.apache.spark.X",
    partitions=200,
    checkpoint_format=2,
    sources=(Source("kafka", {"orders": 2}, KAFKA), Source("unknown", {}, None)),
)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def load(text: str, directory: Path) -> Settings:
    (directory / "made.toml").write_text(text)
    return config_settings.load(file=directory / "made.toml")


@pytest.mark.parametrize(
    ("sample", "operators", "provider", "form", "sources"),
    [
        ("rocksdb", ("0 stateStoreSave (2 partitions)",), "RocksDB", 1, ["files"]),
        ("hdfs", ("0 stateStoreSave (2 partitions)",), "HDFSBacked", 1, ["files"]),
        ("format_2", ("0 stateStoreSave (2 partitions)",), "RocksDB", 2, ["files"]),
        ("two_sources", (), "", 1, ["files", "files"]),
        ("offset_log_2", None, "", 1, None),
    ],
)
def test_a_checkpoint_says_what_its_query_is(
    sample: str,
    operators: tuple[str, ...] | None,
    provider: str,
    form: int,
    sources: list[str] | None,
    place: Location,
    tmp_path: Path,
) -> None:
    checkpoint = unpack(sample, place / "checkpoint")

    found = init.read_checkpoint(checkpoint, "totals")

    assert (found.checkpoint, found.query) == (str(checkpoint), "totals")
    assert provider in found.provider
    assert found.checkpoint_format == form
    if operators is not None:
        assert found.operators == operators
        assert [source.kind for source in found.sources] == sources
    settings = load(init.text(found, {"t": "s3://b/t"}, "s3://b/store"), tmp_path)
    assert settings.store == "s3://b/store"
    assert settings.queries["totals"].checkpoints == str(place)
    assert settings.queries["totals"].outputs == {"t": "s3://b/t"}
    if found.partitions is not None:
        assert settings.spark.conf["spark.sql.shuffle.partitions"] == str(found.partitions)


def test_the_directory_gives_the_query_its_name(on_local: Location) -> None:
    found = init.read_checkpoint(unpack("rocksdb", on_local / "clicks"))

    assert found.query == "clicks"
    assert (found.first_batch, found.last_batch) == (0, 3)
    assert 0 < (found.seconds_per_batch or 0) < 60


def test_trap_a_query_was_called_by_the_number_of_its_generation(on_local: Location) -> None:
    """As below `checkpoints/1` of a driver, and `checkpoints/clicks/2` of `savepoints run`."""
    checkpoint = unpack("rocksdb", on_local / "clicks" / "2")

    with pytest.raises(UsageError, match="is called 2, which is the number") as refused:
        init.read_checkpoint(checkpoint)

    assert refused.value.hint == "name the query with --query NAME"
    assert init.read_checkpoint(checkpoint, "clicks").query == "clicks"


def test_everything_that_is_known_is_in_the_file_and_the_rest_is_marked(tmp_path: Path) -> None:
    text = init.text(FOUND, {})

    for known in ("batches 3 to 102", "one every 2.5 s", "stateStoreSave", "orders (2 partitions)"):
        assert known in text
    assert "source 1: unknown, not started yet" in text
    # The line that explains the mark, store, brokers, application, tables.
    assert text.count(init.FILL_IN) == 5
    settings = load(text, tmp_path)
    assert settings.spark.conf == {
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.X",
        "spark.sql.shuffle.partitions": "200",
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    }
    assert settings.queries["clicks"].checkpoints == "s3://bucket/checkpoints/clicks-generations"
    assert settings.retention.keep_last == 10


@pytest.mark.parametrize("query", [None, "clicks"])
def test_trap_the_next_checkpoint_lies_within_the_one_that_there_is(
    query: str | None, on_local: Location, tmp_path: Path
) -> None:
    """Whoever deletes the old one, which nothing needs any more, deletes the new one with it."""
    checkpoint = unpack("rocksdb", on_local / "totals")
    found = init.read_checkpoint(checkpoint, query)
    bound = load(init.text(found, {}), tmp_path).queries[found.query]

    following = checkpoint_of(bound.checkpoints, found.query, 2)
    assert not str(following).startswith(f"{checkpoint}/")
    assert str(following).startswith(f"{on_local}/")


def test_what_is_given_is_not_marked() -> None:
    known = dataclasses.replace(FOUND, sources=())

    text = init.text(known, {"totals": "s3://b/t"}, "s3://b/s")

    assert [line for line in text.splitlines() if init.FILL_IN in line][1:] == [
        next(line for line in text.splitlines() if line.startswith("app = "))
    ]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_no_text_can_leave_its_place_in_the_file(hostile: str) -> None:
    found = dataclasses.replace(
        FOUND,
        query=hostile,
        checkpoint=f"/x/{hostile}",
        operators=(hostile,),
        provider=hostile,
        sources=(Source("unknown", {}, hostile), Source("kafka", {hostile: 1}, None)),
    )

    content = tomllib.loads(init.text(found, {hostile: hostile}, f"s3://{hostile}"))

    assert set(content) == {"store", "kafka", "spark", "queries", "retention"}
    assert content["store"] == f"s3://{hostile}"
    assert set(content["queries"]) == {hostile}
    assert content["queries"][hostile]["outputs"] == {hostile: hostile}
    assert hostile in content["spark"]["conf"].values()


@pytest.mark.parametrize(
    ("position", "kind"),
    [
        (KAFKA, "kafka"),
        ('{"logOffset":3}', "files"),
        (json.dumps({"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": 4}), "delta"),
        ("17", "unknown"),
        ("no json", "unknown"),
        (None, "unknown"),
    ],
)
def test_the_kind_of_a_source_is_seen_in_its_position(position: str | None, kind: str) -> None:
    assert init._source(position).kind == kind


def test_what_is_no_checkpoint_is_refused(on_local: Location) -> None:
    with pytest.raises(CheckpointNotFoundError):
        init.read_checkpoint(on_local / "none")
    with pytest.raises(NoCommittedBatchError):
        init.read_checkpoint(unpack("uncommitted", on_local / "uncommitted"))
    with pytest.raises(UsageError, match="invalid query name"):
        init.read_checkpoint(unpack("rocksdb", on_local / "rocksdb"), "../x")
