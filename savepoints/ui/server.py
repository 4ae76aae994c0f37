"""`ui`: the page of a store, read anew for each request, for this machine only.

There is nothing to write with: only GET and HEAD are answered, and only for this machine's own
names, so a page of somebody else that has a name resolve to this address learns nothing.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

from savepoints.config.duration import parse_duration
from savepoints.errors import (
    EnvironmentUnfitError,
    MissingExtraError,
    NotFoundError,
    SavepointsError,
    UsageError,
)
from savepoints.moments import utc_now
from savepoints.store.root import Store
from savepoints.store.tables import catalog
from savepoints.ui import page, savepoint_rows
from savepoints.ui.environment import environment
from savepoints.ui.gather import gather

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

ADDRESS = "127.0.0.1"
_HOSTS = ["127.0.0.1", "localhost"]
_HEADERS = {
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def listen(port: int) -> socket.socket:
    """Take a port of this machine's own address, a free one for 0.

    Raises:
        MissingExtraError: If starlette or uvicorn is not installed.
        EnvironmentUnfitError: If another process has the port.
    """
    try:
        for module in ("jinja2", "starlette", "uvicorn"):
            importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"savepoints ui needs {error.name}, which is not installed",
            hint="pip install 'savepoints[ui]'",
        ) from None
    try:
        return socket.create_server((ADDRESS, port))
    except OSError as error:
        raise EnvironmentUnfitError(
            f"savepoints ui cannot listen on {ADDRESS}:{port}: {error.strerror}",
            hint="choose another port with --port, or any free one with --port 0",
        ) from None


def serve(application: Starlette, listening: socket.socket) -> None:
    """Answer until SIGINT or SIGTERM."""
    import uvicorn

    config = uvicorn.Config(
        application, log_level="warning", access_log=False, server_header=False, lifespan="off"
    )
    uvicorn.Server(config).run(sockets=[listening])


def application(store: Store, *, sources: bool = True) -> Starlette:
    """Return what answers requests.

    Args:
        store: Where it looks; each request sees it as it is then.
        sources: Also read the current checkpoints and ask Kafka.
    """
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.routing import Route

    def whole(request: Request) -> str:
        asked = request.query_params
        facts = gather(
            store,
            query=asked.get("query") or None,
            since=utc_now() - parse_duration(asked["since"]) if asked.get("since") else None,
            sources=sources,
        )
        return page.render(facts, live=f"/?{asked}")

    def pair(request: Request) -> str:
        asked = request.query_params
        return _difference(
            store, asked.get("before", ""), asked.get("after", ""), asked.get("query", "")
        )

    return Starlette(
        routes=[
            Route("/", _answered(whole), methods=["GET"]),
            Route("/diff", _answered(pair), methods=["GET"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=_HOSTS, www_redirect=False)],
    )


def _answered(write: Callable[[Request], str]) -> Callable[[Request], Response]:
    """Return an endpoint, run in a thread, that shows an error with the way out of it."""
    from starlette.responses import HTMLResponse

    policy = f"{environment().globals['policy']}; frame-ancestors 'none'"

    def answer(request: Request) -> Response:
        status = HTTPStatus.OK
        try:
            html = write(request)
        except SavepointsError as error:
            status = _status(error)
            template = environment().get_template("error.html.j2")
            html = template.render(message=error.message, hint=error.hint)
        return HTMLResponse(html, status, {**_HEADERS, "content-security-policy": policy})

    return answer


def _status(error: SavepointsError) -> HTTPStatus:
    if isinstance(error, NotFoundError):
        return HTTPStatus.NOT_FOUND
    if isinstance(error, UsageError):
        return HTTPStatus.BAD_REQUEST
    return HTTPStatus.SERVICE_UNAVAILABLE


def _difference(store: Store, before: str, after: str, query: str) -> str:
    """Return a page that asks for two savepoints, and compares what the catalog says of them."""
    store = store.require().snapshot()
    known = catalog.select(store.catalog.all())
    names = [one.id for one in known] + [tag for one in known for tag in one.tags]
    template = environment().get_template("difference.html.j2")
    if not (before and after):
        return template.render(
            store=store.root, names=names, before=before, after=after, query=query, changes=(),
            command="",
        )  # fmt: skip
    first, second = (store.catalog.find(one, query=query or None) for one in (before, after))
    return template.render(
        store=store.root,
        names=names,
        before=first.id,
        after=second.id,
        query=query,
        changes=savepoint_rows.changes(first, second),
        command=f"savepoints diff {first.id} {second.id}",
    )
