"""Texts in diagrams of Mermaid: what others wrote cannot leave its place."""

from __future__ import annotations

# In Mermaid these are parts of its own syntax, also within quotation marks.
_CODES = {ord(sign): f"#{ord(sign)};" for sign in '"#<>`&;\\'}


def quoted(text: str) -> str:
    """Write a text as a label: on one line, within quotation marks."""
    return f'"{" ".join(text.split()).translate(_CODES)}"'
