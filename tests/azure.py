"""Azurite, Microsoft's emulator of Azure's blob storage.

A module that says `place = second_s3.place` runs its tests on it, too, at night. It is written for
Node and installed once by npm into the cache directory. Where there is no npm the tests are
skipped, unless `CI_REQUIRES_AZURITE` is set. It has no endpoint of Data Lake (`dfs`), so Spark's
own driver of `abfss://` cannot be tried on it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import shutil
import subprocess
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from pathlib import Path

import pytest

from savepoints.local.cache import cache_directory, filling
from savepoints.local.service import Launch, free_ports

VERSION = "3.35.0"
REQUIRED = "CI_REQUIRES_AZURITE"
# Documented for the emulator and the same everywhere.
ACCOUNT = "devstoreaccount1"
CONTAINER = "tests"


def install() -> Path:
    """Install the emulator unless the cache has it, and return its program."""
    directory = cache_directory() / "azurite" / VERSION
    program = directory / "node_modules" / ".bin" / "azurite-blob"
    if program.exists():
        return program
    npm = shutil.which("npm")
    if npm is None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"there is no npm, and {REQUIRED} is set")
        pytest.skip("there is no npm, which installs Azurite")
    with filling(directory):
        if not program.exists():
            words = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"]
            subprocess.run([*words, "--prefix", str(directory), f"azurite@{VERSION}"], check=True)
    return program


def prepare(program: Path, directory: Path) -> Launch:
    """Give the emulator its port, and a directory for what it keeps."""
    (port,) = free_ports(1)
    options = {
        "--blobHost": "127.0.0.1",
        "--blobPort": str(port),
        "--location": str(directory / "blobs"),
    }
    words = [word for option in options.items() for word in option]
    flags = ("--silent", "--skipApiVersionCheck", "--disableTelemetry")
    return Launch(
        command=(str(program), *words, *flags),
        endpoint=f"http://127.0.0.1:{port}",
        is_ready=partial(_is_ready, port),
    )


def use(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let obstore and deltalake go to the emulator, whose key they know."""
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", endpoint)
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")


def make_container(endpoint: str, name: str = CONTAINER) -> None:
    """Create a container, which obstore cannot; the request is signed as Azure wants it."""
    when = format_datetime(datetime.now(UTC), usegmt=True)
    path = f"/{ACCOUNT}/{name}"
    signed = f"PUT{chr(10) * 12}x-ms-date:{when}\nx-ms-version:2021-08-06\n"
    signed += f"/{ACCOUNT}{path}\nrestype:container"
    key = base64.b64decode(  # of the emulator's only account, documented by Microsoft
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    )
    digest = hmac.new(key, signed.encode(), hashlib.sha256).digest()
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=10)
    headers = {
        "x-ms-date": when,
        "x-ms-version": "2021-08-06",
        "Content-Length": "0",
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
    }
    try:
        connection.request("PUT", f"{path}?restype=container", headers=headers)
        answer = connection.getresponse()
        assert answer.status == http.HTTPStatus.CREATED, answer.read()
    finally:
        connection.close()


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", f"/{ACCOUNT}?comp=list")
        connection.getresponse().read()
    except (http.client.HTTPException, OSError):
        return False
    finally:
        connection.close()
    return True
