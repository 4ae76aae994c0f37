"""`savepoints demo`: the whole story on real parts on this machine.

A query counts real orders from Kafka into a Delta table on S3, savepoints are written while it
runs, a bug spoils state and output, a rollback takes everything back, the right version goes on,
another rollback goes to exactly a day between two savepoints and is undone, and each time the
result is compared with a computation in pandas over the raw file.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from savepoints.cli.command import Invocation, common
from savepoints.cli.output import Output
from savepoints.errors import MissingExtraError, SavepointsError
from savepoints.local.guard import guarded
from savepoints.model import rfc3339, utc_now

if TYPE_CHECKING:
    from savepoints.local import LocalWorld
    from spark_jobs.orders.comparison import Comparison

BUCKET = "lake"
TABLE = f"s3://{BUCKET}/tables/order_totals"
# The bug is deployed on the first of these days of the data, and noticed on the second.
BUG_BEGINS, BUG_NOTICED = date(1997, 4, 1), date(1997, 7, 1)
END_OF_DATA = date(1998, 7, 1)
# A savepoint is taken at the first of these days, and later somebody wants to see the second.
FIRST_STOP, WANTED_DAY = date(1997, 2, 1), date(1997, 2, 15)

_NEEDED = ("pyspark", "delta", "confluent_kafka", "fastavro", "moto", "lifetimes", "pandas")

SETTINGS = f"""\
# Settings of the demo; every value can also come from a flag or from SAVEPOINTS_*.
store = "s3://{BUCKET}/savepoints"

[spark]
master = "local[2]"

[spark.conf]
"spark.sql.shuffle.partitions" = "2"
"spark.sql.streaming.stateStore.providerClass" = \
"org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# Short programs on few cores: the second compiler costs more than it brings.
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

[queries.order_totals]
app = "spark_jobs.order_totals:app"
checkpoints = "s3://{BUCKET}/checkpoints"
max_offsets_per_trigger = 20000

[queries.order_totals.outputs]
totals = "{TABLE}"
"""


@click.command("demo")
@click.option("--keep", is_flag=True, help="Leave Kafka, S3 and the store up afterwards.")
@common
def command(call: Invocation, *, keep: bool) -> int:
    """Show savepoints and a rollback on real Kafka, S3, Delta and real orders.

    Starts everything on free ports of this machine and stops it at the end. Exit code 1 when the
    result is not exactly right.

    \b
    Examples:
      savepoints demo
      savepoints demo --keep
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"the demo needs more than is installed: {', '.join(missing)}",
            hint="pip install 'savepoints[demo]' && pip install --no-deps lifetimes==0.11.3",
        )
    from savepoints.local import LocalWorld

    directory = Path(tempfile.mkdtemp(prefix="savepoints-demo-"))
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, directory, ignore_errors=True)
        call.output.progress("starting Kafka and S3 (the first time, 129 jars are downloaded)")
        world = LocalWorld.start(directory / "world", detach=keep)
        if keep:
            cleanup.callback(LocalWorld.stop_detached, directory / "world")
        else:
            cleanup.callback(world.stop)
        world.create_bucket(BUCKET)
        story = _Story(call.output, world, directory)
        right = story.tell()
        story.say_what_next(keep=keep)
        if keep:
            cleanup.pop_all()
    return 0 if right else 1


