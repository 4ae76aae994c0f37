"""Requests and answers: neither side overwrites the other, and of several one wins."""

from __future__ import annotations

import dataclasses

import pytest

from savepoints.errors import UsageError, VerificationError
from savepoints.io import Location
from savepoints.moments import utc_now
from savepoints.store.locks import pause_requests
from savepoints.store.locks.pause_requests import PauseAnswer, Request
from tests.processes import at_once
from tests.samples import contents

REQUEST = "requests/orders.json"
ANSWER = "requests/answers/orders.json"


def ask(root: Location, wanted: pause_requests.Wanted, by: str = "me") -> Request:
    """Ask for what is not in force."""
    request = pause_requests.ask(root, "orders", wanted, by=by, reason="a 'reason' with ümläuts")
    assert request is not None
    return request


def answer(request: Request, savepoint: str | None = None) -> PauseAnswer:
    return PauseAnswer(request.id, request.query, utc_now(), "a run", 2, 17, savepoint)


def test_a_query_that_nobody_asked_about_may_run(place: Location) -> None:
    assert pause_requests.current(place, "orders") is None
    assert pause_requests.pause_in_force(place, "orders") is None
    assert pause_requests.ask(place, "orders", "running", by="me") is None
    assert contents(place) == {}


def test_a_request_is_in_force_until_another_takes_its_place(place: Location) -> None:
    paused = ask(place, "paused")
    assert pause_requests.current(place, "orders") == paused
    assert pause_requests.pause_in_force(place, "orders") == paused
    assert pause_requests.pause_in_force(place, "clicks") is None

    running = ask(place, "running")
    assert pause_requests.current(place, "orders") == running
    assert pause_requests.pause_in_force(place, "orders") is None
    assert running.id != paused.id


def test_asking_for_what_is_in_force_leaves_it_as_it_is(place: Location) -> None:
    ask(place, "paused", by="the first")
    before = contents(place)

    assert pause_requests.ask(place, "orders", "paused", by="the second", reason="another") is None

    assert contents(place) == before


ASK = """
from savepoints.store.locks import pause_requests
wanted = {wanted}
request = pause_requests.ask(Location.of(uri), "orders", wanted, by=str(number))
say(request.id if request else "no")
"""


def test_of_eight_who_ask_for_a_pause_one_does(place: Location) -> None:
    with at_once(ASK.format(wanted='"paused"'), str(place), 8) as processes:
        said = [processes.say() for _ in range(8)]
        failed, errors = processes.end()

    assert failed == 0, errors
    (winner,) = [one for one in said if one != "no"]
    found = pause_requests.current(place, "orders")
    assert found is not None
    assert found.id == winner


def test_who_pauses_and_who_resumes_at_once_take_turns(place: Location) -> None:
    """Each request that was written replaced one of the other kind; the last is in force."""
    begun = ask(place, "paused")
    pause_requests.answer(place, answer(begun))
    answered = place.get(ANSWER)
    wanted = '"paused" if number % 2 else "running"'

    with at_once(ASK.format(wanted=wanted) + "say(wanted)", str(place), 6) as processes:
        said = [processes.say() for _ in range(12)]
        failed, errors = processes.end()

    assert failed == 0, errors
    written = [one for one in said if one.startswith("op-")]
    assert 1 <= len(written) <= 6
    assert len(set(written)) == len(written)
    found = pause_requests.current(place, "orders")
    assert found is not None
    assert found.id in written
    # From paused on: running, paused, …
    assert found.wanted == ("running" if len(written) % 2 else "paused")
    assert place.get(ANSWER) == answered


def test_the_first_answer_to_a_request_stays(place: Location) -> None:
    request = ask(place, "paused")
    assert pause_requests.answer_to(place, request) is None
    first = answer(request, "sp-1")

    assert pause_requests.answer(place, first)
    assert not pause_requests.answer(place, answer(request))

    assert pause_requests.answer_to(place, request) == first


def test_an_answer_is_to_its_request_only(place: Location) -> None:
    first = ask(place, "paused")
    pause_requests.answer(place, answer(first))
    ask(place, "running")
    second = ask(place, "paused")

    assert pause_requests.answer_to(place, second) is None
    assert pause_requests.answer(place, answer(second, "sp-2"))
    assert pause_requests.answer_to(place, second) == answer_at(place, "sp-2", second)
    assert pause_requests.answer_to(place, first) is None


def answer_at(root: Location, savepoint: str, request: Request) -> PauseAnswer:
    """Return the answer that is there, which must have this savepoint and be to this request."""
    found = pause_requests.answer_to(root, request)
    assert found is not None
    return dataclasses.replace(found, savepoint_id=savepoint, request=request.id)


def test_names_of_queries_do_not_meet_in_one_file(place: Location) -> None:
    names = ["orders", "orders.answer", "answers", "orders.json"]
    for name in names:
        request = pause_requests.ask(place, name, "paused", by=name)
        assert request is not None
        pause_requests.answer(place, answer(request, name))
    for name in names:
        found = pause_requests.current(place, name)
        assert found is not None
        answered = pause_requests.answer_to(place, found)
        assert (found.asked_by, answered and answered.savepoint_id) == (name, name)
    with pytest.raises(UsageError, match=r"'\.\./orders'"):
        pause_requests.ask(place, "../orders", "paused", by="me")


@pytest.mark.parametrize("path", [REQUEST, ANSWER])
def test_a_damaged_document_is_named(path: str, on_local: Location) -> None:
    request = ask(on_local, "paused")
    pause_requests.answer(on_local, answer(request))
    whole = on_local.get(path)
    flipped = whole.replace(b"orders", b"orderz")
    assert flipped != whole
    for damaged in (flipped, b"[]", b"", whole[:-20]):
        on_local.put(path, damaged)
        with pytest.raises(VerificationError, match=path):
            _ = pause_requests.pause_in_force(on_local, "orders") and pause_requests.answer_to(
                on_local, request
            )


def test_a_document_of_another_version_is_not_guessed_at(on_local: Location) -> None:
    from savepoints.store.savepoint import sealed

    ask(on_local, "paused")
    content = sealed.unseal(on_local.get(REQUEST))
    on_local.put(REQUEST, sealed.seal({**content, "schema_version": 2}))

    with pytest.raises(VerificationError, match="schema_version"):
        pause_requests.ask(on_local, "orders", "running", by="me")
