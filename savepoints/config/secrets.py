"""Replace secrets by `***` in everything shown or stored: output, errors, logs, events.

A value is known to be secret by the name of its setting (`sasl.jaas.config`, `fs.s3a.secret.key`)
or of its environment variable; `remember` keeps such values for the life of the process. Other
secrets are recognized by their form: the password in `scheme://user:password@host`, signatures and
tokens among the parameters of a URI.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

MASK = "***"

_NAME = re.compile(
    r"passw|secret|token|jaas|(api|access|account|private)[._-]?key(?![._-]?id)|(key|store)\.(pem|key)|user\.info"
    r"|^ssl\.key$|signature",
    re.IGNORECASE,
)
# Looks like a secret's name but is not: `fs.s3a.access.key` is the user's name there.
_NO_SECRET = re.compile(r"s3a\..*access\.key$|\.(class|provider|url|location|type)$", re.IGNORECASE)
_ENVIRONMENT = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
# Shorter values are words such as "none" or "minio", and would be masked everywhere.
_SHORTEST = 6
# In data, only values that are not words are masked: scripts rely on the names in it.
_SHORTEST_IN_DATA = 12

_USER_INFO = re.compile(r"(?<=://)[^\s/@:\"']*:[^\s/@\"']+(?=@)")
_PARAMETER = re.compile(
    r"((?:X-Amz-(?:Signature|Credential|Security-Token)|AWSAccessKeyId|Signature|sig|"
    r"access_token|api_?key)=)[^&\s\"'<>]+",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    r"(\b(?:password|secret|clientSecret|X-Amz-Security-Token)\\*[\"']?\s*[=:]\s*)"
    r"(\\?\"[^\"]*\"|'[^']*'|b'[^']*'|[^\s;,&\"']+)",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"=\s*\"([^\"]+)\"|=\s*'([^']+)'")

_known: set[str] = set()


def is_secret(name: str) -> bool:
    """Return True if the value of a setting or option of this name must not be shown."""
    return bool(_NAME.search(name)) and not _NO_SECRET.search(name)


def remember(values: Iterable[str | None]) -> None:
    """Mask these values from now on, wherever they occur."""
    for value in values:
        if value and len(value) >= _SHORTEST:
            _known.update(_forms(value))


def remember_options(options: Mapping[str, str]) -> None:
    """Mask the values of options with a secret's name.

    A JAAS configuration is remembered as a whole, and each of its quoted values by itself: Kafka's
    client names the user and the password, not the configuration.
    """
    for name, value in options.items():
        if is_secret(name):
            remember([value])
            if "jaas" in name.lower():
                remember(first or second for first, second in _QUOTED.findall(value))
            if "user.info" in name.lower():
                remember([value.partition(":")[2]])


def mask(text: str) -> str:
    """Return the text without the secrets in it."""
    text = _without_values(text, _SHORTEST)
    text = _USER_INFO.sub(MASK, text)
    text = _PARAMETER.sub(rf"\1{MASK}", text)
    return _ASSIGNED.sub(rf"\1{MASK}", text)


def mask_data(text: str) -> str:
    """Return data without known secrets; nothing is masked by its form alone."""
    return _without_values(text, _SHORTEST_IN_DATA)


def masked(value: Any) -> Any:  # noqa: ANN401  (any JSON value)
    """Return a JSON value without the secrets in its texts and field names."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {
            key: MASK if isinstance(item, str) and item and is_secret(str(key)) else masked(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [masked(item) for item in value]
    return value


def mask_url(text: str) -> str:
    """Return only scheme and host of a URL: whoever knows the rest of a webhook can call it."""
    parts = urlsplit(text)
    host = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return text if text.rstrip("/") == host else f"{host}/{MASK}"


def mask_command(text: str) -> str:
    """Return only the program of a command line: arguments may be tokens of any form."""
    program, *arguments = shlex.split(text)
    return f"{program} {MASK}" if arguments else program


class ClientOptions(dict[str, str]):
    """Options of a client under its own names; secret ones are masked in its `repr`."""

    def __init__(self, options: Mapping[str, str] | None = None) -> None:
        super().__init__(options or {})
        remember_options(self)

    def __repr__(self) -> str:
        return repr({key: MASK if is_secret(key) else value for key, value in self.items()})


def _without_values(text: str, shortest: int) -> str:
    environment = (os.environ.get(name, "") for name in _ENVIRONMENT)
    values = {*_known, *(form for value in environment for form in _forms(value))}
    # The longest first: one secret may be part of another.
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= shortest:
            text = text.replace(value, MASK)
    return text


@lru_cache(maxsize=64)
def _forms(value: str) -> frozenset[str]:
    """Return the forms of a value in a text: plain, in JSON, in Python, in a URI."""
    return frozenset(
        {
            value,
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
            repr(value)[1:-1],
            quote(value, safe=""),
            quote(value),
        }
    )
