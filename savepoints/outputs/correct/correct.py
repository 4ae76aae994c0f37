"""Correcting a table: the rows of some entities become what a replay says they should be.

One commit for each table. It replaces only rows that differ, carries the id under which the next
generation writes the table, at the batch at which that one begins, and says that it is a correction
(ADR 18). The id makes a repetition write nothing, and tells the version of that batch from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from savepoints.errors import (
    REBUILD_OUTPUT,
    FileSinkError,
    IncompatibleError,
    NotAlignedError,
    NotFoundError,
    OutputVersionGoneError,
)
from savepoints.io import Location
from savepoints.model import OutputVersion
from savepoints.outputs.correct import commit, desired_rows
from savepoints.outputs.correct.commit import Mark
from savepoints.outputs.correct.entity_rows import EntityRows, read_own_rows
from savepoints.outputs.correct.row_difference import Counts, Differing
from savepoints.outputs.delta import batch_version, writable
from savepoints.outputs.delta.missing_files import unreadable_files
from savepoints.outputs.delta.row_selection import EVERYTHING, RowSelection
from savepoints.outputs.delta.write import Mode
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.planned_rewind import BEFORE_FIRST_BATCH, Rewind
from savepoints.spark.session import session_like
from savepoints.texts import count_text
from savepoints.uri import Uri

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

_APPEND = "merge with --policy append, which corrects no table"


@dataclass(frozen=True)
class Correction:
    """What will be corrected in one table.

    Attributes:
        live: The live table, and which of its rows are the query's.
        mode: How the query writes it.
        key: Columns that identify a row, for `upsert`.
        entity: Column with the entity that a row is about; None when all rows are replaced.
        app_id: Application id under which the next generation writes the table.
        batch_id: The batch at which the next generation begins.
        merge_id: The merge.
        selection: Which part of the program's result the table has.
    """

    live: Rewind
    mode: Mode
    key: tuple[str, ...]
    entity: str | None
    app_id: str
    batch_id: int
    merge_id: str
    selection: RowSelection = EVERYTHING


@dataclass(frozen=True)
class Corrected:
    """What a correction did."""

    version: int
    rows_removed: int
    rows_added: int
    entities: int


def plan(
    name: str,
    uri: str,
    bases: Sequence[OutputVersion | None],
    *,
    mode: Mode,
    key: tuple[str, ...],
    entity: str | None,
    owner: str,
    own_ids: Sequence[str],
    app_id: str,
    batch_id: int,
    merge_id: str,
    own_rows: str | None,
    selection: RowSelection = EVERYTHING,
) -> Correction:
    """Find out whether a table can be corrected without loss, now that its query stands still.

    Args:
        bases: It at each base savepoint that is used; None for entities that begin without state.
        key: Columns that identify a row, for `upsert`.
        entity: Column with the entity that a row is about; None to replace all rows.
        own_rows: SQL predicate which is true for the query's rows alone, for a shared table.
        selection: Which part of the program's result the table has.

    Raises:
        OutputVersionGoneError: If a base can no longer be read; another base may do.
    """
    table = _open(uri)
    rewind.engine_for(table, uri, int(table.version()), own_rows, instead=_APPEND)
    writable.refuse_identity(table, uri)
    if entity is not None:
        require_entity(table, uri, entity)
    for base in bases:
        if base is not None:
            require_base(base, uri)
    live = _live(name, uri, table, bases, owner, own_ids, app_id, own_rows)
    return Correction(live, mode, key, entity, app_id, batch_id, merge_id, selection)


def what(correction: Correction) -> str:
    """Describe it as a step of a plan."""
    if correction.entity is None:
        return (
            f"replace all rows of the query in {correction.live.output.uri}, in one commit "
            "marked as a correction"
        )
    return (
        f"correct the rows of the affected entities in {correction.live.output.uri}, in one "
        "commit marked as a correction"
    )


def execute(
    spark: SparkSession, correction: Correction, entities: DataFrame | None, replayed: DataFrame
) -> Corrected:
    """Replace the rows that differ, or all, in one commit; done before, nothing happens.

    Args and errors as for `compare` and `carry_out`.
    """
    return carry_out(correction, compare(spark, correction, entities, replayed))


def compare(
    spark: SparkSession, correction: Correction, entities: DataFrame | None, replayed: DataFrame
) -> Change | None:
    """Find out what a correction will change in its table, which stays as it is.

    Args:
        entities: `entity` string, each once, and `version` bigint: of the table at its base, null
            for one that begins with nothing. None when all rows are replaced.
        replayed: The program's columns and `replay_slice`: all that the replay wrote. Rows of
            entities that are not among these are left out.

    Returns:
        What `carry_out` commits; None when that was done before.

    Raises:
        IncompatibleError: If the replayed rows are no rows of the table.
        SeveralRowsError: If two have one key in one slice.
    """
    table = batch_version.open_table(correction.live.output.uri)
    if _reached(correction) == correction.batch_id:
        return None
    if correction.entity is None or entities is None:
        return _all_rows(spark, correction, replayed)
    rows = _rows(spark, correction, entities, replayed)
    found = rows.differing(entities, replayed)
    found.frame.persist()
    try:
        return _SomeRows(table, rows, found, found.counts())
    except BaseException:
        found.frame.unpersist()
        raise


def carry_out(correction: Correction, change: Change | None) -> Corrected:
    """Commit what `compare` has found.

    Raises:
        NotAlignedError: If the table was changed since the correction was planned.
    """
    output = correction.live.output
    if change is None:
        return _done(output.uri, correction)
    refuse_changed(correction)
    app_id, batch_id = correction.app_id, correction.batch_id
    change.write(Mark(correction.merge_id, output.name, app_id, batch_id, 0, 0, 0))
    return _done(output.uri, correction)


class Change(Protocol):
    """What one commit changes in a table."""

    def write(self, mark: Mark) -> None:
        """Commit it.

        Args:
            mark: What the commit says of itself, still without its numbers of rows.
        """

    def release(self) -> None:
        """Let go of rows that are kept for it; let go before, nothing happens."""


@dataclass(frozen=True)
class _SomeRows:
    """Rows that differ, kept until they are written."""

    table: DeltaTable
    rows: EntityRows
    found: Differing
    counts: Counts

    def write(self, mark: Mark) -> None:
        counted = replace(
            mark,
            rows_removed=self.counts.rows_removed,
            rows_added=self.counts.rows_added,
            entities=self.counts.entities,
        )
        try:
            commit.write(self.table, self.rows, self.found, self.counts, counted)
        finally:
            self.release()

    def release(self) -> None:
        self.found.frame.unpersist()


@dataclass(frozen=True)
class _AllRows:
    """All rows of the query, in place of those that the table has."""

    live: Rewind
    rows: DataFrame
    removed: int
    added: int

    def write(self, mark: Mark) -> None:
        counted = replace(mark, rows_removed=self.removed, rows_added=self.added)
        commit.mark_session(self.rows.sparkSession, counted)
        writer = self.rows.write.format("delta").mode("overwrite")
        if self.live.own_rows is not None:
            writer = writer.option("replaceWhere", self.live.own_rows)
        writer.save(Uri.parse(self.live.output.uri).hadoop)

    def release(self) -> None:
        """Nothing is kept."""


def _all_rows(spark: SparkSession, correction: Correction, replayed: DataFrame) -> _AllRows:
    live, mode, uri = correction.live, correction.mode, correction.live.output.uri
    own = session_like(spark)
    table = read_own_rows(own, live, live.newest)
    rows = desired_rows.written(replayed, table, uri, mode, correction.selection)
    if mode == "upsert":
        desired_rows.refuse_several(rows, correction.key, uri)
    nothing = table.limit(0)
    # Of the session that has the transaction, whatever the replayed rows are of.
    wanted = nothing.unionByName(desired_rows.content(nothing, rows, mode, correction.key))
    return _AllRows(live, wanted, table.count(), wanted.count())


def differing(
    spark: SparkSession, correction: Correction, entities: DataFrame, replayed: DataFrame
) -> Differing:
    """Return the rows that `execute` would replace; nothing is written.

    Args and errors as for `execute`.
    """
    return _rows(spark, correction, entities, replayed).differing(entities, replayed)


def entity_rows(spark: SparkSession, correction: Correction) -> EntityRows:
    """Open the table of a correction that is about some entities."""
    assert correction.entity is not None, "only a replay of everything replaces all rows"
    return EntityRows.of(
        spark,
        correction.live,
        correction.entity,
        correction.mode,
        correction.key,
        correction.selection,
    )


def _rows(
    spark: SparkSession, correction: Correction, entities: DataFrame, replayed: DataFrame
) -> EntityRows:
    rows = entity_rows(spark, correction)
    rows.require_applicable(replayed)
    rows.refuse_taken_keys(entities, replayed)
    return rows


def undo(correction: Correction, operation_id: str, spark: SparkSession | None = None) -> None:
    """Bring the table back to what it was, if nobody wrote since; not done, nothing happens.

    Args:
        spark: From `rewind.session_for`.
    """
    live = correction.live
    table = batch_version.open_table(live.output.uri)
    reached = _reached(correction)
    if reached is None or reached < correction.batch_id:
        return
    if reached > correction.batch_id:
        raise NotAlignedError(
            f"{live.output.uri} already has batch {reached} of the generation that the merge "
            "began, so undoing the merge would lose the rows of that batch",
            hint="roll back to a savepoint from before the merge instead: savepoints rollback NAME",
            uri=live.output.uri,
            batch_id=reached,
        )
    rewind.refuse_changed(live)
    rewind.put_back(live, table, {correction.app_id: BEFORE_FIRST_BATCH}, operation_id, spark)


def is_done(correction: Correction) -> bool:
    """Return True if the table has been corrected."""
    reached = _reached(correction)
    return reached is not None and reached >= correction.batch_id


def _reached(correction: Correction) -> int | None:
    """Return the newest batch under the correction's id since it was planned, None if none."""
    live, app_id = correction.live, correction.app_id
    last = batch_version.commit_under(live.output.uri, app_id, live.newest)
    return None if last is None else last.transactions[app_id]


