"""How pages are written: autoescaped, secrets masked, with a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from savepoints.config import secrets
from savepoints.errors import MissingExtraError
from savepoints.texts import moment_text

if TYPE_CHECKING:
    from jinja2 import Environment

_TEMPLATES = Path(__file__).with_name("templates")


def require(what: str) -> None:
    """Check that pages can be made, before anything is done for one.

    Raises:
        MissingExtraError: If jinja2 is not installed.
    """
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            f"{what} need jinja2, which is not installed", hint="pip install 'savepoints[report]'"
        ) from None


@cache
def environment() -> Environment:
    """Return the environment of all templates.

    Raises:
        MissingExtraError: If jinja2 is not installed.
    """
    require("pages")
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def text(value: object) -> object:
        # What a macro returns was masked when it was made.
        if isinstance(value, str) and not isinstance(value, Markup):
            return secrets.mask_data(value)
        return value

    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=text,
    )
    style = (_TEMPLATES / "style.css").read_text(encoding="utf-8")
    made.filters["moment"] = moment_text
    made.globals |= {"style": Markup(style), "policy": policy(style)}  # noqa: S704  (our own file)
    return made


def policy(style: str) -> str:
    """Return a content security policy that allows one style sheet and nothing besides."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'self'"