@dataclass(frozen=True)
class _Story:
    output: Output
    world: LocalWorld
    directory: Path

    def tell(self) -> bool:
        """Tell it; returns whether everything came out exactly right."""
        (self.directory / "savepoints.toml").write_text(SETTINGS)
        os.environ.update(self.world.environment)
        produce = "python -m spark_jobs.orders produce --topic orders"

        self.step(f"Real orders go to Kafka: all before {BUG_BEGINS}.")
        self.type(f"{produce} --until {BUG_BEGINS}")
        self.step("A query keeps totals by customer. It stops exactly where it is told to.")
        self.type(f"savepoints run order_totals --until {FIRST_STOP}T00:00:00Z")
        first = self.compare(FIRST_STOP)
        self.step("It goes on; a savepoint is written every 10 seconds.")
        self.type("savepoints run order_totals --every 10s --until latest")
        before = self.compare(BUG_BEGINS)
        self.type("savepoints list")
        self.step("Is the newest one whole? (Without --checksums every state row is read, too.)")
        self.type("savepoints verify latest --checksums")

        deployed = rfc3339(utc_now() + timedelta(milliseconds=1))
        self.step(f"{deployed}: a new version with a bug is deployed, and more orders arrive.")
        self.type(f"{produce} --from {BUG_BEGINS} --until {BUG_NOTICED}")
        self.type(
            "savepoints run order_totals --app spark_jobs.order_totals_buggy:app --until latest"
            " --no-final-savepoint"
        )
        spoiled = self.compare(BUG_NOTICED)
        self.say(f"{spoiled.wrong} of {spoiled.customers} customers now have a wrong total.")

        self.step("Back to before the bug: state, offsets and output together. First the plan:")
        self.type(f"savepoints rollback @{deployed} --dry-run")
        self.type(f"savepoints rollback @{deployed} --yes")
        restored = self.compare(BUG_BEGINS)

        self.step("The right version goes on from there, with the rest of the orders.")
        self.type(f"{produce} --from {BUG_NOTICED}")
        self.type("savepoints run order_totals --until latest")
        after = self.compare(END_OF_DATA)
        rollbacks = self.rollback_commits()

        self.step(f"What was it at the beginning of {WANTED_DAY}? No savepoint is of that moment.")
        self.type(f"savepoints rollback --at {WANTED_DAY}T00:00:00Z --exact --yes")
        wanted = self.compare(WANTED_DAY)
        self.step("Seen; and back to the present.")
        self.type("savepoints rollback --undo --yes")
        undone = self.compare(END_OF_DATA)
        exact = [first, before, restored, after, wanted, undone]
        rows = [
            ("at the first stop: customers that differ from pandas", first.wrong, 0),
            ("before the bug: customers that differ from pandas", before.wrong, 0),
            ("before the bug: rows", before.rows, before.customers),
            ("with the bug: customers spoiled, more than", spoiled.wrong, 0),
            ("after the rollback: customers that differ", restored.wrong, 0),
            ("after the rollback: sum of amounts, cents", restored.amount_cents,
             restored.amount_cents_true),
            ("rollback commits in the table's history", rollbacks, 1),
            ("at the end: rows", after.rows, after.customers),
            ("at the end: orders counted", after.orders, after.orders_true),
            ("at the end: sum of amounts, cents", after.amount_cents, after.amount_cents_true),
            ("at the end: customers that differ from pandas", after.wrong, 0),
            (f"at {WANTED_DAY}: orders counted", wanted.orders, wanted.orders_true),
            (f"at {WANTED_DAY}: customers that differ from pandas", wanted.wrong, 0),
            ("undone: customers that differ from pandas", undone.wrong, 0),
        ]  # fmt: skip
        return self.judge(rows) and all(one.exact for one in exact)

    def judge(self, rows: list[tuple[str, int, int]]) -> bool:
        """Show the table of checks; returns whether all hold."""
        judged = [
            (what, found, wanted, found > wanted if "more than" in what else found == wanted)
            for what, found, wanted in rows
        ]
        self.step("Checked against pandas over the raw file, which knows nothing of Spark:")
        self.output.table(
            ("check", "found", "wanted", ""),
            ((what, found, wanted, "ok" if ok else "WRONG") for what, found, wanted, ok in judged),
        )
        return all(ok for *_, ok in judged)

    def rollback_commits(self) -> int:
        """Count the commits in the output's history that went back to a version."""
        from savepoints.outputs.align import open_table

        history = open_table(TABLE).history()
        return sum(1 for commit in history if commit.get("operation") == "RESTORE")

    def compare(self, until: date) -> Comparison:
        """Compare the output with the truth over the orders before a day."""
        from spark_jobs.orders.comparison import compare

        found = compare(TABLE, until)
        self.say(
            f"Delta table against pandas: {found.rows} rows, {found.orders} orders, "
            f"{found.amount_cents / 100:.2f} dollars, {found.wrong} customers differ."
        )
        return found

    def type(self, line: str) -> None:
        """Show a command as a user would type it, and run it."""
        self.output.out.print(f"[bold cyan]$ {line}[/bold cyan]", highlight=False, soft_wrap=True)
        words = shlex.split(line)
        if words[0] == "savepoints":
            words = ["python", "-m", *words]
        sys.stdout.flush()
        # Guarded, so that it ends with this process, however that ends.
        command = guarded(sys.executable, *words[1:])
        with subprocess.Popen(command, cwd=self.directory, stdin=subprocess.PIPE) as process:
            code = process.wait()
        if code != 0:
            raise SavepointsError(
                f"the command ended with exit code {code}: {line}",
                hint="what it said is above",
            )

    def step(self, text: str) -> None:
        """Say what comes now."""
        self.output.out.print(f"\n[bold]{text}[/bold]", highlight=False, soft_wrap=True)

    def say(self, text: str) -> None:
        """Say what was seen."""
        self.output.out.print(f"[green]→[/green] {text}", highlight=False, soft_wrap=True)

    def say_what_next(self, *, keep: bool) -> None:
        """Say where everything is and what to try."""
        self.step("What next")
        if not keep:
            self.output.line(
                f"The store was s3://{BUCKET}/savepoints on a server that ends now. To look around "
                "in it: savepoints demo --keep"
            )
            return
        exports = "\n".join(
            f"export {name}={shlex.quote(value)}" for name, value in self.world.environment.items()
        )
        (self.directory / "env.sh").write_text(exports + "\n")
        self.output.line(f"The store is s3://{BUCKET}/savepoints; everything is up. Try:")
        self.output.line(f"  cd {self.directory} && . ./env.sh")
        self.output.line("  savepoints list")
        self.output.line("  savepoints show latest")
        self.output.line(f"  savepoints restore latest --to s3://{BUCKET}/my-checkpoint --dry-run")
        self.output.line("and stop it all with:")
        self.output.line(f"  python -m savepoints.local down {self.directory / 'world'}")
