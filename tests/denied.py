"""S3 servers that refuse some requests, or all, or do not know conditional ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import unquote, urlsplit

from tests.faults.s3_proxy import _Handler, proxy_of

# Of the method and the path of a request, and whether it is a copy within the server.
Refuses = Callable[[str, str, bool], bool]


@contextmanager
def unconditional(endpoint: str, header: str) -> Iterator[str]:
    """Give the endpoint of a server that takes no notice of a condition, such as `If-Match`."""

    class Ignoring(_Handler):
        def _handle(self) -> None:
            del self.headers[header]
            super()._handle()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - as in the base

    with proxy_of(endpoint) as proxy:
        proxy._server.RequestHandlerClass = Ignoring
        yield proxy.endpoint


@contextmanager
def denied(
    endpoint: str, refuses: Refuses, status: int = 403, code: str = "AccessDenied"
) -> Iterator[str]:
    """Give the endpoint of a server that answers 403, or something else, to what is refused."""

    class Denying(_Handler):
        def _handle(self) -> None:
            path = unquote(urlsplit(self.path).path).lstrip("/")
            if refuses(self.command, path, "x-amz-copy-source" in self.headers):
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                self._refuse(status, code)
            else:
                super()._handle()

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - as in the base

    with proxy_of(endpoint) as proxy:
        proxy._server.RequestHandlerClass = Denying
        yield proxy.endpoint


@contextmanager
def answering(endpoint: str, status: int, error: str) -> Iterator[str]:
    """Give the endpoint of a server that answers all requests with one error.

    Args:
        error: What stands within `<Error>`, as S3's documentation of its errors has it.
    """
    text = f"<Error>{error}</Error>".encode()

    class Answering(_Handler):
        def _handle(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self.send_response(status)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - as in the base

    with proxy_of(endpoint) as proxy:
        proxy._server.RequestHandlerClass = Answering
        yield proxy.endpoint
