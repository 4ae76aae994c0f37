"""`ui`: a real server on a real port, which reads, and answers nobody else."""

from __future__ import annotations

import http.client
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import uvicorn

from savepoints.errors import EnvironmentUnfitError, MissingExtraError
from savepoints.handle import Store
from savepoints.ui import server
from tests.comparisons import HOSTILE
from tests.samples import contents, savepoint


@dataclass(frozen=True)
class Served:
    """A server that runs in a thread."""

    store: Store
    port: int

    def ask(
        self, path: str, method: str = "GET", host: str | None = None
    ) -> tuple[int, str, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection(server.ADDRESS, self.port, timeout=60)
        try:
            headers = {} if host is None else {"Host": host}
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode(), response.headers
        finally:
            connection.close()


@pytest.fixture
def served(local_store: Store) -> Iterator[Served]:
    local_store.catalog.add(savepoint(1, query="clicks", tags=("golden",)))
    local_store.catalog.add(savepoint(2, query="clicks"))
    listening = server.listen(0)
    config = uvicorn.Config(
        server.application(local_store, sources=False), log_level="warning", lifespan="off"
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield Served(local_store, listening.getsockname()[1])
    finally:
        running.should_exit = True
        thread.join(30)


def test_each_request_sees_the_store_as_it_is_then(served: Served) -> None:
    assert "batch 3" not in served.ask("/")[1]
    served.store.catalog.add(savepoint(3, query="clicks"))

    status, html, headers = served.ask("/")

    assert status == 200
    assert "batch 3" in html
    assert headers["cache-control"] == "no-store"
    assert "script" not in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/diff", "/diff?before=golden&after=latest"])
def test_trap_a_store_whose_disk_is_gone_looks_like_one_without_savepoints(
    path: str, served: Served
) -> None:
    served.store.root.delete([info.path for info in served.store.root.list()])

    status, html, _ = served.ask(path)

    assert status == 404
    assert f"there is no store at {served.store.root}" in html


def test_there_is_nothing_to_write_with(served: Served) -> None:
    before = contents(served.store.root)

    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for path in ("/", "/diff"):
            assert served.ask(path, method)[0] == 405
    served.ask("/")
    served.ask("/diff?before=golden&after=latest")

    assert contents(served.store.root) == before


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_trap_a_name_that_resolves_to_this_machine_gets_no_answer(
    served: Served, host: str
) -> None:
    """DNS rebinding: a page of somebody else asks in the reader's browser."""
    status, body, _ = served.ask("/", host=host)

    assert status == 400
    assert "clicks" not in body
    assert served.ask("/", host=f"localhost:{served.port}")[0] == 200


def test_it_listens_on_this_machine_only() -> None:
    with server.listen(0) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
        with pytest.raises(EnvironmentUnfitError, match="cannot listen on 127"):
            server.listen(listening.getsockname()[1])
    assert isinstance(listening, socket.socket)


def test_two_savepoints_are_compared_by_any_of_their_names(served: Served) -> None:
    _, html, _ = served.ask("/diff?before=golden&after=latest")

    assert "savepoints diff sp-20261120-110000-000001 sp-20261120-120000-000002" in html
    assert '<td class="n">+1</td>' in html
    assert "Compare two savepoints" in served.ask("/diff")[1]


def test_trap_relative_names_cannot_be_compared_where_there_are_several_queries(
    served: Served,
) -> None:
    served.store.catalog.add(savepoint(3, query="impressions"))

    status, html, _ = served.ask("/diff?before=latest~1&after=latest&query=clicks")

    assert status == 200
    assert "savepoints diff sp-20261120-110000-000001 sp-20261120-120000-000002" in html
    assert 'name="query" value="clicks"' in html


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/?query=nobody", 404, "no query"),
        ("/?since=yesterday", 400, "is not a valid duration"),
        ("/diff?before=nope&after=latest", 404, "no savepoint matches"),
        ("/elsewhere", 404, "Not Found"),
    ],
)
def test_a_wrong_address_says_what_is_wrong(
    served: Served, path: str, status: int, said: str
) -> None:
    got, html, _ = served.ask(path)

    assert got == status
    assert said in html


def test_what_an_address_says_is_text(served: Served) -> None:
    from urllib.parse import quote

    for path in (f"/?query={quote(HOSTILE)}", f"/diff?before={quote(HOSTILE)}&after=x",
                 f"/?since={quote(HOSTILE)}", f"/?x={quote(HOSTILE)}"):  # fmt: skip
        assert "<script" not in served.ask(path)[1]


def test_a_part_is_shown_when_asked_for(served: Served) -> None:
    served.store.catalog.add(savepoint(3, query="impressions"))

    assert "impressions" in served.ask("/")[1]
    assert "impressions" not in served.ask("/?query=clicks")[1]


def test_without_starlette_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "starlette", None)

    with pytest.raises(MissingExtraError) as raised:
        server.listen(0)
    assert "savepoints[ui]" in raised.value.hint
