"""The store: a root URI, and by name what lies below it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from savepoints.errors import UsageError, VerificationError
from savepoints.io import Location
from savepoints.model import new_id, utc_now
from savepoints.store.locks import readers
from savepoints.store.savepoint import manifest
from savepoints.store.savepoint.manifest import Manifest
from savepoints.store.tables.catalog import Catalog
from savepoints.store.tables.events import Events
from savepoints.store.tables.generations import Generations


@dataclass(frozen=True)
class Store:
    """The root under which savepoints, the catalog, leases and the journal live.

    Attributes:
        root: Where it is.
        any_line: `latest` and times mean savepoints that were rolled back, too.
    """

    root: Location
    any_line: bool = False

    @classmethod
    def open(cls, uri: str, *, any_line: bool = False) -> Store:
        """Open the store at a URI; an empty place is an empty store.

        Raises:
            UsageError: If the URI has a query or a fragment, as pre-signed URLs have.
            StoreNotFoundError: If the bucket or directory does not exist.
            CredentialsError: If it may not be read.
        """
        if found := re.search(r"[?#]", uri):
            # The rest may be a token: it is not repeated, and no table is made with it in its name.
            raise UsageError(
                f"the store's URI {uri[: found.start()]!r} is followed by {found[0]!r} and more",
                hint="write s3://bucket/path alone; AWS' variables say who you are",
            )
        root = Location.of(uri)
        root.require()
        return cls(root, any_line)

    @property
    def catalog(self) -> Catalog:
        """Which savepoints exist."""
        return Catalog(self.root, self.any_line)

    @property
    def generations(self) -> Generations:
        """Which checkpoint belongs to which life of which query."""
        return Generations(self.root)

    @property
    def events(self) -> Events:
        """What was done."""
        return Events(self.root)

    @contextmanager
    def using(self, savepoint_id: str, verb: str) -> Iterator[None]:
        """Keep a savepoint from being removed while it is read.

        Raises:
            SavepointNotFoundError: If it is being removed already.
        """
        with readers.using(self.root, savepoint_id, verb):
            self.catalog.find(savepoint_id)
            yield

    @contextmanager
    def scratch(self) -> Iterator[Location]:
        """Give an empty directory on the store's own system that is removed afterwards.

        Each has another name, so that several processes can look at one savepoint.
        """
        directory = self.root / "scratch" / new_id("op", utc_now())
        try:
            yield directory
        finally:
            directory.delete(info.path for info in directory.list())

    def manifest(self, savepoint_id: str) -> Manifest:
        """Read the manifest of a savepoint.

        Raises:
            VerificationError: If it is missing or damaged.
        """
        path = manifest.manifest_path(savepoint_id)
        try:
            data = self.root.get(path)
        except FileNotFoundError:
            raise VerificationError(
                f"savepoint {savepoint_id} is damaged: {path} is missing",
                hint="restore another savepoint: savepoints list",
                savepoint=savepoint_id,
                files=[path],
            ) from None
        return Manifest.parse(data, path)
