"""An S3 server: moto's, in a process of its own. It keeps everything in memory."""

from __future__ import annotations

import http.client
import importlib.util
import sys
from functools import partial

from savepoints.errors import MissingExtraError
from savepoints.local.service import Launch, free_ports

REGION = "us-east-1"
ACCESS_KEY_ID = "local"
SECRET_ACCESS_KEY = "local-secret"  # noqa: S105 - a server that checks none

_SERVER = "savepoints.local.s3_server"
_ANSWER_SECONDS = 5.0


def prepare_s3() -> Launch:
    """Give an S3 server its port."""
    if not all(importlib.util.find_spec(package) for package in ("moto", "flask")):
        message = "the S3 server of the local world, moto, is not installed"
        raise MissingExtraError(message, hint="pip install 'savepoints[demo]'")
    (port,) = free_ports(1)
    return Launch(
        command=(sys.executable, "-m", _SERVER, "-H", "127.0.0.1", "-p", str(port)),
        endpoint=f"http://127.0.0.1:{port}",
        is_ready=partial(_is_ready, port),
    )


def create_bucket(endpoint: str, name: str) -> None:
    """Create a bucket."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=ACCESS_KEY_ID,
        aws_secret_access_key=SECRET_ACCESS_KEY,
    )
    client.create_bucket(Bucket=name)
    client.close()


def _is_ready(port: int) -> bool:
    """List the buckets: this also makes the server load what it needs for the first client."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == http.HTTPStatus.OK
    except http.client.HTTPException:
        return False
    finally:
        connection.close()
