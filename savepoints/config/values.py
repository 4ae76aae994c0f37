"""The types of single settings: what a text has to be, said in the words of the errors."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from savepoints.config import secrets
from savepoints.config.duration import parse_duration
from savepoints.errors import UsageError
from savepoints.uri import is_table_name


def _duration(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    try:
        return parse_duration(str(value))
    except UsageError as error:
        raise ValueError(f"{error.message}; {error.hint}") from None


def _number(value: object) -> object:
    if isinstance(value, bool):
        # Python takes true for 1, and pydantic tells of a ValueError only.
        raise ValueError(f"{str(value).lower()} is not a number")  # noqa: TRY004
    return value


def _schedule(text: str) -> str:
    from savepoints.config.schedule import parse_schedule

    return _parsed_by(parse_schedule, text)


def _export(text: str) -> str:
    from savepoints.config.schedule import export_schedule

    return _parsed_by(export_schedule, text)


def _merge_time(text: str) -> str:
    from savepoints.config.schedule import merge_schedule

    return _parsed_by(merge_schedule, text)


def _parsed_by(parse: Callable[[str], object], text: str) -> str:
    """Return a text that can be parsed; pydantic tells of a ValueError only."""
    try:
        parse(text)
    except UsageError as error:
        raise ValueError(f"{error.message}; {error.hint}") from None
    return text


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("it must begin with http:// or https:// and name a host")
    if "@" in parts.netloc:
        raise ValueError(
            "the credentials in the URL would not be sent; remove them, or set hooks.command to a "
            "program that sends the request with them"
        )
    return text


def _command(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"it has an unclosed quote or ends with a backslash: {error}") from None
    if not words:
        raise ValueError("it is empty; omit it")
    return text


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty, which would mean the working directory")
    return text


def _table(text: str) -> str:
    if is_table_name(_filled(text)):
        raise ValueError(
            f"{text} is a table name, which cannot be looked up without a Spark session: write "
            f"the table's location, shown by spark.sql('DESCRIBE DETAIL {text}'), or name the "
            "table in savepoints.attach(…, outputs=…)"
        )
    return text


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Every = Annotated[str, AfterValidator(_schedule)]
ExportTime = Annotated[str, AfterValidator(_export)]
MergeTime = Annotated[str, AfterValidator(_merge_time)]
Count = Annotated[int, BeforeValidator(_number), Field(ge=-1)]
NotNegative = Annotated[int, BeforeValidator(_number), Field(ge=0)]
Positive = Annotated[int, BeforeValidator(_number), Field(ge=1)]
Fraction = Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)]
# JSON has no infinity; what is unlimited is left out.
Ratio = Annotated[float, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)]
Url = Annotated[str, AfterValidator(_url)]
LocalPath = Annotated[Path, AfterValidator(Path.expanduser)]
Place = Annotated[str, AfterValidator(_filled)]
TableUri = Annotated[str, AfterValidator(_table)]
CommandLine = Annotated[str, AfterValidator(_command)]
HookEvent = Literal["paused", "resumed", "savepoint", "failed"]
ClientOptionsField = Annotated[dict[str, str], AfterValidator(secrets.ClientOptions)]
