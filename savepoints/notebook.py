"""What a notebook shows of a value: a small table of HTML, in which all text is only text.

Names, tags and descriptions are written by whoever may write to the store, and a notebook is opened
by somebody else: nothing of them is markup, and MathJax leaves it alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

# Both names are known to notebooks, of one MathJax and the next: `$` is no formula.
_CLASS = "mathjax_ignore tex2jax_ignore"
# Notebooks align to the right, for numbers.
_LEFT = 'style="text-align: left"'


def table(
    caption: str,
    rows: Iterable[Sequence[object]],
    *,
    columns: Sequence[str] = (),
    notes: Iterable[str] = (),
) -> str:
    """Write a table, and below it a list of notes if there are any.

    Args:
        caption: A line above it.
        rows: Cells, shown as `str` gives them; None as `-`.
        columns: Their names; without them the table has no head.
    """
    head = f"<thead>{_row('th', columns)}</thead>" if columns else ""
    body = "".join(_row("td", row) for row in rows)
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f'<table class="{_CLASS}"><caption>{escape(caption)}</caption>{head}'
        f"<tbody>{body}</tbody></table>"
    ) + (f'<ul class="{_CLASS}">{listed}</ul>' if listed else "")


def _row(tag: str, cells: Sequence[object]) -> str:
    texts = ("-" if cell is None else str(cell) for cell in cells)
    written = "".join(f"<{tag} {_LEFT}>{escape(text)}</{tag}>" for text in texts)
    return f"<tr>{written}</tr>"
