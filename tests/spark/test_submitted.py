"""Under spark-submit, as schedulers and operators start programs, its master is the one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

PROGRAM = """\
from savepoints.config.settings import Settings
from savepoints.spark.session import session

spark = session(Settings(spark={"master": "local[3]", "conf": {"spark.ui.enabled": "false"}}), "x")
print("master", spark.sparkContext.master)
"""


BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    ("starter", "master"),
    [
        ([sys.executable], "local[3]"),
        ([str(BIN / "spark-submit"), "--master", "local[1]"], "local[1]"),
    ],
    ids=["python", "spark-submit"],
)
def test_trap_a_master_in_the_settings_overrides_that_of_spark_submit(
    tmp_path: Path, starter: list[str], master: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [*starter, str(program)],
        env={
            **os.environ, "PYTHONPATH": str(Path(__file__).parents[2]),
            "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert f"master {master}" in done.stdout, done.stdout + done.stderr
