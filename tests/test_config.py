"""Settings: where each value comes from, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from savepoints import config
from savepoints.config import parse_duration
from savepoints.errors import UsageError

FILE = """
store = "from-file"

[kafka]
bootstrap_servers = "file:9092"

[kafka.options]
"security.protocol" = "SSL"

[spark.conf]
"spark.sql.shuffle.partitions" = "5"

[queries.totals]
app = "jobs:app"
checkpoints = "s3://b/c"
every = "10m"

[profiles.prod]
store = "from-profile"

[profiles.prod.kafka]
bootstrap_servers = "prod:9092"
"""


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Work in an empty directory without any of our variables."""
    import os

    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("SAVEPOINTS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / config.FILE
    path.write_text(FILE)
    return path


def test_without_anything_there_are_defaults() -> None:
    settings = config.load()

    assert (settings.store, settings.jars, settings.queries) == ("", None, {})
    assert settings.spark.master == "local[*]"


def test_flag_wins_over_environment_over_profile_over_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert config.load().store == "from-file"
    assert config.load(profile="prod").store == "from-profile"

    monkeypatch.setenv("SAVEPOINTS_STORE", "from-environment")
    assert config.load(profile="prod").store == "from-environment"

    assert config.load(profile="prod", flags={"store": "from-flag"}).store == "from-flag"
    assert config.load(profile="prod", flags={"store": None}).store == "from-environment"


def test_a_profile_replaces_single_values_of_a_table(file: Path) -> None:
    kafka = config.load(profile="prod").kafka

    assert kafka.bootstrap_servers == "prod:9092"
    assert kafka.options == {"security.protocol": "SSL"}


def test_nested_settings_come_from_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS", "env:9092")

    settings = config.load()

    assert settings.kafka.bootstrap_servers == "env:9092"
    assert settings.kafka.options == {"security.protocol": "SSL"}


def test_sparks_own_names_are_kept(file: Path) -> None:
    assert config.load().spark.conf == {"spark.sql.shuffle.partitions": "5"}


def test_durations_in_the_file_are_read(file: Path) -> None:
    query = config.load().queries["totals"]

    assert (query.every, query.trigger) == (timedelta(minutes=10), None)


def test_two_loads_do_not_share_anything(tmp_path: Path) -> None:
    one, two = tmp_path / "one.toml", tmp_path / "two.toml"
    one.write_text('store = "one"')
    two.write_text('store = "two"')

    first = config.load(file=one)
    second = config.load(file=two)

    assert (first.store, second.store, config.load().store) == ("one", "two", "")


def test_the_file_may_be_named_by_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.toml").write_text('store = "other"')
    monkeypatch.setenv("SAVEPOINTS_CONFIG", str(tmp_path / "other.toml"))

    assert config.load().store == "other"


def test_a_file_that_was_named_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        config.load(file=Path("none.toml"))

    monkeypatch.setenv("SAVEPOINTS_CONFIG", "none.toml")
    with pytest.raises(UsageError, match=r"none\.toml does not exist"):
        config.load()


@pytest.mark.parametrize(
    ("content", "path", "suggestion"),
    [
        ('stor = "x"', "stor", "store"),
        ('[kafka]\nbootstrap_server = "x"', "kafka.bootstrap_server", "bootstrap_servers"),
        ('[spark]\nmastr = "x"', "spark.mastr", "master"),
        (
            '[queries.q]\napp = "a:b"\ncheckpoints = "c"\ntriger = "1s"',
            "queries.q.triger",
            "trigger",
        ),
        ('[profiles.p]\nstorre = "x"', "storre", "store"),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(
    content: str, path: str, suggestion: str, tmp_path: Path
) -> None:
    (tmp_path / config.FILE).write_text(content)

    with pytest.raises(UsageError, match=f"no setting {path}$") as refused:
        config.load(profile="p" if "profiles" in content else None)

    assert refused.value.hint == f"did you mean {suggestion}?"


def test_an_unknown_key_that_is_like_no_other_is_refused(tmp_path: Path) -> None:
    (tmp_path / config.FILE).write_text("zzzzzz = 1")

    with pytest.raises(UsageError, match="no setting zzzzzz") as refused:
        config.load()

    assert refused.value.hint


def test_an_unknown_nested_key_of_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SAVEPOINTS_KAFKA__BOOTSTRAP_SERVER", "x")

    with pytest.raises(UsageError) as refused:
        config.load()

    assert refused.value.hint == "did you mean bootstrap_servers?"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("store = ", "is not TOML"),
        ("store = 5", "setting store"),
        ('[queries.q]\napp = "a:b"', r"setting queries\.q\.checkpoints"),
        ('[queries.q]\napp = "a:b"\ncheckpoints = "c"\nevery = "soon"', "soon"),
    ],
)
def test_a_wrong_value_is_refused_and_named(content: str, says: str, tmp_path: Path) -> None:
    (tmp_path / config.FILE).write_text(content)

    with pytest.raises(UsageError, match=says):
        config.load()


def test_an_unknown_profile_is_refused_and_the_known_are_named(file: Path) -> None:
    with pytest.raises(UsageError, match="'live'") as refused:
        config.load(profile="live")

    assert refused.value.hint == "the file has: prod"


def test_settings_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        config.load().store = "x"


UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


@given(st.integers(1, 36_500), st.sampled_from(sorted(UNITS)))
def test_a_number_with_a_unit_is_that_much(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == number * UNITS[unit]


@given(st.integers(0, 400), st.integers(0, 30), st.integers(0, 90), st.integers(0, 90))
@example(0, 0, 15, 0)
def test_iso_durations_are_read(days: int, hours: int, minutes: int, seconds: int) -> None:
    expected = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    full = f"P{days}DT{hours}H{minutes}M{seconds}S"
    parts = [f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if n]
    short = "P" + (f"{days}D" if days else "") + (f"T{''.join(parts)}" if parts else "")

    for text in (full, short):
        if expected:
            assert parse_duration(text) == expected
        else:
            with pytest.raises(UsageError):
                parse_duration(text)


@given(st.floats(0.001, 1000).map(lambda value: f"{value:.3f}"))
def test_fractions_are_read(number: str) -> None:
    expected = timedelta(seconds=float(number))

    assert parse_duration(f"{number}s") == expected
    assert parse_duration(f"PT{number}S") == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "m", "-5m", "0s", "0ms", "PT0S", "P", "PT", "5 m", "5w", "1h30m", "P1M", "PT1D"),
        *("+5m", "5M", "1e3s", "nan", "infs", ".5s"),
        *("9s\n", "9999999999d", "36501d"),
    ],
)
def test_what_is_no_duration_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError, match="not a duration") as refused:
        parse_duration(text)

    assert "15m" in refused.value.hint