def refuse_changed(correction: Correction) -> None:
    """Refuse to go on when a commit changed rows of the table since the plan, and name it."""
    live = correction.live
    rewind.refuse_changed(live)
    changing = [
        one for one in batch_version.commits_since(live.output.uri, live.newest) if one.changes_data
    ]
    own = [
        one
        for one in changing
        if live.own_rows is None or one.written_by(live.owner, tuple(live.transactions))
    ]
    if own:
        raise NotAlignedError(
            f"{live.output.uri} was written to during the merge: version "
            f"{own[-1].version} ({own[-1].operation}) was committed after version {live.newest}",
            hint="pause the query while its outputs are corrected, and run the merge again",
            uri=live.output.uri,
            versions=[one.version for one in own],
        )


def require_entity(table: DeltaTable, uri: str, entity: str) -> None:
    """Check that a table says which entity a row is about."""
    names = [field.name for field in table.schema().fields]
    if entity.casefold() not in {name.casefold() for name in names}:
        raise IncompatibleError(
            f"{uri} has no column {entity!r}, so it is unknown which entity a row belongs to",
            hint="in the application, name the column that holds the entity: Output(…, "
            f"entity_key=…) (the table has {', '.join(names)}); or replace all rows: savepoints "
            "merge QUERY --policy replay-all",
            uri=uri,
            column=entity,
        )


