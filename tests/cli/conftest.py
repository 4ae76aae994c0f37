"""The command line, called in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from savepoints.cli.main import _run
from savepoints.cli.output import Terminal
from tests.reference.documents import DOCUMENTS
from tests.reference.kinds import differences


@dataclass(frozen=True)
class Called:
    """What a call of the command line did."""

    arguments: tuple[str, ...]
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout, of one of the forms in docs/reference/json.md."""
        document = json.loads(self.out)
        words = " ".join(self.arguments[:2])
        forms = DOCUMENTS.get(words) or DOCUMENTS[self.arguments[0]]
        fitting = [form for form in forms if document.keys() == {"schema_version", *form.fields}]
        assert fitting
        inner = [
            [one for name, (hint, _) in form.fields.items()
             for one in differences(document[name], hint, name)]
            for form in fitting
        ]  # fmt: skip
        assert [] in inner, inner
        return document

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
    for name in ("SAVEPOINTS_STORE", "SAVEPOINTS_CONFIG", "SAVEPOINTS_PROFILE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> Called:
        capsys.readouterr()
        code = _run(Terminal(), list(arguments))
        captured = capsys.readouterr()
        return Called(arguments, code, captured.out, captured.err)

    return call
