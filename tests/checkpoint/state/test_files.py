"""Which files make a version of a state store."""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.checkpoint.logs.commit_log import parse
from savepoints.checkpoint.state import files as state_files
from savepoints.checkpoint.state.files import SnapshotChain, StoreDirectory
from savepoints.errors import IncompatibleError, NoCommittedBatchError
from savepoints.io import Location
from tests.samples import files_of, unpack

VERSIONS = st.sets(st.integers(min_value=1, max_value=12))


def naive_chain(
    snapshots: set[int], changes: set[int], version: int
) -> tuple[int, list[int]] | None:
    """Try every snapshot, and none, and take the shortest way to the version."""
    ways = [
        (base, list(range(base + 1, version + 1)))
        for base in {0, *snapshots}
        if base <= version and set(range(base + 1, version + 1)) <= changes
    ]
    return min(ways, key=lambda way: len(way[1]), default=None)


def directory(names: set[str]) -> StoreDirectory:
    return StoreDirectory("state/0/1", 0, 1, "default", frozenset(names))


@pytest.mark.parametrize(("snapshot", "change"), [(".zip", ".changelog"), (".snapshot", ".delta")])
@given(snapshots=VERSIONS, changes=VERSIONS, version=st.integers(min_value=1, max_value=13))
def test_a_version_is_the_newest_snapshot_and_the_changes_after_it(
    snapshot: str, change: str, snapshots: set[int], changes: set[int], version: int
) -> None:
    names = {f"{v}{snapshot}" for v in snapshots} | {f"{v}{change}" for v in changes}
    # Neither SSTs nor what checkpoint format 2 names are versions here.
    others = {"SSTs/000008-a.sst", *(f"{v}_{uuid.uuid4()}{snapshot}" for v in range(1, 14))}
    store = directory(names | others)
    expected = naive_chain(snapshots, changes, version)

    if expected is None:
        with pytest.raises(NoCommittedBatchError) as refused:
            state_files.chain(store, version)
        assert refused.value.details == {"path": "state/0/1", "version": version}
        assert "minBatchesToRetain" in refused.value.hint
    else:
        base, deltas = expected
        assert state_files.chain(store, version) == SnapshotChain(
            store,
            f"state/0/1/{base}{snapshot}" if base else None,
            tuple(f"state/0/1/{v}{change}" for v in deltas),
        )


def test_versions_are_compared_as_numbers() -> None:
    chain = state_files.chain(directory({"9.zip", "10.zip", "11.changelog"}), 11)

    assert chain.snapshot == "state/0/1/10.zip"
    assert chain.changes == ("state/0/1/11.changelog",)


def test_real_partitions_may_have_different_snapshots(on_local: Location) -> None:
    files = [info.path for info in unpack("changelog", on_local).list()]

    chains = [state_files.chain(one, 4) for one in state_files.store_directories(files)]

    assert [chain.snapshot for chain in chains] == ["state/0/0/4.zip", "state/0/1/2.zip"]
    assert [len(chain.changes) for chain in chains] == [0, 2]


@dataclass(frozen=True)
class History:
    """What a store of checkpoint format 2 did.

    Attributes:
        ids: Of the attempt at each version that was committed.
        files: What lies in the store's directory, those of failed attempts too; by path.
        version: The version that is looked for.
    """

    ids: dict[int, str]
    files: dict[str, bytes]
    version: int


def changelog(lineage: list[tuple[int, str]], header: str = "v3") -> bytes:
    """Write the head of a changelog as `StateStoreChangelogWriter` does, compressed with zstd."""
    texts = [
        header,
        json.dumps([{"version": v, "checkpointUniqueId": one} for v, one in lineage]),
    ]
    body = b"".join(len(text).to_bytes(2, "big") + text.encode() for text in texts)
    return bytes(pa.compress(body + b"records", "zstd", asbytes=True))


@st.composite
def histories(draw: st.DrawFn) -> History:
    newest = draw(st.integers(1, 9))
    ids = {version: str(uuid.UUID(int=draw(st.integers(0, 2**64)))) for version in range(1, 10)}
    files: dict[str, bytes] = {}
    for version in range(1, newest + 1):
        attempts = [ids[version], *draw(st.lists(st.uuids().map(str), max_size=2))]
        for one in attempts:
            # Back to the snapshot that the attempt began from; failed ones may have had others.
            base = draw(st.integers(0, version - 1))
            lineage = [(v, ids[v]) for v in range(max(base, 1), version)]
            if one != ids[version] and lineage:
                lineage = [(v, str(uuid.uuid4())) for v, _ in lineage]
            if draw(st.sampled_from([True, True, True, False])):
                files[f"state/0/1/{version}_{one}.changelog"] = changelog(lineage)
            if draw(st.sampled_from([True, False, False])):
                files[f"state/0/1/{version}_{one}.zip"] = b"zip"
    return History(ids, files, draw(st.integers(1, newest)))


