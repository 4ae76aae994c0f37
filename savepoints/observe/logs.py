"""The log on stderr: as text or as one JSON object a line, secrets masked."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TextIO

from savepoints import log_context
from savepoints.config import secrets
from savepoints.moments import rfc3339

LogFormat = Literal["text", "json"]


class _Handler(logging.StreamHandler[TextIO]):
    """The handler that a command adds to the root logger."""


class _AsText(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        ids = " ".join(f"{key}={value}" for key, value in log_context.current().items())
        text = f"{record.levelname} {record.name}: {super().format(record)}"
        return secrets.mask(f"{text} [{ids}]" if ids else text)


class _AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        error = self.formatException(record.exc_info) if record.exc_info else None
        content = {
            "at": rfc3339(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **log_context.current(),
            **({"traceback": error} if error else {}),
        }
        return json.dumps({key: secrets.mask(value) for key, value in content.items()})


def _is_not_raised(record: logging.LogRecord) -> bool:
    """Leave out what py4j logs, with its traceback, and then raises: a second Ctrl-C, mostly."""
    return record.name != "root" or Path(record.pathname).parent.name != "py4j"


def to_stderr(level: str, style: LogFormat) -> None:
    """Write the log of this process to stderr, replacing any earlier handler."""
    root = logging.getLogger()
    for handler in list(root.handlers):
        if isinstance(handler, _Handler):
            root.removeHandler(handler)
    handler = _Handler(sys.stderr)
    handler.setFormatter(_AsJson() if style == "json" else _AsText())
    if level.upper() != "DEBUG":
        handler.addFilter(_is_not_raised)
    root.addHandler(handler)
    root.setLevel(level.upper())
