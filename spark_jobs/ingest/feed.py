"""A feed of events over HTTP, page by page, asked again until it answers.

An answer counts only if it is whole and says that it answers this very request: with an older one,
or one to another request, that a cache repeats, pages would be skipped.
"""

from __future__ import annotations

import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any

_LOG = logging.getLogger(__name__)

_TIMEOUT_S = 30.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 30.0
# Of the answers that say "not like this", these say "not now".
_NOT_NOW = {408, 425, 429}
_FIRST_SERVER_ERROR = 500


class FeedError(RuntimeError):
    """The feed gives no usable answer."""


@dataclass(frozen=True)
class Page:
    """An answer of the feed.

    Attributes:
        events: The events, as the feed has them.
        next: From where to ask on.
        more: Whether there is more now.
        answered_ms: When the feed answered, by its own clock, in milliseconds since 1970.
    """

    events: list[Any]
    next: str
    more: bool
    answered_ms: int


def page(
    url: str,
    after: str,
    *,
    limit: int = 500,
    attempts: int = 10,
    wait: Callable[[float], None] = time.sleep,
) -> Page:
    """Ask for the events after a position, again and again.

    Args:
        after: What an earlier page named as its next; empty for the beginning.
        limit: Most events of a page.
        attempts: How often to ask before giving up; the waits between grow from 0.1 to 30 seconds.

    Raises:
        FeedError: If the feed refuses the request, or gives no usable answer in all attempts.
    """
    asked = f"{url}?{urllib.parse.urlencode({'after': after, 'limit': limit})}"
    for attempt in range(attempts):
        try:
            return _ask(asked, after)
        except urllib.error.HTTPError as error:
            if error.code < _FIRST_SERVER_ERROR and error.code not in _NOT_NOW:
                raise FeedError(f"{asked} answers {error.code} {error.reason}") from error
            why: Exception = error
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            why = error
        _LOG.info("asking again for %s: %s", asked, why)
        if attempt + 1 < attempts:
            wait(min(_FIRST_WAIT_S * 2**attempt, _LONGEST_WAIT_S))
    raise FeedError(f"{asked} gave no usable answer in {attempts} attempts: {why}") from why


def _ask(asked: str, after: str) -> Page:
    """Return one answer.

    Raises:
        ValueError: If it is none, or one to another request.
    """
    with urllib.request.urlopen(asked, timeout=_TIMEOUT_S) as response:  # noqa: S310  (the user's)
        body, date = response.read(), response.headers["Date"]
    answer = json.loads(body)
    if not isinstance(answer, dict) or answer.get("after") != after:
        raise ValueError("the answer is one to another request")
    events, following, more = (answer.get(name) for name in ("events", "next", "more"))
    if not (isinstance(events, list) and isinstance(following, str) and isinstance(more, bool)):
        raise ValueError("the answer has no events, no next or no more")  # noqa: TRY004
    if date is None:
        raise ValueError("the answer has no Date")
    return Page(events, following, more, round(parsedate_to_datetime(date).timestamp() * 1000))
