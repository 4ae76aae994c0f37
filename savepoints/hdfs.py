"""HDFS behind the methods of obstore's stores, which know nothing of it.

The client is `hdfs-native`, as in deltalake: no JVM, and settings from `core-site.xml` and
`hdfs-site.xml` of `HADOOP_CONF_DIR`. A file gets its name only when it is complete, by a rename,
which is atomic at the NameNode (Hadoop's FileSystem specification, `rename`).
"""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any

from savepoints.errors import MissingExtraError

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileStatus

Meta = Mapping[str, Any]
Chunk = list[Meta]

_PIECE = 4 << 20
# What is being written, or was when its writer was killed.
_HIDDEN = re.compile(r"/\.[^/]+\.[0-9a-f]{32}\.(?:new|next)$")
# Writers of one file who meet begin again after a pause of up to this many seconds.
_PAUSE_SECONDS = 0.05
_ATTEMPTS = 200
# A directory may go while it is listed.
_LISTINGS = 5


@dataclass(frozen=True)
class Found:
    """A file that was opened, as obstore's `GetResult`."""

    meta: Meta
    _reader: FileReader

    def stream(self, min_chunk_size: int = _PIECE) -> Iterator[bytes]:
        """Return it in pieces."""
        for start in range(0, self.meta["size"], min_chunk_size):
            yield self._reader.read_range(start, min(min_chunk_size, self.meta["size"] - start))

    def bytes(self) -> bytes:
        """Return all of it."""
        return b"".join(self.stream())


class HdfsStore:
    """A file system, with the methods that `io.Location` calls of obstore's stores.

    The entity tag of a file is its time of modification and its size. `put` over a given tag makes
    sure that the new file is younger than the old one, so a tag never returns.
    """

    def __init__(self, authority: str) -> None:
        """Connect when the first request is made.

        Args:
            authority: Host and port of the NameNode, or a name service of `hdfs-site.xml`.

        Raises:
            MissingExtraError: If hdfs-native is not installed.
        """
        try:
            from hdfs_native import Client
        except ModuleNotFoundError:
            raise MissingExtraError(
                f"hdfs://{authority} cannot be opened: hdfs-native is not installed",
                hint="pip install 'savepoints[hdfs]'",
            ) from None
        self._client: Client = Client(f"hdfs://{authority}")

    def get(self, key: str) -> Found:
        """Open a file, with the tag of just the version that is read."""
        meta = self.head(key)
        while True:
            reader = self._client.read(f"/{key}")
            again = self.head(key)
            if again == meta:
                return Found(meta, reader)
            meta = again

    def get_range(self, key: str, *, start: int, length: int) -> bytes:
        """Return a range of bytes."""
        return self._client.read(f"/{key}").read_range(start, length)

    def head(self, key: str) -> Meta:
        """Return path, size, tag and time of a file."""
        status = self._client.get_file_info(f"/{key}")
        if status.isdir:
            raise FileNotFoundError(key)
        return _meta(status)

    def list(self, prefix: str, *, offset: str | None) -> Iterable[Chunk]:
        """Return all files below a directory, in one chunk; none if there is no directory."""
        for _ in range(_LISTINGS - 1):
            with suppress(FileNotFoundError):
                return [self._files(prefix, offset)]
        return [self._files(prefix, offset)]

    def put(
        self, key: str, data: bytes | IO[bytes], *, mode: str | Mapping[str, str] = "overwrite"
    ) -> Meta:
        """Write a file: over any (`overwrite`), over none (`create`), or over that with a tag.

        Raises:
            FileExistsError: If there is one, or not the one with the tag.
        """
        if isinstance(mode, Mapping):
            return self._replace(key, data, mode["e_tag"])
        with self._written(key, data, "new") as own:
            self._client.rename(own, f"/{key}", overwrite=mode == "overwrite")
        return self.head(key)

    def delete(self, key: str) -> None:
        """Delete a file."""
        self.head(key)
        self._client.delete(f"/{key}")

    def _replace(self, key: str, data: bytes | IO[bytes], tag: str) -> Meta:
        """Write a file over the one with a tag, though HDFS has no conditional rename.

        Each writer writes beside the file, removes what others have written there, reads the tag,
        and then renames its own, which fails if another has removed it. For two to succeed over the
        same tag, each would have to have written its own after the other had removed it. So there
        is no lock that could outlive its holder; what a killed writer left, the next one removes.
        """
        for _ in range(_ATTEMPTS):
            with suppress(FileNotFoundError), self._written(key, data, "next") as own:
                for other in self._beside(key):
                    if other != own:
                        self._client.delete(other)
                there = self._there(key)
                if there is None or there["e_tag"] != tag:
                    raise FileExistsError(key)
                if self.head(own.lstrip("/"))["last_modified"] > there["last_modified"]:
                    self._client.rename(own, f"/{key}", overwrite=True)
                    return self.head(key)
            time.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311  (nothing secret is chosen)
        raise TimeoutError(
            f"gave up writing /{key} after {_ATTEMPTS} attempts, because other processes kept "
            "writing it"
        )

    @contextmanager
    def _written(self, key: str, data: bytes | IO[bytes], kind: str) -> Iterator[str]:
        """Write a hidden file beside another, and remove it if it was not renamed."""
        own = f"{self._hidden(key)}{uuid.uuid4().hex}.{kind}"
        try:
            with self._client.create(own) as sink:
                for piece in _pieces(data):
                    sink.write(piece)
            yield own
        finally:
            with suppress(FileNotFoundError):
                self._client.delete(own)

    def _beside(self, key: str) -> Iterable[str]:
        """Return the paths of what writers that replace a file have written beside it."""
        hidden = self._hidden(key)
        for status in self._client.list_status(hidden.rpartition("/")[0] or "/"):
            if status.path.startswith(hidden) and status.path.endswith(".next"):
                yield status.path

    @staticmethod
    def _hidden(key: str) -> str:
        directory, _, name = key.rpartition("/")
        return f"/{directory}/.{name}." if directory else f"/.{name}."

    def _there(self, key: str) -> Meta | None:
        try:
            return self.head(key)
        except FileNotFoundError:
            return None

    def _files(self, prefix: str, offset: str | None) -> Chunk:
        directory = f"/{prefix.strip('/')}"
        try:
            if not self._client.get_file_info(directory).isdir:
                return []
        except FileNotFoundError:
            return []
        return [
            _meta(status)
            for status in self._client.list_status(directory, recursive=True)
            if not status.isdir
            and not _HIDDEN.search(status.path)
            and (offset is None or status.path.lstrip("/") > offset)
        ]


def _meta(status: FileStatus) -> Meta:
    """Describe a file as obstore does."""
    return {
        "path": status.path.lstrip("/"),
        "size": status.length,
        "e_tag": f"{status.modification_time}-{status.length}",
        "last_modified": datetime.fromtimestamp(status.modification_time / 1000, UTC),
    }


def _pieces(data: bytes | IO[bytes]) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield data
    else:
        yield from iter(lambda: data.read(_PIECE), b"")
