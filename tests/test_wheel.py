"""What is in the wheel, and that what it installs runs where there is no checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from savepoints.local.jars import LOCK_DIRECTORY

# The build backend comes from the network.
pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]
EXAMPLES = "savepoints/local/resources/examples/"


def run(*words: str, cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def hatchling(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the build backend, in a directory of its own."""
    place = tmp_path_factory.mktemp("hatchling")
    pip = (sys.executable, "-m", "pip") if find_spec("pip") else ("uv", "pip")
    words = (*pip, "install", "--quiet", "--target", str(place), "hatchling>=1.27")
    run(*words, cwd=place)
    return place


@pytest.fixture(scope="module")
def built(hatchling: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build sdist and wheel of this checkout."""
    place = tmp_path_factory.mktemp("built")
    words = (sys.executable, "-m", "hatchling", "build", "-d", str(place))
    run(*words, cwd=ROOT, PYTHONPATH=str(hatchling))
    return place


def contents(place: Path) -> dict[str, bytes]:
    (file,) = place.glob("*.whl")
    with zipfile.ZipFile(file) as wheel:
        return {name: wheel.read(name) for name in wheel.namelist()}


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, bytes]:
    return contents(built)


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(ROOT)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_it_has_one_package_and_the_examples_as_data(wheel: dict[str, bytes]) -> None:
    tops = {name.split("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"savepoints"}

    examples = {EXAMPLES + name: data for name, data in files(ROOT / "spark_jobs").items()}
    shipped = {name: data for name, data in wheel.items() if name.startswith(EXAMPLES)}
    assert shipped == examples
    assert shipped.keys() >= {f"{EXAMPLES}spark_jobs/orders/order.avsc"}

    resources = {str(path.relative_to(ROOT)) for path in LOCK_DIRECTORY.iterdir()}
    assert resources <= wheel.keys()
    modules = {name for name in files(ROOT / "savepoints") if "/resources/" not in name}
    assert modules <= wheel.keys()


def test_trap_the_sdist_has_the_directories_and_not_the_links(
    built: Path, wheel: dict[str, bytes], hatchling: Path, tmp_path: Path
) -> None:
    """A link that was walked before its directory left the directory out."""
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as sdist:
        sdist.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()

    words = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    run(*words, cwd=unpacked, PYTHONPATH=str(hatchling))

    assert contents(tmp_path) == wheel


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("installed")
    (file,) = built.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(place)
    return place


def python(installed: Path, cwd: Path, *words: str) -> str:
    """Run Python with the wheel and what it needs, but without this checkout."""
    # -S: the checkout is on the path by a file of site-packages.
    paths = (str(installed), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return run(sys.executable, "-S", *words, cwd=cwd, PYTHONPATH=os.pathsep.join(paths))


LOOK = """
import importlib.util, json, sys
before = importlib.util.find_spec("spark_jobs")
from savepoints.local import examples
sys.path.insert(0, str(examples.directory()))
import savepoints, spark_jobs.order_totals, spark_jobs.orders.producer
said = [before is None, savepoints.__file__, spark_jobs.order_totals.__file__]
print(json.dumps(said))
"""


def test_installed_the_examples_are_found_where_the_demo_looks_and_nowhere_else(
    installed: Path, tmp_path: Path
) -> None:
    said = json.loads(python(installed, tmp_path, "-c", LOOK))

    assert said == [
        True,
        str(installed / "savepoints" / "__init__.py"),
        str(installed / EXAMPLES / "spark_jobs" / "order_totals.py"),
    ]


@pytest.mark.parametrize(
    "program", ["savepoints", "savepoints.jobs.archive", "savepoints.jobs.savepoint"]
)
def test_installed_its_programs_say_how_they_are_used(
    installed: Path, tmp_path: Path, program: str
) -> None:
    assert "usage:" in python(installed, tmp_path, "-m", program, "--help").lower()


DRIVER = """
from datetime import timedelta

from pyspark.sql import SparkSession

import savepoints


def last_good(store: savepoints.Store, query: str) -> str:
    return next(one.id for one in store.catalog.all() if one.query == query and one.pinned)


spark = SparkSession.builder.getOrCreate()
query = spark.readStream.format("rate").load().writeStream.format("noop").start()
attached: savepoints.Attached = savepoints.attach(spark, query, every="10m", store="s3://b/sp")
taken: savepoints.Savepoint | None = attached.stop(wait=timedelta(minutes=1))
store = savepoints.Store.open("s3://b/sp", settings=savepoints.Settings())
clicks = store.query("clicks")
try:
    plan = clicks.rollback(last_good(store, "clicks"), to="s3://b/c")
    print(plan, plan.to_json())
    back: savepoints.RolledBack = plan.execute(progress=print)
    forked: tuple[savepoints.Forked, ...] = store.savepoint("latest").fork("clicks_b").execute()
    reveal_type(store.compare("clicks", "clicks_b").execute())
except savepoints.QueryRunningError as error:
    print(error.hint)
clicks.rollback(7)
"""


def test_a_type_checker_sees_the_types_in_a_driver_of_a_user(
    installed: Path, tmp_path: Path
) -> None:
    """What is right passes, and of what is wrong each is found: else all would be Any."""
    (tmp_path / "driver.py").write_text(DRIVER)
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    # What it needs; a path of its own comes before the checkout that is on the path there.
    (site / "needed.pth").write_text(sysconfig.get_path("purelib"))
    shutil.copytree(installed, site, dirs_exist_ok=True)

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable",
         str(tmp_path / "venv" / "bin" / "python"), "driver.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    said = [line for line in checked.stdout.splitlines() if line.startswith("driver.py")]
    assert len(said) == 2, checked.stdout
    assert 'Revealed type is "savepoints.operations.fork.verdict.Comparison"' in said[0]
    assert 'driver.py:27: error: Argument 1 has incompatible type "int"' in said[1]
