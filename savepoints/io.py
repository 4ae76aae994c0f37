"""Object stores: the only place where bytes are read and written.

A `Location` is a directory somewhere: on S3, Azure, HDFS or a local file system. What S3 needs is
found in `aws`; what Azure needs obstore and deltalake read themselves from its variables
(`AZURE_STORAGE_ACCOUNT_KEY`, `AZURE_CLIENT_ID`, …), and without any ask the machine's managed
identity. HDFS' settings come from the files in `HADOOP_CONF_DIR`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from savepoints import aws
from savepoints.config import secrets
from savepoints.errors import (
    CredentialsError,
    EnvironmentUnfitError,
    SavepointsError,
    UnreachableError,
    UsageError,
)
from savepoints.hdfs import HdfsStore
from savepoints.io_errors import translated
from savepoints.uri import Uri

if TYPE_CHECKING:
    from obstore import Bytes
    from obstore.store import AzureStore, ClientConfig, LocalStore, RetryConfig, S3Store

    ObjectStore = S3Store | AzureStore | LocalStore | HdfsStore

T = TypeVar("T")
R = TypeVar("R")

# Concurrent requests; object stores answer in tens of milliseconds, so this hides latency.
PARALLEL_REQUESTS = 16
# Retries of failed requests by obstore and deltalake; the pause doubles each time.
FIRST_PAUSE_MS = 100
RETRIES = 6
RETRY_SECONDS = 30


class _Patience(NamedTuple):
    """How long a request may take, and how long each wait for its next bytes."""

    whole: timedelta
    stalled: timedelta
    retries: timedelta


# Documents are small: who does not get one in this time tries again.
_SMALL = _Patience(*[timedelta(seconds=RETRY_SECONDS)] * 3)
# Files may be gigabytes, and many share a line: they go on for as long as bytes arrive.
_LARGE = _Patience(timedelta(days=1), timedelta(minutes=2), timedelta(hours=1))

# A conditional PUT is never retried alone, because its answer would not show who wrote. Callers who
# can tell repeat the whole step, this many times in all.
_ATTEMPTS = 3

_AZURE_SECRETS = (
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
)
# Bytes that a commit of a table takes at most, but for its checkpoints.
_ROOM = 1 << 20
# In which disks give space to files.
_BLOCK = 4096
_PIECE = 1 << 20
# No directory is called so.
_DOCUMENTS = (".json", ".checkpoint.parquet")
# Linux' error for a hard link across file systems (EXDEV), and what S3 says from 5 GiB on.
_NOT_COPIED = {"file": "(os error 18)", "s3": "maximum allowable size for a copy source"}


@dataclass(frozen=True)
class ObjectInfo:
    """A file below a `Location`: its relative path, size in bytes, entity tag and time."""

    path: str
    size: int
    etag: str
    last_modified: datetime


@dataclass(frozen=True)
class Location:
    """A directory in an object store or file system.

    Every method takes paths relative to it. A missing object raises Python's `FileNotFoundError`,
    an unexpected one `FileExistsError`; everything else is a `SavepointsError`.
    """

    uri: Uri

    @classmethod
    def of(cls, uri: str | Uri) -> Location:
        """Return the directory at a URI; nothing is opened or checked yet."""
        return cls(Uri.parse(uri) if isinstance(uri, str) else uri)

    def __truediv__(self, child: str) -> Location:
        """Return the directory below this one."""
        return Location(self.uri / child)

    def __str__(self) -> str:
        """Return the URI."""
        return str(self.uri)

    def require_space(self, sizes: Iterable[int] = ()) -> None:
        """Check that a local directory's disk has room for files, and for a commit of a table.

        Args:
            sizes: Of the files.
        """
        if self.uri.scheme != "file":
            return
        size = _ROOM + sum(-(-one // _BLOCK) * _BLOCK for one in sizes)
        free = shutil.disk_usage(self._present()).free
        if free < size:
            raise SavepointsError(
                f"the disk that holds {self.uri} has too little free space: {free} bytes are "
                f"free, {size} are needed",
                hint="free that much on it, then delete old savepoints: savepoints expire "
                "--keep-last 3, then savepoints gc",
                uri=str(self.uri),
            )

    def links(self, source: Location) -> bool:
        """Return True if files of another place are copied here without taking space."""
        if not self.uri.scheme == source.uri.scheme == "file":
            return False
        return self._present().stat().st_dev == source._present().stat().st_dev

    def _present(self) -> Path:
        """Return the directory, or what is there of the way to it."""
        present = Path(str(self.uri))
        while not present.exists():
            present = present.parent
        return present

    def get(self, path: str) -> bytes:
        """Return the bytes of a file."""
        with translated(self.uri / path):
            return bytes(_open(self.uri, _LARGE).get(self._key(path)).bytes())

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return a range of bytes, which the file must have."""
        with translated(self.uri / path):
            return bytes(_open(self.uri).get_range(self._key(path), start=start, length=length))

    def get_version(self, path: str) -> tuple[bytes, str]:
        """Return the bytes of a file and the entity tag of just these bytes."""
        with translated(self.uri / path):
            found = _open(self.uri).get(self._key(path))
            return bytes(found.bytes()), found.meta["e_tag"] or ""

    def put(self, path: str, data: bytes) -> None:
        """Write a file, replacing any existing one."""
        with translated(self.uri / path):
            _open(self.uri).put(self._key(path), data)

    def create(self, path: str, data: bytes) -> str:
        """Write a file only if there is none (conditional PUT), and return its entity tag.

        No two processes write equal bytes this way, so a file with exactly these bytes is our own,
        and only the answer was lost.

        Raises:
            FileExistsError: If there is one.
        """
        return self._conditionally(path, data, "create")

    def replace(self, path: str, data: bytes, etag: str) -> str:
        """Write a file only over the version with this entity tag, and return the new tag.

        As with `create`, a file with exactly these bytes is our own.

        Raises:
            FileExistsError: If somebody else changed or removed it meanwhile.
        """
        if self.uri.scheme != "file":
            return self._conditionally(path, data, {"e_tag": etag})
        store, key = _open(self.uri), self._key(path)
        # A local file system has no conditional replace: a lock file provides it.
        with translated(self.uri / path), Path(f"/{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if store.head(key)["e_tag"] != etag:
                raise FileExistsError(key)
            return store.put(key, data)["e_tag"] or ""

    def _conditionally(self, path: str, data: bytes, mode: Any) -> str:  # noqa: ANN401 (obstore's)
        def attempt() -> str:
            try:
                with translated(self.uri / path):
                    return _open(self.uri).put(self._key(path), data, mode=mode)["e_tag"] or ""
            except (FileExistsError, UnreachableError):
                # S3 answers 412 to a retry after a lost answer.
                with suppress(FileNotFoundError):
                    found, etag = self.get_version(path)
                    if found == data:
                        return etag
                raise

        return persistently(attempt)

    def head(self, path: str) -> ObjectInfo:
        """Return size, tag and time of a file."""
        with translated(self.uri / path):
            meta = _open(self.uri).head(self._key(path))
        return ObjectInfo(path, meta["size"], meta["e_tag"] or "", meta["last_modified"])

    def exists(self, path: str) -> bool:
        """Return True if the file exists."""
        try:
            self.head(path)
        except FileNotFoundError:
            return False
        return True

    def list(self, prefix: str = "", *, after: str = "") -> list[ObjectInfo]:
        """List all files below a directory, sorted by path, without directory markers.

        S3A leaves zero-byte objects where it made directories; nothing that Spark, Delta or this
        library writes is empty. A document that is, after a power failure, is no marker.

        Args:
            prefix: The directory.
            after: Only those whose path comes after this one in the order of bytes.
        """
        root = f"{self.uri.path}/" if self.uri.path else ""
        found = []
        with translated(self.uri):
            offset = self._key(after) if after else None
            for chunk in _open(self.uri).list(self._key(prefix), offset=offset):
                found += [
                    ObjectInfo(
                        meta["path"].removeprefix(root),
                        meta["size"],
                        _quoted(meta["e_tag"])
                        if self.uri.scheme == "abfss"
                        else meta["e_tag"] or "",
                        meta["last_modified"],
                    )
                    for meta in chunk
                    if meta["path"].startswith(root)
                    and (meta["size"] > 0 or meta["path"].endswith(_DOCUMENTS))
                ]
        return sorted(found, key=lambda info: info.path)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files concurrently; missing ones are not an error."""
        store = _open(self.uri)

        def one(path: str) -> None:
            with suppress(FileNotFoundError), translated(self.uri / path):
                store.delete(self._key(path))

        in_parallel(one, list(paths))

    def copy_from(self, source: Location, source_path: str, path: str) -> None:
        """Copy one file here, by the server or as a hard link if both are in one store.

        Between stores, between two mounts of this machine, from 5 GiB on on S3, and on HDFS, which
        cannot copy, it passes through this process.
        """
        with translated(source.uri / source_path):
            if self._copies(source, source_path, path):
                return
            # Through a file, not through memory: many large copies may run at once.
            with TemporaryFile() as body:
                for piece in _open(source.uri, _LARGE).get(source._key(source_path)).stream():
                    body.write(piece)
                body.seek(0)
                with translated(self.uri / path):  # A full disk is the one that is written to.
                    _open(self.uri, _LARGE).put(self._key(path), body)

    def _copies(self, source: Location, source_path: str, path: str) -> bool:
        """Copy without reading; return False where that is not possible."""
        from obstore.exceptions import GenericError

        store = _open(self.uri, _LARGE)
        if source.uri.system != self.uri.system or isinstance(store, HdfsStore):
            return False
        try:
            store.copy(source._key(source_path), self._key(path))
        except GenericError as error:
            if (said := _NOT_COPIED.get(self.uri.scheme)) and said in str(error):
                return False
            raise
        return True

    def sha256(self, path: str) -> str:
        """Return the SHA-256 of a file in hex, read in pieces."""
        digest = hashlib.sha256()
        with translated(self.uri / path):
            for piece in self._pieces(path):
                digest.update(piece)
        return digest.hexdigest()

    def _pieces(self, path: str) -> Iterator[bytes | Bytes]:
        key = self._key(path)
        if self.uri.scheme == "file":  # Four times as fast as through obstore.
            with Path("/", key).open("rb", buffering=0) as file:
                yield from iter(lambda: file.read(_PIECE), b"")
        else:
            yield from _open(self.uri, _LARGE).get(key).stream(min_chunk_size=_PIECE)

    def _key(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise UsageError(
                f"the path {path!r} is outside {self.uri}", hint="use a relative path without '..'"
            )
        return f"{self.uri.path}/{path}".strip("/")


def _quoted(etag: str | None) -> str:
    """Write an entity tag of a listing as everything else has it: Azure lists it without quotes."""
    return f'"{(etag or "").strip(chr(34))}"'


def in_parallel(work: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Call a function for many items at once and return the results in their order."""
    if len(items) <= 1:  # Without threads, of which Python starts none any more while it ends.
        return [work(one) for one in items]
    with ThreadPoolExecutor(max_workers=PARALLEL_REQUESTS) as pool:
        return list(pool.map(work, items))


def persistently(step: Callable[[], R]) -> R:
    """Retry an idempotent step when the store does not answer.

    object_store itself retries most requests, but not conditional PUTs or all cut-off answers.
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(UnreachableError):
            return step()
    return step()


def storage_options(uri: Uri) -> dict[str, str]:
    """Return the options for deltalake and obstore to open a URI.

    On S3 one mapping from AWS' own names, with what `aws` has found as plain values. On Azure the
    account; there and on HDFS the libraries look up the rest themselves.

    Raises:
        CredentialsError: If there are none.
    """
    if uri.scheme in {"file", "hdfs"}:
        return {}
    retries = {
        "max_retries": str(RETRIES),
        "retry_timeout": f"{RETRY_SECONDS}s",
        "backoff_config.init_backoff": f"{FIRST_PAUSE_MS}ms",
    }
    if uri.scheme == "abfss":
        return {"azure_storage_account_name": uri.azure[1], **retries}
    session = aws.session()
    credentials = session.get_credentials()
    if credentials is None:
        raise CredentialsError(
            f"no AWS credentials for {uri}",
            hint="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            uri=str(uri),
        )
    frozen = credentials.get_frozen_credentials()
    secrets.remember([frozen.secret_key, frozen.token])
    endpoint = aws.endpoint()
    options = {
        "aws_access_key_id": frozen.access_key or "",
        "aws_secret_access_key": frozen.secret_key or "",
        "aws_region": aws.region() or "us-east-1",
        **retries,
    }
    if frozen.token:
        options["aws_session_token"] = frozen.token
    if endpoint:
        options["aws_endpoint"] = endpoint
        options["allow_http"] = str(endpoint.startswith("http://")).lower()
    return options


def _open(uri: Uri, patience: _Patience = _SMALL) -> ObjectStore:
    if (first := _first_process()) != os.getpid():
        raise EnvironmentUnfitError(
            f"this process cannot read {uri}: it was forked from process {first} after that had "
            "opened a store, without the threads that read and write",
            hint="start processes with multiprocessing.get_context('spawn'), or open no store "
            "before they are forked",
            uri=str(uri),
        )
    endpoint = aws.endpoint() if uri.scheme == "s3" else None
    return _store(uri.scheme, uri.bucket, endpoint, patience)


@lru_cache(maxsize=1)
def _first_process() -> int:
    """Return the process that opened a store first: in one forked from it obstore never answers."""
    return os.getpid()


@lru_cache(maxsize=64)
def _store(scheme: str, bucket: str, _endpoint: str | None, patience: _Patience) -> ObjectStore:
    from obstore.store import LocalStore

    if scheme == "file":
        return LocalStore()
    if scheme == "hdfs":
        return HdfsStore(bucket)
    return (_s3 if scheme == "s3" else _azure)(Uri(scheme, bucket, ""), patience)


def _s3(uri: Uri, patience: _Patience) -> S3Store:
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.store import S3Store

    options = storage_options(uri)
    config: Any = {k: v for k, v in options.items() if k in {"aws_region", "aws_endpoint"}}
    return S3Store(
        uri.bucket,
        config=config,
        # The provider, not the values: a role's credentials expire while a query runs for weeks.
        credential_provider=Boto3CredentialProvider(aws.session()),
        client_options={"allow_http": options.get("allow_http") == "true", **_timeouts(patience)},
        retry_config=_retries(patience),
    )


def _azure(uri: Uri, patience: _Patience) -> AzureStore:
    from obstore.store import AzureStore

    container, account = uri.azure
    secrets.remember(os.environ.get(name) for name in _AZURE_SECRETS)
    return AzureStore(
        container,
        account_name=account,
        client_options=_timeouts(patience),
        retry_config=_retries(patience),
    )


def _timeouts(patience: _Patience) -> ClientConfig:
    return {"timeout": patience.whole, "read_timeout": patience.stalled}


def _retries(patience: _Patience) -> RetryConfig:
    return {
        "max_retries": RETRIES,
        "retry_timeout": patience.retries,
        "backoff": {"init_backoff": timedelta(milliseconds=FIRST_PAUSE_MS)},
    }
