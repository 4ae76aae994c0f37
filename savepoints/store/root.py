"""The store: a root URI, and by name what lies below it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Self

from savepoints.config.settings import Settings
from savepoints.delta_reader import refuse_unwritable
from savepoints.errors import (
    IncompatibleError,
    SavepointsError,
    StoreNotFoundError,
    UsageError,
    VerificationError,
)
from savepoints.io import Location
from savepoints.model import new_id
from savepoints.moments import rfc3339, utc_now
from savepoints.plan import Progress, silent
from savepoints.store.locks import conditional, readers
from savepoints.store.savepoint import manifest
from savepoints.store.savepoint.manifest import Manifest
from savepoints.store.tables.catalog import Catalog
from savepoints.store.tables.events import Events
from savepoints.store.tables.generations import Generations
from savepoints.store.tables.merge_ledger import Ledger
from savepoints.store.tables.open_tables import OpenTables
from savepoints.uri import written

# A file that says that its directory is a store, and of which format.
_MARK = "store.json"
FORMAT = "savepoints-store/1"
# The Delta tables of a store.
TABLES = ("catalog", "generations", "ledger", "events")


@dataclass(frozen=True)
class Store:
    """The root under which savepoints, the catalog, leases and the journal live.

    Attributes:
        root: Where it is.
        any_line: `latest` and `@TIME` also consider savepoints that were rolled back.
        settings: What programs, checkpoints and Kafka its queries have, without what generations
            are bound to; see `savepoints.store.bindings`.
        tables: Those of its tables that are open, or what `snapshot` has read of them.
    """

    root: Location
    any_line: bool = False
    settings: Settings = field(default_factory=Settings, compare=False, repr=False)
    tables: OpenTables = field(default_factory=OpenTables, compare=False, repr=False)

    @classmethod
    def at(
        cls,
        uri: str | os.PathLike[str],
        *,
        settings: Settings | None = None,
        any_line: bool = False,
    ) -> Self:
        """Return the store at a URI, as `open` does, whether or not there is one yet."""
        text: str = written(uri)
        if not text:
            raise UsageError(
                "no store was given",
                hint="set store in savepoints.toml, set the environment variable SAVEPOINTS_STORE, "
                "or pass the URI, for example --store s3://bucket/path",
            )
        if found := re.search(r"[?#]", text):
            # The rest may be a token: it is not repeated, and no table is made with it in its name.
            raise UsageError(
                f"the URI of the store, {text[: found.start()]!r}, is followed by {found[0]!r}, "
                "which is not supported",
                hint="remove it and everything after it; credentials come from the AWS environment "
                "variables",
            )
        root = Location.of(text)
        refuse_unwritable(root.uri, "the store")
        return cls(root, any_line, settings or Settings())

    @classmethod
    def open(
        cls,
        uri: str | os.PathLike[str],
        *,
        settings: Settings | None = None,
        any_line: bool = False,
    ) -> Self:
        """Open the store at a URI.

        Args:
            uri: `s3://bucket/prefix` or a directory.
            settings: What programs, checkpoints and Kafka the queries have; `Settings.load()` reads
                `savepoints.toml`, which is not read otherwise.
            any_line: `latest` and `@TIME` also consider savepoints that were rolled back.

        Raises:
            UsageError: If the URI is empty, has a query or a fragment, as pre-signed URLs have, an
                escape such as `%20`, or a character that deltalake cannot have in a path.
            StoreNotFoundError: If the bucket or directory does not exist, or is no store.
            CredentialsError: If it may not be read.
        """
        return cls.at(uri, settings=settings, any_line=any_line).require()

    def require(self) -> Self:
        """Return the store, if there still is one: its disk may be gone since it was opened.

        Raises:
            StoreNotFoundError: If there is none.
        """
        if not self.exists():
            raise StoreNotFoundError(
                f"there is no store at {self.root}: the file {_MARK} is missing",
                hint="correct the URI, or create the store: savepoints init --store "
                f"{quote(str(self.root))}",
                uri=str(self.root),
            )
        return self

    def exists(self) -> bool:
        """Return True if somebody has made this store.

        Raises:
            StoreNotFoundError: If the bucket does not exist.
            CredentialsError: If it may not be read.
            IncompatibleError: If it has another format.
        """
        try:
            # A GET and no HEAD: only its answer tells a bucket that is missing.
            mark = self.root.get(_MARK)
        except FileNotFoundError:
            return False
        if json.dumps(FORMAT).encode() not in mark:
            raise IncompatibleError(
                f"{self.root / _MARK} contains {mark[:100]!r} instead of {FORMAT}",
                hint="use the version of savepoints that created this store; if the file is "
                f"damaged, delete it and run: savepoints init --store {quote(str(self.root))}",
                uri=str(self.root),
            )
        return True

    def make(self, progress: Progress = silent) -> Self:
        """Make an empty store where none is, say so, and return it.

        A prefix of a bucket cannot be told from one with a spelling mistake, nor a directory from
        one whose disk is not mounted, unless something says that a store is there: a small file.

        Raises:
            StoreNotFoundError: If the bucket does not exist.
            CredentialsError: If it may not be read or written.
            IncompatibleError: If somebody else has a table or files where a store has its tables,
                or two processes could overwrite each other's objects there.
        """
        if not self.exists():
            self._require_conditions()
            for table in (self.catalog, self.generations, self.ledger, self.events):
                with suppress(VerificationError):  # One that is damaged is a store's.
                    table.all()
            mark = {"format": FORMAT, "made_at": rfc3339(utc_now())}
            with suppress(FileExistsError):
                self.root.create(_MARK, json.dumps(mark).encode())
                progress(f"created a store at {self.root}")
        return self

    def _require_conditions(self) -> None:
        """Refuse a place in which no lease would hold, before anything relies on one."""
        directory = self.root / "scratch" / new_id("op", utc_now())
        try:
            ignored = conditional.problem(directory)
        finally:
            with suppress(SavepointsError):  # What may not be deleted is left for `gc`.
                directory.delete([info.path for info in directory.list()])
        if ignored is not None:
            raise IncompatibleError(
                f"there can be no store at {self.root}: {ignored}, and {conditional.CONSEQUENCE}",
                hint="use a store that supports conditional writes, such as S3, or a newer version "
                "of its server",
                uri=str(self.root),
            )

    def with_settings(self, settings: Settings) -> Self:
        """Return the same store, for verbs that are to use other settings."""
        return replace(self, settings=settings)

    def snapshot(self) -> Self:
        """Return the store as it is now, each table of which is read once.

        For verbs that only read, and for plans: what they say goes together. Whoever executes a
        plan looks at the store itself, under the query's lease.
        """
        return replace(self, tables=self.tables.snapshot())

    def reopened(self) -> Self:
        """Return the same store with no table open, for verbs that look for damage in the files."""
        return replace(self, tables=OpenTables())

    @property
    def catalog(self) -> Catalog:
        """Which savepoints exist."""
        return Catalog(self.root, self.any_line, self.tables)

    @property
    def generations(self) -> Generations:
        """The generations of each query, with their checkpoints."""
        return Generations(self.root, self.tables)

    @property
    def ledger(self) -> Ledger:
        """Which late batches were merged."""
        return Ledger(self.root, self.tables)

    @property
    def events(self) -> Events:
        """What was done."""
        return Events(self.root, self.tables)

    def require_query(self, query: str) -> None:
        """Refuse the name of a query that nobody knows: of one misspelt, every list is empty.

        Raises:
            QueryNotFoundError: If neither the settings nor the store have it.
        """
        known = {*self.settings.queries, *(one.query for one in self.catalog.all())}
        if query not in known and not self.generations.all(query):
            raise self.generations.unknown(query, known)

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

        Each has another name, so that several processes can look at one savepoint, and a sign that
        keeps `gc` away however young it may delete.
        """
        name = new_id("op", utc_now())
        directory = self.root / "scratch" / name
        with readers.using(self.root, name, "temporary files"):
            try:
                yield directory
            finally:
                directory.delete(info.path for info in directory.list())

    def manifest(self, savepoint_id: str) -> Manifest:
        """Read the manifest of a savepoint; VerificationError if it is missing or damaged."""
        path = manifest.manifest_path(savepoint_id)
        try:
            data = self.root.get(path)
        except FileNotFoundError:
            raise VerificationError(
                f"savepoint {savepoint_id} is damaged: its manifest {path} is missing",
                hint="use another savepoint; list those that exist: savepoints list",
                savepoint=savepoint_id,
                files=[path],
            ) from None
        return Manifest.parse(data, path)
