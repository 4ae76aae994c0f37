"""Operator metadata, read from files that Spark wrote."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable

import pytest

from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.state import operators
from savepoints.checkpoint.state.operators import Operator
from savepoints.errors import IncompatibleError
from tests.samples import files_of

METADATA = "state/0/_metadata/metadata"
VERSION_2 = "state/0/_metadata/v2/0"
UNNAMED = Operator(0, operators.UNNAMED, ("default",), 2)
JOIN = (
    "left-keyToNumValues",
    "left-keyWithIndexToValue",
    "right-keyToNumValues",
    "right-keyWithIndexToValue",
)


def operators_of(sample: str) -> list[Operator]:
    """Read all operators of a sample."""
    files = files_of(sample)
    return [
        operators.parse(files[path], path) for path in sorted(files) if operators.is_metadata(path)
    ]


@pytest.mark.parametrize(
    ("sample", "names", "stores", "has_column_families"),
    [
        ("rocksdb", ["stateStoreSave"], ("default",), False),
        ("watermark", ["dedupe"], ("default",), False),
        ("session", ["sessionWindowStateStoreSaveExec"], ("default",), False),
        ("limit", ["globalLimit", "dedupe"], ("default",), False),
        ("join", ["symmetricHashJoin"], JOIN, False),
        ("join_3", ["symmetricHashJoin"], ("default",), True),
        ("join_4", ["symmetricHashJoin"], ("default",), True),
        ("transform_with_state", ["transformWithStateInPySparkExec"], ("default",), True),
    ],
)
def test_an_operator_has_number_name_stores_and_partitions(
    sample: str, names: list[str], stores: tuple[str, ...], has_column_families: bool
) -> None:
    found = [
        dataclasses.replace(one, schema_paths=(), properties={}) for one in operators_of(sample)
    ]

    assert found == [
        Operator(number, name, stores, 2, (), has_column_families)
        for number, name in enumerate(names)
    ]


def test_version_2_says_how_a_transform_with_state_was_declared() -> None:
    (operator,) = operators_of("transform_with_state")

    assert operator.properties["timeMode"] == "EventTime"
    kinds = {
        one["stateName"]: one["stateVariableType"] for one in operator.properties["stateVariables"]
    }
    assert kinds == {
        "total": "ValueState",
        "counts": "MapState",
        "seen": "ListState",
        "$eventTimers_keyToTimestamp": "TimerState",
    }
    assert operators_of("rocksdb")[0].properties == {}


def test_only_version_2_lists_schema_files_and_they_are_in_the_checkpoint() -> None:
    for sample in ("join_3", "join_4", "transform_with_state"):
        (operator,) = operators_of(sample)
        (file,) = operator.schema_files
        assert file in files_of(sample)
        assert operator.schema_paths[0].startswith("file:/")
        assert operator.schema_paths[0].endswith(f"/{sample}/{file}")
    assert [one.schema_files for one in operators_of("join")] == [()]


def test_a_schema_file_that_is_elsewhere_is_refused() -> None:
    path = "file:/checkpoints/x/schemas/0_903edf31"
    strange = dataclasses.replace(operators_of("join_3")[0], schema_paths=(path,))

    with pytest.raises(IncompatibleError, match=path) as refused:
        strange.schema_files  # noqa: B018

    assert refused.value.details == {"file": path}


@pytest.mark.parametrize(
    ("sample", "reasons"),
    [
        ("rocksdb", [None]),
        ("hdfs", [None]),
        ("grand_total", [None]),
        ("session", [None]),
        ("watermark", [None]),
        ("join", [None]),
        ("join_3", [None]),
        ("transform_with_state", [None]),
        ("join_4", ["Spark cannot write the state rows of a join of format 4"]),
        ("limit", ["Spark cannot read the state rows of globalLimit", None]),
    ],
)
def test_trap_limit_and_joins_of_format_4_are_native_only(
    sample: str, reasons: list[str | None]
) -> None:
    files = files_of(sample)
    conf = offset_log.parse(files["offsets/0"], "").conf

    assert [operators.native_only(one, conf) for one in operators_of(sample)] == reasons


def test_the_format_of_joins_is_no_concern_of_other_operators() -> None:
    conf = {offset_log.JOIN_FORMAT_KEY: "4"}
    (aggregation,), (join,) = operators_of("rocksdb"), operators_of("join")

    assert operators.native_only(aggregation, conf) is None
    assert operators.native_only(join, conf) is not None
    assert operators.native_only(join, {}) is None  # Spark's default is 2.


def test_trap_a_limit_has_one_partition_whatever_its_metadata_says() -> None:
    limit, dedupe = operators_of("limit")

    assert (limit.partitions, dedupe.partitions) == (2, 2)
    assert operators.is_unpartitioned(limit.name)
    assert not operators.is_unpartitioned(dedupe.name)


def test_trap_an_operator_without_keys_is_known_by_its_schema() -> None:
    schema = "state/0/0/_metadata/schema"

    for operator in (Operator(0, "stateStoreSave", ("default",), 2), UNNAMED):
        assert operators.has_no_key(operator, files_of("grand_total")[schema])
        for keyed in ("rocksdb", "session", "watermark", "hdfs"):
            assert not operators.has_no_key(operator, files_of(keyed)[schema])


def test_trap_a_limit_that_no_metadata_names_is_known_by_its_key() -> None:
    schema = files_of("limit")["state/0/0/_metadata/schema"]

    assert operators.has_no_key(UNNAMED, schema)
    assert not operators.has_no_key(UNNAMED, files_of("limit")["state/1/0/_metadata/schema"])
    # A query may well group by a column that is always NULL.
    assert not operators.has_no_key(Operator(0, "stateStoreSave", ("default",), 2), schema)


@pytest.mark.parametrize("target", ["file:/elsewhere/next", "s3a://bucket/next"])
@pytest.mark.parametrize("sample", ["join_3", "transform_with_state"])
def test_trap_absolute_schema_paths_are_rewritten_and_nothing_else(
    sample: str, target: str
) -> None:
    data = files_of(sample)[VERSION_2]

    moved = operators.moved(data, VERSION_2, target, None)

    inside = re.compile(rb'"file:/[^"]*/(state/0/_stateSchema/[^"]+)"')
    assert len(inside.findall(data)) == 1
    assert moved == inside.sub(rb'"' + target.encode() + rb'/\1"', data)


@pytest.mark.parametrize(
    ("sample", "path", "stores"), [("join", METADATA, 4), ("join_3", VERSION_2, 1)]
)
def test_the_number_of_partitions_is_rewritten_in_every_store(
    sample: str, path: str, stores: int
) -> None:
    data = files_of(sample)[path]

    moved = operators.moved(data, path, "file:/x", 7)

    expected = json.loads(data.split(b"\n")[1])
    assert len(expected["stateStoreInfo"]) == stores
    for store in expected["stateStoreInfo"]:
        store["numPartitions"] = 7
        for number, file in enumerate(store.get("stateSchemaFilePaths", ())):
            store["stateSchemaFilePaths"][number] = f"file:/x/state{file.partition('/state')[2]}"
    assert moved.split(b"\n")[0] == data.split(b"\n")[0]
    assert json.loads(moved.split(b"\n")[1]) == expected


def test_names_of_state_variables_in_any_alphabet_are_kept() -> None:
    data = files_of("transform_with_state")[VERSION_2]
    named = data.replace(b"total", "größe".encode())

    moved = operators.moved(named, VERSION_2, "file:/x", 7)

    properties = [
        json.loads(one.split(b"\n")[1])["operatorPropertiesJson"] for one in (named, moved)
    ]
    assert properties[0] == properties[1]
    assert "größe" in properties[0]


@pytest.mark.parametrize("sample", ["rocksdb", "join", "grand_total"])
def test_version_1_moves_without_any_change(sample: str) -> None:
    data = files_of(sample)[METADATA]

    assert operators.moved(data, METADATA, "file:/x", None) == data
    assert operators.moved(data, METADATA, "file:/x", 2) == data


@pytest.mark.parametrize(
    ("path", "is_metadata"),
    [
        (METADATA, True),
        (VERSION_2, True),
        ("state/12/_metadata/v2/345", True),
        ("state/0/0/_metadata/schema", False),
        ("state/0/_metadata/v2/.0.crc", False),
        ("state/0/_stateSchema/default/0_903edf31", False),
        ("metadata", False),
        ("sources/0/0", False),
    ],
)
def test_paths_of_metadata_are_known(path: str, is_metadata: bool) -> None:
    assert operators.is_metadata(path) == is_metadata


@pytest.mark.parametrize("use", ["parse", "moved"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda _data: b"",
        lambda data: data[:-1],
        lambda data: data.replace(b"v1", b"v3", 1),
        lambda data: data.replace(b'"stateStoreInfo"', b'"stateStoreinfo"'),
        lambda _data: b"v1\n[]",
        lambda _data: b'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"x"}}',
    ],
)
def test_damaged_metadata_is_refused_and_named(damage: Callable[[bytes], bytes], use: str) -> None:
    data = damage(files_of("rocksdb")[METADATA])

    uses: dict[str, Callable[[], object]] = {
        "parse": lambda: operators.parse(data, METADATA),
        "moved": lambda: operators.moved(data, METADATA, "file:/x", 2),
    }

    with pytest.raises(IncompatibleError, match=METADATA) as refused:
        uses[use]()

    assert refused.value.hint


@pytest.mark.parametrize("word", [b"operatorId", b"operatorName", b"storeName", b"numPartitions"])
def test_metadata_that_lacks_something_is_refused_and_named(word: bytes) -> None:
    data = files_of("rocksdb")[METADATA].replace(word, b"other")

    with pytest.raises(IncompatibleError, match=METADATA):
        operators.parse(data, METADATA)
