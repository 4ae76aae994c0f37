"""Tables for notebooks, read by a parser of HTML that this code did not make."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from savepoints import notebook
from tests.shown import HOSTILE, assert_only_a_table, read

# Parsers of HTML take carriage returns and NUL for something else.
TEXT = st.sampled_from(HOSTILE) | st.text(st.characters(exclude_categories=["Cc", "Cs"]))
ROWS = st.lists(st.lists(TEXT, min_size=1, max_size=3), max_size=4)


@given(caption=TEXT, columns=st.lists(TEXT, max_size=3), rows=ROWS, notes=st.lists(TEXT))
def test_whatever_the_texts_are_they_are_the_texts_of_the_table(
    caption: str, columns: list[str], rows: list[list[str]], notes: list[str]
) -> None:
    page = notebook.table(caption, rows, columns=columns, notes=notes)

    assert_only_a_table(page)
    assert read(page).texts == [caption, *columns, *(cell for row in rows for cell in row), *notes]


def test_without_columns_and_notes_there_is_no_head_and_no_list() -> None:
    shown = read(notebook.table("sizes", [("rows", 7), ("bytes", None)]))

    assert shown.names == {"table", "caption", "tbody", "tr", "td"}
    assert shown.texts == ["sizes", "rows", "7", "bytes", "-"]
