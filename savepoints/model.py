"""The frozen values shared by everything: ids, cuts, savepoints, generations, outputs.

No I/O and no heavy imports here: these types are shared by the file formats, the
store, the verbs and the command line.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from savepoints import notebook
from savepoints.errors import UsageError
from savepoints.json_values import to_json
from savepoints.moments import rfc3339
from savepoints.result import Result

_T = TypeVar("_T")

SavepointState = Literal["complete", "broken", "expired"]
# By the user, on schedule, before a verb changes the query, at the end of a run, by a verb.
SavepointKind = Literal["manual", "periodic", "safety", "final", "merge", "edit", "fork", "seed"]
Form = Literal["native", "canonical"]
Provider = Literal["rocksdb", "hdfs"]
GenerationStatus = Literal["current", "ended"]
OutputKind = Literal["delta", "files"]

FORMS: tuple[Form, ...] = ("native", "canonical")
# What a user calls them, together.
BOTH = "both"

_ID = re.compile(r"(sp|op)-\d{8}-\d{6}-[0-9a-z]{6}", re.ASCII)
# Letters and digits without those that are misread on a phone at night: i, l, o, 0, 1.
_ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
# How ids and relative names begin.
_RESERVED = ("latest", "sp-", "op-")


def new_id(kind: Literal["sp", "op"], now: datetime) -> str:
    """Make a typed id that sorts by time and can be read aloud: `sp-20261121-101530-k3f9ab`."""
    tail = "".join(secrets.choice(_ALPHABET) for _ in range(6))
    return f"{kind}-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{tail}"


def is_id(text: str) -> bool:
    """Return True if the text is a complete id of a savepoint or an operation."""
    return _ID.fullmatch(text) is not None


def checked_name(text: str, what: str) -> str:
    """Return the text if it can be part of a path in the store: letters, digits, `.`, `_`, `-`."""
    if not _NAME.fullmatch(text):
        raise UsageError(
            f"invalid {what} name: {text!r}",
            hint="use 1 to 100 letters, digits, '.', '_' or '-', beginning with a letter or digit",
        )
    return text


def several(values: Iterable[_T], name: str) -> tuple[_T, ...]:
    """Return the values of an argument that takes several.

    Raises:
        UsageError: If it is a text, which Python takes for a sequence of letters.
    """
    if isinstance(values, str):
        raise UsageError(
            f"{name} is the text {values!r}, but must be a list", hint=f"write {name}=[{values!r}]"
        )
    return tuple(values)


# How the tag of a group of savepoints begins that nobody has named.
GROUP_TAG = "group-"


def checked_tag(text: str) -> str:
    """Return the text if it can be a tag, which names a savepoint as an id does.

    Raises:
        UsageError: If it has other characters, or looks like an id or like `latest~2`.
    """
    if text.startswith(_RESERVED):
        raise UsageError(
            f"{text!r} cannot be a tag, because names that begin with latest, sp- or op- are "
            "reserved",
            hint="choose another tag, for example before-release",
        )
    return checked_name(text, "tag")


@dataclass(frozen=True)
class OutputVersion(Result):
    """An output as it was at a cut: a Delta table, or a directory of Spark's file sink.

    Attributes:
        name: Name of the output in the application, or the last part of its URI.
        uri: Table URI. Outputs belong to the user, so this is the one absolute URI a savepoint has.
        table_id: Delta's own id of the table; a different table at the same URI has a different
            one. Of a file sink, a hash of its log at the cut: batches that are written again have a
            different one.
        version: The table version that holds exactly the batches up to the cut; of a file sink, the
            batch id.
        app_id: The `txn` application id under which the query writes; empty for a file sink.
        app_version: The newest batch that `version` has recorded for the query; None before the
            first.
        kind: `delta`, or `files` for Spark's file sink.
    """

    name: str
    uri: str
    table_id: str
    version: int
    app_id: str
    app_version: int | None
    kind: OutputKind = "delta"


@dataclass(frozen=True)
class OutputTopic(Result):
    """A Kafka topic that a query writes, and how much of it belongs to a cut.

    Attributes:
        topic: Its name.
        topic_id: Kafka's own id; a topic that was deleted and recreated has another. None if Kafka
            did not say.
        ends: By partition, the offset before which all is from batches up to the cut; None if that
            is not known, because another batch was running or Kafka did not answer.
        is_exact: From there on nothing is from these batches: no other was running.
    """

    topic: str
    topic_id: str | None = None
    ends: tuple[int, ...] | None = None
    is_exact: bool = False


@dataclass(frozen=True)
class OperatorState:
    """The state of one operator in a savepoint.

    Attributes:
        operator_id: Spark's number; operators count from the sink.
        name: Spark's name, such as `stateStoreSave`.
        stores: Names of its state stores.
        partitions: Number of state partitions that exist.
        rows: Canonical rows, None when the savepoint has no canonical form.
        state_bytes: Bytes of all keys and values, None like `rows`.
        content_hash: Hash of all rows, whatever the number of partitions, and after `-` one of the
            order within lists that have several elements, which savepoints of earlier versions
            lack; None like `rows`. See `savepoints.state.storage.canonical_table`.
        native_only: Why the operator has no canonical form, None when it can have one.
        keyless: Its state is not looked up by key, so it stays in one partition.
        column_families: Its stores have column families, which only RocksDB can hold.
    """

    operator_id: int
    name: str
    stores: tuple[str, ...]
    partitions: int
    rows: int | None = None
    state_bytes: int | None = None
    content_hash: str | None = None
    native_only: str | None = None
    keyless: bool = False
    column_families: bool = False


def hashes_agree(one: str | None, other: str | None) -> bool:
    """Return True if two content hashes are equal in what both know: None knows nothing."""
    if one is None or other is None:
        return True
    return one.startswith(other) or other.startswith(one)


@dataclass(frozen=True)
class Cost:
    """The cost of taking a savepoint.

    Attributes:
        pin_seconds: Copying the files of the cut.
        checksum_seconds: Reading and hashing the copied files.
        export_seconds: Writing canonical rows, 0 without them.
        objects_copied: Files that were copied.
        bytes_copied: Their bytes.
        objects_shared: Files that were in the store already.
        bytes_shared: Their bytes.
        export_bytes: Bytes of the canonical table.
        attempts: How often copying was started; more than 1 if the query deleted files meanwhile.
    """

    pin_seconds: float = 0.0
    checksum_seconds: float = 0.0
    export_seconds: float = 0.0
    objects_copied: int = 0
    bytes_copied: int = 0
    objects_shared: int = 0
    bytes_shared: int = 0
    export_bytes: int = 0
    attempts: int = 1

    @property
    def seconds(self) -> float:
        """All of it together."""
        return self.pin_seconds + self.checksum_seconds + self.export_seconds


@dataclass(frozen=True)
class Cut(Result):
    """A committed batch and what belongs to it.

    Attributes:
        batch_id: The batch N; its state is version N + 1.
        committed_at: When `commits/N` was written.
        watermark_ms: Event-time watermark in force after the batch, milliseconds since 1970.
        offsets: For each source, in order, its next-to-read position as Spark's JSON; None where
            a source had none yet.
        provider: Class name of the state store provider.
        partitions: `spark.sql.shuffle.partitions` of the batch, None if not recorded.
        checkpoint_format: Of the state stores, 1 or 2; with 2 the session that starts the query
            needs `spark.sql.streaming.stateStore.checkpointFormatVersion=2`, because no log records
            it.
    """

    batch_id: int
    committed_at: datetime
    watermark_ms: int
    offsets: tuple[str | None, ...]
    provider: str
    partitions: int | None
    checkpoint_format: int = 1


@dataclass(frozen=True)
class Labels:
    """What may change in a savepoint after it was taken; everything else never does.

    Attributes:
        query: Name of its query, which `rename` changes.
        tags: Names that people gave it.
        description: Free text.
        pinned: Retention leaves it alone.
        state: `broken` when `verify` found it damaged, `expired` while it is being removed.
        state_reason: Why it is not `complete`.
    """

    query: str
    tags: tuple[str, ...] = ()
    description: str = ""
    pinned: bool = False
    state: SavepointState = "complete"
    state_reason: str | None = None


@dataclass(frozen=True)
class Edit:
    """A manual edit of a savepoint, which otherwise equals its parent.

    Attributes:
        by: Who did it: user, host and process.
        reason: Reason for the edit, as free text.
        operator_id: Operator whose rows were changed.
        variable: State variable of a `transformWithState`, None for other operators.
        where: SQL that chose the rows; None for all.
        assignments: What was set, as `field = SQL`.
        function: Name of the function that changed them, None for SQL.
        rows_changed: Rows with a new value.
        rows_removed: Rows that were removed.
    """

    by: str
    reason: str
    operator_id: int
    variable: str | None = None
    where: str | None = None
    assignments: tuple[str, ...] = ()
    function: str | None = None
    rows_changed: int = 0
    rows_removed: int = 0


# A query and the number of a generation of it.
Place = tuple[str, int]


class Placed:
    """What belongs to one generation of a query."""

    query: str
    generation: int

    @property
    def place(self) -> Place:
        """Which generation of which query."""
        return self.query, self.generation


@dataclass(frozen=True)
class Savepoint(Placed, Result):
    """An immutable, self-contained copy of a cut, as the manifest and the catalog describe it.

    Attributes:
        id: `sp-…`, sorts by time.
        query: Name of the query.
        query_id: Spark's id of the query.
        generation: Number of the generation that it was taken from.
        cut: The batch and what belongs to it.
        created_at: When it was taken, by the clock of the store.
        forms: The forms that it has the state in.
        operators: The stateful operators, from the sink.
        outputs: The Delta tables that belong to the cut.
        output_topics: The Kafka topics that the query writes, where it or the settings name them.
        cost: What taking it cost.
        parent: The newest savepoint of the query when this was taken, None for the first; of an
            edited one, the savepoint that was edited.
        spark_version: Of the Spark that wrote the canonical rows, None without them.
        application: `package.module:attribute`, if known.
        code_version: From `SAVEPOINTS_CODE_VERSION`, if it was set.
        settings: Spark's settings that the batch ran with.
        topics: Kafka's id of each topic that it has offsets for, where known; a topic that was
            deleted and recreated has a different one.
        edit: What was changed by hand; None for one that was taken from a checkpoint.
        tags: Names that people gave it.
        description: Free text.
        pinned: Retention leaves it alone.
        kind: Why it was taken.
        rows_missing: Why its rows could not be written, so that it is native only for now.
        state: `broken` when `verify` found it damaged, `expired` while it is being removed.
        state_reason: Why it is not `complete`.
    """

    id: str
    query: str
    query_id: str
    generation: int
    cut: Cut
    created_at: datetime
    forms: tuple[Form, ...]
    operators: tuple[OperatorState, ...]
    outputs: tuple[OutputVersion, ...] = ()
    output_topics: tuple[OutputTopic, ...] = ()
    cost: Cost = field(default_factory=Cost)
    parent: str | None = None
    spark_version: str | None = None
    application: str | None = None
    code_version: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    edit: Edit | None = None
    tags: tuple[str, ...] = ()
    description: str = ""
    pinned: bool = False
    kind: SavepointKind = "manual"
    rows_missing: str | None = None
    state: SavepointState = "complete"
    state_reason: str | None = None

    @property
    def taken_order(self) -> tuple[datetime, int, int, str]:
        """By what savepoints are ordered: a store's clock may have seconds only."""
        return (self.created_at, self.generation, self.cut.batch_id, self.id)

    @property
    def rows(self) -> int | None:
        """Its state rows, as far as they were counted; None if none were."""
        counted = [one.rows for one in self.operators if one.rows is not None]
        return sum(counted) if counted else None

    @property
    def labels(self) -> Labels:
        """What may change about it."""
        return Labels(
            self.query, self.tags, self.description, self.pinned, self.state, self.state_reason
        )

    def with_labels(self, labels: Labels) -> Savepoint:
        """Return it with other labels."""
        return dataclasses.replace(self, **vars(labels))

    def to_json(self) -> dict[str, Any]:
        """Return the savepoint as JSON values, snake_case, times as RFC 3339."""
        return dict(to_json(self))

    def _repr_html_(self) -> str:
        """Return it as a notebook shows it: a table of what one looks for first."""
        rows = [
            ("query", f"{self.query}, generation {self.generation}"),
            ("batch", f"{self.cut.batch_id}, committed {rfc3339(self.cut.committed_at)}"),
            ("taken", f"{rfc3339(self.created_at)}, {self.kind}"),
            ("forms", " and ".join(self.forms)),
            ("operators", ", ".join(one.name for one in self.operators) or "none"),
            ("rows", "not counted" if self.rows is None else f"{self.rows:,}"),
            *(
                (f"output {one.name}", f"version {one.version} of {one.uri}")
                for one in self.outputs
            ),
            ("tags", ", ".join(self.tags) or "none"),
            ("status", self.state + (f": {self.state_reason}" if self.state_reason else "")),
        ]
        notes = [self.description] if self.description else []
        return notebook.table(f"savepoint {self.id}", rows, notes=notes)


