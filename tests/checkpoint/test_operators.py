"""Operator metadata, read from files that Spark wrote."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from savepoints.checkpoint import operators
from savepoints.checkpoint.operators import Operator
from savepoints.errors import IncompatibleError
from savepoints.io import Location
from tests.samples import unpack

METADATA = "state/0/_metadata/metadata"


@pytest.mark.parametrize(
    ("sample", "name"), [("rocksdb", "stateStoreSave"), ("watermark", "dedupe")]
)
def test_an_operator_has_number_name_and_stores(sample: str, name: str, on_local: Location) -> None:
    data = unpack(sample, on_local).get(METADATA)

    assert operators.parse(data, METADATA) == Operator(0, name, ("default",))


def test_an_operator_that_is_not_supported_is_refused_and_named(on_local: Location) -> None:
    data = unpack("join", on_local).get(METADATA)

    with pytest.raises(IncompatibleError, match="symmetricHashJoin") as refused:
        operators.parse(data, METADATA)

    assert "stateStoreSave" in refused.value.hint
    assert refused.value.details == {"operator_id": 0, "operator_name": "symmetricHashJoin"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda _data: b"",
        lambda data: data[:-1],
        lambda data: data.replace(b"v1", b"v2", 1),
        lambda data: data.replace(b"operatorId", b"operatorIt"),
        lambda data: data.replace(b'"storeName"', b'"storename"'),
        lambda _data: b"v1\n[]",
        lambda _data: b'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"x"}}',
    ],
)
def test_damaged_metadata_is_refused_and_named(
    damage: Callable[[bytes], bytes], on_local: Location
) -> None:
    data = unpack("rocksdb", on_local).get(METADATA)

    with pytest.raises(IncompatibleError, match=METADATA):
        operators.parse(damage(data), METADATA)
