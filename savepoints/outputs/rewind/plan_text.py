"""What a rewind does, and what people should know before it: the words of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.delta_reader import CHANGE_FEED
from savepoints.errors import NotFoundError
from savepoints.io import Location
from savepoints.model import OutputVersion
from savepoints.outputs.delta import batch_version, log, writable
from savepoints.outputs.file_sink import file_sink
from savepoints.outputs.rewind import altered
from savepoints.outputs.rewind.planned_rewind import Rewind

if TYPE_CHECKING:
    from deltalake import DeltaTable


def what(rewind: Rewind) -> str:
    """Describe what is done to an output, as a step of a plan."""
    output = rewind.output
    if output.kind == "files":
        if rewind.empty:
            return f"move the whole sink log of {output.uri} aside"
        return (
            f"truncate the sink log of {output.uri} after batch {output.version}; it now ends at "
            f"batch {rewind.newest}"
        )
    whose = f" where {rewind.own_rows}" if rewind.own_rows else ""
    if rewind.empty:
        return f"remove the rows{whose} and the transaction ids of {output.uri}, in one commit"
    if output.version == rewind.newest:
        return (
            f"keep the rows of {output.uri} at version {rewind.newest} and set its transaction ids"
        )
    return (
        f"rewind {output.uri} from version {rewind.newest} to the rows{whose} and transaction "
        f"ids of version {output.version}, in one commit"
    )


def notes(rewind: Rewind) -> tuple[str, ...]:
    """Describe what a rewind means for readers of the output, and what does not go back."""
    if rewind.output.kind == "files":
        return tuple(_of_files(rewind))
    return tuple(_of_table(rewind))


def reader_notes(rewind: Rewind) -> list[str]:
    """Describe what becomes of streaming readers of a table that do not go back with it."""
    output = rewind.output
    if output.kind == "files" or not (rewind.empty or output.version < rewind.newest):
        return []
    what = "the rewind removes rows, so a streaming reader of the table fails unless it sets"
    twice = "skipChangeCommits; with that option, it reads the rows of rerun batches twice"
    return [f"{output.uri}: {what} {twice}"]


def kept(output: OutputVersion, new_app_id: str) -> tuple[str, ...]:
    """Describe what happens to batches that run again when an output is not taken back."""
    uri, reached = output.uri, -1 if output.app_version is None else output.app_version
    if output.kind == "files":
        seen: int | None = file_sink.newest_batch(Location.of(uri))
        newer = False
    else:
        try:
            table = batch_version.open_table(uri)
        except NotFoundError:
            only = f"once the query runs, it will have only what is written after batch {reached}"
            return (f"there is no Delta table at {uri}: {only}",)
        seen, newer = table.transaction_version(new_app_id), table.version() > output.version
    if seen is not None and seen > reached:
        again = f"batches {reached + 1} to {seen}"
        return (f"{uri} is left as it is and will silently drop {again} when they run again",)
    if newer:
        return (
            f"{uri} keeps what was written since version {output.version}: rows may be duplicated",
        )
    return ()


def _of_files(rewind: Rewind) -> list[str]:
    output, uri = rewind.output, rewind.output.uri
    if file_sink.is_at(output):
        return []
    stay = (
        f"{uri}: data files of the batches after {output.version} remain there; Spark ignores "
        "them, but tools that list the directory do not. Log entries are moved to "
        f"{file_sink.ASIDE_OF_LOG}"
    )
    seen = (
        f"{uri}: streaming readers keep what they have read, and read the rewritten batches as "
        "new files"
    )
    if (interval := file_sink.lost_interval(output)) is None:
        return [stay, seen]
    compacted = (
        f"{uri}: keep spark.sql.streaming.fileSink.log.compactInterval={interval} in the query, "
        "because the truncated log no longer shows it"
    )
    return [stay, seen, compacted]


def _of_table(rewind: Rewind) -> list[str]:
    output, table = rewind.output, batch_version.open_table(rewind.output.uri)
    uri, settings = output.uri, table.metadata().configuration
    found = _of_engine(rewind, table)
    found += (removal := reader_notes(rewind))
    if removal and settings.get(CHANGE_FEED) == "true":
        found.append(
            f"{uri}: readers of its change data feed see the rewind as deletes and inserts"
        )
    if rewind.own_rows is None and not rewind.empty:
        found += _schema(rewind, table)
    if rewind.empty:
        found += _unknown_writers(rewind)
    if limit := settings.get(batch_version.RETENTION_OF_IDS):
        found.append(
            f"{uri}: transaction ids expire after {limit} "
            f"({batch_version.RETENTION_OF_IDS}): a batch that runs again after that is written "
            "twice"
        )
    return found


def _of_engine(rewind: Rewind, table: DeltaTable) -> list[str]:
    """Describe what it means that Delta's own engine makes the commit."""
    if rewind.engine != "spark":
        return []
    uri, features = rewind.output.uri, writable.only_by_spark(table)
    only = ", ".join(features)
    found = [
        f"{uri}: the commit is made in a Spark session, because only Delta itself can write {only}"
    ]
    if "identityColumns" in features:
        found.append(
            f"{uri}: rows that are written again get new identity values; the values of "
            "removed rows are not reused"
        )
    if "rowTracking" in features:
        found.append(
            f"{uri}: restored rows keep their row ids; rows that are written again get new ones"
        )
    return found


def _schema(rewind: Rewind, table: DeltaTable) -> list[str]:
    """Describe which parts of the table's metadata go back, and which do not."""
    uri, version = rewind.output.uri, rewind.output.version
    before = batch_version.open_table(uri, version)
    old = [field.name for field in before.schema().fields]
    new = [field.name for field in table.schema().fields]
    found = []
    if before.schema() != table.schema():
        gone = ", ".join(name for name in new if name not in old)
        found.append(
            f"{uri}: its columns revert to those of version {version}"
            + (f"; removed: {gone}" if gone else "")
        )
    if changed := altered.properties(before, table):
        found.append(f"{uri}: table properties are also rewound: {', '.join(changed)}")
    # Delta's own engine brings back files alone.
    if rewind.engine != "spark" and (said := altered.description(before, table)):
        found.append(f"{uri}: also rewound to that of version {version}: {' and '.join(said)}")
    if _protocol(before) != _protocol(table):
        found.append(
            f"{uri}: the table's protocol is kept, because a Delta protocol can never be lowered"
        )
    return found


def _protocol(table: DeltaTable) -> tuple[object, ...]:
    one = table.protocol()
    features = (*(one.reader_features or ()), *(one.writer_features or ()))
    return one.min_reader_version, one.min_writer_version, frozenset(features)


def _unknown_writers(rewind: Rewind) -> list[str]:
    uri, where = rewind.output.uri, rewind.own_rows
    if where is not None:
        return [f"{uri}: exactly the rows where {where} are removed, whoever wrote them"]
    # None at all: the newest, too, is only in a checkpoint of the log.
    oldest = min(
        (one.version for one in log.commits(uri, rewind.newest)), default=rewind.newest + 1
    )
    if oldest == 0:
        return []
    begin = f"{uri}: its log begins with version {oldest}"
    return [f"{begin}: whether others wrote rows before that is unknown"]
