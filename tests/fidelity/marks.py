"""What the walks, which take up to an hour, are marked with."""

from __future__ import annotations

import pytest

WALK = [
    pytest.mark.nightly,
    pytest.mark.spark,
    pytest.mark.kafka,
    pytest.mark.timeout(3000),
]