def _open(uri: str) -> DeltaTable:
    try:
        return batch_version.open_table(uri)
    except FileSinkError:
        raise FileSinkError(
            f"{uri} is written by Spark's file sink, where single rows cannot be replaced",
            hint="write to a Delta table instead, or rebuild the output: savepoints reset "
            "QUERY --to-earliest --outputs truncate",
            uri=uri,
        ) from None


def require_base(base: OutputVersion, uri: str) -> None:
    """Check that rows can be taken from a base: a version of this table, with its columns.

    Raises:
        OutputVersionGoneError: If it cannot be read; another base may do.
    """
    table = batch_version.open_table(uri)
    if base.table_id != batch_version.table_id(table):
        raise _gone(
            base,
            f"the table there now is a different one, with the id {batch_version.table_id(table)}",
        )
    try:
        then = batch_version.open_table(base.uri, base.version)
        lost = unreadable_files(base)
    except NotAlignedError as error:
        raise _gone(base, error.message) from None
    if lost:
        raise _gone(base, f"it lacks {count_text(len(lost), 'file')} (first: {lost[0]})")
    known = {field.name: str(field.type) for field in then.schema().fields}
    now = {field.name: str(field.type) for field in table.schema().fields}
    if changed := [name for name, kind in known.items() if now.get(name) != kind]:
        raise IncompatibleError(
            f"the column {changed[0]} of {uri} was dropped or has changed type since version "
            f"{base.version}, so rows of that version cannot be restored",
            hint=REBUILD_OUTPUT,
            uri=uri,
            version=base.version,
            columns=changed,
        )


def _gone(base: OutputVersion, why: str) -> OutputVersionGoneError:
    return OutputVersionGoneError(
        f"version {base.version} of {base.uri} cannot be read: {why}",
        hint=REBUILD_OUTPUT,
        uri=base.uri,
        version=base.version,
    )


def _live(
    name: str,
    uri: str,
    table: DeltaTable,
    bases: Sequence[OutputVersion | None],
    owner: str,
    own_ids: Sequence[str],
    app_id: str,
    own_rows: str | None,
) -> Rewind:
    """Return the table as it is; refuse when rows since the oldest base are not the query's own."""
    versions = [one.version for one in bases if one is not None]
    if len(versions) < len(bases):
        # Of an entity that begins with nothing all rows go, so none may ever have been another's.
        emptied = rewind.plan_empty(
            name, uri, owner, tuple(own_ids), app_id, own_rows, instead=_APPEND
        )
        live = replace(emptied, empty=False)
    else:
        output = OutputVersion(
            name,
            str(Location.of(uri)),
            batch_version.table_id(table),
            int(table.version()),
            app_id,
            None,
        )
        ids = dict.fromkeys([*own_ids, app_id], BEFORE_FIRST_BATCH)
        engine = rewind.engine_for(table, uri, output.version, own_rows, instead=_APPEND)
        live = Rewind(output, output.version, ids, owner, own_rows, engine=engine)
    rewind.refuse_changed(replace(live, newest=min(versions, default=live.newest)))
    return live


def _done(uri: str, correction: Correction) -> Corrected:
    """Read what the commit of a correction says of it."""
    version, mark = commit.find_correction(uri, correction.app_id, correction.batch_id)
    if mark is None:
        raise NotFoundError(
            f"the table {uri} has batch {correction.batch_id} of {correction.app_id}, but that "
            "batch is not a correction",
            hint=f"see who wrote the batch, with Spark SQL: DESCRIBE HISTORY delta.`{uri}`",
            uri=uri,
        )
    return Corrected(version, mark.rows_removed, mark.rows_added, mark.entities)
