"""The page as HTML: hostile names are text in it, and it needs nothing but itself."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from savepoints.config import secrets
from savepoints.errors import MissingExtraError, UsageError
from savepoints.handle import Store
from savepoints.store.tables import living_line
from savepoints.ui import environment, page
from savepoints.ui.facts import StoreFacts
from tests.comparisons import HOSTILE
from tests.samples import savepoint
from tests.ui import stories
from tests.ui.html_page import HtmlPage


@pytest.fixture(scope="module")
def whole() -> HtmlPage:
    return HtmlPage(page.render(stories.story()))


def test_the_answers_come_before_everything_else(whole: HtmlPage) -> None:
    text = " ".join(whole.text.split())
    order = [
        "2 of 3 queries need attention", "What to do",
        "savepoints operations resume op-20261123-093000-rollba", "savepoints create orders",
        "Last savepoint", "Restorable until", "Lag", "Last verify", "Last drill", "Timeline",
        "Steps of", "What was done, by whom",
    ]  # fmt: skip
    begin = text.index("2 of 3 queries need attention", 60)
    places = [text.index(one, begin) for one in order]

    assert places == sorted(places)


def test_values_from_the_store_are_text_and_nothing_else() -> None:
    """A query, a tag, a step, a command and a message that are each a script."""
    found = HtmlPage(page.render(stories.hostile()))

    assert found.text.count(HOSTILE) > 12
    assert not {"script", "img", "iframe", "object", "link", "form"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    ids = [value for name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert not [one for one in ids if re.search(r"\s", one)]


def test_nothing_is_loaded_and_the_policy_allows_one_style_only(whole: HtmlPage) -> None:
    html = page.render(stories.story())
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = (value for _, value in whole.attributes if value.startswith("default-src"))

    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    targets = {value for name, value in whole.attributes if name in {"href", "src", "action"}}
    assert all(one.startswith("#") for one in targets)
    assert not [one for one in whole.attributes if one[0] == "style"]
    assert not re.search(r"url\(|@import|https?:", html)


def test_every_link_leads_somewhere(whole: HtmlPage) -> None:
    ids = {value for name, value in whole.attributes if name == "id"}

    assert {value[1:] for name, value in whole.attributes if name == "href"} <= ids


def test_every_savepoint_has_its_details_and_its_mark(whole: HtmlPage) -> None:
    ids = {value for name, value in whole.attributes if name == "id"}
    marked = {value for name, value in whole.attributes if name == "data-savepoint-id"}
    known = {one.id for one in stories.story().savepoints}

    assert known <= ids
    assert marked == known


def test_an_empty_store_says_how_to_begin() -> None:
    found = HtmlPage(page.render(StoreFacts("/srv/store", stories.NOW)))

    assert "No savepoints yet" in found.text
    assert "savepoints create QUERY --checkpoint URI" in found.text


@pytest.mark.parametrize("count", [1, 2])
def test_a_store_with_one_savepoint(count: int) -> None:
    facts = StoreFacts("/s", stories.hour(5), tuple(stories.saved(at) for at in range(count)))

    assert "orders is in order" in HtmlPage(page.render(facts)).text


def test_a_thousand_savepoints_are_written_in_seconds() -> None:
    begun = time.process_time()
    html = page.render(stories.large())

    assert time.process_time() - begun < 20, "it takes two seconds on a machine that is not busy"
    assert len(html) < 5_000_000
    assert "Older savepoints (980)" in html


def test_trap_each_query_cost_a_look_at_the_savepoints_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 200 queries with 200 savepoints each the page took a minute and a half."""
    saved = [savepoint(n, id=f"sp-{q}-{n}", query=f"q{q}") for q in range(10) for n in range(1, 4)]
    facts = dataclasses.replace(stories.story(), savepoints=tuple(saved), generations=())
    looked_at = []
    of_query = living_line.of_query

    def counting(query: str, generations: Any, savepoints: Any) -> object:
        looked_at.append(len(savepoints))
        return of_query(query, generations, savepoints)

    monkeypatch.setattr(living_line, "of_query", counting)
    page.render(facts)

    assert set(looked_at) == {3}


def test_secrets_are_masked() -> None:
    secrets.remember(["before-release"])
    try:
        assert "before-release" not in page.render(stories.story())
    finally:
        secrets._known.discard("before-release")


def test_a_page_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        page.write("new", tmp_path / "no" / "store.html")


def test_without_jinja_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)

    with pytest.raises(MissingExtraError, match="jinja2") as raised:
        environment.require("pages")
    assert "savepoints[report]" in raised.value.hint


def test_the_handles_of_a_store_and_of_a_query_make_it(local_store: Store) -> None:
    local_store.catalog.add(savepoint(1, query="clicks"))
    local_store.catalog.add(savepoint(2, query="orders"))

    assert "clicks" in local_store.page(sources=False)
    mine = local_store.query("orders").page(sources=False)
    assert "orders" in mine
    assert "clicks" not in mine


def test_the_page_is_of_the_time_at_which_it_was_read() -> None:
    facts = dataclasses.replace(stories.story(), at=stories.hour(80))

    assert "As of 2026-11-23 18:00:00Z; all ages are relative to this time." in " ".join(
        HtmlPage(page.render(facts)).text.split()
    )
