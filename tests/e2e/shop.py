"""A shop with its own bucket, topic and store in the local world, for whole stories."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from savepoints.cli.main import _run
from savepoints.cli.output import Terminal
from savepoints.config.settings import QuerySettings, Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.model import Form
from savepoints.runtime.runner import Ran
from savepoints.store.locks import lease
from spark_jobs.orders.cdnow import orders_between, read_orders
from spark_jobs.orders.comparison import Comparison, compare
from spark_jobs.orders.producer import produce
from tests import spark_session

RIGHT = "spark_jobs.order_totals:app"
BUGGY = "spark_jobs.order_totals_buggy:app"
QUERY = "order_totals"


@dataclass(frozen=True)
class Shop:
    """One shop: what it is bound to, and the verbs as functions and as commands.

    Attributes:
        directory: Where its commands are called.
        bucket: Its bucket, which a shop on the local file system does not use.
        root: Where store, checkpoints and output lie.
        topic: Its topic.
        bootstrap_servers: Its broker.
        settings: All of it as settings.
    """

    directory: Path
    bucket: str
    root: str
    topic: str
    bootstrap_servers: str
    settings: Settings

    @classmethod
    def open(
        cls, world: LocalWorld, directory: Path, *, max_offsets: int = 20_000, on_s3: bool = True
    ) -> Shop:
        """Make the place for its data and the settings file."""
        name = f"shop-{uuid.uuid4().hex[:10]}"
        root = f"s3://{name}" if on_s3 else str(directory / name)
        if on_s3:
            world.create_bucket(name)
        else:
            (directory / name / "store").mkdir(parents=True)
        bound = QuerySettings(
            app=RIGHT,
            checkpoints=f"{root}/checkpoints",
            outputs={"totals": f"{root}/totals"},
            topics={"orders": name},
            archives={"orders": f"{root}/archive"},
            max_offsets_per_trigger=max_offsets,
        )
        settings = spark_session.settings(
            store=f"{root}/store",
            kafka={"bootstrap_servers": world.bootstrap_servers},
            queries={QUERY: bound},
        )
        conf = "".join(f'"{k}" = "{v}"\n' for k, v in settings.spark.conf.items())
        (directory / "savepoints.toml").write_text(
            f'store = "{settings.store}"\n'
            f'[spark]\nmaster = "local[2]"\n[spark.conf]\n{conf}'
            f'[queries.{QUERY}]\napp = "{RIGHT}"\ncheckpoints = "{bound.checkpoints}"\n'
            f"max_offsets_per_trigger = {max_offsets}\n"
            f'[queries.{QUERY}.outputs]\ntotals = "{bound.outputs["totals"]}"\n'
            f'[queries.{QUERY}.topics]\norders = "{name}"\n'
            f'[queries.{QUERY}.archives]\norders = "{bound.archives["orders"]}"\n'
        )
        return cls(directory, name, root, name, world.bootstrap_servers, settings)

    @property
    def table(self) -> str:
        """URI of the output."""
        return f"{self.root}/totals"

    @property
    def checkpoint(self) -> Location:
        """The checkpoint of the query's current generation."""
        return Location.of(self.store.generations.current(QUERY).checkpoint)

    @property
    def store(self) -> Store:
        """The savepoint store."""
        return Store.at(self.settings.store, settings=self.settings).make()

    def sell(self, begin: date, end: date, *, without: Collection[str] = ()) -> int:
        """Produce the real orders of some days, but for some by their ids; returns how many."""
        known = orders_between(read_orders(), from_date=begin, until_date=end)
        orders = [one for one in known if one.order_id not in without]
        produce(orders, bootstrap_servers=self.bootstrap_servers, topic=self.topic)
        return len(orders)

    def run(
        self, app: str = RIGHT, *, forms: Sequence[Form] = ("native",), save: bool = True
    ) -> Ran:
        """Run the query in this process until it has caught up."""
        ran, _ = self.store.query(QUERY).run(
            app=app, until="latest", forms=forms, final_savepoint=save
        )
        return ran

    def compare(self, until: date) -> Comparison:
        """Compare the output with pandas over the raw file."""
        return compare(self.table, until)

    def command(self, *arguments: str, crash_at: str = "") -> subprocess.CompletedProcess[str]:
        """Call the command line in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "savepoints", *arguments],
            cwd=self.directory,
            env=environment(crash_at),
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """Call the command line in this process, as `called` does, with the shop's settings."""
        return called(*arguments, "--config", str(self.directory / "savepoints.toml"))

    def json(self, *arguments: str) -> Any:
        """Call the command line in this process; it must succeed; returns its JSON document."""
        code, out, err = self.call(*arguments, "-o", "json")
        assert code == 0, err
        return json.loads(out)


def called(*arguments: str) -> tuple[int, str, str]:
    """Call the command line in this process, where it uses the Spark that runs already.

    Returns:
        Exit code, and what it wrote on stdout and on stderr.
    """
    out, err = io.StringIO(), io.StringIO()
    with _logging_as_before(), redirect_stdout(out), redirect_stderr(err):
        code = _run(Terminal(), list(arguments))
    return code, out.getvalue(), err.getvalue()


@contextmanager
def _logging_as_before() -> Iterator[None]:
    """Leave the root logger as it was: commands set it up for themselves."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def environment(crash_at: str = "") -> dict[str, str]:
    """Return the environment of a child process: this one's, and maybe a crash point."""
    here = str(Path(__file__).parents[2])
    return {**os.environ, "SAVEPOINTS_CRASH_AT": crash_at, "PYTHONPATH": here}


@contextmanager
def run_apart(directory: Path, root: Location, query: str) -> Iterator[Callable[[], None]]:
    """Run a query in a process of its own, as a supervisor would.

    Args:
        directory: Where its settings are.
        root: Of the store.

    Yields:
        What fails when that process has ended, with what it said.
    """
    log = directory / f"{query}.log"
    with (
        log.open("w") as said,
        subprocess.Popen(
            [sys.executable, "-m", "savepoints", "run", query],
            cwd=directory,
            env=environment(),
            stdout=said,
            stderr=said,
        ) as process,
    ):

        def require_alive() -> None:
            assert process.poll() is None, log.read_text()

        def runs() -> bool:
            require_alive()
            return lease.holder(root, query) is not None

        try:
            spark_session.wait_until(runs, f"{query} runs")
            yield require_alive
        finally:
            process.terminate()
            process.wait(timeout=120)
