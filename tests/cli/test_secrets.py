"""Planted secrets are in nothing that is shown, logged or kept; every byte is searched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from savepoints.cli.main import _run
from savepoints.cli.output import Terminal
from savepoints.config import secrets
from savepoints.config.settings import KafkaSettings
from savepoints.errors import EnvironmentUnfitError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.sources.combined import availability
from savepoints.sources.kafka import client
from tests.samples import KAFKA, contents, unpack

pytestmark = pytest.mark.drawn(3)

JAAS_PASSWORD = "planted-in-jaas-4711"
REGISTRY = "planted-registry-4712"
S3A_SECRET = "planted/s3a+key-4713"
AWS_SECRET = "planted/aws+key-4714"
AWS_TOKEN = "planted-aws-token-4715"
IN_URI = "planted-in-uri-4716"
IN_SERVERS = "planted-in-servers-4717"
SIGNATURE = "planted-signature-4718"
SECRETS = (
    *(JAAS_PASSWORD, REGISTRY, S3A_SECRET, AWS_SECRET, AWS_TOKEN, IN_URI, IN_SERVERS, SIGNATURE),
    *("planted%2Fs3a%2Bkey-4713", "planted%2Faws%2Bkey-4714"),
)

FILE = f"""
[kafka]
bootstrap_servers = "SASL_SSL://user:{IN_SERVERS}@localhost:1"

[kafka.options]
"sasl.jaas.config" = 'X required username="me" password="{JAAS_PASSWORD}";'
"basic.auth.user.info" = "me:{REGISTRY}"

[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "{S3A_SECRET}"

[queries.totals]
app = "no.such.package:app"
checkpoints = "s3://me:{IN_URI}@bucket/checkpoints"

[queries.totals.outputs]
totals = "s3://me:{IN_URI}@bucket/table?X-Amz-Signature={SIGNATURE}"
"""

# Words, and the exit code to be.
LookAt = Callable[..., None]


@pytest.fixture
def look_at(
    tmp_path: Path,
    s3_environment: None,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> LookAt:
    """Give a function that calls the command line with planted secrets, and searches for them."""
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "savepoints.toml").write_text(FILE)
    monkeypatch.chdir(directory)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(directory))
    # Another key than that of other tests, for which clients are kept.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "planted")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", AWS_SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", AWS_TOKEN)
    monkeypatch.setattr(secrets, "_known", set())

    def look_at(*words: str, code: int) -> None:
        capfd.readouterr()
        ended = _run(Terminal(), list(words))
        shown = capfd.readouterr()
        what = " ".join(words)
        assert ended == code, f"{what}: {shown.err}"
        search(shown.out, f"stdout of {what}")
        search(shown.err, f"stderr of {what}")

    return look_at


def search(text: str, where: str) -> None:
    for secret in SECRETS:
        assert secret not in text, f"{secret} is in {where}: …{text[: text.index(secret)][-200:]}"


PLAIN: tuple[str, ...] = ()
LOUD = ("-o", "json", "--log-level", "DEBUG", "--log-format", "json")


@pytest.mark.s3
def test_planted_secrets_are_nowhere(look_at: LookAt, place: Location, store: Store) -> None:
    checkpoint = str(unpack("rocksdb", place / "checkpoint"))
    outside = str(unpack("session", place / "session"))
    create = ("create", "--format", "native", "--checkpoint")
    both = (PLAIN, LOUD)
    # Words, ways of calling, exit code.
    cases: list[tuple[tuple[str, ...], tuple[tuple[str, ...], ...], int]] = [
        ((*create, checkpoint, "--name", "counts", "--tag", "first"), (PLAIN,), 0),
        ((*create, outside, "--name", "other", "--description", "x"), (LOUD,), 0),
        (("list",), (LOUD,), 0),
        (("show", "first"), (PLAIN,), 0),
        (("lineage",), (LOUD,), 0),
        (("tag", "first", "second"), (LOUD,), 0),
        (("verify", "first", "--checksums"), (LOUD,), 0),
        (("config",), both, 0),
        (("init", checkpoint, "--file", "made.toml"), (LOUD,), 0),
        # What fails: the application, outputs and places with credentials in them, names.
        (("run", "totals"), both, 2),
        ((*create, checkpoint, "--name", "totals"), both, 2),
        (("restore", "first", "--to", f"s3://me:{IN_URI}@bucket/x", "--yes"), both, 2),
        (("restore", "first", "--to", f"https://h/x?sig={SIGNATURE}", "--yes"), both, 16),
        (("show", f"--passwrd={JAAS_PASSWORD}"), both, 2),
        (("show", "--query", "counts", f"@https://u:{IN_URI}@h"), both, 2),
        (("show", f"none-{S3A_SECRET}-{AWS_TOKEN}"), both, 10),
        (("init", f"/none/{AWS_SECRET}"), both, 10),
    ]
    for words, ways, code in cases:
        for way in ways:
            look_at(*words, *way, "--store", str(store.root), code=code)

    kept = contents(store.root)
    assert len(kept) > 20
    for path, data in kept.items():
        search(path, f"the name of {path}")
        search(data.decode("latin-1"), path)


@pytest.mark.parametrize("way", [PLAIN, LOUD])
@pytest.mark.parametrize(
    ("uri", "code"),
    [
        (f"s3://me:{IN_URI}@bucket/path", 2),
        (f"https://host/x?sig={SIGNATURE}", 2),
        (f"s3://none-of-these/x?X-Amz-Signature={SIGNATURE}", 2),
        (f"/none/{AWS_SECRET}", 10),
    ],
)
def test_a_store_that_cannot_be_opened_does_not_show_them(
    uri: str, code: int, way: tuple[str, ...], look_at: LookAt
) -> None:
    look_at("list", "--store", uri, *way, code=code)


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_broker_that_cannot_be_reached_does_not_show_them(
    style: Literal["text", "json"],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 0.5)
    settings = KafkaSettings(
        bootstrap_servers=f"sasl_plaintext://user:{IN_SERVERS}@localhost:1,localhost:1",
        options={
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "me",
            "sasl.password": JAAS_PASSWORD,
        },
    )

    with pytest.raises(EnvironmentUnfitError) as refused:
        availability.require_available((KAFKA,), settings)
    Terminal(format=style).error(refused.value)

    shown = capfd.readouterr().err
    assert "localhost:1" in shown
    search(shown, "the error")


def test_an_unexpected_error_of_a_process_does_not_show_them(tmp_path: Path) -> None:
    (tmp_path / "savepoints.toml").write_text(FILE)
    code = f"""
import sys, types, click
from savepoints.cli import main
from savepoints.cli.options import common
@click.command()
@common
def command(call):
    call.settings
    raise RuntimeError("no way with {JAAS_PASSWORD} to https://me:{IN_URI}@host")
sys.modules["savepoints.cli.commands.list_"] = types.SimpleNamespace(command=command)
main.main()
"""
    for way in (PLAIN, LOUD):
        done = subprocess.run(
            [sys.executable, "-c", code, "list", *way],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        assert "RuntimeError" in done.stderr
        search(done.stdout + done.stderr, "an unexpected error")


def test_a_secret_that_is_shown_would_be_seen() -> None:
    with pytest.raises(AssertionError, match="is in here"):
        search(f"x {AWS_TOKEN}", "here")
