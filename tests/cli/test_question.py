"""What a command asks in a terminal, and what a script is told of the answer."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from savepoints.cli.main import _run
from savepoints.cli.output import Terminal
from savepoints.handle import Store
from tests.samples import savepoint


def answered(store: Store, keys: bytes) -> tuple[int, str]:
    """Expire all but the newest savepoint, and type the answer in a terminal."""
    ours, terminal = pty.openpty()
    with os.fdopen(ours, "wb", buffering=0) as typed:
        command = [sys.executable, "-m", "savepoints", "--store", str(store.root)]
        asking = subprocess.Popen(
            [*command, "expire", "--keep-last", "1"],
            stdin=terminal,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        os.close(terminal)
        typed.write(keys)  # A terminal keeps what is typed ahead.
        _, said = asking.communicate(timeout=120)
    return asking.returncode, said


@pytest.mark.parametrize(
    ("keys", "left"), [(b"n\n", 3), (b"\x04", 3), (b"y\n", 1)], ids=["no", "Ctrl-D", "yes"]
)
def test_trap_what_was_declined_looked_done(local_store: Store, keys: bytes, left: int) -> None:
    """`savepoints rollback … && python driver.py` started the driver after a no."""
    local_store.catalog.put([savepoint(number) for number in (1, 2, 3)])

    code, said = answered(local_store, keys)

    declined = left == 3
    assert (code == 130) == declined, said
    assert ("not confirmed: nothing was changed" in said) == declined
    assert len(local_store.catalog.all()) == left


@pytest.mark.parametrize("words", [[], ["operations"], ["pipeline"]], ids=str)
def test_trap_the_help_of_a_group_alone_was_an_error_text(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(Terminal(), words) == 2
    out, err = capsys.readouterr()

    assert (out, err.startswith("Usage: savepoints")) == ("", True)
    assert "hint:" not in err

    assert _run(Terminal(), ["-o", "json", *words]) == 2
    assert '"message": "Missing command."' in capsys.readouterr().err
