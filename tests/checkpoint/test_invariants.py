"""What must hold in a checkpoint: each of these was seen to go wrong somewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from savepoints.checkpoint import invariants, source_entries
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.offset_log import PARTITIONS_KEY, PROVIDER_KEY, OffsetLogEntry
from savepoints.checkpoint.state.files import store_directories
from savepoints.checkpoint.state.operators import HDFS_PROVIDER, ROCKSDB_PROVIDER
from savepoints.errors import (
    NotAlignedError,
    PartitionCountError,
    SchemaPathError,
    SourceLogError,
    StateIdsError,
)
from tests.samples import files_of

WHERE = "s3://bucket/next"
HINT = "savepoints restore NAME --to URI"


def entry(**conf: str) -> OffsetLogEntry:
    """Make an entry of the offset log with these settings only."""
    return OffsetLogEntry(0, 0, conf, ('{"logOffset":3}',), ("0",))


def partitions(stores: Mapping[str, Collection[int]]) -> list[str]:
    """Return paths of state in these partitions of the stores of operator 0."""
    return [
        f"state/0/{partition}/{store}/4.zip".replace("/default/", "/")
        for store, existing in stores.items()
        for partition in existing
    ]


@pytest.mark.parametrize("keyless", [False, True])
@pytest.mark.parametrize(
    ("wanted", "existing", "fits", "fits_keyless"),
    [
        (2, [0, 1], True, False),
        (2, [0], False, True),
        (2, [1], False, False),
        (2, [], False, False),
        (2, [0, 1, 2], False, False),
        (2, [0, 2], False, False),
        (3, [0, 1], False, False),
        (1, [0], True, True),
        (11, range(11), True, False),
        (None, [0, 1], False, False),
        (None, [0], False, True),
    ],
)
def test_trap_state_partitions_are_those_that_the_offset_log_names(
    wanted: int | None,
    existing: Collection[int],
    fits: bool,
    fits_keyless: bool,
    keyless: bool,
) -> None:
    directories = store_directories(partitions({"default": existing}))

    def check() -> None:
        invariants.require_partitions(
            WHERE, wanted, {0: ["default"]}, directories, {0} if keyless else ()
        )

    if fits_keyless if keyless else fits:
        check()
        return
    with pytest.raises(
        PartitionCountError, match=f"{WHERE} should have {1 if keyless else wanted or 0} state part"
    ) as refused:
        check()
    assert f"but has {list(existing) or 'none'}" in refused.value.message
    assert HINT in refused.value.hint
    assert refused.value.details == {"operator_id": 0, "store": "default", "partitions": wanted}


def test_trap_every_store_of_an_operator_has_every_partition() -> None:
    stores = {"left": [0, 1], "right": [0, 1]}

    def check(there: Mapping[str, Collection[int]]) -> None:
        directories = store_directories(partitions(there))
        invariants.require_partitions(WHERE, 2, {0: list(stores)}, directories, ())

    check(stores)
    for lost in ({**stores, "right": [0]}, {**stores, "left": []}, {"left": [0, 1]}):
        with pytest.raises(PartitionCountError):
            check(lost)


def test_an_operator_is_not_taken_for_another() -> None:
    directories = store_directories(["state/0/0/1.zip", "state/1/0/1.zip", "state/1/1/1.zip"])

    invariants.require_partitions(WHERE, 2, {0: ["default"], 1: ["default"]}, directories, {0})

    with pytest.raises(PartitionCountError, match="operator 0 "):
        invariants.require_partitions(WHERE, 2, {0: ["default"]}, directories, ())


GOOD = {PARTITIONS_KEY: "2", PROVIDER_KEY: HDFS_PROVIDER}


@pytest.mark.parametrize("file", ["offsets/2", "offsets/3"])
@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ({PARTITIONS_KEY: "3", PROVIDER_KEY: HDFS_PROVIDER}, f"{PARTITIONS_KEY} is 3, but"),
        ({PROVIDER_KEY: HDFS_PROVIDER}, f"{PARTITIONS_KEY} is not set, but"),
        ({PARTITIONS_KEY: "2", PROVIDER_KEY: ROCKSDB_PROVIDER}, ROCKSDB_PROVIDER),
        ({PARTITIONS_KEY: "2"}, f"{PROVIDER_KEY} is not set, but"),
    ],
)
def test_trap_each_file_of_the_offset_log_names_what_was_written(
    conf: dict[str, str], says: str, file: str
) -> None:
    entries = {"offsets/2": entry(**GOOD), "offsets/3": entry(**GOOD)}
    invariants.require_settings(WHERE, entries, 2, HDFS_PROVIDER)

    with pytest.raises(PartitionCountError, match=f"{WHERE}/{file}") as refused:
        invariants.require_settings(WHERE, {**entries, file: entry(**conf)}, 2, HDFS_PROVIDER)

    assert says in refused.value.message
    assert HINT in refused.value.hint
    assert refused.value.details == {"file": file}


def test_a_query_without_state_may_have_any_settings() -> None:
    invariants.require_settings(WHERE, {"offsets/0": entry()}, None, HDFS_PROVIDER)


METADATA, SCHEMA = "state/0/_metadata/v2/0", "state/0/_stateSchema/default/0_903edf31"


@pytest.mark.parametrize(
    "path",
    [
        f"file:/original/{SCHEMA}",
        f"s3a://bucket/next-2/{SCHEMA}",
        f"s3a://bucket/next/other/{SCHEMA}",
        f"s3a://bucket/next/{SCHEMA}-2",
        f"s3a://bucket/nex/{SCHEMA}",
        f"s3a://bucket/nextt{SCHEMA}",
        SCHEMA,
    ],
)
def test_trap_schema_files_lie_in_their_own_checkpoint(path: str) -> None:
    inside, there = "s3a://bucket/next", {METADATA, SCHEMA}
    invariants.require_schema_files(WHERE, METADATA, [f"{inside}/{SCHEMA}"], inside, there)

    with pytest.raises(SchemaPathError) as refused:
        invariants.require_schema_files(
            WHERE, METADATA, [f"{inside}/{SCHEMA}", path], inside, there
        )

    assert f"{WHERE}/{METADATA} refers to the schema file {path}" in refused.value.message
    assert HINT in refused.value.hint
    assert refused.value.details == {"file": METADATA}


def test_trap_a_schema_file_that_is_gone_is_noticed() -> None:
    inside = "s3a://bucket/next"

    with pytest.raises(SchemaPathError):
        invariants.require_schema_files(WHERE, METADATA, [f"{inside}/{SCHEMA}"], inside, {METADATA})


def test_trap_an_entry_that_the_batch_has_not_used_is_noticed() -> None:
    sample = files_of("watermark")
    log = [path for path in sample if path.startswith("sources/")]
    assert log == [f"sources/0/{number}" for number in range(4)]

    for batch, used in ((0, 1), (2, 2), (4, 3), (6, 4)):
        offsets = offset_log.parse(sample[f"offsets/{batch}"], "")
        invariants.require_source_entries(WHERE, log[:used], offsets)
        if used == len(log):
            continue
        with pytest.raises(SourceLogError) as refused:
            invariants.require_source_entries(WHERE, log, offsets)
        assert f"{WHERE}/{log[used]}" in refused.value.message
        assert HINT in refused.value.hint
        assert refused.value.details == {"file": log[used]}


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        ((), ["0", "1", "2", "3"]),
        (("0", "1", "2"), ["3"]),
        (("0", "2", "3"), ["1"]),
        (("1.compact", "2", "3"), []),
        (("1", "1.compact", "3"), ["2"]),
        (("3.compact",), []),
        (("0", "1", "2", "3", "4"), []),
        (("4.compact",), ["0", "1", "2", "3"]),
    ],
)
def test_trap_what_a_source_has_read_is_lost_and_would_be_read_again(
    there: tuple[str, ...], missing: list[str]
) -> None:
    """Of a copy without `sources`, or of an entry without bytes that a full disk left."""
    paths = [f"sources/0/{one}" for one in there]
    named = [f"sources/0/{one}" for one in missing]

    assert source_entries.missing(paths, entry()) == named
    used = source_entries.used(paths, entry())
    if named:
        with pytest.raises(SourceLogError, match=f"{WHERE}/{named[0]} is missing"):
            invariants.require_source_entries(WHERE, used, entry())
    else:
        invariants.require_source_entries(WHERE, used, entry())


A, B, C = (f"{letter * 8}-0000-0000-0000-{letter * 12}" for letter in "abc")


@pytest.mark.parametrize("suffix", ["zip", "changelog"])
def test_trap_the_commit_log_names_state_that_exists(suffix: str) -> None:
    ids = {0: [[A], [B]], 1: [[C, A]]}
    paths = {
        f"state/0/0/4_{A}.{suffix}",
        f"state/0/1/4_{B}.{suffix}",
        f"state/1/0/left/4_{C}.{suffix}",
        f"state/1/0/right/4_{A}.{suffix}",
    }
    invariants.require_state_ids(WHERE, 4, ids, paths | {f"state/0/0/4_{C}.zip"})

    for gone in paths:
        with pytest.raises(StateIdsError, match=f"{WHERE}.*version 4") as refused:
            invariants.require_state_ids(WHERE, 4, ids, paths - {gone})
        _, operator_id, partition, *_ = gone.split("/")
        assert HINT in refused.value.hint
        assert refused.value.details == {
            "operator_id": int(operator_id),
            "partition": int(partition),
        }


@pytest.mark.parametrize(
    "there",
    [
        f"state/0/0/3_{A}.zip",
        f"state/0/0/4_{B}.zip",
        f"state/0/1/4_{A}.zip",
        f"state/1/0/4_{A}.zip",
        "state/0/0/4.zip",
        f"state/0/0/4_{A}.sst",
        f"other/state/0/0/4_{A}.zip",
    ],
)
def test_trap_state_of_another_attempt_version_or_place_is_not_it(there: str) -> None:
    with pytest.raises(StateIdsError):
        invariants.require_state_ids(WHERE, 4, {0: [[A]]}, {there})


def test_checkpoint_format_1_has_no_ids_to_look_for() -> None:
    invariants.require_state_ids(WHERE, 4, {}, ())


def test_every_check_is_told_by_exit_code_13() -> None:
    for error in (PartitionCountError, SchemaPathError, SourceLogError, StateIdsError):
        assert issubclass(error, NotAlignedError)
        assert error.exit_code == 13
