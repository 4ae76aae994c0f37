"""Which files make a version of a state store."""

from __future__ import annotations

import io
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.checkpoint import state_files
from savepoints.checkpoint.state_files import SnapshotChain, StoreDirectory
from savepoints.errors import IncompatibleError, NoCommittedBatchError
from savepoints.io import Location
from tests.samples import unpack

VERSIONS = st.sets(st.integers(min_value=1, max_value=12))


def naive_chain(
    snapshots: set[int], changelogs: set[int], version: int
) -> tuple[int, list[int]] | None:
    """Try every snapshot, and none, and take the shortest way to the version."""
    ways = [
        (base, list(range(base + 1, version + 1)))
        for base in {0, *snapshots}
        if base <= version and set(range(base + 1, version + 1)) <= changelogs
    ]
    return min(ways, key=lambda way: len(way[1]), default=None)


@given(snapshots=VERSIONS, changelogs=VERSIONS, version=st.integers(min_value=1, max_value=13))
def test_a_version_is_the_newest_snapshot_and_the_changelogs_after_it(
    snapshots: set[int], changelogs: set[int], version: int
) -> None:
    names = {f"{v}.zip" for v in snapshots} | {f"{v}.changelog" for v in changelogs}
    directory = StoreDirectory("state/0/1", 0, 1, frozenset(names | {"SSTs/000008-a.sst"}))
    expected = naive_chain(snapshots, changelogs, version)

    if expected is None:
        with pytest.raises(NoCommittedBatchError) as refused:
            state_files.chain(directory, version)
        assert refused.value.details == {"path": "state/0/1", "version": version}
    else:
        base, deltas = expected
        assert state_files.chain(directory, version) == SnapshotChain(
            "state/0/1",
            f"state/0/1/{base}.zip" if base else None,
            tuple(f"state/0/1/{v}.changelog" for v in deltas),
        )


def test_versions_are_compared_as_numbers() -> None:
    names = frozenset({"9.zip", "10.zip", "11.changelog"})

    chain = state_files.chain(StoreDirectory("state/0/0", 0, 0, names), 11)

    assert chain.snapshot == "state/0/0/10.zip"
    assert chain.changelogs == ("state/0/0/11.changelog",)


def test_real_partitions_may_have_different_snapshots(on_local: Location) -> None:
    files = [info.path for info in unpack("changelog", on_local).list()]

    chains = [state_files.chain(one, 4) for one in state_files.store_directories(files)]

    assert [chain.snapshot for chain in chains] == ["state/0/0/4.zip", "state/0/1/2.zip"]
    assert [len(chain.changelogs) for chain in chains] == [0, 2]


def test_stores_of_a_join_are_directories_of_their_own(on_local: Location) -> None:
    files = [info.path for info in unpack("join", on_local).list()]

    found = state_files.store_directories(files)

    stores = [
        f"{side}-{kind}"
        for side in ("left", "right")
        for kind in ("keyToNumValues", "keyWithIndexToValue")
    ]
    assert [one.path for one in found] == [
        f"state/0/{partition}/{store}" for partition in (0, 1) for store in stores
    ]
    assert all((one.operator_id, len(one.files)) == (0, 2) for one in found)


def test_metadata_schemas_and_logs_are_not_state(on_local: Location) -> None:
    files = [info.path for info in unpack("rocksdb", on_local).list()]

    state = {path for path in files if state_files.is_state_data(path)}

    assert {path for path in files if path.endswith((".zip", ".sst"))} == state


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