@given(histories())
def test_trap_a_version_of_format_2_is_made_of_the_attempts_that_were_committed(
    history: History,
) -> None:
    store = directory({path.rpartition("/")[2] for path in history.files})

    def path(version: int, suffix: str) -> str:
        return f"state/0/1/{version}_{history.ids[version]}{suffix}"

    there = {
        suffix: {version for version in history.ids if path(version, suffix) in history.files}
        for suffix in (".zip", ".changelog")
    }
    expected = naive_chain(there[".zip"], there[".changelog"], history.version)

    def found() -> SnapshotChain:
        unique_id = history.ids[history.version]
        return state_files.chain_of_id(
            store, history.version, unique_id, history.files.__getitem__, "zstd"
        )

    if expected is None:
        with pytest.raises(NoCommittedBatchError) as refused:
            found()
        assert refused.value.details == {"path": "state/0/1", "version": history.version}
        assert "minBatchesToRetain" in refused.value.hint
    else:
        base, changes = expected
        assert found() == SnapshotChain(
            store,
            path(base, ".zip") if base else None,
            tuple(path(version, ".changelog") for version in changes),
        )


def test_trap_lineage_goes_on_below_a_snapshot_that_was_never_uploaded() -> None:
    a, b, c, d = (str(uuid.UUID(int=number)) for number in range(4))
    files = {
        f"state/0/1/1_{a}.zip": b"",
        f"state/0/1/2_{b}.changelog": changelog([(1, a)]),
        # This attempt began from a snapshot of version 2 on its own disk, the next from one of 3.
        f"state/0/1/3_{c}.changelog": changelog([(2, b)]),
        f"state/0/1/4_{d}.changelog": changelog([(3, c)]),
    }
    names = {path.rpartition("/")[2] for path in files}

    chain = state_files.chain_of_id(directory(names), 4, d, files.__getitem__, "zstd")

    assert chain.snapshot == f"state/0/1/1_{a}.zip"
    assert chain.changes == tuple(list(files)[1:])


def test_a_changelog_that_is_removed_meanwhile_is_a_file_not_found() -> None:
    name = f"4_{uuid.UUID(int=1)}.changelog"

    def read(path: str) -> bytes:
        raise FileNotFoundError(path)

    with pytest.raises(FileNotFoundError, match=name):
        state_files.chain_of_id(directory({name}), 4, str(uuid.UUID(int=1)), read, "zstd")


@pytest.mark.parametrize("partition", [0, 1])
@pytest.mark.parametrize(
    ("version", "snapshot", "changes"), [(1, None, [1]), (2, 2, []), (3, 2, [3]), (4, 2, [3, 4])]
)
def test_real_stores_of_format_2_are_followed_back_to_their_snapshot(
    version: int, snapshot: int | None, changes: list[int], partition: int
) -> None:
    sample = files_of("format_2_changelog")
    one = state_files.store_directories(sample)[partition]
    ids = {
        batch + 1: parse(sample[f"commits/{batch}"], "").state_ids[0][partition][0]
        for batch in range(4)
    }

    chain = state_files.chain_of_id(one, version, ids[version], sample.__getitem__, "lz4")

    assert chain.snapshot == (snapshot and f"{one.path}/{snapshot}_{ids[snapshot]}.zip")
    assert chain.changes == tuple(f"{one.path}/{v}_{ids[v]}.changelog" for v in changes)


def test_the_head_of_a_changelog_has_its_lineage() -> None:
    lineage = [(3, "c"), (4, "d")]

    for header in ("v3", "v4"):
        read = state_files.changelog_lineage(changelog(lineage, header), "zstd", "x.changelog")
        assert read == dict(lineage)
    assert state_files.changelog_lineage(changelog([]), "zstd", "x.changelog") == {}


@pytest.mark.parametrize(
    "damaged",
    [
        changelog([], "v2"),
        changelog([], "v5"),
        changelog([])[:-10],
        b"",
        bytes(pa.compress(b"", "zstd", asbytes=True)),
        bytes(pa.compress(b"\0\2v3\0\2[", "zstd", asbytes=True)),
        bytes(pa.compress(b"\0\2v3\0\x03[1]", "zstd", asbytes=True)),
        bytes(pa.compress(b'\0\2v3\0\x0f[{"version": 1}]', "zstd", asbytes=True)),
        bytes(pa.compress(b"\0\2v3\0\2\xff\xff", "zstd", asbytes=True)),
    ],
)
def test_a_damaged_changelog_is_refused_and_named(damaged: bytes) -> None:
    with pytest.raises(IncompatibleError, match=r"7\.changelog") as refused:
        state_files.changelog_lineage(damaged, "zstd", "7.changelog")

    assert "--at-batch" in refused.value.hint


