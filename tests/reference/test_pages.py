"""The pages written from the code are those of the code, and leave nothing unsaid."""

from __future__ import annotations

import re

import pytest

from savepoints.store.tables.events import Event
from tests.reference.documents import DOCUMENTS
from tests.reference.kinds import collect, fields_of, meanings
from tests.reference.pages import DIRECTORY, PAGES, _models, commands

# Commands that print no document: the demo is for people.
WITHOUT = {"demo"}


@pytest.mark.parametrize("page", PAGES)
def test_the_page_is_what_the_code_says(page: str) -> None:
    assert (DIRECTORY / page).read_text() == PAGES[page](), "run make reference"


def test_every_command_has_its_documents() -> None:
    assert {words for _, words, _ in commands()} - WITHOUT == set(DOCUMENTS)


def kinds() -> list[type]:
    found: dict[type, None] = {Event: None}
    for documents in DOCUMENTS.values():
        for document in documents:
            for hint, _ in document.fields.values():
                collect(hint, found)
    return list(found)


def test_every_field_has_a_meaning() -> None:
    for documents in DOCUMENTS.values():
        for document in documents:
            assert all(said for _, said in document.fields.values()), document
    unsaid = {
        f"{kind.__module__}.{kind.__name__}": [
            name for name, (_, said) in fields_of(kind).items() if not said
        ]
        for kind in kinds()
    }
    assert {name: fields for name, fields in unsaid.items() if fields} == {}


def test_every_kind_of_value_has_a_name_of_its_own() -> None:
    names = [kind.__name__ for kind in kinds()]

    assert len(set(names)) == len(names)


def test_every_setting_has_a_meaning() -> None:
    from savepoints.config.settings import Settings

    for _, model in _models(Settings, ()):
        assert set(model.model_fields) <= set(meanings(model)), model.__name__


def test_links_between_the_pages_lead_somewhere() -> None:
    anchors = {
        page.name: {
            re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
            for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
        }
        for page in DIRECTORY.glob("*.md")
    }
    for page in DIRECTORY.glob("*.md"):
        for name, anchor in re.findall(r"\]\(([\w-]+\.md)(?:#([\w-]+))?\)", page.read_text()):
            assert name in anchors, f"{page.name}: {name}"
            assert not anchor or anchor in anchors[name], f"{page.name}: {name}#{anchor}"
