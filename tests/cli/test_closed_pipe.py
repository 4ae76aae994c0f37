"""What a command stands on may go away, be full or closed: its streams, its directory, itself."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from savepoints.cli import output
from savepoints.cli.output import Terminal
from savepoints.handle import Store
from savepoints.model import Savepoint
from savepoints.store.tables.catalog import Catalog
from tests import draw
from tests.e2e.shop import called
from tests.samples import savepoint


def test_trap_a_closed_pipe_ends_a_verb_between_two_steps() -> None:
    """Rich raises SystemExit, in the middle of whatever prints."""
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as nobody:
        terminal = Terminal(out=output._console(nobody), err=output._console(nobody))

        terminal.progress("taking a safety savepoint")
        terminal.progress("rewinding the table")
        terminal.line("rolled back")


def shell(words: str, store: Store, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call the command line in a shell: `words` with `savepoints` and `--store` before them."""
    command = shlex.join([sys.executable, "-m", "savepoints", "--store", str(store.root)])
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} {words}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_trap_a_list_of_which_only_the_head_is_read_is_a_failure(local_store: Store) -> None:
    """Of what is longer than a pipe holds."""
    local_store.catalog.put([savepoint(number) for number in range(1, 700)])

    for form in ("text", "json"):
        done = shell(f"list -o {form} | head -2 >/dev/null", local_store)

        assert (done.returncode, done.stderr) == (0, "")


@draw.taking_turns("full disk under a log", "closed streams")
def test_trap_a_full_disk_under_its_log_ends_a_command_before_it_has_done_anything(
    local_store: Store,
) -> None:
    """Of what is shown nobody needs to know; what was asked for must be there, or be missed."""
    local_store.catalog.add(savepoint(1))

    tagged = shell("tag latest a --yes 2>/dev/full", local_store)
    listed = shell("list >/dev/full", local_store)
    as_json = shell("list -o json >/dev/full", local_store)

    assert (tagged.returncode, local_store.catalog.all()[0].tags) == (0, ("a",))
    assert (listed.returncode, as_json.returncode) == (1, 1)
    assert "cannot be written to stdout: No space left on device" in listed.stderr
    assert json.loads(as_json.stderr)["name"] == "SavepointsError"


def test_trap_ctrl_c_is_text_where_json_was_asked_for(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Catalog.all

    def interrupted(self: Catalog) -> list[Savepoint]:
        signal.raise_signal(signal.SIGINT)
        return read(self)

    monkeypatch.setattr(Catalog, "all", interrupted)
    # A shell lets what it runs in the background ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    try:
        code, out, err = called("list", "-o", "json", "--store", str(local_store.root))
    finally:
        signal.signal(signal.SIGINT, before)

    assert (code, out) == (130, "")
    said = json.loads(err)
    assert (said["code"], said["name"], said["message"]) == (130, "StoppedError", "interrupted")
    assert "savepoints operations list" in said["hint"]


@draw.taking_turns("closed streams", "full disk under a log")
def test_trap_closed_streams_end_a_command_in_a_traceback(local_store: Store) -> None:
    """As daemons leave them: `savepoints run clicks <&- >&- 2>&-`."""
    tagged = local_store.catalog
    tagged.put([savepoint(number) for number in (1, 2, 3)])

    assert shell("tag latest a --yes >&-", local_store).returncode == 0
    assert shell("tag latest b --yes 2>&-", local_store).returncode == 0
    assert shell("tag latest c --yes <&- >&- 2>&-", local_store).returncode == 0
    asked = shell("expire --keep-last 1 <&-", local_store)

    assert (asked.returncode, "stdin is not a terminal" in asked.stderr) == (2, True)
    assert tagged.all()[0].tags == ("a", "b", "c")


def test_trap_a_letter_that_the_terminal_lacks_is_a_failure(local_store: Store) -> None:
    """What was asked for was done, and the command said that it had failed."""
    local_store.catalog.add(savepoint(1))

    done = shell("tag latest --description zw\u00f6lf --yes", local_store, PYTHONIOENCODING="ascii")
    listed = shell("list", local_store, PYTHONIOENCODING="ascii")

    assert done.returncode == listed.returncode == 0
    assert r"zw\xf6lf" in done.stdout
    assert r"zw\xf6lf" in listed.stdout
    assert "\n ----" in listed.stdout


def test_trap_a_working_directory_that_was_removed_is_an_unexpected_error(
    local_store: Store, tmp_path: Path
) -> None:
    """As where a deployment has put another one in its place."""
    settings = tmp_path / "savepoints.toml"
    settings.write_text('[queries.q]\napp = "shop:app"\ncheckpoints = "/nowhere"\n')
    there = Path.cwd()
    gone = tmp_path / "release-1"
    gone.mkdir()
    os.chdir(gone)
    try:
        gone.rmdir()
        words = ["run", "q", "--store", str(local_store.root), "--config", str(settings)]
        code, _, err = called(*words, "-o", "json")
    finally:
        os.chdir(there)

    assert code == 1
    said = json.loads(err.splitlines()[-1])
    assert said["message"] == "the working directory of this command was removed"
    assert "cd" in said["hint"]
