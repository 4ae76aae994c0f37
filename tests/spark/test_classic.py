"""Where no classic session can be had, it is said before anything starts; no JVM."""

from __future__ import annotations

import pytest

import savepoints
from savepoints.config.settings import Settings, SparkSettings
from savepoints.errors import IncompatibleError
from savepoints.spark import classic
from savepoints.spark.session import session
from savepoints.spark.versions import SparkVersion


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SPARK_REMOTE", "sc://spark.example:15002"),
        ("SPARK_CONNECT_MODE_ENABLED", "1"),
        ("SPARK_API_MODE", "Connect"),
        ("SPARK_CONNECT_MODE", "1"),
    ],
)
def test_variables_that_make_sessions_of_connect_are_named(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(IncompatibleError, match=f"{name}={value}") as raised:
        session(Settings(), "never started")

    assert "create --format native" in raised.value.hint


@pytest.mark.parametrize(
    ("name", "value"), [("SPARK_API_MODE", "classic"), ("SPARK_CONNECT_MODE", "0")]
)
def test_the_same_variables_may_ask_for_a_classic_session(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)

    assert classic.problem() is None


@pytest.mark.parametrize(
    ("spark", "expected"),
    [
        (
            SparkSettings(master="sc://spark.example"),
            "sc://spark.example is a Spark Connect server",
        ),
        (SparkSettings(conf={"spark.remote": "local"}), "makes PySpark use Spark Connect"),
        (SparkSettings(conf={"spark.api.mode": "connect"}), "makes PySpark use Spark Connect"),
    ],
)
def test_settings_that_make_sessions_of_connect_are_named(
    spark: SparkSettings, expected: str
) -> None:
    with pytest.raises(IncompatibleError, match=expected):
        session(Settings(spark=spark), "never started")


def test_attach_refuses_a_session_of_connect_before_it_touches_the_store() -> None:
    made_by_connect = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})

    with pytest.raises(IncompatibleError, match="is a Spark Connect session"):
        savepoints.attach(made_by_connect(), None, every="1h", store="/nowhere/at/all")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["3.4.3", "4.3.0", "5.0.0.dev1"])
def test_a_version_that_is_not_tested_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(IncompatibleError, match=r"not supported: versions 3\.5 to 4\.2") as raised:
        SparkVersion.of(text).require_supported()

    assert "pyspark>=3.5,<4.3" in raised.value.hint


@pytest.mark.parametrize("text", ["3.5.0", "3.5.1-amzn-0", "4.0.5", "4.2.0"])
def test_a_version_that_is_tested_is_not_refused(text: str) -> None:
    SparkVersion.of(text).require_supported()
