"""The command line, called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from savepoints.cli.main import _run
from savepoints.cli.output import Output


@dataclass(frozen=True)
class Called:
    """What a call of the command line did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """The JSON object that is the last line on stderr."""
        return json.loads(self.err.splitlines()[-1])


Call = Callable[..., Called]


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> Call:
    """Give a function that calls the command line, in an empty working directory."""
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("SAVEPOINTS_STORE", "SAVEPOINTS_CONFIG", "SAVEPOINTS_PROFILE"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> Called:
        capsys.readouterr()
        code = _run(Output(), list(arguments))
        captured = capsys.readouterr()
        return Called(code, captured.out, captured.err)

    return call
