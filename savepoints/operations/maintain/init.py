"""`init`: a commented settings file from what a checkpoint says of its query."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from savepoints.checkpoint.cut import CutFiles, committed_in, read_cut
from savepoints.checkpoint.logs import offset_log, source_kind
from savepoints.checkpoint.logs.kafka_position import kafka_offsets
from savepoints.checkpoint.logs.offset_log import (
    CHECKPOINT_FORMAT_KEY,
    PARTITIONS_KEY,
    PROVIDER_KEY,
)
from savepoints.errors import UsageError
from savepoints.io import Location
from savepoints.model import checked_name

FILL_IN = "FILL IN"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_USUAL_INTERVAL = "10m"
_SHOWN = 100
# Of the newest ones: a query that runs removes the oldest meanwhile.
_BATCHES_TIMED = 10


@dataclass(frozen=True)
class Source:
    """A source of a query.

    Attributes:
        kind: `kafka`, `delta`, `files`, or `unknown`.
        topics: Partitions of each Kafka topic.
        position: Its position in the offset log, None before it has begun.
    """

    kind: str
    topics: Mapping[str, int]
    position: str | None


@dataclass(frozen=True)
class CheckpointFacts:
    """What a checkpoint reveals about its query.

    Attributes:
        checkpoint: Its URI.
        query: Name for the query.
        query_id: Spark's id of the query.
        first_batch: The oldest batch that Spark still keeps.
        last_batch: The newest one.
        seconds_per_batch: Average time between the newest batches; None when there is only one
            batch.
        operators: Its stateful operators, from the sink.
        provider: Class of the state store provider.
        partitions: State partitions, None if not recorded.
        checkpoint_format: Of the state stores, 1 or 2.
        sources: In the order of the offset log.
    """

    checkpoint: str
    query: str
    query_id: str
    first_batch: int
    last_batch: int
    seconds_per_batch: float | None
    operators: tuple[str, ...]
    provider: str
    partitions: int | None
    checkpoint_format: int
    sources: tuple[Source, ...]


def read_checkpoint(checkpoint: Location, query: str | None = None) -> CheckpointFacts:
    """Find out from a checkpoint what settings can say.

    Raises:
        UsageError: If that is no usable name.
        IncompatibleError: If savepoints cannot be taken of it.
    """
    files = read_cut(checkpoint)
    batches = committed_in(checkpoint)
    name = query or checkpoint.uri.path.rpartition("/")[2] or files.query_id
    return CheckpointFacts(
        checkpoint=str(checkpoint),
        query=_usable(name, is_given=query is not None),
        query_id=files.query_id,
        first_batch=batches[0],
        last_batch=batches[-1],
        seconds_per_batch=_seconds_per_batch(checkpoint, batches[-_BATCHES_TIMED:]),
        operators=_operators(files),
        provider=files.cut.provider,
        partitions=files.cut.partitions,
        checkpoint_format=files.cut.checkpoint_format,
        sources=tuple(_source(position) for position in files.cut.offsets),
    )


def _usable(name: str, *, is_given: bool) -> str:
    if not is_given and name.isdigit():
        raise UsageError(
            f"the directory of the checkpoint is called {name}, which is the number of a "
            "generation and not the name of a query",
            hint="name the query with --query NAME",
        )
    try:
        return checked_name(name, "query")
    except UsageError as error:
        if is_given:
            raise
        raise UsageError(
            f"the directory of the checkpoint, {name!r}, cannot be the name of a query",
            hint=f"name the query with --query NAME: {error.hint}",
        ) from None


def text(found: CheckpointFacts, outputs: Mapping[str, str], store: str = "") -> str:
    """Write the settings file: what is known is filled in, what is not is marked."""
    query = _key(found.query)
    lines = [
        _comment(
            f"settings for savepoints of {found.query}, from its checkpoint {found.checkpoint}"
        ),
        f"# Fill in the lines marked {FILL_IN}. Show the effective settings: savepoints config",
        "",
        "# Where savepoints are stored.",
        f"store = {_quoted(store)}"
        if store
        else f"store = {_quoted('s3://bucket/savepoints')}{_mark('the store')}",
        "",
        *_kafka(found),
        "[spark.conf]",
        *(f"{_quoted(key)} = {_quoted(value)}" for key, value in _conf(found).items()),
        "",
        f"[queries.{query}]",
        *(_comment(line) for line in _about(found)),
        f"app = {_quoted('package.module:app')}{_mark('the savepoints.App, for run and rollback')}",
        "# Each generation of the query gets its own checkpoint in this directory.",
        f"checkpoints = {_quoted(_generations(found))}",
        "# When run takes savepoints: an interval, or a cron expression.",
        f"every = {_quoted(_USUAL_INTERVAL)}",
        "",
        (
            "# The Delta tables that the query writes; a rollback rewinds them together with the "
            "state."
        ),
        f"[queries.{query}.outputs]",
        *(f"{_key(name)} = {_quoted(uri)}" for name, uri in outputs.items()),
        *(
            []
            if outputs
            else ['# name = "s3://bucket/table"' + _mark("each table, if there are any")]
        ),
        "",
        "# What `expire` keeps; without any of these, it removes nothing.",
        "[retention]",
        "keep_last = 10",
        'keep_within = "2d"',
        "keep_daily = 14",
        "# after_savepoint = true",
    ]
    return "\n".join(lines) + "\n"


def _about(found: CheckpointFacts) -> list[str]:
    rate = found.seconds_per_batch
    operators = ", ".join(found.operators) or "none: savepoints hold only offsets and outputs"
    return [
        f"Spark's query id {found.query_id}; keeps batches {found.first_batch} to "
        f"{found.last_batch}" + (f", one every {rate:.1f} s" if rate else ""),
        f"stateful operators: {operators}",
        *(
            f"source {number}: {_source_text(source)}"
            for number, source in enumerate(found.sources)
        ),
    ]


def _generations(found: CheckpointFacts) -> str:
    """Return where the next checkpoints go: never into this one, with which they would be deleted.

    A query is mostly called as its checkpoint is, and has a directory of its name there.
    """
    parent, _, name = found.checkpoint.rpartition("/")
    return f"{found.checkpoint}-generations" if name == found.query else parent or "/"


def _kafka(found: CheckpointFacts) -> list[str]:
    topics = sorted({topic for source in found.sources for topic in source.topics})
    if not topics:
        return []
    return [
        "[kafka]",
        _comment(f"brokers of {', '.join(topics)}"),
        f'bootstrap_servers = "localhost:9092"{_mark("host:port")}',
        "",
    ]


def _conf(found: CheckpointFacts) -> dict[str, str]:
    """Return what a session needs to be told to go on with this state."""
    conf = {PROVIDER_KEY: found.provider} if found.operators else {}
    if found.partitions is not None:
        conf[PARTITIONS_KEY] = str(found.partitions)
    if found.checkpoint_format != 1:
        conf[CHECKPOINT_FORMAT_KEY] = str(found.checkpoint_format)
    return conf


def _seconds_per_batch(checkpoint: Location, batches: list[int]) -> float | None:
    if len(batches) == 1:
        return None
    first, last = (offset_log.read(checkpoint, batches[at]).timestamp_ms for at in (0, -1))
    return (last - first) / 1000 / (len(batches) - 1)


def _operators(files: CutFiles) -> tuple[str, ...]:
    return tuple(
        f"{one.operator_id} {one.name} ({files.partitions[one.operator_id]} partitions)"
        for one in files.operators
    )


def _source(position: str | None) -> Source:
    topics = kafka_offsets(position) or {}
    counts = {topic: len(parts) for topic, parts in topics.items()}
    return Source(source_kind.kind_of(position), counts, position)


def _source_text(source: Source) -> str:
    if source.kind == "kafka":
        return "Kafka, " + ", ".join(
            f"{name} ({n} partitions)" for name, n in source.topics.items()
        )
    position = "not started yet" if source.position is None else f"at {source.position}"
    return f"{source.kind}, {position}"[:_SHOWN]


def _comment(line: str) -> str:
    """Write a comment; what others wrote cannot end it."""
    printable = "".join(sign if sign.isprintable() else " " for sign in line)
    return f"# {' '.join(printable.split())}"


def _mark(what: str) -> str:
    return f"  # {FILL_IN}: {what}"


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quoted(name)


def _quoted(value: str) -> str:
    """Write a string of TOML; JSON's are, but for the one control character that it lets pass."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
