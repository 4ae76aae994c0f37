"""Files that are written in one move, whatever stands at their path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from savepoints import whole_file


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    out.write_text("old")
    with out.open() as reading:
        whole_file.write(out, "new")

        assert reading.read() == "old", "whoever reads it has the old one to its end"
    assert out.read_text() == "new"
    assert list(tmp_path.iterdir()) == [out]


def test_trap_a_link_was_replaced_by_a_file(tmp_path: Path) -> None:
    real, link = tmp_path / "served" / "page.html", tmp_path / "page.html"
    real.parent.mkdir()
    link.symlink_to(real)

    whole_file.write(link, "new")

    assert link.is_symlink()
    assert real.read_text() == "new"


def test_trap_a_pipe_or_device_was_replaced_by_a_file(tmp_path: Path) -> None:
    """`--out /dev/stdout` as root in a container: from then on /dev/stdout was a page."""
    reading, writing = os.pipe()
    link = tmp_path / "stdout"
    link.symlink_to(f"/dev/fd/{writing}")

    whole_file.write(link, "new")

    os.close(writing)
    with os.fdopen(reading) as pipe:
        assert pipe.read() == "new"
    assert link.is_symlink()


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    there = tmp_path / "page.html"
    there.mkdir()

    for path in (there, tmp_path / "no" / "page.html", Path()):
        with pytest.raises(OSError, match="directory"):
            whole_file.write(path, "new")
    with pytest.raises(UnicodeEncodeError):
        whole_file.write(tmp_path / "other.html", "\udce9")
    assert list(tmp_path.iterdir()) == [there]
