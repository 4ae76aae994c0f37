"""A second S3 server, versitygw, that has nothing in common with moto but the protocol.

Whatever is safe by conditional PUT (leases, the journal, manifests, commits of Delta tables) is
tested on a server that we run with a correction of our own, and so here, on one that we do not
touch, too. A module that says `place = second_s3.place` runs its tests on it at night:

    make test-nightly PART=s3

The server is written in Go and keeps objects as files. It is built once, from the Go module proxy,
into the cache directory that has the jars, too; on two processors that takes two minutes. Where Go
is missing or too old the tests are skipped, unless `CI_REQUIRES_SECOND_S3` is set.

Unlike moto it checks signatures, and it holds a lock for each key from the look at a condition to
the write. Unlike S3 it cannot have an object `a` beside an object `a/b`; nothing here wants that.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from savepoints.io import Location
from savepoints.local import s3
from savepoints.local.cache import cache_directory, filling
from savepoints.local.service import Launch, free_ports

MODULE = "github.com/versity/versitygw/cmd/versitygw"
VERSION = "v1.8.0"
GO = (1, 25)
REQUIRED = "CI_REQUIRES_SECOND_S3"


@pytest.fixture(
    params=[
        "local",
        "s3",
        pytest.param("second_s3", id="second-s3", marks=pytest.mark.nightly),
        pytest.param("azure", marks=pytest.mark.nightly),
        pytest.param("hdfs", marks=pytest.mark.nightly),
    ]
)
def place(request: pytest.FixtureRequest) -> Location:
    """Give an empty directory on each kind of store in turn; see `azure` and `hdfs`, too."""
    found: Location = request.getfixturevalue(f"on_{request.param}")
    return found


def install() -> Path:
    """Build the server unless the cache has it, and return the program.

    Without Go this skips the test, or fails it where the server is required.
    """
    directory = cache_directory() / "versitygw" / VERSION
    program = directory / "versitygw"
    if program.exists():
        return program
    if (missing := _missing()) is not None:
        if os.environ.get(REQUIRED):
            pytest.fail(f"{missing}, and {REQUIRED} is set")
        pytest.skip(missing)
    with filling(directory):
        if not program.exists():
            _build(directory / "part").rename(program)
    return program


def prepare(program: Path, directory: Path) -> Launch:
    """Give the server its port, and a directory for what it keeps."""
    (port,) = free_ports(1)
    buckets = directory / "buckets"
    buckets.mkdir(exist_ok=True)
    options = {
        "--port": f"127.0.0.1:{port}",
        "--access": s3.ACCESS_KEY_ID,
        "--secret": s3.SECRET_ACCESS_KEY,
        "--region": s3.REGION,
        "--health": "/health",
    }
    words = [word for option in options.items() for word in option]
    return Launch(
        command=(str(program), *words, "--keep-alive", "--quiet", "posix", str(buckets)),
        endpoint=f"http://127.0.0.1:{port}",
        is_ready=partial(_is_ready, port),
    )


def _missing() -> str | None:
    wanted = ".".join(map(str, GO))
    go = shutil.which("go")
    if go is None:
        return f"there is no Go, of which {wanted} builds the second S3 server"
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"go(\d+)\.(\d+)", said)
    if found is None or tuple(map(int, found.groups())) < GO:
        return f"the second S3 server needs Go {wanted}, and here is: {said.strip()}"
    return None


def _build(part: Path) -> Path:
    environment = {**os.environ, "GOBIN": str(part), "CGO_ENABLED": "0"}
    command = ["go", "install", "-trimpath", "-ldflags=-s -w", f"{MODULE}@{VERSION}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = "\n".join(done.stderr.splitlines()[-15:])
        pytest.fail(f"the second S3 server cannot be built; the last lines of Go:\n{lines}")
    return part / "versitygw"


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except http.client.HTTPException:
        return False
    finally:
        connection.close()
