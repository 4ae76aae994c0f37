"""Files of a checkpoint as tasks on executors read and write them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints import aws
from savepoints.errors import IncompatibleError
from savepoints.io import Location

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

# What obstore, or we, need there beside PyArrow, which knows local files and S3.
_PACKAGES = {"abfss": "obstore", "hdfs": "obstore hdfs-native"}
_ENDPOINT, _REGION = "AWS_ENDPOINT_URL", "AWS_REGION"


@dataclass(frozen=True)
class TaskFiles:
    """A directory with what a task needs to reach it, other than credentials.

    Credentials are the executor's own: environment, profile or role. Files go through obstore where
    it is installed, as on the driver, and through PyArrow where it is not.

    Attributes:
        environment: The endpoint and region of the driver, for executors that have none.
    """

    directory: Location
    environment: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, directory: Location) -> TaskFiles:
        """Describe a directory, on the driver."""
        known = {_ENDPOINT: aws.endpoint(), _REGION: aws.region()}
        return cls(directory, tuple((name, value) for name, value in known.items() if value))

    def get(self, path: str) -> bytes:
        """Read a file."""
        self._adopt_environment()
        if _has_obstore():
            return self.directory.get(path)
        files, place = self._file_system(path)
        with files.open_input_stream(place) as stream:
            return bytes(stream.readall())

    def put(self, path: str, data: bytes) -> None:
        """Write a file; an existing one is replaced."""
        self._adopt_environment()
        if _has_obstore():
            self.directory.put(path, data)
            return
        files, place = self._file_system(path)
        if self.directory.uri.scheme == "file":
            files.create_dir(place.rpartition("/")[0])
        with files.open_output_stream(place) as sink:
            sink.write(data)

    def _adopt_environment(self) -> None:
        for name, value in self.environment:
            os.environ.setdefault(name, value)

    def _file_system(self, path: str) -> tuple[FileSystem, str]:
        from pyarrow.fs import LocalFileSystem, S3FileSystem

        uri = self.directory.uri / path
        if uri.scheme == "file":
            return LocalFileSystem(), str(uri)
        if (packages := _PACKAGES.get(uri.scheme)) is not None:
            raise IncompatibleError(
                f"the executors cannot access {uri}, because their Python lacks obstore",
                hint=f"run this on the executors: pip install {packages}",
                uri=str(uri),
            )
        scheme, _, host = os.environ.get(_ENDPOINT, "").rpartition("://")
        found = S3FileSystem(
            endpoint_override=host.rstrip("/") or None,
            scheme="http" if scheme == "http" else "https",
            region=os.environ.get(_REGION),
        )
        return found, f"{uri.bucket}/{uri.path}"


def _has_obstore() -> bool:
    try:
        import obstore  # noqa: F401
    except ModuleNotFoundError:
        return False
    return True
