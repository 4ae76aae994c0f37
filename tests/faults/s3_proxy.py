"""A proxy in front of an S3 server that makes requests fail, by a schedule.

What a fault does to a request is decided by the request alone (method, path without what is random
in it, and how often that came before), so a seed gives the same schedule again even when requests
are sent in parallel.
"""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

_RANDOM = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[so]p-\d{8}-\d{6}-[0-9a-z]{6}|[0-9a-f]{32}")
# Headers of one connection, not of the message.
_HOP = {"connection", "keep-alive", "transfer-encoding", "expect", "content-length"}
_SLOW_SECONDS = 0.3


class Fault(Enum):
    """What can happen to a request."""

    INTERNAL_ERROR = "500 instead of an answer; the request is not forwarded"
    SLOW_DOWN = "503 SlowDown instead of an answer; the request is not forwarded"
    RESET = "connection reset; the request is not forwarded"
    LOST = "the request is done, and the connection is reset before its answer"
    LOST_500 = "the request is done, and the answer is 500"
    SLOW = "the answer arrives in pieces"
    TRUNCATED = "the connection is reset within the answer"


@dataclass(frozen=True)
class Request:
    """What a schedule knows of a request.

    Attributes:
        method: Such as `PUT`.
        path: Bucket and key.
        conditional: Whether it is a PUT only if there is none, or only over a certain version.
        nth: How many like it came before, with this schedule.
    """

    method: str
    path: str
    conditional: bool
    nth: int


Schedule = Callable[[Request], Fault | None]


def seeded(seed: int, share: float) -> Schedule:
    """Give a schedule in which this share of all requests meets some fault."""

    def choose(request: Request) -> Fault | None:
        place = _RANDOM.sub("…", request.path.partition("/")[2])
        chance = random.Random(f"{seed} {request.method} {place} {request.nth}")
        return chance.choice(list(Fault)) if chance.random() < share else None

    return choose


def once(fault: Fault, method: str, part: str) -> Schedule:
    """Give a schedule in which the first request of a kind meets a fault, and no other."""
    met: list[Request] = []

    def choose(request: Request) -> Fault | None:
        if met or request.method != method or part not in request.path:
            return None
        met.append(request)
        return fault

    return choose


class S3Proxy:
    """The proxy; without a schedule it lets everything pass."""

    def __init__(self, endpoint: str) -> None:
        """Listen on a port of its own."""
        self._upstream = urlsplit(endpoint).netloc
        self._mutex = threading.Lock()
        self._schedule: Schedule | None = None
        self._seen: Counter[tuple[str, str]] = Counter()
        self._met: list[tuple[Fault, Request]] = []
        self._server = _Server(self)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @contextmanager
    def faults(self, schedule: Schedule) -> Iterator[list[tuple[Fault, Request]]]:
        """Let requests meet faults meanwhile; gives the list of those that did."""
        met = self._begin(schedule)
        try:
            yield met
        finally:
            self._begin(None)

    def _begin(self, schedule: Schedule | None) -> list[tuple[Fault, Request]]:
        with self._mutex:
            self._schedule, self._seen, self._met = schedule, Counter(), []
            return self._met

    def fault(self, method: str, path: str, *, conditional: bool) -> Fault | None:
        """Decide what happens to a request."""
        with self._mutex:
            if self._schedule is None:
                return None
            alike = (method, _RANDOM.sub("…", path))
            request = Request(method, path, conditional, self._seen[alike])
            self._seen[alike] += 1
            fault = self._schedule(request)
            if fault is not None:
                self._met.append((fault, request))
            return fault

    def upstream(self) -> HTTPConnection:
        """Open a connection to the server."""
        return HTTPConnection(self._upstream, timeout=60)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # The default of 5 makes clients wait that open many connections at once.
    request_queue_size = 128

    def __init__(self, proxy: S3Proxy) -> None:
        self.proxy = proxy
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up as they like; anything else is an error of the proxy."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            traceback.print_exc()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body of an answer are written one after the other; Nagle would wait in between.
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self._upstream = self.server.proxy.upstream()

    def finish(self) -> None:
        self._upstream.close()
        super().finish()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base
        pass

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        conditional = "If-None-Match" in self.headers or "If-Match" in self.headers
        path = unquote(urlsplit(self.path).path).lstrip("/")
        fault = self.server.proxy.fault(self.command, path, conditional=conditional)
        if fault is Fault.RESET:
            self._reset()
        elif fault is Fault.INTERNAL_ERROR:
            self._refuse(500, "InternalError")
        elif fault is Fault.SLOW_DOWN:
            self._refuse(503, "SlowDown")
        else:
            self._forward(body, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - so the base finds them

    def _forward(self, body: bytes, fault: Fault | None) -> None:
        headers = [item for item in self.headers.items() if item[0].lower() not in _HOP]
        if body or self.command in {"PUT", "POST"}:
            headers.append(("Content-Length", str(len(body))))
        answer, content = self._ask(headers, body)
        if fault is Fault.LOST:
            self._reset()
            return
        if fault is Fault.LOST_500:
            self._refuse(500, "InternalError")
            return
        self.send_response(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in {*_HOP, "server", "date"}:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length or 0))
        self.end_headers()
        self.wfile.flush()
        half = len(content) // 2
        if fault is Fault.TRUNCATED:
            self.wfile.write(content[:half])
            self._reset()
        elif fault is Fault.SLOW:
            self.wfile.write(content[:half])
            time.sleep(_SLOW_SECONDS)
            self.wfile.write(content[half:])
        else:
            self.wfile.write(content)

    def _ask(self, headers: list[tuple[str, str]], body: bytes) -> tuple[HTTPResponse, bytes]:
        self._upstream.putrequest(
            self.command, self.path, skip_host=True, skip_accept_encoding=True
        )
        for name, value in headers:
            self._upstream.putheader(name, value)
        self._upstream.endheaders(body)
        answer = self._upstream.getresponse()
        return answer, answer.read()

    def _refuse(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>by the proxy</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _reset(self) -> None:
        """Close the connection with RST instead of FIN."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())


@contextmanager
def proxy_of(endpoint: str) -> Iterator[S3Proxy]:
    """Run a proxy in front of a server."""
    proxy = S3Proxy(endpoint)
    try:
        yield proxy
    finally:
        proxy.stop()
