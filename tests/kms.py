"""An S3 server that encrypts by KMS, as many buckets do by default: its entity tags are no MD5.

They look like one and differ from copy to copy. moto's are MD5s whatever the encryption.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from urllib.parse import unquote, urlsplit

from tests.faults.s3_proxy import _Handler, proxy_of

# Of listings with their keys, and of the answer to a copy.
_LISTED = re.compile(rb"<Key>([^<]*)</Key>(.*?)<ETag>([^<]*)</ETag>", re.DOTALL)
_COPIED = re.compile(rb"<ETag>([^<]*)</ETag>")


@contextmanager
def encrypted(endpoint: str) -> Iterator[str]:
    """Give the endpoint of such a server."""
    given: dict[str, str] = {}

    def other(key: str, etag: str) -> str:
        """Return the tag of an object in place of its MD5."""
        found = hashlib.md5(f"{key} {etag}".encode(), usedforsecurity=False).hexdigest()
        given[f'"{found}"'] = etag
        return f'"{found}"'

    class Encrypting(_Handler):
        def _ask(self, headers: list[tuple[str, str]], body: bytes) -> tuple[HTTPResponse, bytes]:
            answer, content = super()._ask(
                [(name, given.get(value, value)) for name, value in headers], body
            )
            key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]
            if (etag := answer.getheader("ETag")) is not None:
                answer.headers.replace_header("ETag", other(key, etag))
            if b"<CopyObjectResult" in content:
                return answer, _COPIED.sub(
                    lambda found: b"<ETag>%s</ETag>" % quoted(key, found[1]), content
                )
            return answer, _LISTED.sub(
                lambda found: (
                    b"<Key>%s</Key>%s<ETag>%s</ETag>"
                    % (found[1], found[2], quoted(unquote(found[1].decode()), found[3]))
                ),
                content,
            )

    def quoted(key: str, text: bytes) -> bytes:
        etag = text.decode().replace("&quot;", '"')
        return other(key, etag).replace('"', "&quot;").encode()

    with proxy_of(endpoint) as proxy:
        proxy._server.RequestHandlerClass = Encrypting
        yield proxy.endpoint
