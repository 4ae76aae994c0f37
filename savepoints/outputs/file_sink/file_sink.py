"""Directories of Spark's file sink: which batches they have, and taking them back.

The sink keeps a log of its batches in `_spark_metadata` (see `log`), and readers see the data
files that it lists and no others. It writes a batch only when its id is above the newest entry's; a
batch that is run again is silently dropped. Entries before a compact one are deleted by and by.

So an output is taken back by taking away entries, the newest first: each state in between is that
of a batch. They are kept in `_spark_metadata/_set_aside/<operation>/`, which Spark does not look
at, with a document that says what was there before and what is to be there. So this can go on after
a crash and be undone, and a later rollback can go to batches that were taken back before. Data
files stay where they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from savepoints import faults
from savepoints.errors import REBUILD_OUTPUT, FileSinkError, NotAlignedError, NotFoundError
from savepoints.io import Location, in_parallel
from savepoints.model import OutputVersion
from savepoints.outputs.file_sink import log as file_sink_log
from savepoints.outputs.file_sink.log import COMPACT, LOG, Entries, batch_of, order

_ASIDE = "_set_aside"
_DOCUMENT = "log.json"
ASIDE_OF_LOG = f"{LOG}/{_ASIDE}"


@dataclass(frozen=True)
class _Operation:
    """What an operation does to a log."""

    before: Entries
    wanted: Entries
    done: bool = False

    def to_bytes(self) -> bytes:
        """Write it as JSON."""
        return json.dumps(vars(self), indent=1, sort_keys=True).encode()


def is_one(sink: Location) -> bool:
    """Return True if Spark's file sink writes to a directory."""
    return bool(sink.list(LOG))


def version_of_batch(name: str, sink: Location, batch_id: int) -> OutputVersion:
    """Return a sink as it was after a batch, if its log has that and can be taken there."""
    entries = file_sink_log.entries(sink)
    newest = max((batch_of(one) for one in entries), default=-1)
    if newest < batch_id:
        if empty := file_sink_log.empty_entry(sink, batch_id):
            raise NotAlignedError(
                f"the entry {empty} of the log of {sink} is empty, as a crash or a full disk "
                "leaves one: the rows of that batch cannot be found, and Spark cannot read the "
                "directory",
                hint="put back that file from a backup; or remove it, then take the query back to "
                "before that batch: savepoints rollback latest",
                uri=str(sink),
                batch_id=batch_id,
            )
        raise NotAlignedError(
            f"the log of {sink} ends at batch {newest}, but the query has committed batch "
            f"{batch_id}, so the query does not write to this directory",
            hint="correct the URI of the output in the settings or options",
            uri=str(sink),
            batch_id=batch_id,
        )
    if (needed := file_sink_log.needed(entries, batch_id)) is None:
        if first := file_sink_log.begins_late(entries):
            raise _begins_late(sink, first)
        raise NotAlignedError(
            f"the log of {sink} no longer has the entries of batch {batch_id}, because they "
            "were compacted and deleted",
            hint="take a savepoint of a newer batch; to keep entries longer, raise "
            "spark.sql.streaming.fileSink.log.cleanupDelay",
            uri=str(sink),
            batch_id=batch_id,
        )
    return OutputVersion(
        name,
        str(sink),
        file_sink_log.fingerprint(file_sink_log.hashed(sink, needed), needed),
        batch_id,
        "",
        batch_id,
        "files",
    )


def _begins_late(sink: Location, first: int) -> NotAlignedError:
    return NotAlignedError(
        f"the log of {sink} begins with batch {first}, because the batches before went elsewhere: "
        "Spark cannot read this directory, and its query fails when it compacts the log",
        hint="let the query write a Delta table, or begin it with an empty state and an empty "
        "directory",
        uri=str(sink),
        batch_id=first,
    )


def present(name: str, sink: Location) -> OutputVersion:
    """Return a sink as it is now."""
    newest = newest_batch(sink)
    if newest >= 0:
        return version_of_batch(name, sink, newest)
    return empty(name, sink)


def empty(name: str, sink: Location) -> OutputVersion:
    """Return a sink as it was before its first batch."""
    return OutputVersion(name, str(sink), file_sink_log.fingerprint({}, ()), -1, "", None, "files")


