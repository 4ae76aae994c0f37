"""Functions over columns that a version of Spark has, or has not."""

from __future__ import annotations

import warnings

import pytest
from pyspark.sql.types import LongType

from savepoints.errors import IncompatibleError
from savepoints.spark.arrow_functions import arrow_function


def test_trap_a_spark_without_arrow_functions_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.0 would raise an ImportError."""
    monkeypatch.setattr("pyspark.__version__", "4.0.5")

    with pytest.raises(IncompatibleError, match=r"Spark 4\.0 cannot change") as refused:
        arrow_function(lambda found: found, "binary")

    assert "4.1" in refused.value.hint


def test_trap_each_function_was_a_warning_of_pyspark_on_the_terminal() -> None:
    """Of type hints, which nobody who edits state could give."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        arrow_function(lambda found: found, LongType())
