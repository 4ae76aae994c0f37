"""A real HTTP server that gives events page by page, and misbehaves as a seed has it.

It doubles events, gives them in another order and in several pages, repeats its last answer,
answers other requests, fails before, in the middle of and after an answer.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse

# How it may misbehave; half of the answers are good.
FAULTS = ("good",) * 6 + ("busy", "cut", "closed", "last answer", "another page", "no json")
# After so many other answers to a request there is a good one, so that a loader gets on.
MOST_BAD = 4


@dataclass
class Feed:
    """What is served.

    Attributes:
        chance: What draws; None for a server that does what it should.
        pages: The events, a page at a time; more may be added.
        answered_ms: Its clock, in milliseconds since 1970.
        met: The faults that there were.
    """

    chance: random.Random | None = None
    pages: list[Sequence[Any]] = field(default_factory=list)
    answered_ms: int = 0
    met: set[str] = field(default_factory=set)
    url: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _last: bytes = b"{}"
    _bad: Counter[str] = field(default_factory=Counter)

    def answer(self, after: str) -> tuple[str, bytes]:
        """Return how to answer a request, and with what."""
        with self._lock:
            number = int(after or 0)
            kind = self._kind(after)
            if kind == "another page" and self.chance is not None:
                body = self._page(self.chance.randrange(len(self.pages) + 1))
            elif kind == "last answer":
                body = self._last
            else:
                body = self._page(number)
            if kind == "good":
                self._last = body
            self.met.add(kind)
            return kind, body

    def _kind(self, after: str) -> str:
        if self.chance is None or self._bad[after] == MOST_BAD:
            kind = "good"
        else:
            kind = self.chance.choice(FAULTS)
        self._bad[after] = 0 if kind == "good" else self._bad[after] + 1
        return kind

    def _page(self, number: int) -> bytes:
        there = number < len(self.pages)
        following = number + 1 if there else number
        return json.dumps(
            {
                "after": str(number) if number else "",
                "next": str(following) if following else "",
                "events": list(self.pages[number]) if there else [],
                "more": following < len(self.pages),
            }
        ).encode()


@contextmanager
def serving(feed: Feed) -> Iterator[Feed]:
    """Serve a feed on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            (after,) = parse_qs(urlparse(self.path).query, keep_blank_values=True)["after"]
            kind, body = feed.answer(after)
            if kind == "closed":
                return
            self.send_response_only({"busy": 503, "gone": 410}.get(kind, 200))
            self.send_header("Date", formatdate(feed.answered_ms / 1000, usegmt=True))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if kind == "cut":
                body = body[: len(body) // 2]
            self.wfile.write(b"<html>".ljust(len(body)) if kind == "no json" else body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    feed.url = f"http://127.0.0.1:{server.server_port}/events"
    try:
        yield feed
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
