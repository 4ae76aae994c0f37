"""What a reader of HTML sees: its elements, and its texts in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

# What each test puts where a user may write.
HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    "</td></table><b>out</b>",
    "&lt;b&gt; &amp; &#60;",
    "<!-- ", "]]>",
    "$\\href{javascript:alert(1)}{x}$",
)  # fmt: skip


@dataclass
class Shown:
    """A page as its reader takes it.

    Attributes:
        elements: Names of elements with their attributes, in order.
        texts: The text of each cell, caption and note.
    """

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.elements}


_WITH_TEXT = {"caption", "th", "td", "li"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.shown = Shown()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shown.elements.append((tag, dict(attrs)))
        self.open.append(tag)
        if tag in _WITH_TEXT:
            self.shown.texts.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert self.open[-1] in _WITH_TEXT, f"{data!r} is outside of a cell"
        self.shown.texts[-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def handle_decl(self, decl: str) -> None:
        self.handle_comment(decl)

    def handle_pi(self, data: str) -> None:
        self.handle_comment(data)

    def unknown_decl(self, data: str) -> None:
        self.handle_comment(data)


def read(page: str) -> Shown:
    """Read HTML by Python's own parser; elements that are not closed fail."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader.shown


def assert_only_a_table(page: str) -> None:
    """Nothing but a table and a list, whose attributes are always the same."""
    shown = read(page)
    known = {"table", "caption", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert shown.names <= known
    written = {(name, value) for _, given in shown.elements for name, value in given.items()}
    assert written <= {
        ("class", "mathjax_ignore tex2jax_ignore"),
        ("style", "text-align: left"),
    }
