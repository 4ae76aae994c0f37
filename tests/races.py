"""Races of conditional writes against an S3 server: many at one moment, of which one may win."""

from __future__ import annotations

import http.client
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

from savepoints.local import s3

COMPETITORS = 8
_SECONDS = 60.0


@dataclass
class Race:
    """One race.

    Attributes:
        key: What each wants to write.
        headers: Under which condition.
        requests: What each sends: method, path with its signature, body.
        answers: What each was told.
        kept: The bytes afterwards: the number of a competitor.
    """

    key: str
    headers: dict[str, str]
    requests: Sequence[tuple[str, str, bytes]]
    answers: list[int] = field(default_factory=lambda: [0] * COMPETITORS)
    kept: bytes = b""

    @property
    def is_fair(self) -> bool:
        """Whether one won, all others know that they did not, and its bytes are there."""
        if sorted(self.answers) != [200, *[412] * (COMPETITORS - 1)]:
            return False
        return self.kept == number(self.answers.index(200))


def number(competitor: int) -> bytes:
    """What a competitor writes."""
    return str(competitor).encode()


class Races:
    """Races in one bucket of a server.

    Each competitor is a thread with a connection of its own that stays open, and requests are
    signed beforehand: so there is as little as possible between the start and the server.
    """

    def __init__(self, endpoint: str, bucket: str) -> None:
        """Take a bucket that exists."""
        self._host = urlsplit(endpoint).netloc
        self._bucket = bucket
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=s3.REGION,
            aws_access_key_id=s3.ACCESS_KEY_ID,
            aws_secret_access_key=s3.SECRET_ACCESS_KEY,
            config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
        )

    def create(self, count: int) -> list[Race]:
        """Let all write an object that does not exist, each time another one."""

        def race() -> Race:
            key = uuid.uuid4().hex
            path = self._signed("put_object", key)
            requests = [("PUT", path, number(each)) for each in range(COMPETITORS)]
            return Race(key, {"If-None-Match": "*"}, requests)

        return self._run(race, count)

    def replace(self, count: int) -> list[Race]:
        """Let all write over the version of an object that all have seen."""

        def race() -> Race:
            key = uuid.uuid4().hex
            seen = self._client.put_object(Bucket=self._bucket, Key=key, Body=b"-")["ETag"]
            path = self._signed("put_object", key)
            requests = [("PUT", path, number(each)) for each in range(COMPETITORS)]
            return Race(key, {"If-Match": seen}, requests)

        return self._run(race, count)

    def complete(self, count: int) -> list[Race]:
        """Let each complete a multipart upload of its own to an object that does not exist."""

        def race() -> Race:
            key = uuid.uuid4().hex
            requests = [self._completion(key, number(each)) for each in range(COMPETITORS)]
            return Race(key, {"If-None-Match": "*"}, requests)

        return self._run(race, count)

    def _completion(self, key: str, body: bytes) -> tuple[str, str, bytes]:
        there = {"Bucket": self._bucket, "Key": key}
        upload = self._client.create_multipart_upload(**there)["UploadId"]
        part = self._client.upload_part(**there, UploadId=upload, PartNumber=1, Body=body)
        parts = f"<Part><PartNumber>1</PartNumber><ETag>{part['ETag']}</ETag></Part>"
        return (
            "POST",
            self._signed("complete_multipart_upload", key, UploadId=upload),
            f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode(),
        )

    def _signed(self, method: str, key: str, **more: str) -> str:
        parameters = {"Bucket": self._bucket, "Key": key, **more}
        url = urlsplit(self._client.generate_presigned_url(method, Params=parameters))
        return f"{url.path}?{url.query}"

    def _run(self, prepare: Callable[[], Race], count: int) -> list[Race]:
        races: list[Race] = []

        def between() -> None:
            """End one race and prepare the next while everybody waits."""
            if races:
                found = self._client.get_object(Bucket=self._bucket, Key=races[-1].key)
                races[-1].kept = found["Body"].read()
            if len(races) < count:
                races.append(prepare())

        start = threading.Barrier(COMPETITORS, between, timeout=_SECONDS)

        def compete(competitor: int) -> None:
            connection = http.client.HTTPConnection(self._host, timeout=_SECONDS)
            connection.connect()
            try:
                start.wait()
                for nth in range(count):
                    race = races[nth]
                    method, path, body = race.requests[competitor]
                    connection.request(method, path, body, race.headers)
                    answer = connection.getresponse()
                    answer.read()
                    race.answers[competitor] = answer.status
                    start.wait()
            except BaseException:
                start.abort()
                raise
            finally:
                connection.close()

        with ThreadPoolExecutor(COMPETITORS) as pool:
            list(pool.map(compete, range(COMPETITORS)))
        return races