def test_stores_of_a_join_are_directories_of_their_own(on_local: Location) -> None:
    files = [info.path for info in unpack("join", on_local).list()]

    found = state_files.store_directories(files)

    stores = [
        f"{side}-{kind}"
        for side in ("left", "right")
        for kind in ("keyToNumValues", "keyWithIndexToValue")
    ]
    assert [(one.path, one.partition, one.store) for one in found] == [
        (f"state/0/{partition}/{store}", partition, store)
        for partition in (0, 1)
        for store in stores
    ]
    assert all((one.operator_id, len(one.files)) == (0, 2) for one in found)


def test_the_only_store_of_an_operator_is_called_default() -> None:
    found = state_files.store_directories(files_of("limit"))

    assert [(one.path, one.operator_id, one.partition, one.store) for one in found] == [
        ("state/0/0", 0, 0, "default"),
        ("state/1/0", 1, 0, "default"),
        ("state/1/1", 1, 1, "default"),
    ]


@pytest.mark.parametrize(
    "sample",
    [
        "rocksdb", "changelog", "hdfs_snapshot", "format_2", "format_2_changelog",
        "transform_with_state", "join",
    ],
)  # fmt: skip
def test_metadata_schemas_and_logs_are_not_state(sample: str) -> None:
    files = files_of(sample)
    suffixes = (".zip", ".sst", ".changelog", ".delta", ".snapshot")

    state = {path for path in files if state_files.is_state_data(path)}

    assert {path for path in files if path.endswith(suffixes)} == state


def test_files_belong_to_the_operator_whose_number_they_have() -> None:
    paths = ["state/1/0/1.zip", "state/10/0/1.zip", "state/1/_metadata/metadata", "sources/1/0"]

    assert [state_files.is_of_operator(path, [1]) for path in paths] == [True, False, True, False]
    assert [state_files.is_of_operator(path, [10, 2]) for path in paths] == [
        False, True, False, False,
    ]  # fmt: skip
    assert not any(state_files.is_of_operator(path, []) for path in paths)


def test_a_snapshot_lists_its_ssts(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local)
    there = {info.path for info in checkpoint.list("state/0/0/SSTs")}

    listed = {
        version: state_files.listed_ssts(checkpoint.get(f"state/0/0/{version}.zip"), "")
        for version in range(1, 5)
    }

    assert [len(listed[version]) for version in range(1, 5)] == [1, 2, 3, 1]
    assert {f"state/0/0/{path}" for paths in listed.values() for path in paths} == there


def test_a_damaged_snapshot_is_refused_and_named(on_local: Location) -> None:
    whole = unpack("rocksdb", on_local).get("state/0/0/4.zip")
    with zipfile.ZipFile(empty := io.BytesIO(), "w") as archive:
        archive.writestr("CURRENT", "MANIFEST-000005\n")
    with zipfile.ZipFile(version_2 := io.BytesIO(), "w") as archive:
        archive.writestr("metadata", 'v2\n{"sstFiles":[]}')

    for damaged in (b"", whole[:-30], empty.getvalue(), version_2.getvalue()):
        with pytest.raises(IncompatibleError, match=r"state/0/0/4\.zip"):
            state_files.listed_ssts(damaged, "state/0/0/4.zip")


def test_a_flipped_byte_in_a_snapshot_is_refused_or_harmless(on_local: Location) -> None:
    whole = unpack("rocksdb", on_local).get("state/0/0/4.zip")
    listed = state_files.listed_ssts(whole, "state/0/0/4.zip")
    refused = 0

    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 0x01
        try:
            assert state_files.listed_ssts(bytes(flipped), "state/0/0/4.zip") == listed
        except IncompatibleError:
            refused += 1

    assert refused > 0


def test_all_files_of_a_version_are_found_whatever_wrote_them() -> None:
    an_id = uuid.uuid4()
    mine = [
        "state/0/0/4.zip",
        "state/0/1/.4.zip.crc",
        "state/0/1/4.delta.crc",
        "state/0/1/4.snapshot",
        "state/1/0/left-keyToNumValues/4.changelog",
        f"state/1/0/4_{an_id}.changelog",
    ]
    others = [
        "state/0/0/3.zip",
        "state/0/0/14.delta",
        "state/0/0/SSTs/000004-4.sst",
        "state/0/0/_metadata/schema",
        "state/0/_metadata/v2/4",
        f"state/1/0/5_{an_id}.zip",
        "offsets/4",
    ]

    assert state_files.of_version([*others, *mine], 4) == mine
