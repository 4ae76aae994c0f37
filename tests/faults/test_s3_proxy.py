"""The proxy that makes S3 requests fail: it changes nothing but what its schedule says."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from savepoints.io import Location
from tests.faults.s3_proxy import Fault, Request, S3Proxy, once, proxy_of, seeded

# It is what some tests stand on, and changes rarely.
pytestmark = pytest.mark.nightly

BODY = bytes(range(256)) * 40


@pytest.fixture(scope="module")
def proxy(s3_endpoint: str) -> Iterator[S3Proxy]:
    with proxy_of(s3_endpoint) as started:
        yield started


class Client:
    """A client that tries once, and what it works on."""

    def __init__(self, endpoint: str, bucket: str) -> None:
        # An endpoint with another name is another client; no environment is looked at.
        config = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"})
        self.s3 = boto3.client("s3", endpoint_url=endpoint, config=config)
        self.bucket = bucket
        self.key = f"{uuid.uuid4().hex}/a key+with ü and %41"

    def put(self, body: bytes = BODY, **conditions: str) -> str:
        answer = self.s3.put_object(Bucket=self.bucket, Key=self.key, Body=body, **conditions)
        return str(answer["ETag"])

    def get(self, **options: str) -> bytes:
        answer = self.s3.get_object(Bucket=self.bucket, Key=self.key, **options)
        return bytes(answer["Body"].read())


@pytest.fixture
def direct(s3_environment: None, s3_endpoint: str, s3_bucket: str) -> Client:
    return Client(s3_endpoint, s3_bucket)


@pytest.fixture
def client(direct: Client, proxy: S3Proxy) -> Client:
    through = Client(proxy.endpoint, direct.bucket)
    through.key = direct.key
    return through


def test_bodies_and_keys_pass_unchanged(client: Client, direct: Client) -> None:
    assert client.put() == direct.s3.head_object(Bucket=direct.bucket, Key=direct.key)["ETag"]

    assert direct.get() == BODY
    assert client.get() == BODY
    assert client.get(Range="bytes=100-199") == BODY[100:200]
    assert client.s3.head_object(Bucket=client.bucket, Key=client.key)["ContentLength"] == len(BODY)


def test_conditions_pass(client: Client) -> None:
    etag = client.put(IfNoneMatch="*")

    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put(b"2", IfNoneMatch="*")
    client.put(b"3", IfMatch=etag)
    with pytest.raises(ClientError, match="PreconditionFailed"):
        client.put(b"4", IfMatch=etag)

    assert client.get() == b"3"


@pytest.mark.parametrize(
    ("fault", "code", "done"),
    [
        (Fault.INTERNAL_ERROR, "InternalError", False),
        (Fault.SLOW_DOWN, "SlowDown", False),
        (Fault.LOST_500, "InternalError", True),
    ],
)
def test_an_error_is_answered_and_the_request_done_or_not(
    fault: Fault, code: str, done: bool, proxy: S3Proxy, client: Client, direct: Client
) -> None:
    direct.put(b"before")

    with proxy.faults(once(fault, "PUT", "")) as met, pytest.raises(ClientError, match=code):
        client.put()

    assert [one for one, _ in met] == [fault]
    assert direct.get() == (BODY if done else b"before")


@pytest.mark.parametrize(("fault", "done"), [(Fault.RESET, False), (Fault.LOST, True)])
def test_a_connection_is_reset_and_the_request_done_or_not(
    fault: Fault, done: bool, proxy: S3Proxy, client: Client, direct: Client
) -> None:
    direct.put(b"before")

    with proxy.faults(once(fault, "PUT", "")), pytest.raises(BotoCoreError):
        client.put()

    assert direct.get() == (BODY if done else b"before")


def test_an_answer_is_cut_off(proxy: S3Proxy, client: Client) -> None:
    client.put()

    with proxy.faults(once(Fault.TRUNCATED, "GET", "")):
        with pytest.raises((BotoCoreError, OSError)):
            client.get()
        assert client.get() == BODY


def test_a_slow_answer_arrives_whole(proxy: S3Proxy, client: Client) -> None:
    client.put()

    with proxy.faults(once(Fault.SLOW, "GET", "")) as met:
        assert client.get() == BODY

    assert len(met) == 1


def test_without_a_schedule_nothing_happens(
    proxy: S3Proxy, on_s3: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
    with proxy.faults(seeded(1, 1)):
        pass

    on_s3.put("a", BODY)

    assert on_s3.get("a") == BODY
    assert [info.path for info in on_s3.list()] == ["a"]


def test_a_seed_gives_the_same_schedule_whatever_is_random_in_a_path() -> None:
    def faults(seed: int, savepoint_id: str) -> list[Fault | None]:
        choose = seeded(seed, 0.5)
        path = f"bucket/{uuid.uuid4().hex}/savepoints/{savepoint_id}/part-{uuid.uuid4()}.parquet"
        return [choose(Request("PUT", path, conditional=False, nth=nth)) for nth in range(50)]

    first = faults(1, "sp-20261121-101530-k3f9ab")

    assert first == faults(1, "sp-20261122-111530-x3f9ab")
    assert first != faults(2, "sp-20261121-101530-k3f9ab")
    assert set(first) == {None, *Fault}