def newest_batch(sink: Location) -> int:
    """Return the newest batch in the log, -1 when there is none."""
    return max((batch_of(one) for one in file_sink_log.entries(sink)), default=-1)


def unreadable_files(output: OutputVersion) -> list[str]:
    """Return a pinned version's data files that are gone; the log must still reach it."""
    sink = Location.of(output.uri)
    there, wanted = _state_at(output)
    log, root = sink / LOG, f"{sink.uri.path}/"
    places = [_source(sink, name, wanted[name], there) for name in sorted(wanted, key=order)]
    listed = {
        path for data in in_parallel(log.get, places) for path in file_sink_log.data_files(data)
    }
    found = {info.path for info in sink.list()}
    return sorted(path for path in listed if path.partition(root)[2] not in found)


def require_reachable(output: OutputVersion) -> None:
    """Check that the log can be taken to a version."""
    _state_at(output)


def lost_interval(output: OutputVersion) -> int | None:
    """Return how often the log is compacted, if that can no longer be seen at a version.

    Spark takes the interval from the two newest compact entries; with fewer, from its settings.
    """
    there, wanted = _state_at(output)
    compact = sorted(batch_of(one) for one in there if one.endswith(COMPACT))
    *_, before, last = [-1, -1, *compact]
    left = [one for one in wanted if one.endswith(COMPACT)]
    return last - before if before >= 0 and len(left) <= 1 else None


def is_at(output: OutputVersion) -> bool:
    """Return True if the log is already at a version."""
    there, wanted = _state_at(output)
    return there == wanted


def is_overtaken(output: OutputVersion, operation_id: str, committed: int) -> bool:
    """Return True if the log went on after an operation had taken it back.

    Args:
        committed: The newest batch that the query had; up to it the next generation has written.
    """
    sink = Location.of(output.uri)
    begun = _read(sink, operation_id)
    if begun is None or not begun.done:
        return False
    return not output.version <= newest_batch(sink) <= max(output.version, committed)


def take_back(output: OutputVersion, newest: int, operation_id: str) -> int:
    """Make the log what it was at a version; goes on where it was killed, and does nothing twice.

    Returns:
        The newest batch that the log has now, -1 when it has none.
    """
    sink = Location.of(output.uri)
    begun = _read(sink, operation_id)
    if begun is None:
        if newest_batch(sink) != newest:
            raise changed(sink, newest)
        before, wanted = _state_at(output)
        begun = _Operation(before, wanted)
        _write(sink, operation_id, begun)
        faults.reach("file_sink.begun")
    if not begun.done:
        _make(sink, begun.wanted, begun, operation_id)
        _write(sink, operation_id, _Operation(begun.before, begun.wanted, done=True))
    return output.version


def put_back(output: OutputVersion, newest: int, operation_id: str) -> int | None:
    """Make the log what it was before an operation.

    Returns:
        The newest batch that the log has now; None when there was nothing to undo.
    """
    sink = Location.of(output.uri)
    begun = _read(sink, operation_id)
    if begun is None:
        return None
    undoing = _Operation(begun.before, begun.wanted)
    # From here on it is not done, should this be killed too and the operation be run again.
    _write(sink, operation_id, undoing)
    _make(sink, begun.before, undoing, operation_id)
    faults.reach("file_sink.put_back")
    aside = f"{_ASIDE}/{operation_id}"
    log = sink / LOG
    log.delete(one.path for one in log.list(aside) if not one.path.endswith(_DOCUMENT))
    log.delete([f"{aside}/{_DOCUMENT}"])
    return newest


def _make(sink: Location, target: Entries, begun: _Operation, operation_id: str) -> None:
    """Set aside what the target does not have, the newest first; put back the rest in order."""
    log, there = sink / LOG, file_sink_log.hashed(sink)
    known = [(begun.before.get(name), begun.wanted.get(name)) for name in there]
    if since := [name for name, shas in zip(there, known, strict=True) if there[name] not in shas]:
        raise _written_since(sink, since)
    for name in sorted(there, key=order, reverse=True):
        if target.get(name) == there[name]:
            continue
        aside = f"{_ASIDE}/{operation_id}/{name}"
        if begun.before.get(name) == there[name]:
            log.copy_from(log, name, aside)
        _forget_checksum(log, name)
        log.delete([name])
        faults.reach(f"file_sink.without_{name}")
        del there[name]
    for name in sorted(target, key=order):
        if name not in there:
            source = _source(sink, name, target[name])
            _forget_checksum(log, name)
            log.copy_from(log, source, name)
            faults.reach(f"file_sink.with_{name}")