@dataclass(frozen=True)
class Origin(Placed):
    """What a generation began from, which stays known when the savepoint is gone.

    Attributes:
        query: The savepoint's query.
        generation: Number of the generation that it was taken of.
        batch_id: Its batch.
        is_edited: Whether it was edited by hand.
    """

    query: str
    generation: int
    batch_id: int
    is_edited: bool

    @classmethod
    def of(cls, savepoint: Savepoint) -> Origin:
        """Return what a generation has that begins from a savepoint."""
        batch_id, is_edited = savepoint.cut.batch_id, savepoint.edit is not None
        return cls(savepoint.query, savepoint.generation, batch_id, is_edited)


# How `Generation.ended_why` begins when another generation took over.
SUPERSEDED = "superseded by generation"


@dataclass(frozen=True)
class Generation(Placed, Result):
    """A generation of a query: one checkpoint directory.

    Attributes:
        query: Name of the query.
        generation: 1, 2, 3, … within the query.
        checkpoint: URI of its checkpoint directory.
        status: `current` is the one that `run` starts.
        begun_at: When it began.
        begun_by: The verb that began it.
        begun_from: The savepoint it began from, None for a fresh start.
        ended_at: When the next one took over or the query ended, None for the current one.
        ended_why: Which generation superseded it and by which verb, or the reason given to `end`;
            None for the current one.
        restore_seconds: How long writing its checkpoint took, None for a fresh start.
        restored_bytes: Bytes of that checkpoint.
        origin: What `begun_from` is, or was; None for a fresh start, and for a generation that was
            begun by an older version of this library, or from a savepoint of another store.
    """

    query: str
    generation: int
    checkpoint: str
    status: GenerationStatus
    begun_at: datetime
    begun_by: str
    begun_from: str | None = None
    ended_at: datetime | None = None
    ended_why: str | None = None
    restore_seconds: float | None = None
    restored_bytes: int | None = None
    origin: Origin | None = None

    def origin_among(self, savepoints: Mapping[str, Savepoint]) -> Origin | None:
        """Return what it began from, None for a fresh start and where nobody knows.

        Args:
            savepoints: By their ids. What they say counts first: a query can be renamed.
        """
        found = savepoints.get(self.begun_from or "")
        return self.origin if found is None else Origin.of(found)

    def went_on_after(self, moment: datetime) -> bool:
        """Return True if it began after a moment, and not with nothing."""
        return self.begun_from is not None and self.begun_at > moment

    @property
    def is_superseded(self) -> bool:
        """Whether another generation of the query took over, rather than that the query ended."""
        return self.ended_why is not None and self.ended_why.startswith(SUPERSEDED)

    @property
    def is_empty_reset(self) -> bool:
        """Whether it began with nothing, at offsets that somebody chose."""
        return self.begun_by == "reset" and self.begun_from is None

    @property
    def is_promoted(self) -> bool:
        """Whether a fork took over in it, alone or with others."""
        return self.begun_by in {"promote", "pipeline promote"}
