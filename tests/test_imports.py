"""What can be imported, and what an import costs."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import savepoints
from savepoints.handle import Store
from savepoints.io import Location
from tests import samples

HEAVY = ("pyspark", "py4j", "pandas", "pyarrow", "deltalake", "obstore", "boto3", "click")


def test_the_public_names_are_sorted_and_all_there() -> None:
    assert list(savepoints.__all__) == sorted(savepoints.__all__)
    for name in savepoints.__all__:
        assert getattr(savepoints, name).__name__ == name
    assert dir(savepoints) == savepoints.__all__


def test_every_public_name_has_a_home_and_the_other_way_round() -> None:
    assert set(savepoints._HOMES) == set(savepoints.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        savepoints.nothing  # noqa: B018


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    "module",
    ["savepoints", "savepoints.model", "savepoints.errors", "savepoints.checkpoint.cut"],
)
def test_an_import_takes_a_moment_and_nothing_heavy(module: str) -> None:
    code = f"""
import sys, time
begun = time.process_time()
import {module}
print(time.process_time() - begun, *[name for name in {HEAVY!r} if name in sys.modules])
"""
    seconds, *heavy = min((python(code).split() for _ in range(2)), key=lambda said: float(said[0]))

    assert heavy == []
    assert float(seconds) < 0.2


MODULES = [
    info.name
    for info in pkgutil.walk_packages(savepoints.__path__, "savepoints.")
    if not info.name.endswith("__main__")
]


def test_no_module_needs_spark_to_be_imported() -> None:
    code = f"""
import importlib, sys
sys.modules["pyspark"] = sys.modules["py4j"] = sys.modules["delta"] = None
for name in {MODULES!r}:
    importlib.import_module(name)
"""
    python(code)


def test_every_module_says_what_it_is_about() -> None:
    assert [name for name in MODULES if not importlib.import_module(name).__doc__] == []


def test_trap_a_list_of_savepoints_does_not_import_pandas(on_local: Location) -> None:
    """PyArrow does, for `pa.table` and for each moment: a third of a list's processor time."""
    store = Store.at(str(on_local / "store")).make()
    samples.saved(store, "rocksdb")
    called = f"""
import sys
from savepoints.cli.main import cli
from savepoints.cli.output import Terminal
cli.main(["list", "--store", {str(store.root)!r}], standalone_mode=False, obj=Terminal())
print(*[name for name in ("pandas", "pyspark", "confluent_kafka") if name in sys.modules])
"""
    listed, heavy = python(called).rsplit("\n", 2)[:2]

    assert "rocksdb" in listed
    assert heavy == ""
