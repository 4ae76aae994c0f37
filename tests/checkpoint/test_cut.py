"""Which files of a checkpoint make a cut, on checkpoints that Spark wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

import pytest

from savepoints.checkpoint import cut as checkpoint_cut
from savepoints.checkpoint.cut import read_cut
from savepoints.checkpoint.logs.offset_log import PARTITIONS_KEY, PROVIDER_KEY
from savepoints.checkpoint.state.operators import (
    HDFS_PROVIDER,
    ROCKSDB_PROVIDER,
    Operator,
    native_only,
)
from savepoints.errors import (
    CheckpointNotFoundError,
    IncompatibleError,
    NoCommittedBatchError,
    PartitionCountError,
    UnsupportedProviderError,
)
from savepoints.io import Location, ObjectInfo
from tests.samples import files_of, unpack, write


@pytest.mark.s3
def test_a_cut_is_made_of_exactly_its_files(place: Location) -> None:
    checkpoint = unpack("rocksdb", place)

    files = read_cut(checkpoint, 2)

    assert [info.path for info in files.small] == [
        "metadata",
        "offsets/1",
        "offsets/2",
        "commits/2",
        "state/0/_metadata/metadata",
        "state/0/0/_metadata/schema",
        "sources/0/0",
        "sources/0/1",
        "sources/0/2",
    ]
    assert [info.path for info in files.state] == ["state/0/0/3.zip", "state/0/1/3.zip"]
    assert len(files.ssts) == 6
    assert len({info.path for info in files.all}) == len(files.all) == 17
    assert files.query_id == json.loads(checkpoint.get("metadata"))["id"]
    assert files.operators == (Operator(0, "stateStoreSave", ("default",), 2),)
    assert files.partitions == {0: 2}
    assert (files.cut.batch_id, files.cut.partitions) == (2, 2)
    assert files.cut.offsets == ('{"logOffset":2}',)
    assert files.cut.committed_at == checkpoint.head("commits/2").last_modified


def test_the_newest_committed_batch_is_the_default(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local)
    checkpoint.delete(["commits/3"])

    assert read_cut(checkpoint).cut.batch_id == 2


def test_the_first_batch_has_no_offsets_before_it(on_local: Location) -> None:
    files = read_cut(unpack("rocksdb", on_local), 0)

    assert [info.path for info in files.small if info.path.startswith("offsets")] == ["offsets/0"]


def test_batches_are_ordered_as_numbers(on_local: Location) -> None:
    for batch in (2, 9, 10, 11):
        on_local.put(f"offsets/{batch}", b"x")
        if batch != 11:
            on_local.put(f"commits/{batch}", b"x")

    assert checkpoint_cut.committed_batches(on_local.list()) == [2, 9, 10]


def test_trap_all_files_of_the_state_are_listed_to_find_the_newest_batch(
    on_local: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand a request on S3: in a pause, after each replay and in each plan."""
    checkpoint = unpack("rocksdb", on_local)
    listed: list[str] = []
    list_all = Location.list

    def noted(place: Location, prefix: str = "") -> list[ObjectInfo]:
        listed.append(prefix)
        return list_all(place, prefix)

    monkeypatch.setattr(Location, "list", noted)

    assert checkpoint_cut.committed_in(checkpoint) == [0, 1, 2, 3]
    assert listed == ["offsets", "commits"]


def test_a_version_of_changelogs_alone_needs_no_snapshot(on_local: Location) -> None:
    files = read_cut(unpack("changelog", on_local), 0)

    assert [info.path for info in files.state] == [
        "state/0/0/1.changelog",
        "state/0/1/1.changelog",
    ]
    assert files.ssts == ()


def test_snapshot_and_changelogs_on_top_of_it_belong_to_the_cut(on_local: Location) -> None:
    files = read_cut(unpack("changelog", on_local), 3)

    assert {info.path for info in files.state} == {
        "state/0/0/4.zip",
        "state/0/1/2.zip",
        "state/0/1/3.changelog",
        "state/0/1/4.changelog",
    }
    assert {info.path.rpartition("/")[0] for info in files.ssts} == {
        "state/0/0/SSTs",
        "state/0/1/SSTs",
    }


