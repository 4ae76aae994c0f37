"""The one commit of a rewind, made by Delta's engine in Spark: for what deltalake cannot write.

It has the same content as that of `rewind_commit`: the files of the older version, the transaction
ids, and which version it goes back to. Only files come back with it; a version with other columns
or properties is refused when the rewind is planned.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from savepoints.errors import EnvironmentUnfitError, IncompatibleError
from savepoints.local.java import find_java
from savepoints.moments import epoch_ms, utc_now
from savepoints.outputs.delta import log, snapshot, writable
from savepoints.outputs.rewind import version_difference
from savepoints.outputs.rewind.version_difference import FileDifference
from savepoints.spark import classic, delta_transaction
from savepoints.uri import Uri

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession


def require_possible(
    table: DeltaTable, uri: str, *, version: int | None, own_rows: str | None
) -> None:
    """Refuse what Delta's engine could not take back exactly, or where there is no Spark for it.

    Args:
        version: Where to go back to; None for no rows at all.
    """
    features = writable.only_by_spark(table)
    if own_rows is not None:
        raise writable.refused(
            uri, features, "own_rows would need a second commit for the transaction ids"
        )
    if (lacking := _lacking()) is not None:
        raise writable.refused(uri, features, f"there is no Spark here: {lacking}")
    if version is None or version == table.version():
        return
    now, then = (snapshot.read(uri, one) for one in (int(table.version()), version))
    if changed := version_difference.beyond_files(now, then):
        raise IncompatibleError(
            f"{uri} cannot be rewound to version {version}: only Spark can write a table "
            f"with these features ({', '.join(features)}), and a rewind by Spark restores only "
            f"rows, but something else has changed since that version: {', '.join(changed)}",
            hint=_changed_back(uri, version_difference.statements_back(now, then))
            + "choose a savepoint taken after those changes, or leave the outputs as they "
            "are: savepoints rollback SAVEPOINT --outputs none",
            uri=uri,
            features=features,
            changed=changed,
        )


def _changed_back(uri: str, statements: Sequence[str]) -> str:
    """Say how to take those changes back by hand, if that is possible."""
    if not statements:
        return ""
    table = f"ALTER TABLE delta.`{Uri.parse(uri).for_spark}`"
    said = "; ".join(f"{table} {one}" for one in statements)
    return f"change that back, with Spark SQL: {said}; then run the command again; or "


def take_back(
    spark: SparkSession, table: DeltaTable, uri: str, version: int, transactions: Mapping[str, int]
) -> int:
    """Commit the files of an older version together with transaction ids.

    Returns:
        The version that the commit made.

    Raises:
        NotAlignedError: If others have written to the table meanwhile.
    """
    now = snapshot.read(uri, int(table.version()))
    then = now if version == table.version() else snapshot.read(uri, version)
    return _commit(spark, table, uri, version_difference.files(now, then), transactions, version)


def remove_all(
    spark: SparkSession, table: DeltaTable, uri: str, transactions: Mapping[str, int]
) -> int:
    """Remove all rows, with transaction ids; return the new version."""
    removed = FileDifference((), snapshot.read(uri, int(table.version())).files)
    return _commit(spark, table, uri, removed, transactions, None)


def _commit(
    spark: SparkSession,
    table: DeltaTable,
    uri: str,
    change: FileDifference,
    transactions: Mapping[str, int],
    back_to: int | None,
) -> int:
    now_ms, newest = epoch_ms(utc_now()), int(table.version())
    made = delta_transaction.commit(
        spark,
        Uri.parse(uri).hadoop,
        newest,
        adds=change.adds,
        removes=change.removes,
        transactions=[
            {"appId": app, "version": at, "lastUpdated": now_ms} for app, at in transactions.items()
        ],
        back_to=newest if back_to is None else back_to,
        tags={} if back_to is None else {log.BACK_TO: str(back_to)},
    )
    table.update_incremental()
    return made


def _lacking() -> str | None:
    """Return what a session would lack here; no JVM is started."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed (pip install 'savepoints[spark]')"
    if problem := classic.problem():
        return problem
    try:
        find_java()
    except EnvironmentUnfitError as error:
        return error.message
    return None
