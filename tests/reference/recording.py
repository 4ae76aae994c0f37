"""Record the terminal of the README: `python -m tests.reference.recording`.

Real commands on a real store, on an S3 server of its own; no JVM. Times and ids are those of the
recording, so nothing compares it; what it shows has its tests elsewhere.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from functools import partial
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import s3
from savepoints.local.service import Service
from tests.conftest import use_s3
from tests.faults.test_rollback_killed import write_output
from tests.samples import query_id, take, unpack

IMAGE = Path(__file__).parents[2] / "docs" / "img" / "rollback.svg"
WIDTH = 100
COMMANDS = (
    "savepoints list",
    "savepoints rollback before-release --yes",
    "savepoints undo order_totals --yes",
)
SETTINGS = """\
store = "s3://lake/savepoints"
[queries.order_totals]
app = "spark_jobs.order_totals:app"
checkpoints = "s3://lake/checkpoints"
outputs.totals = "s3://lake/totals"
"""


def main() -> None:
    """Make the store, run the commands, and draw what the terminal showed."""
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patched:
        service = Service("s3", s3.prepare_s3, Path(place), detach=False)
        try:
            service.wait_ready()
            use_s3(service.endpoint, patched)
            s3.create_bucket(service.endpoint, "lake")
            _save_three()
            (Path(place) / "savepoints.toml").write_text(SETTINGS)
            shown = Text("\n\n").join(
                Text.assemble(("$ ", "green"), (one, "bold"), "\n", _typed(one, Path(place)))
                for one in COMMANDS
            )
        finally:
            service.stop()
    console = Console(record=True, width=WIDTH, file=StringIO())
    console.print(shown, highlight=False)
    # The reader's own font: a picture that loads one from elsewhere is blocked where it matters.
    drawing = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    IMAGE.write_text(console.export_svg(title="savepoints", code_format=drawing))


def _save_three() -> None:
    store = Store.at("s3://lake/savepoints").make()
    live = unpack("rocksdb", Location.of("s3://lake/checkpoints/order_totals/1"))
    write_output("s3://lake/totals", query_id("rocksdb"))
    for batch in (1, 2, 3):
        take(
            store, live, batch_id=batch, query="order_totals",
            outputs={"totals": "s3://lake/totals"}, tags=("before-release",) if batch == 2 else (),
        )  # fmt: skip


def _typed(command: str, directory: Path) -> Text:
    """Run a command in a terminal, and return what it wrote there."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-m", *command.split(), "--progress", "none"],
        cwd=directory, env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    os.close(theirs)
    written = b""
    try:
        for part in iter(partial(os.read, ours, 4096), b""):
            written += part
    except OSError:  # A terminal whose other end is closed.
        pass
    assert process.wait(60) == 0, written.decode()
    return Text.from_ansi(written.decode().replace("\r\n", "\n").rstrip())


if __name__ == "__main__":
    main()
