"""Write the pages anew."""

from __future__ import annotations

from tests.reference.pages import DIRECTORY, PAGES

for name, write in PAGES.items():
    (DIRECTORY / name).write_text(write())
