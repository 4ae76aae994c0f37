"""What the tests of long stories are marked with."""

from __future__ import annotations

import pytest

NIGHTLY = [
    pytest.mark.nightly,
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(900),
]
