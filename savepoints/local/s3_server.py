"""The program of the local world's S3 server: `python -m moto.server`, with three corrections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from moto import server
from moto.moto_server import werkzeug_app
from moto.s3.responses import S3Response

# Of a bucket's or a key's request, what comes after its body has been read: so a client that sends
# slowly, or never to the end, keeps nobody waiting.
_HANDLERS = ("_bucket_response", "_key_response")
_READS = {"GET", "HEAD", "OPTIONS"}

Handler = Callable[[S3Response, Any, str], Any]


def main() -> None:
    """Serve until the process ends; moto reads host and port from the command line."""
    # To `Expect: 100-continue` both Werkzeug and the http.server below it say "100 Continue", and
    # the AWS SDK for Java takes the second one for the answer ("S3Exception: Status Code: 100").
    # Returning True leaves it to Werkzeug.
    handler: Any = werkzeug_app.MotoRequestHandler
    handler.handle_expect_100 = lambda _handler: True
    # For each request moto looks at the directories of all its services to find which one it is
    # for, a third of its time; the answer for a host is always the same.
    dispatcher: Any = werkzeug_app.DomainDispatcherApplication
    dispatcher.get_backend_for_host = cache(dispatcher.get_backend_for_host)
    # Each request has a thread, and between a condition (`If-None-Match`, `If-Match`) and the write
    # that depends on it moto lets others write: of several creators two would be told that they
    # were the one. So what changes something does so alone.
    alone = threading.Lock()
    for name in _HANDLERS:
        setattr(S3Response, name, _one_at_a_time(getattr(S3Response, name), alone))
    server.main()


def _one_at_a_time(handle: Handler, alone: threading.Lock) -> Handler:
    @wraps(handle)
    def handle_alone(response: S3Response, request: Any, full_url: str) -> Any:  # noqa: ANN401
        if request.method in _READS:
            return handle(response, request, full_url)
        with alone:
            return handle(response, request, full_url)

    return handle_alone


if __name__ == "__main__":
    main()
