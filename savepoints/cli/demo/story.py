"""A demo story: commands as a user types them, on real services, and checks of the result."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from savepoints.cli.output import Terminal
from savepoints.errors import SavepointsError
from savepoints.local import examples
from savepoints.local.guard import guarded

if TYPE_CHECKING:
    from datetime import date

    from savepoints.local import LocalWorld
    from spark_jobs.orders.comparison import Comparison

BUCKET = "lake"
TABLE = f"s3://{BUCKET}/tables/order_totals"
PRODUCE = "python -m spark_jobs.orders produce --topic orders"

SETTINGS = f"""\
# Settings of the demo; every value can also come from a flag or from SAVEPOINTS_*.
store = "s3://{BUCKET}/savepoints"

[spark]
master = "local[2]"

[spark.conf]
"spark.sql.shuffle.partitions" = "2"
"spark.sql.streaming.stateStore.providerClass" = \
"org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# Short programs on few cores: the second compiler costs more than it saves.
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

[queries.order_totals]
app = "spark_jobs.order_totals:app"
checkpoints = "s3://{BUCKET}/checkpoints"
max_offsets_per_trigger = 20000

[queries.order_totals.outputs]
totals = "{TABLE}"
"""

_PATH = "PYTHONPATH"

# What was checked, the value found, the value expected.
Row = tuple[str, int, int]


@dataclass(frozen=True)
class Story:
    """The base of all stories."""

    output: Terminal
    world: LocalWorld
    directory: Path

    def begin(self, settings: str = SETTINGS) -> None:
        """Write the settings file and set the environment that commands need."""
        (self.directory / "savepoints.toml").write_text(settings, "utf-8")
        os.environ.update(self.world.environment)
        # First on the path: a user may have another package of that name.
        place = str(examples.directory())
        sys.path.insert(0, place)
        before = os.environ.get(_PATH)
        os.environ[_PATH] = f"{place}{os.pathsep}{before}" if before else place
        self.say(f"The example applications, spark_jobs, are in {place}, now on {_PATH}.")

    def judge(self, rows: Sequence[Row]) -> bool:
        """Print the table of checks; return True if all hold."""
        judged = [
            (what, found, wanted, found > wanted if "more than" in what else found == wanted)
            for what, found, wanted in rows
        ]
        self.step("Checked against pandas over the raw file, which knows nothing of Spark:")
        self.output.table(
            ("check", "found", "expected", ""),
            ((what, found, wanted, "ok" if ok else "WRONG") for what, found, wanted, ok in judged),
        )
        return all(ok for *_, ok in judged)

    def compare(
        self, until: date, *, table: str = TABLE, v2_from: date | None = None
    ) -> Comparison:
        """Compare an output with pandas over the orders before a day, by rule 2 from `v2_from`."""
        from spark_jobs.orders.comparison import compare

        found = compare(table, until, v2_from=v2_from)
        self.say(
            f"Delta table against pandas: {found.rows} rows, {found.orders} orders, "
            f"{found.amount_cents / 100:.2f} dollars, {found.wrong} customers differ."
        )
        return found

    def type(self, line: str, *, expected: int = 0) -> None:
        """Show a command as a user would type it, and run it."""
        self.output.out.print(f"[bold cyan]$ {line}[/bold cyan]", highlight=False, soft_wrap=True)
        words = shlex.split(line)
        if words[0] == "savepoints":
            words = ["python", "-m", *words]
        sys.stdout.flush()
        # Guarded: it must end with this process, however this process ends.
        command = guarded(sys.executable, *words[1:])
        with subprocess.Popen(command, cwd=self.directory, stdin=subprocess.PIPE) as process:
            code = process.wait()
        if code != expected:
            raise SavepointsError(
                f"the command exited with code {code} instead of {expected}: {line}",
                hint="read its output above",
            )

    def step(self, text: str) -> None:
        """Print the heading of the next step."""
        self.output.out.print(f"\n[bold]{text}[/bold]", highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Print what was seen."""
        self.output.out.print(f"[green]→[/green] {text}", highlight=False, soft_wrap=True)

    def say_what_next(self, *, keep: bool) -> None:
        """Print where everything is and what to try next."""
        self.step("What next")
        if not keep:
            self.output.line(
                f"The store was s3://{BUCKET}/savepoints on a server that is now stopping. To "
                "explore it: savepoints demo --keep"
            )
            return
        exports = "\n".join(
            f"export {name}={shlex.quote(os.environ[name])}"
            for name in (*self.world.environment, _PATH)
        )
        (self.directory / "env.sh").write_text(exports + "\n", "utf-8")
        self.output.line(f"The store is s3://{BUCKET}/savepoints; everything is up. Try:")
        self.output.line(f"  cd {self.directory} && . ./env.sh")
        self.output.line("  savepoints list")
        self.output.line("  savepoints show latest")
        self.output.line(f"  savepoints restore latest --to s3://{BUCKET}/my-checkpoint --dry-run")
        self.output.line("and stop it all with:")
        self.output.line(f"  python -m savepoints.local down {self.directory / 'world'}")
