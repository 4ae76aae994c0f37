"""Events: only ever added to, by whoever did something."""

from __future__ import annotations

import dataclasses

import pytest

from savepoints.errors import LockedError, UsageError
from savepoints.handle import Store
from savepoints.observe.recorder import recording
from tests.observe.test_metrics import event


def test_events_are_read_as_they_were_written_the_newest_first(store: Store) -> None:
    first = dataclasses.replace(event(1, "create"), parameters={"every": "10m", "forms": "native"})
    second = event(2, "verify", "failed", error="VerificationError", message="a file is missing")
    for one in (first, second):
        store.events.append(one)

    assert store.events.all() == [second, first]


def test_what_is_done_is_recorded_with_its_parameters(local_store: Store) -> None:
    parameters = {"to": "s3://b/ck", "form": None, "tags": ()}
    with recording(local_store, "restore", query="clicks", parameters=parameters) as noted:
        noted.note(savepoint="sp-1", bytes=7)

    (one,) = local_store.events.all()
    assert (one.verb, one.query, one.savepoint, one.bytes, one.result) == (
        "restore", "clicks", "sp-1", 7, "done",
    )  # fmt: skip
    assert one.parameters == {"to": "s3://b/ck"}
    assert "@" in one.who


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (UsageError("no such thing", hint="see list"), "failed"),
        (LockedError("it runs"), "skipped"),
        (ValueError("no number"), "failed"),
        (KeyboardInterrupt("Ctrl-C"), "failed"),
    ],
)
def test_a_failure_is_recorded_and_raised(
    local_store: Store, error: BaseException, result: str
) -> None:
    with pytest.raises(type(error)), recording(local_store, "create", query="clicks"):
        raise error

    (one,) = local_store.events.all()
    assert (one.result, one.error, one.message) == (result, type(error).__name__, error.args[0])


def test_secrets_in_parameters_and_messages_are_not_kept(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "wJalrXUtnFEMI/K7MDENG"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    parameters = {"to": f"s3://user:{secret}@bucket/ck"}
    with (
        pytest.raises(UsageError),
        recording(local_store, "restore", query="clicks", parameters=parameters),
    ):
        raise UsageError(f"refused with {secret}")

    (one,) = local_store.events.all()
    assert secret not in repr(one)


def test_a_store_that_cannot_be_written_does_not_make_a_verb_fail(
    local_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    local_store.root.put("events", b"a file where the table would be")

    with recording(local_store, "create", query="clicks"):
        pass

    assert "create of clicks could not be recorded in the events" in caplog.text
