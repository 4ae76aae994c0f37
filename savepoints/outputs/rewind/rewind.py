"""Taking an output back to a version: its rows and what makes it skip batches, together.

Delta's RESTORE alone leaves the `txn` entries, and then every replayed batch is taken for one that
was already written and silently dropped (delta-io/delta#1813). deltalake can put lowered `txn`
actions into the same commit, which the protocol allows; for tables that it cannot write Delta's own
engine does so, in a Spark session (`spark_commit`). What Spark's file sink needs is in
`file_sink`; callers need not know which of the two an output is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from savepoints.config.settings import Settings
from savepoints.errors import LEAVE_OUTPUTS, FileSinkError, NotAlignedError, NotFoundError
from savepoints.io import Location
from savepoints.model import OutputVersion, is_id
from savepoints.outputs.delta import batch_version, log, writable
from savepoints.outputs.delta.missing_files import unreadable_files
from savepoints.outputs.delta.writable import Engine
from savepoints.outputs.file_sink import file_sink
from savepoints.outputs.rewind import altered, rewind_commit, shared_table, spark_commit
from savepoints.outputs.rewind.planned_rewind import BEFORE_FIRST_BATCH, Rewind
from savepoints.spark import delta_transaction
from savepoints.texts import count_text
from savepoints.uri import Uri

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

_OPERATION_VERSION = 1
_UNDONE = 0


def plan(
    output: OutputVersion,
    owner: str,
    new_app_id: str,
    own_rows: str | None = None,
    own_ids: Sequence[str] = (),
) -> Rewind:
    """Find out what taking an output back would mean, and refuse what would lose others' rows.

    Args:
        new_app_id: Application id under which the next generation writes; a query that writes under
            its own id continues with the old one.
        own_rows: SQL predicate which is true for the query's rows alone, for a table that others
            write to as well.
        own_ids: Other application ids that are the query's own, whole; they go back, too.

    Raises:
        IncompatibleError: If the table has features that cannot be written.
    """
    if output.kind == "files":
        _refuse_predicate(output.uri, own_rows)
        file_sink.require_reachable(output)
        _refuse_unreadable(output)
        return Rewind(output, file_sink.newest_batch(Location.of(output.uri)), {}, owner)
    try:
        table = batch_version.open_table(output.uri)
    except NotFoundError as error:
        error.hint = f"bring the table back; or {LEAVE_OUTPUTS}"
        raise
    if batch_version.table_id(table) != output.table_id:
        raise NotAlignedError(
            f"{output.uri} has been deleted and recreated since the savepoint was taken: the table "
            f"now has the id {batch_version.table_id(table)}, not {output.table_id}",
            hint=f"{LEAVE_OUTPUTS}, then rebuild the table",
            uri=output.uri,
        )
    removes = output.version < table.version()
    engine = engine_for(table, output.uri, output.version, own_rows, removes=removes)
    if own_rows is not None:
        shared_table.require_usable(table, output.uri, own_rows)
    _refuse_unreadable(output)
    reached = BEFORE_FIRST_BATCH if output.app_version is None else output.app_version
    transactions = {
        **_of_version(table, output, own_ids),
        output.app_id: reached,
        new_app_id: reached,
    }
    planned = Rewind(output, table.version(), transactions, owner, own_rows, engine=engine)
    _refuse_others(planned, output.version)
    return planned


def plan_empty(
    name: str,
    uri: str,
    owner: str,
    app_ids: tuple[str, ...],
    new_app_id: str,
    own_rows: str | None = None,
    *,
    instead: str = LEAVE_OUTPUTS,
) -> Rewind:
    """Find out what taking an output back to no rows at all would mean.

    Args:
        instead: What to do where no rows may be removed, for the hint.

    Raises:
        IncompatibleError: If the table has features that cannot be written.
    """
    try:
        table = batch_version.open_table(uri)
    except FileSinkError:
        _refuse_predicate(uri, own_rows)
        sink = Location.of(uri)
        return Rewind(
            file_sink.empty(name, sink), file_sink.newest_batch(sink), {}, owner, empty=True
        )
    engine = engine_for(table, uri, None, own_rows, instead=instead)
    if own_rows is not None:
        shared_table.require_usable(table, uri, own_rows)
    newest, location = int(table.version()), str(Location.of(uri))
    known = log.transactions(uri, newest)
    ours = [app for app in known if app.startswith(owner) or app in app_ids]
    others = [app for app in known if app not in ours and not is_id(app)]
    wanted = dict.fromkeys([*app_ids, *ours, new_app_id], BEFORE_FIRST_BATCH)
    output = OutputVersion(name, location, batch_version.table_id(table), newest, new_app_id, None)
    planned = Rewind(output, newest, wanted, owner, own_rows, empty=True, engine=engine)
    if own_rows is None:
        _refuse_all(
            location,
            [
                one
                for one in log.commits(uri, newest)
                if one.changes_data and not one.written_by(owner, tuple(wanted))
            ],
            others,
        )
    return planned


def _of_version(table: DeltaTable, output: OutputVersion, own_ids: Sequence[str]) -> dict[str, int]:
    """Return what the version says of application ids that the table knows by now."""
    known = [one for one in own_ids if table.transaction_version(one) is not None]
    if not set(known) - {output.app_id}:
        return {}
    then = batch_version.open_table(output.uri, output.version)
    reached = {one: then.transaction_version(one) for one in known}
    return {one: BEFORE_FIRST_BATCH if at is None else at for one, at in reached.items()}


def refuse_changed(rewind: Rewind) -> None:
    """Refuse to go on when others wrote to an output since the plan, and name their commits."""
    if rewind.output.kind == "delta":
        _refuse_others(rewind, rewind.newest)
    elif file_sink.newest_batch(Location.of(rewind.output.uri)) != rewind.newest:
        raise file_sink.changed(Location.of(rewind.output.uri), rewind.newest)


def refuse_stale(rewind: Rewind, verb: str) -> None:
    """Refuse to begin when others wrote to an output since the plan, or altered it.

    Args:
        verb: Whose plan it is, for the hint.
    """
    refuse_changed(rewind)
    if not rewind.empty:
        altered.refuse(rewind, f"run savepoints {verb} again; its plan shows what goes back")


def engine_for(
    table: DeltaTable,
    uri: str,
    version: int | None,
    own_rows: str | None,
    *,
    removes: bool = True,
    instead: str = LEAVE_OUTPUTS,
) -> Engine:
    """Return what can take a table back; refuse where nothing can.

    Args:
        version: Where to go back to; None for no rows at all.
        removes: Whether rows may be removed on the way, and not only ids committed.
        instead: What to do where no rows may be removed, for the hint.

    Raises:
        IncompatibleError: If the table has features that cannot be written, or Delta's engine is
            needed and could not take it back exactly.
    """
    engine = writable.engine(table, uri, removes=removes, instead=instead)
    if engine == "spark":
        spark_commit.require_possible(table, uri, version=version, own_rows=own_rows)
    return engine


def session_for(rewinds: Iterable[Rewind], settings: Settings) -> SparkSession | None:
    """Return a session if one of some rewinds needs it; before anything is begun.

    Raises:
        EnvironmentUnfitError: If Spark does not start, or has no Delta.
    """
    from savepoints.spark.session import session

    if all(one.engine != "spark" for one in rewinds):
        return None
    spark = session(settings, "savepoints: rewinding outputs")
    delta_transaction.require_delta(spark)
    return spark


def execute(rewind: Rewind, operation_id: str, spark: SparkSession | None = None) -> int:
    """Take the output back, in one commit; doing it again for the same operation does nothing.

    A file sink takes several steps, each of which leaves it at a batch that it had; it goes on
    where it was killed.

    Args:
        operation_id: Put into the commit as a transaction id, which is how a repetition after a
            crash finds out that it was done.

    Returns:
        The version that the commit made, now or before; of a file sink, the newest batch that it
        has now.

    Raises:
        NotAlignedError: If others have written to it since the plan, or its log no longer tells.
    """
    if rewind.output.kind == "files":
        return file_sink.take_back(rewind.output, rewind.newest, operation_id)
    table = batch_version.open_table(rewind.output.uri)
    if (done := _commit_of(rewind, operation_id)) is not None:
        return done.version
    refuse_changed(rewind)
    transactions = {**rewind.transactions, operation_id: _OPERATION_VERSION}
    if not rewind.empty:
        way_out = f"undo the operation (savepoints operations undo {operation_id}), then "
        altered.refuse(rewind, way_out + "run the command again; its plan shows what goes back")
        # VACUUM may have removed some since the plan.
        _refuse_unreadable(rewind.output, hint=way_out + LEAVE_OUTPUTS)
        return _take_back(rewind, table, rewind.output.version, transactions, spark)
    if rewind.engine == "spark":
        assert spark is not None
        return spark_commit.remove_all(spark, table, rewind.output.uri, transactions)
    return rewind_commit.remove_all(table, rewind.output.uri, transactions, rewind.own_rows)


def is_done(rewind: Rewind, operation_id: str) -> bool:
    """Return True if the output was taken back for an operation, or may be in part."""
    if rewind.output.kind == "files":
        return file_sink.newest_batch(Location.of(rewind.output.uri)) != rewind.newest
    return _commit_of(rewind, operation_id) is not None


def is_overtaken(rewind: Rewind, operation_id: str, committed: int) -> bool:
    """Return True if the query wrote to an output after it was taken back for an operation.

    What the next generation writes, on its way to a point, is under an id of its own; or, by
    Delta's own sink, has the number of a batch that the query had committed already.

    Args:
        committed: The newest batch that the query had.
    """
    if rewind.output.kind == "files":
        return file_sink.is_overtaken(rewind.output, operation_id, committed)
    done, following = _commit_of(rewind, operation_id), rewind.output.app_id
    if done is None:
        return False
    if not following.startswith(rewind.owner):
        following = ""
    later = batch_version.commits_since(rewind.output.uri, done.version)
    return any(
        app != following
        and batch > committed
        and (app in rewind.transactions or app.startswith(rewind.owner))
        for one in later
        for app, batch in one.transactions.items()
    )


def _commit_of(rewind: Rewind, operation_id: str) -> log.Commit | None:
    """Return the commit that took a table back for an operation, None if it was undone since."""
    last = batch_version.commit_under(rewind.output.uri, operation_id, rewind.newest)
    undone = last is None or last.transactions[operation_id] == _UNDONE
    return None if undone else last


def _take_back(
    rewind: Rewind,
    table: DeltaTable,
    version: int,
    transactions: Mapping[str, int],
    spark: SparkSession | None,
) -> int:
    """Commit the rows of a version of an output, and transaction ids; return the new version."""
    uri = rewind.output.uri
    if rewind.engine == "spark":
        assert spark is not None
        return spark_commit.take_back(spark, table, uri, version, transactions)
    return rewind_commit.take_back(table, uri, version, transactions, rewind.own_rows)


def undo(rewind: Rewind, operation_id: str, spark: SparkSession | None = None) -> int | None:
    """Bring an output back to what it was before a rewind, in one commit.

    Returns:
        The version that the commit made; None when there was nothing to undo.
    """
    if rewind.output.kind == "files":
        return file_sink.put_back(rewind.output, rewind.newest, operation_id)
    table = batch_version.open_table(rewind.output.uri)
    if _commit_of(rewind, operation_id) is None:
        return None
    refuse_changed(rewind)
    before = batch_version.open_table(rewind.output.uri, rewind.newest)
    reached = {app: before.transaction_version(app) for app in rewind.transactions}
    known = {app: BEFORE_FIRST_BATCH if at is None else at for app, at in reached.items()}
    return put_back(rewind, table, known, operation_id, spark)


def require_undoable(changed: Iterable[Rewind], operation_id: str) -> None:
    """Refuse to begin to undo what cannot be, as long as the operation can still be finished.

    Args:
        changed: The tables that the operation has changed.

    Raises:
        NotAlignedError: If some files of the version before the operation are gone, or somebody has
            altered a table since.
    """
    for one in changed:
        if one.output.kind != "files":
            finish = f"finish the operation: savepoints operations resume {operation_id}; or "
            altered.refuse(one, finish + _without_changes(one.output.uri, operation_id))
            _refuse_unreadable(
                replace(one.output, version=one.newest),
                hint=f"{finish}put the files back from a backup of the table, then undo it: "
                f"savepoints operations undo {operation_id}",
            )


def put_back(
    rewind: Rewind,
    table: DeltaTable,
    transactions: Mapping[str, int],
    operation_id: str,
    spark: SparkSession | None,
) -> int:
    """Commit the rows that a table had when an operation was planned, and transaction ids.

    Returns:
        The version that the commit made.

    Raises:
        NotAlignedError: If some of their files are gone, or somebody has altered the table since.
    """
    altered.refuse(rewind, _without_changes(rewind.output.uri, operation_id))
    _refuse_unreadable(
        replace(rewind.output, version=rewind.newest),
        hint="put the files back from a backup of the table, then undo the operation again: "
        f"savepoints operations undo {operation_id}",
    )
    ids = {**transactions, operation_id: _UNDONE}
    return _take_back(rewind, table, rewind.newest, ids, spark)


def _without_changes(uri: str, operation_id: str) -> str:
    return (
        "note the changes and go back to the version before them, with Spark SQL: RESTORE TABLE "
        f"delta.`{Uri.parse(uri).for_spark}` TO VERSION AS OF VERSION; then undo the operation: "
        f"savepoints operations undo {operation_id}"
    )


def _refuse_others(rewind: Rewind, since: int) -> None:
    """Refuse when others wrote after a version what would be lost."""
    output, ours = rewind.output, tuple(rewind.transactions)
    if rewind.own_rows is not None:
        shared_table.check(output.uri, rewind.own_rows, since, rewind.owner, ours)
    elif foreign := batch_version.foreign_commits(output.uri, since, rewind.owner, ours):
        first = foreign[-1]
        raise NotAlignedError(
            f"other writers made {count_text(len(foreign), 'commit')} to {output.uri} after "
            f"version {since} (first: version {first.version}, {first.operation}), and their rows "
            "would be lost",
            hint=f"select the query's own rows in [queries.NAME.own_rows], or {LEAVE_OUTPUTS}",
            uri=output.uri,
            versions=[one.version for one in foreign],
        )


def _refuse_all(uri: str, foreign: list[log.Commit], others: list[str]) -> None:
    """Refuse to empty a table that others have written to."""
    if not foreign and not others:
        return
    example = (
        f"those of version {foreign[0].version}, {foreign[0].operation}"
        if foreign
        else f"those written under the transaction id {others[0]}"
    )
    raise NotAlignedError(
        f"{uri} also contains rows from other writers, which would be lost (for example, "
        f"{example})",
        hint="select the query's own rows in [queries.NAME.own_rows], or keep the outputs: "
        "--outputs keep",
        uri=uri,
        versions=[one.version for one in foreign],
        app_ids=others,
    )


def _refuse_unreadable(output: OutputVersion, hint: str = LEAVE_OUTPUTS) -> None:
    if gone := unreadable_files(output):
        raise NotAlignedError(
            f"version {output.version} of {output.uri} is missing "
            f"{count_text(len(gone), 'file')} (for example {gone[0]}), deleted by VACUUM or by "
            "hand",
            hint=hint,
            uri=output.uri,
            files=gone,
        )


def _refuse_predicate(uri: str, predicate: str | None) -> None:
    if predicate is not None:
        raise FileSinkError(
            f"{uri} has own_rows in the settings, but is written by Spark's file sink, whose "
            "output can only be rewound in whole batches",
            hint="remove this output from [queries.NAME.own_rows]",
            uri=uri,
        )
