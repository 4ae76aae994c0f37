"""`cluster`: a canonical restore by two executors of Spark's standalone cluster, beside one.

From command to prompt, so the starts of the driver and of its executors are in it. Everything is on
the local S3 server, which has no processor of its own here, like driver and executors.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks import state
from benchmarks.result import Result, Sample, Side, in_turns, seconds
from savepoints.config.settings import Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.model import new_id
from savepoints.moments import utc_now
from tests.clusters import standalone

_BUCKET, _QUERY = "cluster", "totals"
_ROOT = f"s3://{_BUCKET}"
# The driver of a restore needs no more, whatever the size of the state.
_DRIVER_MEMORY = "512m"
_BUILD = Path(__file__).parents[1] / "build"


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Restore a state of so many rows from a savepoint's rows, by one executor and by two."""
    with LocalWorld.start() as world:
        os.environ.update(world.environment)
        world.create_bucket(_BUCKET)
        spawning = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawning) as apart:
            apart.submit(_save, directory, keys).result()
        _BUILD.mkdir(exist_ok=True)
        # Not in `/tmp`: executors have one of their own.
        home = Path(tempfile.mkdtemp(dir=_BUILD, prefix="cluster-"))
        try:
            with standalone.start(home) as cluster:
                known = state.settings()
                conf = {
                    **known.spark.conf,
                    **cluster.conf,
                    "spark.driver.memory": _DRIVER_MEMORY,
                }
                spark = known.spark.model_copy(update={"master": cluster.master, "conf": conf})
                settings = known.model_copy(update={"store": _store_uri(), "spark": spark})
                samples = in_turns(
                    directory, rounds, *(_restore(settings, directory, n) for n in (2, 1))
                )
        finally:
            shutil.rmtree(home, ignore_errors=True)
    two, one = (seconds(found) for found in samples.values())
    memory = cluster.conf["spark.executor.memory"]
    note = f"the driver had {_DRIVER_MEMORY} (-Xmx), each executor {memory}"
    return Result(samples, one / two, (note,))


def _save(directory: Path, keys: int) -> None:
    """Save a state in rows; in a process of its own, whose Spark is a local one."""
    checkpoint = state.built(directory, keys)
    store = Store.at(_store_uri()).make().with_settings(state.settings())
    store.create(query=_QUERY, checkpoint=str(checkpoint), forms=("canonical",)).execute()
    shutil.rmtree(checkpoint)


def _store_uri() -> str:
    return f"{_ROOT}/store"


def _restore(settings: Settings, directory: Path, executors: int) -> Side:
    conf = {**settings.spark.conf, "spark.cores.max": str(executors)}
    spark = settings.spark.model_copy(update={"conf": conf})
    config = directory / f"{executors}.toml"
    state.write(settings.model_copy(update={"spark": spark}), config)
    name = f"restore, {executors} executor{'s' if executors > 1 else ''}"
    return partial(_restored, config, name)


def _restored(config: Path, name: str, scratch: Path) -> Mapping[str, Sample]:
    del scratch  # On S3.
    target = Location.of(f"{_ROOT}/{new_id('op', utc_now())}")
    begun = time.monotonic()
    words = ("restore", "latest", "--query", _QUERY, "--to", str(target), "--format", "canonical")
    command = [sys.executable, "-m", "savepoints", *words, "--yes", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    took = time.monotonic() - begun
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    made = target.list()
    target.delete([one.path for one in made])
    return {name: Sample(took, sum(one.size for one in made), len(made))}
