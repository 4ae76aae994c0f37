"""A local file that is seen as it was or as it is, and never half written."""

from __future__ import annotations

import os
import threading
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Write a file in one move.

    What a link leads to is replaced, not the link. A pipe or a device, such as `/dev/stdout`, gets
    the text.

    Raises:
        OSError: If it cannot be written; what was there is as it was.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    target = path.resolve()
    # A name of one's own: two that write at once must not move each other's half.
    aside = target.with_name(f".{target.name}.{os.getpid()}-{threading.get_ident()}.new")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