def _forget_checksum(log: Location, name: str) -> None:
    """Remove the checksum that Hadoop keeps beside a file on a local disk.

    A file without one is read; one with that of another file of the same name is refused.
    """
    log.delete([f".{name}.crc"])


def _state_at(output: OutputVersion) -> tuple[Entries, Entries]:
    """Return what the log has, and what it had at a version, if it can be taken there.

    That is found among the entries that are there, or among those that an operation had before
    it set some of them aside.
    """
    sink = Location.of(output.uri)
    if not is_one(sink):
        raise NotFoundError(
            f"there is no log of Spark's file sink at {sink}",
            hint="correct the URI of the output",
            uri=str(sink),
        )
    there = file_sink_log.hashed(sink)
    if output.version < 0:
        return there, {}
    for state in (there, *_befores(sink)):
        needed = file_sink_log.needed(state, output.version)
        if needed is None or file_sink_log.fingerprint(state, needed) != output.table_id:
            continue
        # Older entries that are still there lie before the compact one, and nobody reads them.
        first = order(needed[0])
        wanted = {
            name: sha
            for name, sha in state.items()
            if name in needed or (order(name) < first and there.get(name) == sha)
        }
        for name in needed:
            _source(sink, name, state[name], there)
        return there, wanted
    raise FileSinkError(
        f"{sink} cannot be rewound to batch {output.version}: neither its log nor its "
        "saved copies have the entries of that batch (they were overwritten, or compacted and "
        "deleted)",
        hint=f"roll back to a newer savepoint; or {REBUILD_OUTPUT}",
        uri=str(sink),
        batch_id=output.version,
    )


def _source(sink: Location, name: str, sha: str, there: Entries | None = None) -> str:
    """Return where an entry with certain bytes is, relative to the log."""
    log = sink / LOG
    if (there if there is not None else file_sink_log.hashed(sink, [name])).get(name) == sha:
        return name
    for info in log.list(_ASIDE):
        if info.path.rpartition("/")[2] == name and log.sha256(info.path) == sha:
            return info.path
    raise FileSinkError(
        f"the entry {name} is missing from the log of {sink}: it was compacted and deleted",
        hint=f"roll back to a newer savepoint; or {REBUILD_OUTPUT}",
        uri=str(sink),
    )


def _befores(sink: Location) -> Iterator[Entries]:
    """Return what the log had before each operation, the newest first."""
    log = sink / LOG
    found = [one for one in log.list(_ASIDE) if one.path.endswith(f"/{_DOCUMENT}")]
    for info in sorted(found, key=lambda one: one.path, reverse=True):
        yield json.loads(log.get(info.path))["before"]


def _read(sink: Location, operation_id: str) -> _Operation | None:
    try:
        data = (sink / LOG).get(f"{_ASIDE}/{operation_id}/{_DOCUMENT}")
    except FileNotFoundError:
        return None
    return _Operation(**json.loads(data))


def _write(sink: Location, operation_id: str, operation: _Operation) -> None:
    (sink / LOG).put(f"{_ASIDE}/{operation_id}/{_DOCUMENT}", operation.to_bytes())


def _written_since(sink: Location, names: list[str]) -> NotAlignedError:
    """Return the error for entries that came while an operation was unfinished."""
    return NotAlignedError(
        f"{sink} was written to while an operation on it was unfinished: its log has entries that "
        f"the operation does not know: {', '.join(sorted(names, key=order))}",
        hint=f"stop everything that writes to this output, delete these files from {sink / LOG} "
        "(the query writes their batches again), then run the command again",
        uri=str(sink),
    )


def changed(sink: Location, newest: int) -> NotAlignedError:
    """Return the error for a sink that was written to since a plan was made."""
    return NotAlignedError(
        f"{sink} has been written to since the plan was made: its newest batch was {newest} and "
        f"is now {newest_batch(sink)}",
        hint="stop everything that writes to this output, then run the command again",
        uri=str(sink),
    )
