"""Run the tests of versions, each in an environment of its own: `python -m tests.versions [3.5 …]`.

The environments stay in `build/versions/`, and are made once. They have what this one has, but for
Spark and what must be as old as it.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / "build" / "versions"

# By version: Spark, Delta, and what does not go together with it otherwise.
PINS = {
    "3.5": (
        "pyspark==3.5.9", "delta-spark==3.3.2", "py4j==0.10.9.7",
        "numpy==1.26.4", "pandas==2.2.3", "pyarrow==18.1.0", "setuptools==65.5.0",
    ),
    "4.0": ("pyspark==4.0.5", "delta-spark==4.0.1", "py4j==0.10.9.9"),
    "4.1": ("pyspark==4.1.4", "delta-spark==4.1.0", "py4j==0.10.9.9"),
}  # fmt: skip
# On Kafka, Delta and S3; in a process of their own, whose Spark has the jars of these.
STORIES = [
    "tests/e2e/test_bounded_run.py::test_runs_to_random_ends_are_exact_and_the_next_goes_on_with_the_next_record",
    "tests/e2e/test_run.py",
    "tests/e2e/test_rollback.py::test_killed_and_run_again_the_result_is_exact",
    "tests/e2e/test_rollback.py::test_offsets_that_kafka_no_longer_has_are_refused",
    "tests/e2e/test_fork.py",
    "tests/e2e/test_compare.py",
    "tests/e2e/test_promote.py",
]
# In a process of its own, too: jars count only where a JVM begins with them.
MOVES = "tests/versions/test_moves.py"
# What reads rows of Spark's default store, which has metadata of them since 4.0.
ROWS = [
    "tests/fidelity/test_merge_oracle.py::test_other_state_stores[window-hdfs]",
    "tests/fidelity/test_older_spark.py::test_what_an_older_spark_saved_goes_on_exactly[4.0_hdfs_windows-canonical]",
]
# The one that everything else is tested with: in this environment.
OWN = "4.2"


def main() -> int:
    """Run each version that is named, or all; returns the worst exit code of pytest."""
    known = [*PINS, OWN]
    wanted = sys.argv[1:] or known
    if unknown := [one for one in wanted if one not in known]:
        print(f"no version {' '.join(unknown)}; there are {' '.join(known)}", file=sys.stderr)
        return 2
    pythons = {version: _python(version) for version in wanted}
    # Of all first: the tests of each version go on with what the others have saved.
    for version, python in pythons.items():
        print(f"savepoints of Spark {version}", flush=True)
        subprocess.run([python, "-m", "tests.versions.moves", "make"], cwd=ROOT, check=True)
    worst = 0
    for version, python in pythons.items():
        print(f"Spark {version}", flush=True)
        stories = [*STORIES, *([] if version == "3.5" else ROWS)]
        parts = {"versions": ["tests/versions", f"--ignore={MOVES}"], "moves": [MOVES]}
        for name, tests in {**parts, "stories": stories}.items():
            results = ROOT / "build" / "tests" / f"{name}-{version}.xml"
            command = [python, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
            command += ["--junitxml", str(results), *tests]
            worst = max(worst, subprocess.run(command, cwd=ROOT, check=False).returncode)
    return worst


def _python(version: str) -> str:
    """Return the interpreter of a version's environment, which is made if it is not there."""
    if version == OWN:
        return sys.executable
    place = ENVIRONMENTS / version
    python = str(place / "bin" / "python")
    if (place / "complete").exists():
        return python
    print(f"making {place}, which takes some minutes", flush=True)
    venv.create(place, with_pip=True, clear=True)
    pins = PINS[version]
    own = {pin.partition("==")[0] for pin in pins} | {"savepoints", "pip"}
    # As PyPI has them: a distribution may call itself delta_spark.
    installed = {one.name.lower().replace("_", "-"): one.version for one in distributions()}
    others = [f"{name}=={number}" for name, number in sorted(installed.items()) if name not in own]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, *pins, *others], check=True)
    subprocess.run([*pip, "--editable", str(ROOT)], check=True)
    (place / "complete").touch()
    return python


if __name__ == "__main__":
    sys.exit(main())
