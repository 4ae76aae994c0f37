"""What is said instead of a file: named with the way out, and never taken for damage."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from savepoints.errors import (
    SavepointsError,
    StoreNotFoundError,
    UnreachableError,
    VerificationError,
)
from savepoints.handle import Store
from savepoints.io import Location
from tests.denied import answering
from tests.samples import savepoint

ARCHIVED = (
    "<Code>InvalidObjectState</Code><Message>The operation is not valid for the object's storage "
    "class</Message><StorageClass>GLACIER</StorageClass>"
)
REDIRECT = (
    "<Code>PermanentRedirect</Code><Message>The bucket you are attempting to access must be "
    "addressed using the specified endpoint.</Message><Bucket>tests</Bucket>"
)
MALFORMED = (
    "<Code>AuthorizationHeaderMalformed</Code><Message>The authorization header is malformed; the "
    "region 'us-east-1' is wrong; expecting 'eu-west-1'</Message><Region>eu-west-1</Region>"
)
SKEWED = (
    "<Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the "
    "current time is too large.</Message>"
)


@pytest.mark.parametrize(
    ("status", "error", "said", "way_out"),
    [
        (403, ARCHIVED, "a lifecycle rule has archived", "aws s3api restore-object --bucket tests"),
        (301, REDIRECT, "is in another region", "aws s3api get-bucket-location --bucket tests"),
        (400, MALFORMED, "is in another region", "set AWS_REGION"),
        (403, SKEWED, "the clock of this machine", "by NTP"),
        (400, "<Code>InvalidRequest</Code>", "cannot be read or written", "AWS_ENDPOINT_URL"),
    ],
    ids=["archived", "redirect", "region", "clock", "other"],
)
def test_trap_what_s3_answers_is_called_damage_or_a_lack_of_permissions(
    status: int, error: str, said: str, way_out: str,
    on_s3: Location, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Who is told that the catalog is damaged is told to rebuild it, too."""
    store = Store.at(str(on_s3 / "store")).make()
    with answering(s3_endpoint, status, error) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)

        for ask in (lambda: store.root.get("store.json"), store.catalog.all, store.events.all):
            with pytest.raises(SavepointsError, match=said) as refused:
                ask()
            assert way_out in refused.value.hint
            assert not isinstance(refused.value, VerificationError)


@contextmanager
def no_more_open_files() -> Iterator[None]:
    """Refuse this process each further file: the lowest free descriptor is its limit."""
    lowest = os.dup(0)
    os.close(lowest)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_trap_a_process_with_too_many_open_files_calls_the_catalog_damaged(
    local_store: Store,
) -> None:
    """As does one that may not read a file of another user: \"rebuild it\" made that worse."""
    local_store.catalog.add(savepoint(1))

    with no_more_open_files(), pytest.raises(SavepointsError) as refused:
        local_store.catalog.all()

    assert "Too many open files" in refused.value.message
    assert "ulimit -n" in refused.value.hint
    assert not isinstance(refused.value, VerificationError)
    assert len(local_store.catalog.all()) == 1


def test_trap_a_bucket_that_does_not_exist_is_a_damaged_table(on_s3: Location) -> None:
    """By whichever way it is asked for: a table of it was to be rebuilt."""
    store = Store.at("s3://nobody-made-this/store")

    for ask in (lambda: store.root.get("store.json"), store.generations.all, store.catalog.all):
        with pytest.raises(StoreNotFoundError, match="the bucket nobody-made-this does not exist"):
            ask()


def test_trap_a_proxy_that_does_not_answer_is_not_named(
    on_s3: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its URL is not shown: it may have a password."""
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://user:word@127.0.0.1:1")

    with pytest.raises(UnreachableError) as refused:
        Location.of("s3://asked-by-nobody-else/store").get("store.json")

    assert "the proxy in HTTP_PROXY (NO_PROXY" in refused.value.hint
    assert "word" not in str(refused.value)
