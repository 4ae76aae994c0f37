"""Hooks: a real server and real commands are told, and none of them can do harm."""

from __future__ import annotations

import json
import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from savepoints.config import effective, secrets
from savepoints.config.settings import HookSettings, Settings
from savepoints.config.settings import load as load_settings
from savepoints.errors import NoCommittedBatchError, UsageError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.observe import hooks
from savepoints.observe.hooks import Notice
from savepoints.observe.recorder import recording
from savepoints.operations.run import periodic
from savepoints.operations.savepoint import create
from savepoints.operations.savepoint.create import Saved
from tests.samples import unpack

AT = datetime(2026, 11, 21, 10, 15, 30, tzinfo=UTC)
NOTICE = Notice("paused", "totals", AT, "paused: batch 17", 2, "sp-20261121-101530-k3f9ab", 17)
DOCUMENT = {
    "schema_version": 1,
    "event": "paused",
    "query": "totals",
    "at": "2026-11-21T10:15:30.000Z",
    "message": "paused: batch 17",
    "generation": 2,
    "savepoint_id": "sp-20261121-101530-k3f9ab",
    "batch_id": 17,
}


@dataclass
class Server:
    """A web server that keeps what it was sent."""

    status: int = 204
    location: str = ""
    got: list[tuple[str, str, Any]] = field(default_factory=list)
    url: str = ""

    def events(self) -> list[str]:
        return [document["event"] for _, _, document in self.got]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Serve on a free port of this machine."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    kept = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            kept.got.append((self.path, self.headers["Content-Type"], json.loads(body)))
            self.send_response(kept.status)
            if kept.location:
                self.send_header("Location", kept.location)
            self.end_headers()

        def do_GET(self) -> None:
            kept.got.append((self.path, "GET", None))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        kept.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield kept
        running.shutdown()
        thread.join()


def python(code: str) -> str:
    """Return a command line that runs Python code."""
    import shlex

    return shlex.join([sys.executable, "-c", code])


def keep_in(path: Path) -> str:
    """Return a command that adds what it is told to a file."""
    return python(f"import sys; open({str(path)!r}, 'ab').write(sys.stdin.buffer.read() + b'\\n')")


def test_the_url_is_sent_the_document(server: Server) -> None:
    hooks.call(HookSettings(url=f"{server.url}/services/x?y=z"), NOTICE)

    assert server.got == [("/services/x?y=z", "application/json", DOCUMENT)]


def test_the_command_reads_the_document(tmp_path: Path) -> None:
    hooks.call(HookSettings(command=keep_in(tmp_path / "told")), NOTICE)

    assert json.loads((tmp_path / "told").read_text()) == DOCUMENT


def test_both_are_told_and_only_what_they_are_for(server: Server, tmp_path: Path) -> None:
    told = tmp_path / "told"
    both = HookSettings(command=keep_in(told), url=server.url, on=("failed",))

    hooks.call(both, NOTICE)
    assert server.got == []

    hooks.call(both, Notice("failed", None, AT, "run failed"))
    assert server.events() == ["failed"]
    assert json.loads(told.read_text())["query"] is None


