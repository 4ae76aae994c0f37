"""docs/how-to/ab-test.md: its programs, settings and commands, as a reader types them."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from deltalake import DeltaTable

from savepoints.local.jars import resolve_jars
from tests.e2e.marks import NIGHTLY
from tests.e2e.pages import blocks
from tests.e2e.shop import environment
from tests.spark_session import wait_until

pytestmark = NIGHTLY

PAGE = "how-to/ab-test.md"


def typed(line: str, directory: Path) -> list[str]:
    """Return a command of the page as the words of a process."""
    words = shlex.split(line.replace("/data/shop", str(directory)))
    return [sys.executable, *(["-m", *words] if words[0] == "savepoints" else words[1:])]


def run(line: str, directory: Path) -> tuple[int, str]:
    done = subprocess.run(
        typed(line, directory), cwd=directory, env=environment(), capture_output=True, text=True,
        timeout=400, check=False,
    )  # fmt: skip
    return done.returncode, f"{line}\n{done.stdout}\n{done.stderr}"


@contextmanager
def second_terminal(line: str, directory: Path) -> Iterator[None]:
    """Run a command until the end of the block, and then as a supervisor ends it."""
    log = directory / "second-terminal.log"
    with (
        log.open("w") as said,
        subprocess.Popen(
            typed(line, directory), cwd=directory, env=environment(), stdout=said, stderr=said
        ) as process,
    ):
        try:
            yield
            assert process.poll() is None, log.read_text()
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0, log.read_text()
        finally:
            process.kill()


def counts(orders: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return what a version must have written that counts these orders."""
    found: dict[str, tuple[int, int]] = {}
    for _, customer, cents in (one.split(":") for one in orders):
        count, total = found.get(customer, (0, 0))
        found[customer] = (count + 1, total + int(cents))
    return found


def table(directory: Path, name: str = "totals") -> dict[str, tuple[int, int]]:
    rows = DeltaTable(str(directory / name)).to_pyarrow_table().to_pylist()
    return {one["customer"]: (one["orders"], one["cents"]) for one in rows}


def test_two_versions_are_compared_and_the_second_takes_over(tmp_path: Path) -> None:
    for name, program in zip(
        ("shop.py", "sell.py", "shop_v2.py"), blocks(PAGE, "python"), strict=True
    ):
        (tmp_path / name).write_text(program)
    (settings,) = blocks(PAGE, "toml")
    settings = settings.replace("/data/shop", str(tmp_path))
    settings = settings.replace("/data/jars", str(resolve_jars().spark_directory))
    (tmp_path / "savepoints.toml").write_text(settings)
    lines = [one[2:] for block in blocks(PAGE, "console") for one in block.splitlines()]
    first, forever, create, check, fork, more, until, pause, compare, resume, promote, end = lines

    def does(line: str, code: int = 0) -> str:
        returned, said = run(line, tmp_path)
        assert returned == code, said
        return said

    does(first)
    before = first.split()[3:]
    with second_terminal(forever, tmp_path):
        # As soon as somebody can see that it runs.
        wait_until((tmp_path / "totals" / "_delta_log").exists, "the first rows are there", 240)
        for line in (create, check, fork, more, until, pause):
            does(line)
        after = more.split()[3:]
        assert table(tmp_path, "totals_forks/totals_v2") == counts(
            [*before, *(one for one in after if not one.endswith(":0"))]
        )
        said = does(compare, 3)
        assert table(tmp_path) == counts([*before, *after])
        assert "metric  " in said
        assert "revenue" in said
        does(resume)
        does(promote)
        assert table(tmp_path) == table(tmp_path, "totals_forks/totals_v2")
        does("python sell.py /data/shop/orders 7:bob:0 8:bob:50")
        second = counts([*before, *(one for one in (*after, "8:bob:50") if one[-2:] != ":0")])
        wait_until(lambda: table(tmp_path) == second, "version 2 counts on", 120)
        assert str(tmp_path / "totals_forks/totals_v2") in does(end)
        assert "has ended: version 2 has taken over" in does(until, 10)
