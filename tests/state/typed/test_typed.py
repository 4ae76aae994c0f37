"""What can be read of an operator, from its metadata alone."""

from __future__ import annotations

import pytest

from savepoints.errors import IncompatibleError
from savepoints.state.typed import typed
from tests.samples import files_of

METADATA = "state/0/_metadata/v2/0"


def test_a_variable_may_be_called_timers() -> None:
    data = files_of("transform_with_state")[METADATA].replace(b"seen", b"timers")

    found = typed.variables(data, METADATA, {})

    assert [(one.kind, one.name) for one in found] == [
        ("map", "counts"),
        ("list", "timers"),
        ("value", "total"),
        ("timers", "$timers"),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'{\\"timeMode', b"!"),
        (b'\\"stateName', b'\\"stateNome'),
        (b'"operatorPropertiesJson":', b'"operatorPropertiesJson":3,"other":'),
    ],
)
def test_damaged_metadata_is_named(old: bytes, new: bytes) -> None:
    data = files_of("transform_with_state")[METADATA]
    assert old in data

    what = "v2/0 (is damaged: it does not list the state variables|is not operator metadata)"
    with pytest.raises(IncompatibleError, match=what):
        typed.variables(data.replace(old, new), METADATA, {})
