"""What the README has as Python does what the README says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import savepoints
from tests.e2e.plain_driver import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]

README = Path(__file__).parents[2] / "README.md"


def snippets(directory: Path) -> list[str]:
    """Return the README's Python, with a directory instead of the bucket."""
    found = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return [re.sub(r"s3a?://bucket", str(directory), one) for one in found]


def test_the_snippets_of_the_readme_run(spark: SparkSession, tmp_path: Path) -> None:
    in_a_driver, by_hand, as_library = snippets(tmp_path)
    driver = Driver(spark, tmp_path, "append")
    driver.add(1, 2, 2)
    files = spark.readStream.schema("n long").json(str(tmp_path / "in"))
    names: dict[str, Any] = {
        "spark": spark,
        "savepoints": savepoints,
        "totals": files.dropDuplicates(["n"]).selectExpr("n", "n as v"),
        "checkpoint": str(tmp_path / "checkpoints" / "clicks"),
        "table": driver.table,
    }

    exec(in_a_driver, names)
    try:
        names["query"].processAllAvailable()
        exec(by_hand, names)
        by_tag = names["attached"]._subject.store.catalog.find("before-release")
        assert [one.uri for one in by_tag.outputs] == [driver.table]
        assert by_tag.tags == ("before-release",)
        taken = names["attached"].stop()
    finally:
        names["query"].stop()
    assert [one.uri for one in taken.outputs] == [driver.table]
    assert driver.rows() == driver.truth()

    exec(as_library, names)
    first, *_ = names["store"].catalog.all()
    restored = (
        names["store"]
        .create(checkpoint=f"{tmp_path}/checkpoints/clicks-2", forms=("native",))
        .execute()
    )
    assert restored.cut.offsets == first.cut.offsets