def test_each_call_is_a_line_in_the_log_also_without_a_hook(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        hooks.call(HookSettings(), NOTICE)

    # A call of an earlier test that nobody waited for may fail meanwhile.
    (line,) = (one for one in caplog.messages if one.startswith("hook "))
    name, _, document = line.partition(": ")
    assert name == "hook paused"
    assert json.loads(document) == DOCUMENT


def test_no_shell_is_involved(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    told = tmp_path / "told"
    command = f"{keep_in(told)} ; touch {mark} && $(touch {mark})"

    hooks.call(HookSettings(command=command), NOTICE)

    assert told.exists()
    assert not mark.exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/no/such/program --token abcdefgh", "/no/such/program"),
        (python("import sys; sys.exit('it broke')"), "exited with code 1: it broke"),
        (python("import os; os.kill(os.getpid(), 9)"), "exited with code -9\n"),
    ],
)
def test_a_command_that_fails_is_a_warning(
    command: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    hooks.call(HookSettings(command=command), NOTICE)

    assert said in caplog.text
    assert "abcdefgh" not in caplog.text


@pytest.mark.parametrize("status", [404, 500])
def test_a_server_that_refuses_is_a_warning(
    status: int, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.status = status

    hooks.call(HookSettings(url=f"{server.url}/services/T000/secret-path"), NOTICE)

    assert str(status) in caplog.text
    assert server.url in caplog.text
    assert "secret-path" not in caplog.text


def test_a_server_that_is_not_there_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/path"

    hooks.call(HookSettings(url=url), NOTICE)

    assert "failed" in caplog.text


def test_a_redirected_document_is_not_lost_silently(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """urllib would ask for the other address by GET, without a body, and be content."""
    server.status, server.location = 302, f"{server.url}/elsewhere"

    hooks.call(HookSettings(url=server.url), NOTICE)

    assert [path for path, _, _ in server.got] == ["/"]
    assert "302" in caplog.text


SHORT = timedelta(seconds=1)


def test_a_command_that_hangs_is_killed_with_what_it_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its child keeps stderr open, for which a pipe would be read for a minute."""
    pid = tmp_path / "pid"
    child = "import time; time.sleep(60)"
    code = (
        "import subprocess, sys; "
        f"one = subprocess.Popen([sys.executable, '-c', {child!r}]); "
        f"open({str(pid)!r}, 'w').write(str(one.pid)); one.wait()"
    )

    begun = time.monotonic()
    hooks.call(HookSettings(command=python(code), timeout=SHORT), NOTICE)

    assert time.monotonic() - begun < 10
    assert "1 s" in caplog.text
    end = time.monotonic() + 10
    while alive(int(pid.read_text())):
        assert time.monotonic() < end
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_server_that_answers_byte_by_byte_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """Each byte begins the timeout of a socket anew."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            client, _ = listening.accept()
            with client:
                while not ended.wait(0.05):
                    client.sendall(b"X")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        begun = time.monotonic()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        hooks.call(HookSettings(url=url, timeout=SHORT), NOTICE)
        took = time.monotonic() - begun
        ended.set()
        thread.join()

    assert took < 10
    assert "1 s" in caplog.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("url", "ftp://host/x"),
        ("url", "file:///etc/passwd"),
        ("url", "host/x"),
        ("url", "https://me:planted-4719@host/x"),
        ("command", "notify 'planted-4719"),
        ("command", " "),
        ("on", ["stopped"]),
    ],
)
def test_wrong_settings_are_refused_without_showing_them(
    key: str, value: object, tmp_path: Path
) -> None:
    file = tmp_path / "savepoints.toml"
    file.write_text(f"[hooks]\n{key} = {json.dumps(value)}\n")

    with pytest.raises(UsageError, match=rf"hooks\.{key}") as refused:
        load_settings(file=file)

    assert "planted" not in str(refused.value)


def test_what_may_be_a_token_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "savepoints.toml"
    file.write_text(
        '[hooks]\nurl = "https://hooks.example.com:8443/services/T0/planted-path?x=planted"\n'
        "command = \"/usr/bin/notify -H 'Authorization: Bearer planted'\"\n"
    )

    shown = {one.key: one.value for one in effective.effective(file=file)}

    assert shown["hooks.url"] == "https://hooks.example.com:8443/***"
    assert shown["hooks.command"] == "/usr/bin/notify ***"
    assert "planted" not in repr(load_settings(file=file))
    assert secrets.mask_url("http://localhost:8080/") == "http://localhost:8080/"
    assert secrets.mask_command("/usr/bin/notify") == "/usr/bin/notify"


def test_a_secret_in_a_message_is_masked(server: Server) -> None:
    hooks.call(HookSettings(url=server.url), Notice("failed", "q", AT, "password=planted-4720"))

    assert "planted" not in json.dumps(server.got)


def test_a_savepoint_and_its_failure_are_told(
    server: Server, on_local: Location, local_store: Store
) -> None:
    """By `create` itself, so also by what takes one periodically, in whatever driver."""
    settings = Settings(hooks=HookSettings(url=server.url))
    live = unpack("rocksdb", on_local / "live")

    def plan() -> create.CreatePlan:
        return create.plan(local_store, query="totals", checkpoint=str(live), forms=("native",))

    taken = create.execute(plan(), local_store.with_settings(settings))
    (_, _, told) = server.got[0]
    assert (told["event"], told["query"]) == ("savepoint", "totals")
    assert (told["savepoint_id"], told["batch_id"]) == (taken.id, taken.cut.batch_id)
    assert told["generation"] == taken.generation

    late = plan()
    live.delete(info.path for info in live.list("commits"))
    with pytest.raises(NoCommittedBatchError):
        create.execute(late, local_store.with_settings(settings))
    assert server.got[1][2]["message"].startswith("create failed: ")

    live.delete(["metadata"])
    periodic.take(
        local_store.with_settings(settings), Saved(checkpoint=str(live), forms=("native",))
    )
    assert server.events() == ["savepoint", "failed", "failed"]


def test_a_failed_run_is_told_and_a_skipped_one_is_not(server: Server, local_store: Store) -> None:
    from savepoints.errors import LockedError, SavepointsError

    store = local_store.with_settings(Settings(hooks=HookSettings(url=server.url)))
    for error in (LockedError("busy"), SavepointsError("it broke")):
        with (
            pytest.raises(SavepointsError),
            recording(store, "run", query="totals"),
        ):
            raise error
    with recording(store, "run", query="totals"):
        pass

    assert [(one["event"], one["message"]) for _, _, one in server.got] == [
        ("failed", "run failed: it broke")
    ]
