"""What is asked of a savepoint before it becomes a checkpoint again, and of the copy afterwards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from savepoints.checkpoint import position
from savepoints.checkpoint.logs import source_positions
from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.checkpoint.logs.source_kind import kind_of
from savepoints.checkpoint.logs.source_positions import Starts
from savepoints.checkpoint.state.operators import (
    Operator,
    goes_by_clock,
    has_variables,
    is_metadata,
    parse,
)
from savepoints.errors import (
    IncompatibleError,
    NotAlignedError,
    NotFoundError,
    SavepointsError,
    SourceDataGoneError,
    UnfinishedOperationError,
    VerificationError,
)
from savepoints.io import Location, in_parallel
from savepoints.model import Savepoint
from savepoints.operations.savepoint import history
from savepoints.outputs.delta import batch_version
from savepoints.outputs.delta.write import owner_prefix
from savepoints.sources import input_files, source_logs
from savepoints.sources.source_logs import SourceLogs
from savepoints.store import bindings, lineage
from savepoints.store.locks import journal
from savepoints.store.root import Store
from savepoints.store.savepoint import manifest
from savepoints.store.savepoint.manifest import Manifest, StoredFile
from savepoints.texts import count_text

# Bytes of a file that is read in no time.
_ALWAYS_READ = 1 << 20
_ACCEPT = "--accept-unreplayable"
_OTHER = (
    "choose another savepoint (savepoints list), or list all damaged files: savepoints verify {}"
)


@dataclass(frozen=True)
class Accepts:
    """What somebody accepts who restores.

    Attributes:
        broken: A savepoint that `verify` found broken.
        seen: A table that would drop the next batches, because it has them already.
        unreplayable: A source that keeps nothing, or files that are gone, so that rows are lost.
    """

    broken: bool
    seen: bool
    unreplayable: bool


@contextmanager
def damage_named(savepoint_id: str) -> Iterator[None]:
    """Report a savepoint as damaged when a file of it that is read is missing."""
    try:
        yield
    except FileNotFoundError as gone:
        raise VerificationError(
            f"savepoint {savepoint_id} is damaged: {gone} is missing",
            hint=_OTHER.format(savepoint_id),
            savepoint=savepoint_id,
            files=[str(gone)],
        ) from None


def require_present(store: Store, savepoint: Savepoint, files: Sequence[StoredFile]) -> None:
    """Check that files of a savepoint are there and have their sizes, without reading them."""
    prefixes = (manifest.directory(savepoint.id), f"files/{savepoint.query_id}")
    there = {info.path: info.size for prefix in prefixes for info in store.root.list(prefix)}
    wrong = [file.stored_at for file in files if there.get(file.stored_at) != file.size]
    if wrong:
        raise VerificationError(
            f"savepoint {savepoint.id} is damaged: {count_text(len(wrong), 'file')} "
            f"missing or truncated (first: {wrong[0]})",
            hint=_OTHER.format(savepoint.id),
            savepoint=savepoint.id,
            files=wrong,
        )


def refuse_broken(savepoint: Savepoint) -> None:
    """Refuse a savepoint that `verify` found broken."""
    if savepoint.state == "broken":
        raise VerificationError(
            f"savepoint {savepoint.id} is broken: {savepoint.state_reason}",
            hint="choose another savepoint (savepoints list), check this one again "
            f"(savepoints verify {savepoint.id}), or use it anyway with --even-broken, which "
            "restore, rollback, fork and drill have",
            savepoint=savepoint.id,
        )


def require_read_again(
    store: Store,
    query: str,
    saved: SourceLogs,
    *,
    sources: Starts | None = None,
    accept: str = _ACCEPT,
) -> list[str]:
    """Refuse to go on from a batch where a source cannot give again what it gave since.

    Kafka and Delta refuse by themselves what they no longer have. A socket keeps nothing, and a
    file source passes over files that are gone without a word.

    Args:
        sources: Where each source goes on; by default where it was.
        accept: The option by which a command does without.

    Returns:
        What a person should know of files that are there.

    Raises:
        IncompatibleError: If a source keeps nothing.
        SourceDataGoneError: If files that were read since are gone.
    """
    if sources is not None:
        saved = saved.only(source_positions.kept(sources, saved.offsets.names))
    if found := source_positions.unreplayable(saved.offsets.positions, saved.entries):
        raise IncompatibleError(
            f"{unreplayable_text(query, found)}, so records after batch {saved.batch_id} would be "
            "lost",
            hint=f"accept the loss with {accept}; in the future, read from Kafka, files or tables",
            query=query,
            sources=list(found),
        )
    # A source that had read nothing yet has no position, which would say of what kind it is.
    if not any(at is None or kind_of(at) == "files" for at in saved.offsets.sources):
        return []
    try:
        generations = store.generations.all(query)
    except VerificationError as damaged:
        return [_unknown(query, saved, damaged.message)]
    if not generations:
        return []
    return _require_files(query, saved, Location.of(generations[0].checkpoint), accept)


def unreplayable_text(query: str, sources: Sequence[str]) -> str:
    """Say of sources of a query that they cannot be read again."""
    which = f"source{'' if len(sources) == 1 else 's'} {', '.join(sources)}"
    return (
        f"{query} cannot read the records of {which} again: like Spark's socket source, this kind "
        "of source counts its records but does not keep them"
    )


def _require_files(query: str, saved: SourceLogs, checkpoint: Location, accept: str) -> list[str]:
    """Look for the files that were read up to where a query is now, and not by a batch."""
    try:
        newest = position.newest_in(checkpoint, "offsets")
        since = source_logs.of_checkpoint(checkpoint, newest).files_since(saved)
    except (FileNotFoundError, IncompatibleError):
        return [_unknown(query, saved, f"{checkpoint} does not say it")]
    try:
        unlike = input_files.look(since)
    except SavepointsError as error:
        error.hint = f"{error.hint}; or do not look for the files: {accept}"
        raise
    files = count_text(len(since), "file")
    which = f"of {files} that {query} has read since batch {saved.batch_id}"
    if unlike.gone:
        raise SourceDataGoneError(
            f"{which}, {len(unlike.gone)} are gone (first: {unlike.gone[0]}), so their records "
            "would be lost",
            hint=f"copy them back to where they were, or accept the loss with {accept}",
            query=query,
            files=list(unlike.gone),
        )
    again = f"{which}, {len(unlike.changed)} were written again"
    what = "what is in them now will be read"
    return [f"{again} (first: {first}): {what}" for first in unlike.changed[:1]]


def _unknown(query: str, saved: SourceLogs, why: str) -> str:
    return (
        f"it is unknown which files {query} has read since batch {saved.batch_id}, because "
        f"{why}: those that are gone by now will not be read again"
    )


def logs_of(store: Store, stored: Manifest) -> SourceLogs:
    """Return what a savepoint has of its sources."""
    places = {one.path: one.stored_at for one in stored.native}
    with damage_named(stored.savepoint.id):
        return source_logs.of_files(store.root, stored.savepoint.cut.batch_id, places)


def require_usable(
    store: Store,
    savepoint: Savepoint,
    stored: Manifest,
    accepts: Accepts | None,
    *,
    sources: Starts | None,
    query_id: str | None,
) -> tuple[str, ...]:
    """Refuse a savepoint from which no query could go on exactly.

    Args:
        savepoint: As the catalog has it, which knows what `verify` found.
        accepts: None if another verb has asked all of this.
        sources: Where each source goes on; by default where it was.
        query_id: Spark's id of the query that goes on, None for that of the savepoint's.

    Returns:
        What a person should know of the others.

    Raises:
        VerificationError: If it is broken.
        NotAlignedError: If a table would silently drop what comes next.
        IncompatibleError: If a source keeps nothing.
        SourceDataGoneError: If files that were read since are gone.
    """
    if accepts is None:
        return ()
    if not accepts.broken:
        refuse_broken(savepoint)
    notes: list[str] = []
    if not accepts.seen and query_id is None:
        refuse_seen(savepoint)
        notes += unknown_outputs(savepoint)
    if query_id is not None:
        notes += file_sinks(savepoint)
    if sources is None:
        notes += topics_read_again(store, savepoint)
    if not accepts.unreplayable:
        notes += require_read_again(store, savepoint.query, logs_of(store, stored), sources=sources)
    return tuple(notes)


def unknown_outputs(savepoint: Savepoint) -> tuple[str, ...]:
    """Return what a person should know of a savepoint whose tables nobody knows."""
    if savepoint.outputs:
        return ()
    note = (
        f"the output tables of {savepoint.query} are unknown: a table that has already seen these "
        "batches "
    )
    return (note + "silently drops them when they run again",)


def file_sinks(savepoint: Savepoint) -> tuple[str, ...]:
    """Say which outputs a new query cannot write in the same way to a place of its own."""
    following = savepoint.cut.batch_id + 1
    return tuple(
        f"{one.uri} is written by Spark's file sink, which cannot begin in an empty directory with "
        f"batch {following}: Spark could not read it, and the new query would fail when the sink "
        "compacts its log; let the new query write a Delta table"
        for one in savepoint.outputs
        if one.kind == "files"
    )


def topics_read_again(
    store: Store, savepoint: Savepoint, *, besides: Collection[str] = ()
) -> Iterator[str]:
    """Say which topics may have records after a savepoint's offsets that were rolled back.

    A table cannot be read across its rewind: Delta fails. A topic keeps what was rolled back, and
    reads as if nothing had happened.

    Args:
        besides: Topics that are not read again from there.
    """
    yield from rolled_back_since(
        store,
        savepoint.query,
        lowest_offsets(savepoint.cut.offsets).keys() - {*besides},
        savepoint.id,
        savepoint.created_at,
    )


def rolled_back_since(
    store: Store, query: str, topics: Collection[str], point: str, then: datetime
) -> Iterator[str]:
    """Say that of a point that need not be saved.

    Args:
        topics: What the query reads again from there.
        point: What to call it.
        then: When it was saved, or committed.
    """
    if not topics:
        return
    later = [
        one for one in store.generations.all() if one.query != query and lineage.reruns(one, then)
    ]
    if not later:
        return
    known, settings = store.catalog.all(), bindings.complete(store)
    names = {one.query for one in later}
    written = {name: {*history.output_topics(known, name, settings)} for name in names}
    for writer in later:
        for topic in sorted({*topics} & written[writer.query]):
            yield (
                f"{query} will read topic {topic} from the offsets of {point} "
                f"on, but {writer.query}, which writes the topic, has since begun "
                f"generation {writer.generation} ({writer.begun_by}), so records in between that "
                "were rolled back will be read as well; to avoid this, choose a later savepoint"
            )


def clock_notes(store: Store, saved: Savepoint) -> list[str]:
    """Say which operators of a savepoint go by the time at which batches run."""
    # Nothing is read of others: the plans of most queries need none of it.
    if not any(has_variables(one.name) for one in saved.operators):
        return []
    return of_clock(_operators_of(store, store.manifest(saved.id)))


def of_clock(operators: Iterable[Operator]) -> list[str]:
    """Say which operators do not do again what they did, as it is later when batches run again."""
    return [
        f"operator {one.operator_id} ({one.name}) has timers and TTLs by processing time: what the "
        "query reads again comes later than it did, so timers fire and values expire by that time"
        for one in operators
        if goes_by_clock(one)
    ]


def _operators_of(store: Store, stored: Manifest) -> list[Operator]:
    """Return what the operator metadata of a savepoint says; damaged files are left out."""
    found = {}
    for file in stored.small_files:
        if is_metadata(file.path):
            # Whoever restores it is told what is damaged.
            with suppress(FileNotFoundError, IncompatibleError):
                one = parse(store.root.get(file.stored_at), file.path)
                found[one.operator_id] = one
    return [found[one] for one in sorted(found)]


def refuse_rolling_back(store: Store, savepoint: Savepoint) -> None:
    """Refuse a savepoint while records of a topic that it reads are being rolled back.

    Which they are nobody can say before: some may be in its state, or be read next.

    Raises:
        UnfinishedOperationError: If they are.
    """
    topics = lowest_offsets(savepoint.cut.offsets).keys()
    for one in journal.all_unfinished(store.root):
        behind = {
            read["topic"] for member in one.members.values() for read in member["topic_reads"]
        }
        for topic in sorted(topics & behind):
            ended = journal.refusal(store.root, one).hint
            raise UnfinishedOperationError(
                f"{one.verb} {one.id} of {one.query} is not finished, and it rolls back records "
                f"of topic {topic}, which {savepoint.query} reads",
                hint=f"wait for it; or, if it was interrupted, {ended}",
                query=savepoint.query,
                operation=one.id,
                topic=topic,
            )


def refuse_seen(savepoint: Savepoint) -> None:
    """Refuse where a table has batches after the savepoint's under an id that the query keeps.

    Delta's sink goes by Spark's id of the query, which a restored checkpoint has as well, and drops
    batches that the table has seen without a word.
    """
    for one in savepoint.outputs:
        if one.kind != "delta" or one.app_id.startswith(owner_prefix(savepoint.query)):
            continue
        try:
            newest = batch_version.open_table(one.uri).transaction_version(one.app_id)
        except NotFoundError:
            continue
        batch = savepoint.cut.batch_id
        if newest is not None and newest > batch:
            raise NotAlignedError(
                f"{one.uri} already has the batches of {savepoint.query} up to {newest}, but "
                f"the restored query would continue with batch {batch + 1}, and Delta would "
                f"silently drop all batches up to {newest}",
                hint=f"rewind the table as well: savepoints rollback {savepoint.id}; or use "
                "--outputs none if the program writes to other tables, or --new-query-id for a "
                "second query with a table of its own",
                uri=one.uri,
                output=one.name,
            )


def require_intact(store: Store, savepoint_id: str, files: Sequence[StoredFile]) -> None:
    """Compare files with their checksums before anything is made of them, and name damaged ones.

    Small files are always read; large ones, which the object store copies by itself, if
    `[restore] verify` says so.
    """
    read = [one for one in files if store.settings.restore.verify or one.size <= _ALWAYS_READ]
    with damage_named(savepoint_id):
        hashes = in_parallel(lambda one: store.root.sha256(one.stored_at), read)
    wrong = [one.stored_at for one, found in zip(read, hashes, strict=True) if found != one.sha256]
    if wrong:
        raise VerificationError(
            f"savepoint {savepoint_id} is damaged: {count_text(len(wrong), 'file')} failed the "
            f"SHA-256 check against the manifest (first: {wrong[0]})",
            hint=_OTHER.format(savepoint_id),
            savepoint=savepoint_id,
            files=wrong,
        )


def check_copies(target: Location, files: Sequence[StoredFile]) -> None:
    """Compare what lies in the target with the savepoint before it becomes a checkpoint."""
    there = {info.path: info.size for info in target.list()}
    wrong = [
        file.path for file in files if file.path != "metadata" and there.get(file.path) != file.size
    ]
    if wrong:
        raise NotAlignedError(
            f"{target} differs from the savepoint in {count_text(len(wrong), 'file')} "
            f"(first: {wrong[0]})",
            hint="run the command again; do not start the query from this directory",
            files=wrong,
        )
