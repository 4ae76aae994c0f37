"""The page of versions says what is tested; no JVM."""

from __future__ import annotations

from savepoints.spark import versions
from tests.versions import table


def test_the_page_is_what_the_tests_run() -> None:
    assert table.PAGE.read_text() == table.render(), "run: python -m tests.versions.table"


def test_the_versions_of_the_page_are_those_that_the_library_names() -> None:
    assert (table.VERSIONS[0], table.VERSIONS[-1]) == (versions.FIRST, versions.LAST)
