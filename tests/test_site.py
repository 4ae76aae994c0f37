"""The site of the documents: built as it is published, and searched as a reader searches it.

The theme's search is lunr over the index that is built with the site; the same library and weights
are used here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from lunr import lunr
from lunr.index import Index

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[1]
# As the theme weighs them.
FIELDS = [{"field_name": "title", "boost": 1000}, {"field_name": "text"}]

# What people paste into a search: an error text of Spark, Delta or Kafka, or the title of a thread.
PAINS = {
    "Restore doesn't revert set transactions": "restore-of-a-delta-table",
    "restart from a savepoint sink skips data": "restore-of-a-delta-table",
    "Provided value schema does not match existing state value schema": "state_store_key",
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE": "state_store_key",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA": "stateful-operator-name",
    "Stateful operator name does not match with the operator in state metadata":
        "stateful-operator-name",
    "spark.sql.shuffle.partitions existing checkpoint": "change-sparksqlshufflepartitions",
    "on-demand state repartitioning": "change-sparksqlshufflepartitions",
    "stateStore.providerClass existing checkpoint": "change-statestoreproviderclass",
    "bootstrap new query with initial state from batch": "start-a-new-query",
    "restart streaming query from last written offset": "restart-from-the-last-written-offset",
    "startingOffsets and checkpoint": "startingoffsets-is-ignored",
    "offset was changed from 500 to 300, some data may have been missed": "some-data-may-have",
    'No FileSystem for scheme "s3"': "no-filesystem-for-scheme-s3",
    "failOnDataLoss": "some-data-may-have",
    "There are [1] sources in the checkpoint offsets and now there are [3] sources":
        "there-are-1-sources",
    "CANNOT_READ_DELTA_FILE_NOT_EXISTS": "checkpoint-corrupt",
    "Error reading delta file does not exist": "checkpoint-corrupt",
    "late data dropped by watermark": "late-events-are-dropped",
    "numRowsDroppedByWatermark": "late-events-are-dropped",
    "Kafka lag consumer group structured streaming": "kafka-lag",
    "stop streaming query gracefully after current batch": "stop-a-streaming-query",
    "move checkpoint to another bucket": "move-a-checkpoint",
    "see what is in the state": "see-what-is-in-the-state",
    "CONCURRENT_STREAM_LOG_UPDATE": "multiple-streaming-jobs",
    "DELTA_SOURCE_IGNORE_DELETE": "delta_source_ignore",
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as it is published: a warning, such as of a broken link, is an error."""
    target = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return target


@pytest.fixture(scope="module")
def found(site: Path) -> tuple[Index, re.Pattern[str]]:
    index: dict[str, Any] = json.loads((site / "search" / "search_index.json").read_text())
    separator = re.compile(index["config"]["separator"])

    def words(html: str) -> str:
        return separator.sub(" ", unescape(re.sub(r"<[^>]+>", " ", html)))

    documents = [
        (
            {"location": one["location"], "title": words(one["title"]), "text": words(one["text"])},
            {"boost": one.get("boost", 1)},
        )
        for one in index["docs"]
    ]
    return lunr(ref="location", fields=FIELDS, documents=documents), separator


@pytest.mark.parametrize("words", PAINS)
def test_who_searches_for_an_error_finds_the_command_first(
    words: str, found: tuple[Index, re.Pattern[str]]
) -> None:
    index, separator = found
    first = [one["ref"] for one in index.search(separator.sub(" ", words))[:3]]
    assert first, f"nothing is found for {words!r}"
    assert first[0].startswith(f"problems/#{PAINS[words]}"), first


def test_every_page_is_in_the_navigation_and_nothing_comes_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)"', text)
        loaded += re.findall(r'<link[^>]+rel="stylesheet"[^>]+href="(https?:[^"]+)"', text)
        assert not loaded, f"{page.relative_to(site)} loads {loaded}"
