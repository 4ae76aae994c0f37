"""The cluster of the run, and a query on it for each story."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from savepoints.local import LocalWorld
from tests.clusters import standalone
from tests.clusters.standalone import Cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def cluster(world: LocalWorld) -> Iterator[Cluster]:
    """Start the cluster; its application is the session that the first story starts.

    This process and the executors have AWS' variables of the local world.
    """
    build = ROOT / "build" / "clusters"
    build.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=build))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in world.environment.items():
            patch.setenv(name, value)
        patch.delenv("PYTHONPATH", raising=False)
        with standalone.start(directory) as started:
            patch.setenv("PYSPARK_PYTHON", str(started.python))
            yield started
            standalone.end_session()
    shutil.rmtree(directory)
