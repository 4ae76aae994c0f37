"""What object stores say, as errors that name what to check."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import gettempdir
from typing import NamedTuple

from savepoints.errors import (
    CredentialsError,
    EnvironmentUnfitError,
    SavepointsError,
    StoreNotFoundError,
    UnreachableError,
)
from savepoints.uri import Uri

# Messages of object_store, which obstore and deltalake share, and of HDFS.
_REFUSED = re.compile(
    r"status code:? 40[13]\b|necessary privileges|valid authentication|"
    r"AccessDenied|InvalidAccessKeyId|ExpiredToken|403 Forbidden|"
    r"AccessControlException|Permission denied: user=|GSSAPI|SASL"
)
_NO_ANSWER = re.compile(
    r"HTTP error|error sending request|status code:? (?:408|429|5\d\d)\b|"
    r"Connection refused|lookup address|No NameNode|StandbyException|SafeModeException"
)
# What else a server answers: it says nothing of the files, but that one is not there.
_ANSWERED = re.compile(r"status code:? (?!404\b)\d{3}\b")
# What a machine's file system says instead of giving a file: not permitted, no disk, no memory, too
# many open, full, read-only, gone from the network. None of it says that the file is damaged.
_OF_THE_MACHINE = re.compile(r"\(os error (?:1|5|12|13|23|24|28|30|116|122)\)")
_OPEN_FILES = "Too many open files"


class _Answer(NamedTuple):
    """An answer of S3 that is no refusal of this user, though it may have the code of one."""

    pattern: re.Pattern[str]
    what: str
    hint: str


_OF_S3 = (
    _Answer(
        re.compile(r"InvalidObjectState|ObjectNotInActiveTier"),
        what="a lifecycle rule has archived {uri} or an object in it, which cannot be read until "
        "it is restored",
        hint="restore the object (aws s3api restore-object --bucket {bucket} --key KEY "
        "--restore-request Days=7), run the command again when that is done, and exclude the "
        "place from the rule",
    ),
    _Answer(
        re.compile(r"RequestTimeTooSkewed"),
        what="S3 refuses a request for {uri}, because the clock of this machine is more than 15 "
        "minutes off",
        hint="set the clock by NTP, then run the command again",
    ),
    _Answer(
        re.compile(r"incorrectly configured region|AuthorizationHeaderMalformed"),
        what="the bucket {bucket} of {uri} is in another region than AWS_REGION says",
        hint="set AWS_REGION to the region of the bucket (aws s3api get-bucket-location --bucket "
        "{bucket}); between buckets of two regions, copy to a local directory first",
    ),
)
_CHECK_ACCESS = {
    "s3": "check AWS_PROFILE, the keys, and the permissions of the role",
    "abfss": "check AZURE_STORAGE_ACCOUNT_KEY or AZURE_CLIENT_ID, and the role of the identity",
    "hdfs": "check HADOOP_USER_NAME or the Kerberos ticket (klist), and the permissions of the "
    "directory",
}
_CHECK_ADDRESS = {
    "s3": "AWS_ENDPOINT_URL",
    "abfss": "the account in the URI",
    "hdfs": "the NameNode in the URI, HADOOP_CONF_DIR",
}
# Object stores, deltalake, boto3 and Spark's S3A all go by these.
_PROXIES = [
    spelled(name)
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
    for spelled in (str.upper, str.lower)
]
# A line of Java's stack, as HDFS sends it and as Rust quotes it.
_STACK = re.compile(r"(?:\n|\\n)(?:\t|\\t)at ")
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@contextmanager
def translated(uri: Uri) -> Iterator[None]:
    """Turn obstore's errors into ours, and missing objects into FileNotFoundError."""
    from obstore import exceptions as raised

    try:
        yield
    except SavepointsError:
        raise
    except (OSError, RuntimeError, raised.BaseError) as error:  # hdfs-native's is RuntimeError
        text = _STACK.split(str(error).partition("\n\nDebug source")[0])[0]
        if _NO_BUCKET.search(text):
            raise _no_bucket(uri) from None
        if isinstance(error, FileNotFoundError):
            raise FileNotFoundError(str(uri)) from None
        if isinstance(
            error, (FileExistsError, raised.AlreadyExistsError, raised.PreconditionError)
        ):
            raise FileExistsError(str(uri)) from None
        raise (unavailable(uri, text) or _unexplained(uri, plain(text))) from None


def unavailable(uri: Uri, text: str) -> SavepointsError | None:
    """Return the error for a store that does not give what was asked for; None for a missing file.

    Nothing that a server answers instead of a file means that the file is damaged.
    """
    said = plain(text)
    if uri.bucket and _NO_BUCKET.search(said):
        return _no_bucket(uri)
    if uri.scheme == "s3":
        where = {"uri": uri, "bucket": uri.bucket}
        for one in _OF_S3:
            if one.pattern.search(said):
                return EnvironmentUnfitError(
                    f"{one.what.format(**where)}: {said[:500]}",
                    hint=one.hint.format(**where),
                    uri=str(uri),
                )
    if _REFUSED.search(said):
        return CredentialsError(
            f"the object store denies access to {uri}: {said[:500]}",
            hint=_CHECK_ACCESS.get(uri.scheme, ""),
            uri=str(uri),
        )
    if _NO_ANSWER.search(said):
        return UnreachableError(
            f"the object store did not answer a request for {uri}: {said[:500]}",
            hint=f"check {_CHECK_ADDRESS.get(uri.scheme, 'the URI')} and {_network()}, then run "
            "the command again",
            uri=str(uri),
        )
    is_ours = uri.scheme == "file" and _OF_THE_MACHINE.search(said)
    return _unexplained(uri, said) if is_ours or _ANSWERED.search(said) else None


def _no_bucket(uri: Uri) -> StoreNotFoundError:
    return StoreNotFoundError(
        f"the bucket {uri.bucket} does not exist",
        hint=f"check the name, or create it: aws s3 mb s3://{uri.bucket}"
        if uri.scheme == "s3"
        else "check the name, or create it: az storage container create "
        f"--account-name {uri.azure[1]} --name {uri.azure[0]}",
        uri=str(uri),
    )


def _network() -> str:
    """Name what is between this process and a server; a proxy's URL may have a password."""
    proxies = [one for one in _PROXIES if os.environ.get(one)]
    if not proxies:
        return "the network"
    return f"the proxy in {proxies[0]} (NO_PROXY lists hosts that are reached without it)"


def _unexplained(uri: Uri, said: str) -> SavepointsError:
    hint = f"check the URI, {_CHECK_ADDRESS.get(uri.scheme)} and the credentials, then run the "
    hint += "command again"
    if _OPEN_FILES in said:
        hint = "allow this user more open files (ulimit -n 4096), then run the command again"
    elif uri.scheme == "file":
        hint = "check the URI, the free space and the permissions"
    elif "No space left on device" in said:
        # What passes through this process does so through a file.
        hint = f"free some space in {gettempdir()}, or name another directory: TMPDIR=/path"
    return SavepointsError(
        f"{uri} cannot be read or written: {said[:500]}", hint=hint, uri=str(uri)
    )


def plain(text: str) -> str:
    """Return a message of obstore or deltalake on one line, without colours."""
    return " ".join(_COLOURS.sub("", text).replace("↳", "").split())
