"""What state a restored checkpoint can have, and whether it became that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs.offset_log import PARTITIONS_KEY, PROVIDER_KEY
from savepoints.checkpoint.small_files import Skeleton
from savepoints.checkpoint.state.operators import HDFS_PROVIDER, ROCKSDB_PROVIDER
from savepoints.checkpoint.state.records import ROW_CHECKSUM_KEY
from savepoints.errors import (
    NativeOnlyError,
    NotAlignedError,
    PartitionCountError,
    ProviderError,
    RescaleError,
    SchemaPathError,
    SourceLogError,
    StateIdsError,
    UsageError,
)
from savepoints.io import Location
from savepoints.model import OperatorState, Savepoint
from savepoints.operations.savepoint import restored_layout
from tests import samples

KEYED = OperatorState(0, "stateStoreSave", ("default",), 4)
KEYLESS = OperatorState(1, "stateStoreSave", ("default",), 1, keyless=True)
LIMIT = OperatorState(2, "globalLimit", ("default",), 1, native_only="no rows", keyless=True)
JOIN_4 = OperatorState(3, "symmetricHashJoin", ("default",), 4, native_only="no rows")
VARIABLES = OperatorState(4, "transformWithState", ("default",), 4, column_families=True)


def savepoint(
    *operators: OperatorState,
    provider: str = ROCKSDB_PROVIDER,
    partitions: int | None = 4,
    checkpoint_format: int = 1,
) -> Savepoint:
    one = samples.savepoint(1)
    cut = dataclasses.replace(
        one.cut, provider=provider, partitions=partitions, checkpoint_format=checkpoint_format
    )
    return dataclasses.replace(one, operators=operators, cut=cut)


@pytest.mark.parametrize("operators", [(KEYED,), (KEYLESS,), (LIMIT, KEYED), (JOIN_4,), ()])
@pytest.mark.parametrize("provider", [ROCKSDB_PROVIDER, HDFS_PROVIDER, "com.example.Store"])
def test_without_a_wish_everything_stays(
    operators: tuple[OperatorState, ...], provider: str
) -> None:
    found = restored_layout.plan_change(savepoint(*operators, provider=provider), None, None)

    assert (found.partitions, found.provider, found.words, found.notes) == (4, provider, (), ())
    assert found.conf("native") == {PROVIDER_KEY: provider}


@pytest.mark.parametrize(
    "operators",
    [(KEYED,), (KEYED, KEYLESS), (KEYLESS, KEYED), (LIMIT, KEYED), (KEYED, VARIABLES)],
)
@pytest.mark.parametrize("partitions", [1, 3, 5, 400])
def test_an_operator_with_keys_can_have_any_number_of_partitions(
    operators: tuple[OperatorState, ...], partitions: int
) -> None:
    found = restored_layout.plan_change(savepoint(*operators), partitions, None)

    assert (found.partitions, found.provider) == (partitions, ROCKSDB_PROVIDER)
    assert (found.words, found.notes) == ((f"partitions={partitions}",), ())
    assert found.conf("canonical") == {PROVIDER_KEY: ROCKSDB_PROVIDER}


def test_both_can_change_at_once_and_both_are_said() -> None:
    found = restored_layout.plan_change(savepoint(KEYED, KEYLESS), 7, "hdfs")

    assert found.words == ("partitions=7", "provider=hdfs")
    assert found.text == "partitions=7 and provider=hdfs"
    assert (found.partitions, found.provider) == (7, HDFS_PROVIDER)


def test_what_hdfs_files_are_compressed_with_is_said_only_where_they_are_written() -> None:
    of = savepoint(KEYED, provider=HDFS_PROVIDER)
    unchanged = restored_layout.plan_change(of, None, None)

    # Copied files stay as they were compressed.
    assert unchanged.conf("native") == {PROVIDER_KEY: HDFS_PROVIDER}
    assert unchanged.conf("canonical") == {PROVIDER_KEY: HDFS_PROVIDER}
    rocksdb = restored_layout.plan_change(of, None, "rocksdb")
    assert rocksdb.conf("canonical") == {PROVIDER_KEY: ROCKSDB_PROVIDER}


@pytest.mark.parametrize(("said", "becomes"), [("true", "false"), ("false", None), (None, None)])
def test_trap_rows_are_written_without_checksums_and_the_log_says_so(
    said: str | None, becomes: str | None
) -> None:
    of = savepoint(KEYED, provider=HDFS_PROVIDER)
    settings = {} if said is None else {ROW_CHECKSUM_KEY: said}

    found = restored_layout.plan_change(dataclasses.replace(of, settings=settings), 3, None)

    assert found.conf("canonical").get(ROW_CHECKSUM_KEY) == becomes
    assert ROW_CHECKSUM_KEY not in found.conf("native")


def test_a_savepoint_without_number_of_partitions_changes_nothing_in_the_log() -> None:
    found = restored_layout.plan_change(savepoint(partitions=None), None, None)

    assert (found.partitions, found.conf("native"), found.conf("canonical")) == (None, {}, {})


def test_trap_checkpoint_format_2_is_a_setting_of_the_session_and_is_said() -> None:
    found = restored_layout.plan_change(savepoint(KEYED, checkpoint_format=2), 3, None)

    setting = "spark.sql.streaming.stateStore.checkpointFormatVersion=2"
    assert found.notes == (f"start the query with {setting}",)


WITHOUT = "omit --partitions and --provider"


@pytest.mark.parametrize(
    ("operators", "wanted", "error", "says", "hint"),
    [
        ((KEYED,), {"partitions": 0}, UsageError, "--partitions is 0", "1 or more"),
        ((KEYLESS,), {"partitions": 0}, UsageError, "--partitions is 0", "1 or more"),
        ((), {"partitions": -1}, UsageError, "--partitions is -1", "1 or more"),
        ((KEYLESS,), {"partitions": 3}, RescaleError, "has no keys, so", "omit --partitions"),
        ((LIMIT,), {"partitions": 3}, RescaleError, "has no keys, so", "omit --partitions"),
        ((), {"partitions": 3}, RescaleError, "has no state", "omit --partitions"),
        ((JOIN_4,), {"partitions": 3}, NativeOnlyError, "operator 3", WITHOUT),
        ((KEYED, JOIN_4), {"partitions": 3}, NativeOnlyError, "operator 3", WITHOUT),
        ((LIMIT, JOIN_4), {"partitions": 3}, NativeOnlyError, "operator 3", WITHOUT),
        ((JOIN_4,), {"provider": "hdfs"}, NativeOnlyError, "operator 3", WITHOUT),
        ((KEYED, LIMIT), {"provider": "hdfs"}, NativeOnlyError, "globalLimit", WITHOUT),
        ((VARIABLES,), {"provider": "hdfs"}, ProviderError, "column fam", "omit --provider"),
        ((KEYED, VARIABLES), {"provider": "hdfs"}, ProviderError, "operator 4", "RocksDB"),
    ],
)  # fmt: skip
def test_trap_what_cannot_be_written_anew_is_refused_with_the_reason(
    operators: tuple[OperatorState, ...],
    wanted: dict[str, Any],
    error: type[Exception],
    says: str,
    hint: str,
) -> None:
    arguments = {"partitions": None, "provider": None, **wanted}

    with pytest.raises(error, match=says) as refused:
        restored_layout.plan_change(savepoint(*operators), **arguments)

    assert type(refused.value) is error
    assert hint in refused.value.hint  # type: ignore[attr-defined]


def test_trap_hdfs_files_have_no_checkpoint_format_2() -> None:
    of = savepoint(KEYED, checkpoint_format=2)

    with pytest.raises(ProviderError, match="checkpoint format 2") as refused:
        restored_layout.plan_change(of, None, "hdfs")

    assert refused.value.details == {"savepoint": of.id}
    assert "omit --provider" in refused.value.hint


def test_files_of_another_provider_may_become_rocksdb_whatever_they_hold() -> None:
    of = savepoint(KEYED, KEYLESS, provider=HDFS_PROVIDER)

    assert restored_layout.plan_change(of, None, "rocksdb").words == ("provider=rocksdb",)
    with pytest.raises(NativeOnlyError):
        restored_layout.plan_change(savepoint(LIMIT, provider=HDFS_PROVIDER), None, "rocksdb")


def restored(sample: str, batch: int, target: Location) -> Location:
    """Lay out the files of a cut as they are to be at a place, but for `metadata`."""
    original = samples.unpack(sample, target / "original")
    paths = {info.path for info in read_cut(original, batch).all} - {"metadata"}
    skeleton = Skeleton((target / "target").uri, 2, {})
    files = samples.files_of(sample)
    samples.write(target / "target", {path: skeleton.changed(path, files[path]) for path in paths})
    return target / "target"


# The operators that each has, and its last batch.
CUTS: dict[str, tuple[tuple[OperatorState, ...], int]] = {
    "rocksdb": ((dataclasses.replace(KEYED, partitions=2),), 3),
    "hdfs_snapshot": ((dataclasses.replace(KEYED, partitions=2),), 3),
    "format_2": ((dataclasses.replace(KEYED, partitions=2),), 0),
    "format_2_changelog": ((dataclasses.replace(KEYED, partitions=2),), 3),
    "offset_log_2_restarted": ((dataclasses.replace(KEYED, partitions=2),), 1),
    "watermark": ((dataclasses.replace(KEYED, partitions=2),), 4),
    "grand_total": ((dataclasses.replace(KEYLESS, operator_id=0),), 1),
    "limit": (
        (dataclasses.replace(LIMIT, operator_id=0), dataclasses.replace(KEYED, operator_id=1)),
        1,
    ),
    "transform_with_state": ((dataclasses.replace(VARIABLES, operator_id=0),), 2),
    "join": (
        (
            OperatorState(
                0,
                "symmetricHashJoin",
                (
                    "left-keyToNumValues",
                    "left-keyWithIndexToValue",
                    "right-keyToNumValues",
                    "right-keyWithIndexToValue",
                ),
                2,
            ),
        ),
        0,
    ),
    "two_sources": ((), 2),
}


def check(target: Location, sample: str) -> None:
    operators, batch = CUTS[sample]
    provider = HDFS_PROVIDER if sample.startswith("hdfs") else ROCKSDB_PROVIDER
    restored_layout.check(target, batch, operators, provider)


@pytest.mark.parametrize("sample", CUTS)
def test_what_was_restored_whole_can_be_started(sample: str, on_local: Location) -> None:
    check(restored(sample, CUTS[sample][1], on_local), sample)


Damage = Callable[[Location], None]


def without(prefix: str) -> Damage:
    def damage(target: Location) -> None:
        gone = [info.path for info in target.list() if info.path.startswith(prefix)]
        assert gone
        target.delete(gone)

    return damage


def copied(source: str, path: str) -> Damage:
    return lambda target: target.put(path, target.get(source))


def replaced(path: str, old: str, new: str) -> Damage:
    def damage(target: Location) -> None:
        data = target.get(path)
        assert old.encode() in data
        target.put(path, data.replace(old.encode(), new.encode()))

    return damage


def moved_schema(target: Location) -> None:
    path = "state/0/_metadata/v2/0"
    here = target.uri.hadoop
    replaced(path, here, here.replace("/target", "/original"))(target)


TWO = f'"{PARTITIONS_KEY}":"2"'
THREE = f'"{PARTITIONS_KEY}":"3"'
ROCKSDB = f'"{PROVIDER_KEY}":"{ROCKSDB_PROVIDER}",'

DAMAGES: dict[str, tuple[str, Damage, type[NotAlignedError]]] = {
    "a state partition is missing": (
        "rocksdb", without("state/0/1/"), PartitionCountError,
    ),
    "a state partition of HDFS is missing": (
        "hdfs_snapshot", without("state/0/0/"), PartitionCountError,
    ),
    "a state partition too many": (
        "rocksdb", copied("state/0/0/4.zip", "state/0/2/4.zip"), PartitionCountError,
    ),
    "a store is missing in a partition": (
        "join", without("state/0/1/right-keyToNumValues"), PartitionCountError,
    ),
    "an operator is missing": ("limit", without("state/1/"), PartitionCountError),
    "a second partition without keys": (
        "grand_total", copied("state/0/0/2.zip", "state/0/1/2.zip"), PartitionCountError,
    ),
    "a second partition of a limit": (
        "limit", copied("state/0/0/2.zip", "state/0/1/2.zip"), PartitionCountError,
    ),
    "the offsets name another number": (
        "rocksdb", replaced("offsets/3", TWO, THREE), PartitionCountError,
    ),
    "the offsets before name another number": (
        "rocksdb", replaced("offsets/2", TWO, THREE), PartitionCountError,
    ),
    "the offsets before name no number": (
        "offset_log_2_restarted", replaced("offsets/0", f",{TWO}", ""), PartitionCountError,
    ),
    "the offsets name no number": (
        "offset_log_2_restarted", replaced("offsets/1", f"{TWO},", ""), PartitionCountError,
    ),
    "the offsets of a query without keys name no number before": (
        "grand_total", replaced("offsets/0", f"{TWO},", ""), PartitionCountError,
    ),
    "the offsets name another provider": (
        "hdfs_snapshot", replaced("offsets/3", HDFS_PROVIDER, ROCKSDB_PROVIDER),
        PartitionCountError,
    ),
    "the offsets name no provider": (
        "rocksdb", replaced("offsets/3", ROCKSDB, ""), PartitionCountError,
    ),
    "the offsets before name no provider": (
        "rocksdb", replaced("offsets/2", ROCKSDB, ""), PartitionCountError,
    ),
    "the source's log runs ahead": (
        "rocksdb", copied("sources/0/0", "sources/0/4"), SourceLogError,
    ),
    # Batch 4 has used the files up to number 3, for some batches had no data.
    "the source's log ends with the batch, not with its offset": (
        "watermark", copied("sources/0/0", "sources/0/4"), SourceLogError,
    ),
    "the log of a source of a query without state runs ahead": (
        "two_sources", copied("sources/1/0", "sources/1/2"), SourceLogError,
    ),
    "the log of a source that there is not": (
        "rocksdb", copied("sources/0/0", "sources/1/0"), SourceLogError,
    ),
    "state of format 2 has another id": (
        "format_2", replaced("commits/0", '":[["', '":[["0'), StateIdsError,
    ),
    "the schema file is in another checkpoint": (
        "transform_with_state", moved_schema, SchemaPathError,
    ),
    "the schema file is missing": (
        "transform_with_state", without("state/0/_stateSchema"), SchemaPathError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGES)
def test_trap_what_would_go_on_wrongly_cannot_be_started(case: str, on_local: Location) -> None:
    sample, damage, error = DAMAGES[case]
    target = restored(sample, CUTS[sample][1], on_local)
    damage(target)

    with pytest.raises(error) as refused:
        check(target, sample)

    assert type(refused.value) is error
    assert str(target) in refused.value.message
    assert "savepoints restore NAME --to URI" in refused.value.hint
    assert refused.value.exit_code == 13