# Small files and state of a cut, beside metadata, offsets and commits; by hand from the listing of
# each sample. `*` stands for what differs each time that a sample is made.
CUTS: dict[tuple[str, int], tuple[str, ...]] = {
    ("hdfs", 0): (
        "state/0/_metadata/metadata", "state/0/0/_metadata/schema", "sources/0/0",
        "state/0/0/1.delta", "state/0/1/1.delta",
    ),
    ("hdfs", 3): (
        "state/0/_metadata/metadata", "state/0/0/_metadata/schema",
        *(f"sources/0/{number}" for number in range(4)),
        *(f"state/0/{partition}/{v}.delta" for partition in (0, 1) for v in (1, 2, 3, 4)),
    ),
    ("hdfs_snapshot", 2): (
        "state/0/_metadata/metadata", "state/0/0/_metadata/schema",
        *(f"sources/0/{number}" for number in range(3)),
        "state/0/0/3.snapshot", "state/0/1/3.snapshot",
    ),
    ("hdfs_snapshot", 3): (
        "state/0/_metadata/metadata", "state/0/0/_metadata/schema",
        *(f"sources/0/{number}" for number in range(4)),
        "state/0/0/3.snapshot", "state/0/1/3.snapshot",
        "state/0/0/4.delta", "state/0/1/4.delta",
    ),
    ("format_2", 0): (
        "state/0/_metadata/metadata", "state/0/0/_metadata/schema", "sources/0/0",
        "state/0/0/1_*.zip", "state/0/1/1_*.zip", "state/0/0/SSTs/*", "state/0/1/SSTs/*",
    ),
    ("format_2_changelog", 0): (
        "state/0/_metadata/metadata", "state/0/0/_metadata/schema", "sources/0/0",
        "state/0/0/1_*.changelog", "state/0/1/1_*.changelog",
    ),
    ("format_2_changelog", 3): (
        "state/0/_metadata/metadata", "state/0/0/_metadata/schema",
        *(f"sources/0/{number}" for number in range(4)),
        *(f"state/0/{partition}/{v}_*.changelog" for partition in (0, 1) for v in (3, 4)),
        "state/0/0/2_*.zip", "state/0/1/2_*.zip", "state/0/0/SSTs/*", "state/0/1/SSTs/*",
    ),
    ("offset_log_2_restarted", 1): (
        "state/0/_metadata/metadata", "state/0/0/_metadata/schema", "sources/0/0", "sources/0/1",
        "state/0/0/2.zip", "state/0/1/2.zip", "state/0/0/SSTs/*", "state/0/1/SSTs/*",
    ),
    ("limit", 1): (
        "state/0/_metadata/metadata", "state/0/0/_metadata/schema",
        "state/1/_metadata/metadata", "state/1/0/_metadata/schema",
        "sources/0/0", "sources/0/1",
        "state/0/0/2.zip", "state/1/0/2.zip", "state/1/1/2.zip",
        "state/0/0/SSTs/*", "state/1/0/SSTs/*", "state/1/1/SSTs/*",
    ),
    ("session", 2): (
        "state/0/_metadata/metadata", "state/0/0/_metadata/schema", "sources/0/0", "sources/0/1",
        "state/0/0/3.zip", "state/0/1/3.zip", "state/0/0/SSTs/*", "state/0/1/SSTs/*",
    ),
    ("transform_with_state", 2): (
        "state/0/_metadata/v2/0", "state/0/_stateSchema/default/0_*", "sources/0/0", "sources/0/1",
        "state/0/0/3.zip", "state/0/1/3.zip", "state/0/0/SSTs/*", "state/0/1/SSTs/*",
    ),
    ("join_3", 0): (
        "state/0/_metadata/v2/0", "state/0/_stateSchema/default/0_*", "sources/0/0", "sources/1/0",
        "state/0/0/1.zip", "state/0/1/1.zip", "state/0/0/SSTs/*", "state/0/1/SSTs/*",
    ),
    ("join_4", 2): (
        "state/0/_metadata/v2/0", "state/0/_stateSchema/default/0_*",
        *(f"sources/{source}/{number}" for source in (0, 1) for number in (0, 1)),
        "state/0/0/3.zip", "state/0/1/3.zip", "state/0/0/SSTs/*", "state/0/1/SSTs/*",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sample", "batch"), CUTS)
def test_the_files_of_a_cut_in_every_format(sample: str, batch: int, on_local: Location) -> None:
    files = read_cut(unpack(sample, on_local), batch)

    patterns = [
        "metadata", f"offsets/{batch}", f"commits/{batch}", *CUTS[sample, batch],
        *([f"offsets/{batch - 1}"] if batch else []),
    ]  # fmt: skip
    found = [info.path for info in files.all]
    expressions = [re.escape(one).replace(r"\*", "[^/]+") for one in patterns]
    for one in expressions:
        assert any(re.fullmatch(one, path) for path in found), one
        if "SSTs" not in one:
            assert sum(bool(re.fullmatch(one, path)) for path in found) == 1, one
    for path in found:
        assert any(re.fullmatch(one, path) for one in expressions), path
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("sample", "provider", "partitions", "keyless", "checkpoint_format"),
    [
        ("rocksdb", ROCKSDB_PROVIDER, {0: 2}, set(), 1),
        ("changelog", ROCKSDB_PROVIDER, {0: 2}, set(), 1),
        ("hdfs", HDFS_PROVIDER, {0: 2}, set(), 1),
        ("hdfs_snapshot", HDFS_PROVIDER, {0: 2}, set(), 1),
        ("session", ROCKSDB_PROVIDER, {0: 2}, set(), 1),
        ("join", ROCKSDB_PROVIDER, {0: 2}, set(), 1),
        ("join_3", ROCKSDB_PROVIDER, {0: 2}, set(), 1),
        ("transform_with_state", ROCKSDB_PROVIDER, {0: 2}, set(), 1),
        ("offset_log_2", ROCKSDB_PROVIDER, {0: 2}, set(), 1),
        ("offset_log_2_restarted", ROCKSDB_PROVIDER, {0: 2}, set(), 1),
        ("format_2", ROCKSDB_PROVIDER, {0: 2}, set(), 2),
        ("format_2_changelog", ROCKSDB_PROVIDER, {0: 2}, set(), 2),
        ("grand_total", ROCKSDB_PROVIDER, {0: 1}, {0}, 1),
        ("limit", ROCKSDB_PROVIDER, {0: 1, 1: 2}, {0}, 1),
    ],
)
def test_the_cut_says_how_the_state_is_kept(
    sample: str,
    provider: str,
    partitions: dict[int, int],
    keyless: Collection[int],
    checkpoint_format: int,
    on_local: Location,
) -> None:
    files = read_cut(unpack(sample, on_local))

    cut = files.cut
    assert (cut.provider, cut.partitions) == (provider, 2)
    assert cut.checkpoint_format == checkpoint_format
    assert (files.partitions, files.keyless) == (partitions, keyless)
    assert [one.operator_id for one in files.operators] == list(partitions)


def test_a_query_without_state_has_logs_only(on_local: Location) -> None:
    files = read_cut(unpack("two_sources", on_local))

    assert files.operators == ()
    assert files.state == files.ssts == ()
    assert files.partitions == {}


def test_trap_with_asynchronous_progress_most_batches_are_in_no_log(on_local: Location) -> None:
    """None could be saved but those right after another one in the log."""
    checkpoint = unpack("two_sources", on_local)
    last = read_cut(checkpoint).cut.batch_id
    for log in ("offsets", "commits"):
        checkpoint.put(f"{log}/9", checkpoint.get(f"{log}/{last}"))

    logs = {one.path for one in read_cut(checkpoint).small if one.path[:4] in ("offs", "comm")}

    assert logs == {f"offsets/{last}", "offsets/9", "commits/9"}
    checkpoint.put("commits/8", checkpoint.get("commits/9"))
    with pytest.raises(NoCommittedBatchError, match="offsets/8 is missing"):
        read_cut(checkpoint)


def test_trap_a_keyless_operator_with_one_partition_too_many_is_noticed(
    on_local: Location,
) -> None:
    for sample in ("grand_total", "limit"):
        checkpoint = unpack(sample, on_local / sample)
        write(
            checkpoint,
            {
                path.replace("state/0/0/", "state/0/1/"): data
                for path, data in files_of(sample).items()
                if path.startswith("state/0/0/") and "_metadata" not in path
            },
        )

        with pytest.raises(PartitionCountError, match=r"operator 0 .*\[0, 1\]"):
            read_cut(checkpoint)


def test_trap_hdfs_is_the_provider_where_the_offset_log_names_none(on_local: Location) -> None:
    checkpoint = unpack("hdfs_snapshot", on_local)
    for batch in (2, 3):
        data = checkpoint.get(f"offsets/{batch}")
        without = data.replace(f'"{PROVIDER_KEY}":"{HDFS_PROVIDER}",'.encode(), b"")
        assert without != data
        checkpoint.put(f"offsets/{batch}", without)

    files = read_cut(checkpoint)

    assert files.cut.provider == HDFS_PROVIDER
    assert {info.path for info in files.state} == {
        f"state/0/{partition}/{name}" for partition in (0, 1) for name in ("3.snapshot", "4.delta")
    }


def test_trap_a_provider_that_is_not_sparks_is_refused_and_the_setting_named(
    on_local: Location,
) -> None:
    checkpoint = unpack("rocksdb", on_local)
    offsets = checkpoint.get("offsets/3")
    checkpoint.put("offsets/3", offsets.replace(ROCKSDB_PROVIDER.encode(), b"com.example.Store"))

    with pytest.raises(UnsupportedProviderError, match=r"com\.example\.Store") as refused:
        read_cut(checkpoint)

    assert refused.value.details == {"provider": "com.example.Store"}
    assert f"{PROVIDER_KEY}={ROCKSDB_PROVIDER}" in refused.value.hint
    # A query without state never opens a state store.
    stateless = unpack("two_sources", on_local / "stateless")
    write(
        stateless,
        {
            "offsets/2": stateless.get("offsets/2").replace(
                ROCKSDB_PROVIDER.encode(), b"com.example.Store"
            )
        },
    )
    assert read_cut(stateless).operators == ()


def test_trap_offset_log_2_does_not_say_how_many_partitions_and_metadata_does(
    on_local: Location,
) -> None:
    checkpoint = unpack("offset_log_2", on_local)
    assert PARTITIONS_KEY.encode() not in checkpoint.get("offsets/0")

    assert read_cut(checkpoint).cut.partitions == 2

    checkpoint.delete([info.path for info in checkpoint.list("state/0/1")])
    with pytest.raises(PartitionCountError, match=r"should have 2 state partitions.*\[0\]"):
        read_cut(checkpoint)


def test_trap_attempts_that_failed_lie_beside_the_state_that_was_committed(
    on_local: Location,
) -> None:
    checkpoint = unpack("format_2_changelog", on_local)
    before = read_cut(checkpoint)
    sample = files_of("format_2_changelog")
    for path, data in sample.items():
        if match := re.match(r"(state/0/\d/\d_)[0-9a-f-]{36}(\.\w+)$", path):
            other = f"{match.group(1)}00000000-1111-2222-3333-444444444444"
            checkpoint.put(other + match.group(2), data)
            checkpoint.put(f"{other}.zip", b"not even a zip")

    assert read_cut(checkpoint).all == before.all


@pytest.mark.parametrize("change", ["another id", "no id", "no partition", "no operator"])
def test_trap_state_that_the_commit_log_does_not_name_is_not_taken(
    change: str, on_local: Location
) -> None:
    checkpoint = unpack("format_2_changelog", on_local)
    version, body = checkpoint.get("commits/3").decode().split("\n")
    content = json.loads(body)
    ids = content["stateUniqueIds"]["0"]
    content["stateUniqueIds"] = {
        "another id": {"0": [["00000000-1111-2222-3333-444444444444"], ids[1]]},
        "no id": {"0": [[], ids[1]]},
        "no partition": {"0": ids[:1]},
        "no operator": {"1": ids},
    }[change]
    checkpoint.put("commits/3", f"{version}\n{json.dumps(content)}".encode())

    with pytest.raises(FileNotFoundError, match=r"state/0/\d/4_"):
        read_cut(checkpoint)


def test_operator_metadata_is_the_newest_that_the_batch_used(on_local: Location) -> None:
    checkpoint = unpack("transform_with_state", on_local)
    first = checkpoint.get("state/0/_metadata/v2/0")
    (schema,) = [path for path in files_of("transform_with_state") if "_stateSchema" in path]
    later = schema.replace("/0_", "/1_")
    checkpoint.put(later, checkpoint.get(schema))
    # As after a restart with another state variable: from batch 1 on there are two schema files.
    both = json.loads(first.split(b"\n")[1])
    paths = both["stateStoreInfo"][0]["stateSchemaFilePaths"]
    paths.append(paths[0].replace(schema, later))
    checkpoint.put("state/0/_metadata/v2/1", b"v2\n" + json.dumps(both).encode())
    checkpoint.put("state/0/_metadata/v2/10", b"of a batch that was never committed")

    for batch, metadata, schemas in (
        (0, 0, {schema}),
        (1, 1, {schema, later}),
        (2, 1, {schema, later}),
    ):
        small = {info.path for info in read_cut(checkpoint, batch).small}
        assert {path for path in small if "v2" in path} == {f"state/0/_metadata/v2/{metadata}"}
        assert {path for path in small if "_stateSchema" in path} == schemas


def test_a_schema_file_that_is_gone_is_refused(on_local: Location) -> None:
    checkpoint = unpack("join_3", on_local)
    (schema,) = [path for path in files_of("join_3") if "_stateSchema" in path]
    checkpoint.delete([schema])

    with pytest.raises(NoCommittedBatchError, match=f"{schema} is missing"):
        read_cut(checkpoint)


def test_trap_named_sources_of_offset_log_2_are_cut_at_log_offset_too(on_local: Location) -> None:
    checkpoint = unpack("offset_log_2_restarted", on_local)
    for batch in (0, 1):
        offsets = checkpoint.get(f"offsets/{batch}")
        checkpoint.put(f"offsets/{batch}", offsets.replace(b'\n0:{"log', b'\nclicks:{"log'))
        checkpoint.put(f"sources/clicks/{batch}", checkpoint.get(f"sources/0/{batch}"))
    checkpoint.delete(["sources/0/0", "sources/0/1"])

    for batch, entries in (
        (0, {"sources/clicks/0"}),
        (1, {"sources/clicks/0", "sources/clicks/1"}),
    ):
        files = read_cut(checkpoint, batch)
        assert {info.path for info in files.small if info.path.startswith("sources")} == entries
        assert files.cut.offsets == (f'{{"logOffset":{batch}}}',)


def test_the_watermark_of_the_cut_is_that_of_the_next_batch(on_local: Location) -> None:
    checkpoint = unpack("watermark", on_local)

    found = [read_cut(checkpoint, batch).cut.watermark_ms for batch in range(7)]

    assert found == [0, 94_000, 94_000, 194_000, 194_000, 294_000, 294_000]


@pytest.mark.parametrize(("batch", "entries"), [(0, 1), (1, 2), (2, 2), (3, 3), (4, 3), (6, 4)])
def test_trap_sources_log_is_cut_at_log_offset(
    batch: int, entries: int, on_local: Location
) -> None:
    checkpoint = unpack("watermark", on_local)

    small = {info.path for info in read_cut(checkpoint, batch).small}

    assert {path for path in small if path.startswith("sources")} == {
        f"sources/0/{number}" for number in range(entries)
    }


def test_trap_sources_log_is_empty_where_the_source_had_no_position(on_local: Location) -> None:
    checkpoint = unpack("two_sources", on_local)

    small = {info.path for info in read_cut(checkpoint, 0).small}

    assert {path for path in small if path.startswith("sources")} == {"sources/0/0"}


def test_a_compacted_source_log_is_kept(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local)
    checkpoint.put("sources/0/1.compact", checkpoint.get("sources/0/1"))
    checkpoint.put("sources/0/3.compact", checkpoint.get("sources/0/3"))

    small = {info.path for info in read_cut(checkpoint, 2).small}

    assert "sources/0/1.compact" in small
    assert "sources/0/3.compact" not in small


@pytest.mark.parametrize("data", [b"", None])
def test_trap_a_source_log_without_its_last_entry_is_not_saved(
    data: bytes | None, on_local: Location
) -> None:
    """Restored, the query would read the files of that entry a second time."""
    checkpoint = unpack("rocksdb", on_local)
    checkpoint.delete(["sources/0/3"])
    if data is not None:
        checkpoint.put("sources/0/3", data)

    with pytest.raises(FileNotFoundError, match="sources/0/3"):
        read_cut(checkpoint, 3)
    assert read_cut(checkpoint, 2).cut.batch_id == 2


@pytest.mark.parametrize(("number", "partitions"), [(b"3", 3), (b"1", 1)])
def test_trap_partitions_on_disk_must_match_offset_log(
    number: bytes, partitions: int, on_local: Location
) -> None:
    checkpoint = unpack("rocksdb", on_local)
    offsets = checkpoint.get("offsets/3")
    checkpoint.put("offsets/3", offsets.replace(b'partitions":"2"', b'partitions":"%b"' % number))

    with pytest.raises(
        PartitionCountError, match=f"should have {partitions} state part"
    ) as refused:
        read_cut(checkpoint)

    assert refused.value.details == {
        "operator_id": 0,
        "store": "default",
        "partitions": partitions,
    }
    assert "savepoints restore NAME --to URI" in refused.value.hint


@pytest.mark.parametrize("gone", ["state/0/0", "state/0/1"])
@pytest.mark.parametrize("sample", ["rocksdb", "hdfs", "format_2", "transform_with_state"])
def test_trap_a_lost_state_partition_is_noticed(sample: str, gone: str, on_local: Location) -> None:
    checkpoint = unpack(sample, on_local)
    checkpoint.delete([info.path for info in checkpoint.list(gone) if "_metadata" not in info.path])

    with pytest.raises(PartitionCountError):
        read_cut(checkpoint)


def test_trap_a_lost_store_of_one_partition_is_noticed(on_local: Location) -> None:
    checkpoint = unpack("join", on_local)
    gone = "state/0/1/right-keyWithIndexToValue"
    checkpoint.delete([info.path for info in checkpoint.list(gone)])

    with pytest.raises(PartitionCountError, match="right-keyWithIndexToValue"):
        read_cut(checkpoint)


def test_trap_the_last_state_partition_of_a_chain_of_operators_is_noticed(
    on_local: Location,
) -> None:
    checkpoint = unpack("limit", on_local)
    checkpoint.delete([info.path for info in checkpoint.list("state/1/1")])

    with pytest.raises(PartitionCountError, match="operator 1 "):
        read_cut(checkpoint)


@pytest.mark.parametrize("sample", ["rocksdb", "hdfs"])
def test_trap_state_without_operator_metadata_is_refused(sample: str, on_local: Location) -> None:
    checkpoint = unpack(sample, on_local)
    checkpoint.delete(["state/0/_metadata/metadata"])

    with pytest.raises(IncompatibleError, match="state without operator metadata") as refused:
        read_cut(checkpoint)

    assert str(refused.value.details["file"]).startswith("state/0/")
    assert refused.value.hint


OF_3_5 = ["3.5_rocksdb_windows", "3.5_hdfs_windows"]


@pytest.mark.parametrize("sample", OF_3_5)
def test_trap_spark_before_4_0_wrote_no_operator_metadata(sample: str, on_local: Location) -> None:
    files = read_cut(unpack(sample, on_local))

    assert files.operators == tuple(
        Operator(number, "unknown", ("default",), 2) for number in (0, 1)
    )
    assert files.partitions == {0: 2, 1: 2}
    assert [native_only(one, files.conf) is not None for one in files.operators] == [True, True]
    paths = {info.path for info in files.all}
    assert {f"state/{one}/0/_metadata/schema" for one in (0, 1)} <= paths
    assert {path.rpartition("/")[0] for path in paths if path.startswith("state/")} >= {
        f"state/{one}/{partition}" for one in (0, 1) for partition in (0, 1)
    }


@pytest.mark.parametrize("gone", ["state/0/0", "state/0/1", "state/1/1", "state/0"])
@pytest.mark.parametrize("sample", OF_3_5)
def test_trap_state_that_is_gone_is_noticed_without_operator_metadata(
    sample: str, gone: str, on_local: Location
) -> None:
    checkpoint = unpack(sample, on_local)
    checkpoint.delete([info.path for info in checkpoint.list(gone) if "_metadata" not in info.path])

    with pytest.raises((PartitionCountError, IncompatibleError), match=r"state|partitions"):
        read_cut(checkpoint)


def test_trap_checkpoint_without_committed_batch(on_local: Location) -> None:
    checkpoint = unpack("uncommitted", on_local)

    with pytest.raises(NoCommittedBatchError, match="no committed batch yet"):
        read_cut(checkpoint)


@pytest.mark.parametrize("batch", [-1, 4, 99])
def test_a_batch_that_is_not_there_is_refused_with_those_that_are(
    batch: int, on_local: Location
) -> None:
    checkpoint = unpack("rocksdb", on_local)

    with pytest.raises(NoCommittedBatchError, match="oldest is 0, the newest 3") as refused:
        read_cut(checkpoint, batch)

    assert refused.value.details == {"batch_id": batch, "first": 0, "last": 3}
    assert "--at-batch 3" in refused.value.hint


def test_a_batch_whose_files_were_purged_is_refused(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local)
    checkpoint.delete(["offsets/0"])

    with pytest.raises(NoCommittedBatchError, match=r"offsets/0 is missing"):
        read_cut(checkpoint, 1)


def test_a_batch_whose_state_was_purged_is_refused(on_local: Location) -> None:
    checkpoint = unpack("rocksdb", on_local)
    checkpoint.delete(["state/0/1/2.zip"])

    with pytest.raises(NoCommittedBatchError, match=r"version 2 of the state .* state/0/1"):
        read_cut(checkpoint, 1)


def test_a_listed_sst_that_is_gone_is_a_file_not_found(place: Location) -> None:
    checkpoint = unpack("rocksdb", place)
    sst = read_cut(checkpoint).ssts[0].path
    checkpoint.delete([sst])

    with pytest.raises(FileNotFoundError, match=sst):
        read_cut(checkpoint)


@pytest.mark.parametrize("text", ["garbage", '{"id"', '{"other": 1}', "[1]"])
def test_trap_damaged_metadata_of_a_query_were_an_unexpected_error(
    text: str, on_local: Location
) -> None:
    """And one such checkpoint took the page of all queries with it."""
    checkpoint = unpack("rocksdb", on_local)
    checkpoint.put("metadata", text.encode())

    with pytest.raises(IncompatibleError, match="metadata is not a file with the id of a query"):
        read_cut(checkpoint)


def test_a_directory_without_metadata_is_no_checkpoint(place: Location) -> None:
    with pytest.raises(CheckpointNotFoundError, match="the file 'metadata' is missing"):
        read_cut(place)

    checkpoint = unpack("rocksdb", place)
    checkpoint.delete(["metadata"])
    with pytest.raises(CheckpointNotFoundError, match="the file 'metadata' is missing"):
        read_cut(checkpoint)
