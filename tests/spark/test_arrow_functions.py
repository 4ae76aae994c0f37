"""Functions over columns that a version of Spark has, or has not."""

from __future__ import annotations

import pytest

from savepoints.errors import IncompatibleError
from savepoints.spark.arrow_functions import arrow_function


def test_trap_a_spark_without_arrow_functions_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.0 would raise an ImportError."""
    monkeypatch.setattr("pyspark.__version__", "4.0.5")

    with pytest.raises(IncompatibleError, match=r"Spark 4\.0 cannot change") as refused:
        arrow_function(lambda found: found, "binary")

    assert "4.1" in refused.value.hint
