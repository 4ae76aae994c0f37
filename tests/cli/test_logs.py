"""The log on stderr: text or JSON, with what it is about."""

from __future__ import annotations

import importlib
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from savepoints import log_context
from savepoints.config import secrets
from savepoints.handle import Store
from savepoints.moments import parse_rfc3339, utc_now
from savepoints.observe.logs import to_stderr
from savepoints.observe.recorder import recording

# From conftest.py: the function that calls the command line.
Call = Any
_LOG = logging.getLogger("savepoints.test")


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", {"planted-secret"})


def test_a_record_carries_what_is_worked_on(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr("INFO", "json")

    with log_context.about(query="orders", operation="op-1"):
        _LOG.info("copied %d files", 3)
        with log_context.about(savepoint="sp-1"):
            _LOG.warning("deeper")
    _LOG.error("outside")
    _LOG.debug("too detailed")

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert abs((parse_rfc3339(lines[0].pop("at")) - utc_now()).total_seconds()) < 60
    assert lines[0] == {
        "level": "INFO",
        "logger": "savepoints.test",
        "message": "copied 3 files",
        "query": "orders",
        "operation": "op-1",
    }
    assert (lines[1]["savepoint"], lines[1]["query"]) == ("sp-1", "orders")
    assert lines[2].keys() == {"at", "level", "logger", "message"}
    assert len(lines) == 3


def test_what_a_recorded_verb_logs_has_the_ids_of_its_event(
    local_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    to_stderr("INFO", "json")

    with recording(local_store, "restore", query="orders", savepoint="sp-1"):
        _LOG.info("within")

    (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (line["query"], line["savepoint"]) == ("orders", "sp-1")
    assert line["operation"] == local_store.events.all()[0].id


def test_text_has_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr("info", "text")

    with log_context.about(query="orders", savepoint="sp-1"):
        _LOG.info("copied")
    _LOG.info("outside")

    assert capsys.readouterr().err.splitlines() == [
        "INFO savepoints.test: copied [query=orders savepoint=sp-1]",
        "INFO savepoints.test: outside",
    ]


@pytest.mark.parametrize("style", ["text", "json"])
def test_secrets_are_masked_also_in_tracebacks(
    style: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    to_stderr("DEBUG", style)

    try:
        raise ValueError("no access with planted-secret at s3://me:hunter22@bucket")
    except ValueError:
        _LOG.debug("failed with %s", "planted-secret", exc_info=True)

    written = capsys.readouterr().err
    assert "ValueError" in written
    assert "***" in written
    assert "planted-secret" not in written
    assert "hunter22" not in written


def test_what_is_said_later_counts(capsys: pytest.CaptureFixture[str]) -> None:
    to_stderr("DEBUG", "text")
    to_stderr("ERROR", "json")

    _LOG.info("left out")
    _LOG.error("once")

    assert [json.loads(line)["message"] for line in capsys.readouterr().err.splitlines()] == [
        "once"
    ]


def test_a_command_logs_in_the_form_that_is_asked_for(call: Call, local_store: Store) -> None:
    at = ("--store", str(local_store.root))

    assert call("show", "none", *at, "--log-level", "debug", "--log-format", "json").code == 10
    assert call("list", *at, "--log-format", "xml").code == 2


def test_trap_a_second_ctrl_c_shows_tracebacks_of_py4j(capsys: pytest.CaptureFixture[str]) -> None:
    """It logs as the root logger what it raises, and the command says that it was interrupted."""
    of_py4j = (str(Path(str(importlib.import_module("py4j").__file__)).parent / "java_gateway.py"),)
    for level, shown in (("WARNING", 1), ("DEBUG", 2)):
        to_stderr(level, "json")
        for path in (*of_py4j, __file__):
            logging.getLogger().handle(
                logging.LogRecord("root", logging.ERROR, path, 1, "while sending", (), None)
            )
        assert len(capsys.readouterr().err.splitlines()) == shown
