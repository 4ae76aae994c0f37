"""One commit of Delta's own engine, for tables whose features only that can write.

Every private class and member of Delta that is used here, in `org.apache.spark.sql.delta`:

| name | for | seen in |
| --- | --- | --- |
| `DeltaLog.forTable(SparkSession, String)` | the table | 4.4 |
| `DeltaLog.startTransaction()` | its newest version, and a commit on top of it | 4.4 |
| `OptimisticTransaction.readVersion`, `readWholeTable`, `txnVersion` | what conflicts | 4.4 |
| `OptimisticTransaction.commit(Seq, Operation, Map)` | the commit | 4.4 |
| `actions.Action.fromJson`, `actions.AddFile.remove` | actions from their JSON in a log | 4.4 |
| `DeltaOperations.Restore` | what the commit calls itself | 4.4 |

Actions come as JSON, as the Delta protocol has them, so that what they consist of is the engine's
business: row ids, commit times and clustering are handled as in any other commit of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from savepoints.errors import LEAVE_OUTPUTS, EnvironmentUnfitError, NotAlignedError
from savepoints.spark import private_api
from savepoints.spark.java_trees import JavaObject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA = "org.apache.spark.sql.delta"


def require_delta(spark: SparkSession) -> None:
    """Refuse a session without Delta's classes, before anything is begun that needs them."""
    if not callable(getattr(_named(spark, f"{_DELTA}.DeltaLog"), "forTable", None)):
        raise EnvironmentUnfitError(
            "Delta Lake, which is needed to write the table, is not available in the Spark session",
            hint="set SAVEPOINTS_JARS, or spark.jars.packages in [spark.conf], to add Delta's jars",
        )


def commit(
    spark: SparkSession,
    uri: str,
    version: int,
    *,
    adds: Sequence[Mapping[str, Any]],
    removes: Sequence[Mapping[str, Any]],
    transactions: Sequence[Mapping[str, Any]],
    back_to: int,
    tags: Mapping[str, str],
) -> int:
    """Commit on top of exactly one version of a table, or not at all.

    Args:
        uri: As Hadoop has it.
        version: The newest version of the table.
        adds: Values of `add` actions.
        removes: Values of the `add` actions of files that are removed.
        transactions: Values of `txn` actions.
        back_to: The version whose files these are, for the table's history.
        tags: Kept in `commitInfo.tags`.

    Returns:
        The version that the commit made.

    Raises:
        NotAlignedError: If somebody else commits first what would be lost, or Delta refuses it.
    """
    try:
        log = _named(spark, f"{_DELTA}.DeltaLog").forTable(private_api.java_session(spark), uri)
        transaction = log.startTransaction()
        if transaction.readVersion() != version:
            raise _changed(uri, version, transaction.readVersion())
        # Whatever others add, remove, or record under one of the ids meanwhile is a conflict.
        transaction.readWholeTable()
        for one in transactions:
            transaction.txnVersion(one["appId"])
        actions = _actions(spark, adds, removes, transactions)
        made = int(transaction.commit(actions, _restore(spark, back_to), _map(spark, tags)))
    except NotAlignedError:
        raise
    except Exception as error:  # noqa: BLE001  (py4j's errors have no common root)
        raise NotAlignedError(
            f"Delta could not rewind {uri} and left it unchanged: {str(error)[:500]}",
            hint=f"run the command again, or {LEAVE_OUTPUTS}",
            uri=uri,
        ) from None
    if made != version + 1:
        raise _changed(uri, version, made - 1)
    return made


def _actions(
    spark: SparkSession,
    adds: Sequence[Mapping[str, Any]],
    removes: Sequence[Mapping[str, Any]],
    transactions: Sequence[Mapping[str, Any]],
) -> JavaObject:
    parse = _named(spark, f"{_DELTA}.actions.Action").fromJson
    actions = [
        *(parse(json.dumps({"add": {**one, "dataChange": True}})) for one in adds),
        *(parse(json.dumps({"add": one})).remove() for one in removes),
        *(parse(json.dumps({"txn": one})) for one in transactions),
    ]
    return _named(spark, "org.apache.spark.api.python.PythonUtils").toSeq(actions)


def _restore(spark: SparkSession, version: int) -> JavaObject:
    option = private_api.jvm(spark).scala.Option
    return _named(spark, f"{_DELTA}.DeltaOperations$Restore")(
        option.apply(version), option.apply(None)
    )


def _map(spark: SparkSession, values: Mapping[str, str]) -> JavaObject:
    return _named(spark, "org.apache.spark.api.python.PythonUtils").toScalaMap(dict(values))


def _named(spark: SparkSession, name: str) -> JavaObject:
    found = private_api.jvm(spark)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _changed(uri: str, version: int, now: int) -> NotAlignedError:
    return NotAlignedError(
        f"{uri} was at version {version} but is now at {now}, so another program has written to it",
        hint="stop everything that writes to the table, then run the command again",
        uri=uri,
        version=now,
    )
