"""Directories for temporary files, and processes that were killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from savepoints import temporary

PROGRAM = """
import sys
from savepoints import temporary
made = temporary.directory("op", sys.argv[1])
(made / "rows").mkdir()
(made / "rows" / "file").write_text("much")
print(made, flush=True)
sys.stdin.read()
"""


@contextmanager
def another(parent: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a process that has a directory, and ends when its input does."""
    command = [sys.executable, "-c", PROGRAM, str(parent)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        yield child, Path(child.stdout.readline().strip())


def test_a_directory_goes_with_its_process(tmp_path: Path) -> None:
    with another(tmp_path) as (_, made):
        assert (made / "rows" / "file").is_file()

    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_goes_with_the_next_directory(tmp_path: Path) -> None:
    with another(tmp_path) as (child, killed):
        child.kill()
        child.wait()

    assert killed.is_dir()
    with another(tmp_path) as (_, made):
        assert made.is_dir()
        assert not killed.exists()


def test_trap_that_of_a_process_that_runs_stays(tmp_path: Path) -> None:
    """Nobody may take it away, not even the same process with its next directory."""
    with another(tmp_path) as (_, theirs):
        mine = temporary.directory("op", tmp_path)
        other = temporary.directory("op", tmp_path)

        assert (theirs / "rows" / "file").is_file()
        assert mine.is_dir()
        assert other.is_dir()
        assert mine != other


def test_what_is_not_made_by_this_stays(tmp_path: Path) -> None:
    theirs = [tmp_path / "savepoints-demo-x", tmp_path / "other.lock"]
    theirs[0].mkdir()
    theirs[1].touch()

    temporary.directory("op", tmp_path)

    assert all(one.exists() for one in theirs)


def test_trap_a_lock_file_of_a_cron_job_is_not_ours(tmp_path: Path) -> None:
    """`flock /tmp/savepoints-nightly.lock savepoints create …`, beside what the job writes."""
    lock, kept = tmp_path / "savepoints-nightly.lock", tmp_path / "savepoints-nightly"
    lock.touch()
    kept.mkdir()

    temporary.directory("op", tmp_path)

    assert lock.exists()
    assert kept.exists()


def test_trap_nobody_else_reads_what_is_in_it(tmp_path: Path) -> None:
    assert temporary.directory("op", tmp_path).stat().st_mode & 0o777 == 0o700


def test_removed_before_the_end_it_leaves_nothing(tmp_path: Path) -> None:
    made = temporary.directory("op", tmp_path)
    (made / "rows").touch()

    temporary.remove(made)
    temporary.remove(made)

    assert not list(tmp_path.iterdir())
