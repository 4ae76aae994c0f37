"""What is in the wheel, and that it runs where there is no checkout, or nothing else at all."""

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
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from savepoints.local.jars import LOCKS

# The build backend comes from the network.
pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]
EXAMPLES = "savepoints/local/resources/examples/"


# Installs packages, with or without pip in this environment.
PIP = (sys.executable, "-m", "pip") if find_spec("pip") else ("uv", "pip")


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
    words = (*PIP, "install", "--quiet", "--target", str(place), "hatchling>=1.27")
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

    resources = {str(path.relative_to(ROOT)) for path in LOCKS.rglob("*") if path.is_file()}
    assert resources <= wheel.keys()
    modules = {name for name in files(ROOT / "savepoints") if "/resources/" not in name}
    assert modules <= wheel.keys()
    assert "savepoints/py.typed" in modules  # or no type checker believes the annotations


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


@pytest.fixture(scope="module")
def alone(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel without extras into an empty environment, and return its programs."""
    place = tmp_path_factory.mktemp("alone")
    venv.create(place, with_pip=False, symlinks=True)
    programs = place / "bin"
    (file,) = built.glob("*.whl")
    python = str(programs / "python")
    given = (
        ("--python", python, "install") if PIP[0] == sys.executable else ("install", "-p", python)
    )
    run(*PIP, *given, "--quiet", str(file), cwd=place, PYTHONPATH="")
    return programs


ALL_HELP = """
import click
from click.testing import CliRunner
from savepoints.cli.main import cli

def helped(command, words):
    done = CliRunner().invoke(cli, [*words, "--help"])
    assert done.exit_code == 0, (words, done.output, done.exception)
    print(*words)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            helped(command.get_command(context, name), [*words, name])

helped(cli, [])
"""


def test_alone_every_command_has_its_help_without_spark_and_kafka(
    alone: Path, tmp_path: Path
) -> None:
    run_alone = partial(run, cwd=tmp_path, PYTHONPATH="")
    absent = "import importlib.util as u; print([u.find_spec(n) for n in {}])"
    extras = ["pyspark", "confluent_kafka", "prometheus_client", "pandas", "jinja2", "pytest"]

    assert run_alone(str(alone / "python"), "-c", absent.format(extras)) == f"{[None] * 6}\n"
    assert "list" in run_alone(str(alone / "savepoints"), "--help")
    helped = run_alone(str(alone / "python"), "-c", ALL_HELP).splitlines()
    assert {"", "list", "rollback", "operations resume"} <= set(helped)


def test_alone_an_empty_store_is_made_and_listed(alone: Path, tmp_path: Path) -> None:
    run_alone = partial(run, str(alone / "savepoints"), cwd=tmp_path, PYTHONPATH="")

    run_alone("init", "--store", "savepoints")
    listed = json.loads(run_alone("list", "--store", "savepoints", "-o", "json"))

    assert (tmp_path / "savepoints" / "store.json").exists()
    assert listed["savepoints"] == []
    assert "no savepoints" in run_alone("list", "--store", "savepoints").lower()


SCRIPT = """
import savepoints


def broken(uri: str) -> list[str]:
    store = savepoints.Store.open(uri)
    return [one.id for one in store.catalog.all() if one.state == "broken"]


for name in broken("s3://bucket/savepoints"):
    reveal_type(savepoints.Store.open("s3://b").savepoint(name).verify())
print(broken(7))
"""


def test_alone_a_script_of_a_user_is_strictly_typed_without_the_extras(
    alone: Path, tmp_path: Path
) -> None:
    """Nothing is said of the package, whose imports of Spark lead nowhere; the mistake is found."""
    (tmp_path / "script.py").write_text(SCRIPT)

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-executable", str(alone / "python"),
         "script.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": "", "MYPYPATH": ""},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    said = checked.stdout.splitlines()
    assert len(said) == 3, checked.stdout
    assert 'Revealed type is "savepoints.operations.inspect.verify.' in said[0]
    assert 'script.py:12: error: Argument 1 to "broken" has incompatible type "int"' in said[1]
    assert said[2].startswith("Found 1 error in 1 file")
