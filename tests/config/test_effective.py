"""Where each setting comes from, and that secrets are not shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from savepoints.config import files, settings
from savepoints.config.effective import effective

FILE = """
store = "s3://file"

[kafka.options]
"security.protocol" = "SASL_SSL"
"sasl.password" = "planted-password"

[queries.totals]
app = "jobs:app"
checkpoints = "s3://b/c"
trigger = "90s"

[queries.totals.retention]
keep_within = "36h"

[profiles.prod.kafka]
bootstrap_servers = "prod:9092"
"""


@pytest.fixture(autouse=True)
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Work in a directory with a file, and without any of our variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of-the-user"))
    for name in [name for name in os.environ if name.startswith("SAVEPOINTS_")]:
        monkeypatch.delenv(name)
    (tmp_path / files.FILE).write_text(FILE)
    return tmp_path / files.FILE


def table(**arguments: Any) -> dict[str, tuple[object, str]]:
    return {one.key: (one.value, one.origin) for one in effective(**arguments)}


def test_every_place_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    files.user_file().parent.mkdir(parents=True)
    files.user_file().write_text("[retention]\nkeep_daily = 7\nkeep_last = 1")
    (tmp_path / "pyproject.toml").write_text("[tool.savepoints.retention]\nkeep_last = 2")
    monkeypatch.setenv("SAVEPOINTS_SPARK__MASTER", "yarn")

    found = table(profile="prod", flags={"store": "s3://flag", "jars": None})

    assert found["store"] == ("s3://flag", "flag --store")
    assert found["spark.master"] == ("yarn", "environment SAVEPOINTS_SPARK__MASTER")
    assert found["kafka.bootstrap_servers"] == (*("prod:9092", "savepoints.toml [profiles.prod]"),)
    assert found['kafka.options."security.protocol"'] == ("SASL_SSL", "savepoints.toml")
    assert found["retention.keep_last"] == (2, "pyproject.toml [tool.savepoints]")
    assert found["retention.keep_daily"] == (7, str(files.user_file()))
    assert found["retention.keep_weekly"] == (0, "default")
    assert found["jars"] == (None, "default")


def test_values_are_those_in_force() -> None:
    found = table()

    assert found["queries.totals.trigger"][0] == "90s"
    assert found["queries.totals.retention.keep_within"][0] == "36h"
    assert found["queries.totals.retention.keep_last"] == (0, "default")
    assert settings.load().store == found["store"][0]


def test_a_variable_may_give_a_table_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAVEPOINTS_KAFKA", '{"bootstrap_servers": "json:9092"}')

    assert table()["kafka.bootstrap_servers"] == ("json:9092", "environment SAVEPOINTS_KAFKA")


def test_secrets_are_masked_and_named() -> None:
    assert table()['kafka.options."sasl.password"'] == ("***", "savepoints.toml")
