"""`cluster`: a canonical restore by two executors of Spark's standalone cluster, beside one.

From command to prompt, so the starts of the driver and of its executors are in it. Everything is on
a disk that they share: an S3 server on the same machine would take the processor of an executor.
Each worker has a processor of its own; on two, the driver shares them.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import state
from benchmarks.result import Result, Sample, Side, copied, in_turns, seconds, timed
from savepoints.config.settings import Settings
from savepoints.handle import Store
from tests.clusters import standalone

_QUERY = "totals"
# The driver of a restore needs no more, whatever the size of the state.
_DRIVER_MEMORY = "512m"
_BUILD = Path(__file__).parents[1] / "build"


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Restore a state of so many rows from a savepoint's rows, by one executor and by two."""
    del directory  # Executors have a `/tmp` of their own.
    _BUILD.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=_BUILD, prefix="cluster-") as there:
        home = Path(there)
        spawning = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=spawning) as apart:
            apart.submit(_save, home, keys).result()
        with standalone.start(home, pinned=True) as cluster:
            known = state.settings()
            conf = {**known.spark.conf, **cluster.conf, "spark.driver.memory": _DRIVER_MEMORY}
            spark = known.spark.model_copy(update={"master": cluster.master, "conf": conf})
            settings = known.model_copy(update={"store": str(home / "store"), "spark": spark})
            samples = in_turns(home, rounds, *(_restore(settings, home, n) for n in (2, 1)))
    two, one = (seconds(found) for found in samples.values())
    memory = cluster.conf["spark.executor.memory"]
    note = f"the driver had {_DRIVER_MEMORY} (-Xmx), each executor {memory}"
    return Result(samples, one / two, (note,))


def _save(home: Path, keys: int) -> None:
    """Save a state in rows; in a process of its own, whose Spark is a local one."""
    checkpoint = state.built(home, keys)
    (home / "store").mkdir()
    store = Store.at(str(home / "store")).make().with_settings(state.settings())
    store.create(query=_QUERY, checkpoint=str(checkpoint), forms=("canonical",)).execute()


def _restore(settings: Settings, home: Path, executors: int) -> Side:
    conf = {**settings.spark.conf, "spark.cores.max": str(executors)}
    spark = settings.spark.model_copy(update={"conf": conf})
    config = home / f"{executors}.toml"
    state.write(settings.model_copy(update={"spark": spark}), config)
    name = f"restore, {executors} executor{'s' if executors > 1 else ''}"
    return partial(_restored, config, name)


def _restored(config: Path, name: str, scratch: Path) -> Mapping[str, Sample]:
    target = str(scratch / "restored")
    words = ("restore", "latest", "--query", _QUERY, "--to", target, "--format", "canonical")
    took, _ = timed(["-m", "savepoints", *words, "--yes", "--config", str(config)])
    return {name: Sample(took, *copied(scratch))}
