"""`config`, `init` and `completion`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from savepoints.config import settings as config_settings
from savepoints.handle import Store
from savepoints.io import Location
from tests.samples import take, unpack

# From conftest.py: the function that calls the command line.
Call = Any

FILE = """
store = "s3://from-file"
[kafka.options]
"sasl.jaas.config" = 'X required username="u" password="planted-in-jaas";'
[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "planted-s3a-key"
[profiles.prod]
store = "s3://from-profile"
"""


def test_config_says_where_each_value_comes_from(call: Call, tmp_path: Path) -> None:
    (tmp_path / "savepoints.toml").write_text(FILE)

    text = call("config", "--profile", "prod")
    json = call("config", "--store", "s3://flag", "-o", "json")

    assert (text.code, json.code) == (0, 0)
    (line,) = [line for line in text.out.splitlines() if line.strip().startswith("store")]
    assert line.split() == ["store", "s3://from-profile", "savepoints.toml", "[profiles.prod]"]
    settings = {one["key"]: one for one in json.document["settings"]}
    assert settings["store"] == {"key": "store", "value": "s3://flag", "origin": "flag --store"}
    secret = settings['kafka.options."sasl.jaas.config"']
    assert (secret["value"], secret["origin"]) == ("***", "savepoints.toml")
    assert "planted" not in text.out + text.err + json.out + json.err


def test_config_of_nothing_has_defaults(call: Call) -> None:
    settings = {one["key"]: one for one in call("config", "-o", "json").document["settings"]}

    assert settings["spark.master"]["value"] == "local[*]"
    assert {one["origin"] for one in settings.values()} == {"default"}


def test_config_names_a_mistyped_variable(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAVEPOINTS_STROE", "s3://x")

    called = call("config", "-o", "json")

    assert (called.code, called.error["variable"]) == (2, "SAVEPOINTS_STROE")
    assert called.error["hint"] == "did you mean SAVEPOINTS_STORE?"


def test_init_writes_a_file_that_can_be_used(
    call: Call, on_local: Location, tmp_path: Path
) -> None:
    checkpoint = str(unpack("rocksdb", on_local / "totals"))

    called = call("init", checkpoint, "--table", "totals=/tables/totals", "--store", "/s")

    assert called.code == 0
    assert "wrote savepoints.toml" in called.out
    settings = config_settings.load()
    assert settings.store == "/s"
    assert settings.queries["totals"].outputs == {"totals": "/tables/totals"}
    assert call("config").code == 0


def test_trap_the_file_of_init_is_in_the_encoding_of_the_locale(
    on_local: Location, tmp_path: Path
) -> None:
    """Settings are read as UTF-8; Python tells who leaves it to the locale."""
    checkpoint = str(unpack("rocksdb", on_local / "totals"))
    python = [sys.executable, "-X", "warn_default_encoding"]

    done = subprocess.run(
        [*python, "-m", "savepoints", "init", checkpoint],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert (tmp_path / "savepoints.toml").exists()
    assert not re.findall(r"savepoints/.*EncodingWarning.*", done.stderr)


def test_init_says_what_it_found(call: Call, on_local: Location, tmp_path: Path) -> None:
    checkpoint = str(unpack("rocksdb", on_local / "totals"))

    called = call("init", checkpoint, "--query", "clicks", "--file", "other.toml", "-o", "json")

    document = called.document
    assert (document["file"], document["found"]["query"]) == ("other.toml", "clicks")
    assert document["to_fill_in"] == (tmp_path / "other.toml").read_text().count("FILL IN") - 1
    assert document["found"]["operators"] == ["0 stateStoreSave (2 partitions)"]


def test_init_does_not_overwrite(call: Call, on_local: Location, tmp_path: Path) -> None:
    checkpoint = str(unpack("rocksdb", on_local / "totals"))
    (tmp_path / "savepoints.toml").write_text("# precious")

    called = call("init", checkpoint, "-o", "json")

    assert (called.code, called.error["name"]) == (15, "TargetExistsError")
    assert (tmp_path / "savepoints.toml").read_text() == "# precious"


def test_trap_a_file_of_init_in_no_directory_is_an_unexpected_error(
    call: Call, on_local: Location
) -> None:
    checkpoint = str(unpack("rocksdb", on_local / "totals"))

    called = call("init", checkpoint, "--file", "none/savepoints.toml", "-o", "json")

    assert (called.code, called.error["name"]) == (2, "UsageError")
    assert "none/savepoints.toml: No such file" in called.error["message"]


def test_a_directory_that_is_no_name_of_a_query_asks_for_one(
    call: Call, on_local: Location
) -> None:
    checkpoint = str(unpack("rocksdb", on_local / "my clicks"))

    called = call("init", checkpoint, "-o", "json")

    assert called.code == 2
    assert "--query NAME" in called.error["hint"]
    assert call("init", checkpoint, "--query", "clicks").code == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["/none"], 10), (["/none", "--table", "x"], 10), (["s3://user:password@bucket/x"], 2)],
)
def test_init_refuses_what_is_no_checkpoint(
    arguments: list[str], code: int, call: Call, tmp_path: Path
) -> None:
    called = call("init", *arguments, "-o", "json")

    assert called.code == code
    assert called.error["hint"]
    assert not (tmp_path / "savepoints.toml").exists()


def complete(*words: str, shell: str = "bash") -> list[str]:
    """Do what a shell does when a person presses the tabulator."""
    done = subprocess.run(
        [sys.executable, "-c", "from savepoints.cli.main import main; main()"],
        env={
            **os.environ,
            "_SAVEPOINTS_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": " ".join(["savepoints", *words]),
            "COMP_CWORD": str(len(words)) if shell != "fish" else words[-1],
        },
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_commands_and_options_are_completed() -> None:
    assert complete("li") == ["plain,list", "plain,lineage"]
    assert set(complete("list", "--st")) == {"plain,--store", "plain,--state"}
    assert complete("list", "--state", "b") == ["plain,broken"]
    assert complete("completion", "") == ["plain,bash", "plain,zsh", "plain,fish"]


def test_names_are_completed_from_the_store(local_store: Store, on_local: Location) -> None:
    taken = take(local_store, unpack("rocksdb", on_local / "live"), tags=("before-release",))
    at = ("--store", str(local_store.root))

    assert complete(*at, "show", "sp-") == [f"plain,{taken.id}"]
    assert complete("rollback", *at, "be") == ["plain,before-release"]
    assert complete("verify", *at, "lat") == ["plain,latest"]
    assert complete("run", *at, "") == ["plain,totals"]
    assert complete("list", *at, "--query", "t") == ["plain,totals"]


def test_where_there_is_no_store_nothing_is_completed(tmp_path: Path) -> None:
    assert not any(complete("show", "--store", str(tmp_path / "none"), "sp-"))


def test_zsh_and_fish_also_show_what_a_command_does() -> None:
    assert complete("show", shell="zsh") == ["plain", "show", "Show everything about a savepoint."]
    assert complete("show", shell="fish")[0].startswith("plain,show")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(shell: str, call: Call, tmp_path: Path) -> None:
    text, json = call("completion", shell), call("completion", shell, "-o", "json")

    assert text.code == 0
    assert f"_SAVEPOINTS_COMPLETE={shell}_complete" in text.out
    assert json.document["script"].strip() == text.out.strip()
    (tmp_path / "script").write_text(text.out)
    if program := shutil.which(shell):
        subprocess.run([program, "-n", str(tmp_path / "script")], check=True)


def test_completion_of_another_shell_is_refused(call: Call) -> None:
    assert call("completion", "tcsh").code == 2
