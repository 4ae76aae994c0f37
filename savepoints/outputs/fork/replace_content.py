"""Giving a live table the content of another one, with transaction ids, in one commit.

The reader of a table sees either the old content or the new one. The commit carries the id under
which the next generation writes the table, at the batch that the content belongs to: it tells that
batch's version from then on, and makes Delta skip the commit when it is tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.errors import FileSinkError, IncompatibleError
from savepoints.model import OutputVersion
from savepoints.outputs.delta import batch_version, writable
from savepoints.outputs.delta.log import Commit
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.planned_rewind import BEFORE_FIRST_BATCH, Rewind
from savepoints.spark.session import session_like
from savepoints.uri import Uri

if TYPE_CHECKING:
    from deltalake import DeltaTable, Field
    from pyspark.sql import SparkSession

_POINT = "promote with --outputs point"


@dataclass(frozen=True)
class Takeover:
    """The rows that one live table gets.

    Attributes:
        live: The live table, and which of its rows are the query's.
        source: The version of the other table whose rows it gets.
        app_id: Application id under which the next generation writes the live table.
        batch_id: The batch that the source version belongs to.
        added: Columns that the live table gets with them.
        dropped: Columns that it loses.
        retyped: Columns that it has afterwards with another type.
    """

    live: Rewind
    source: OutputVersion
    app_id: str
    batch_id: int
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    retyped: tuple[str, ...] = ()


def plan(
    name: str,
    uri: str,
    source: OutputVersion,
    *,
    owner: str,
    own_ids: Sequence[str],
    app_id: str,
    batch_id: int,
    own_rows: str | None,
) -> Takeover:
    """Find out whether a live table can be given another content without loss.

    Args:
        owner: Beginning of the application ids that are the live query's own.
        own_rows: SQL predicate which is true for the query's rows alone, for a shared table.

    Raises:
        NotAlignedError: If others have written to the live table.
        IncompatibleError: If it cannot have the columns of the other one without losing something.
    """
    if source.kind == "files":
        raise _no_table(source.uri)
    live = rewind.plan_empty(name, uri, owner, tuple(own_ids), app_id, own_rows, instead=_POINT)
    if live.output.kind == "files":
        raise _no_table(uri)
    writable.refuse_identity(batch_version.open_table(uri), uri)
    keeps_columns = own_rows is not None or live.engine == "spark"
    mine, theirs = _columns(uri), _columns(source.uri, source.version)
    if keeps_columns and mine != theirs:
        why = (
            "the live table also has other writers"
            if own_rows is not None
            else "an undo could not restore the columns of the live table exactly"
        )
        raise IncompatibleError(
            f"the rows of {source.uri} cannot replace those of {uri}, because their columns "
            f"differ and {why}",
            hint="change the fork's program so that it writes the same columns as the live table, "
            f"or {_POINT}",
            uri=uri,
        )
    if mine != theirs:
        _refuse_lost(uri, source)
    before, after = dict(mine), dict(theirs)
    return Takeover(
        live, source, app_id, batch_id,
        added=tuple(one for one in after if one not in before),
        dropped=tuple(one for one in before if one not in after),
        retyped=tuple(one for one in after if before.get(one, after[one]) != after[one]),
    )  # fmt: skip


def _refuse_lost(uri: str, source: OutputVersion) -> None:
    """Refuse to exchange the columns of a table if some are more than their rows.

    Delta takes them from the rows (`overwriteSchema`): generated ones become plain columns, which
    the batches that follow do not write, so that they would be null; and all become nullable
    (`ImplicitMetadataOperation`, `asNullable`), those within structs too.
    """
    tables = (batch_version.open_table(uri), batch_version.open_table(source.uri, source.version))
    fields = [field for table in tables for field in table.schema().fields]
    there = dict(_columns(source.uri, source.version))
    generated = {one.name for one in fields if "delta.generationExpression" in one.metadata}
    required = {name for name in _required(fields) if name.partition(".")[0] in there}
    if generated or required:
        lost = sorted(generated or required)
        names = ", ".join(lost)
        what = (
            f"make plain columns of the generated ones: {names}"
            if generated
            else f"drop NOT NULL from: {names}"
        )
        nullable = "" if generated else " or … ALTER COLUMN … DROP NOT NULL;"
        raise IncompatibleError(
            f"the rows of {source.uri} cannot replace those of {uri}, because their columns differ "
            f"and Delta would {what}",
            hint="change the columns of the live table first, with Spark SQL: ALTER TABLE delta.`"
            f"{Uri.parse(uri).for_spark}` ADD COLUMNS (…),{nullable} or {_POINT}",
            uri=uri,
            columns=lost,
        )


def _required(fields: Iterable[Field], within: str = "") -> Iterator[str]:
    """Yield the columns that cannot be null, with the structs that they are in."""
    for field in fields:
        if not field.nullable:
            yield f"{within}{field.name}"
        yield from _required(getattr(field.type, "fields", ()), f"{within}{field.name}.")


def what(takeover: Takeover) -> str:
    """Describe it as a step of a plan."""
    whose = f" where {takeover.live.own_rows}" if takeover.live.own_rows else ""
    return (
        f"replace the rows of {takeover.live.output.uri}{whose} with those of version "
        f"{takeover.source.version} of {takeover.source.uri}, in one commit"
        f"{columns_text(takeover)}"
    )


def columns_text(takeover: Takeover) -> str:
    """Describe what becomes of the live table's columns; empty if they stay."""
    changes = {
        "columns added": takeover.added,
        "columns removed": takeover.dropped,
        "columns with another type": takeover.retyped,
    }
    return "".join(f"; {what}: {', '.join(names)}" for what, names in changes.items() if names)


def execute(spark: SparkSession, takeover: Takeover) -> int:
    """Write the content; done before, nothing happens.

    Returns:
        The version that the commit made, now or before.

    Raises:
        NotAlignedError: If others have written to the live table since the plan.
    """
    uri = Uri.parse(takeover.live.output.uri)
    table = batch_version.open_table(str(uri))
    if (done := _commit_of(takeover)) is not None:
        return done.version
    rewind.refuse_changed(takeover.live)
    source = Uri.parse(takeover.source.uri)
    rows = (
        session_like(spark)
        .read.format("delta")
        .option("versionAsOf", takeover.source.version)
        .load(source.hadoop)
    )
    writer = (
        rows.write.format("delta")
        .mode("overwrite")
        .option("txnAppId", takeover.app_id)
        .option("txnVersion", takeover.batch_id)
    )
    if takeover.live.own_rows is not None:
        writer = writer.option("replaceWhere", takeover.live.own_rows)
    elif _columns(str(uri)) != _columns(str(source), takeover.source.version):
        # With another schema Delta also takes the partitioning from the writer.
        kept = [one for one in table.metadata().partition_columns if one in rows.columns]
        writer = writer.option("overwriteSchema", "true").partitionBy(*kept)
    writer.save(uri.hadoop)
    return batch_version.commit_of_batch(str(uri), takeover.app_id, takeover.batch_id).version


def is_done(takeover: Takeover) -> bool:
    """Return True if the live table has the content."""
    return _commit_of(takeover) is not None


def _commit_of(takeover: Takeover) -> Commit | None:
    """Return the commit that exchanged the content, None if it was undone since."""
    last = batch_version.commit_under(
        takeover.live.output.uri, takeover.app_id, takeover.live.newest
    )
    done = last is not None and last.transactions[takeover.app_id] == takeover.batch_id
    return last if done else None


def undo(takeover: Takeover, operation_id: str, spark: SparkSession | None = None) -> None:
    """Bring the live table back, if nobody wrote to it since; not done, nothing happens."""
    live = takeover.live
    table = batch_version.open_table(live.output.uri)
    if not is_done(takeover):
        return
    rewind.refuse_changed(live)
    rewind.put_back(live, table, {takeover.app_id: BEFORE_FIRST_BATCH}, operation_id, spark)


def _columns(uri: str, version: int | None = None) -> list[tuple[str, str]]:
    table: DeltaTable = batch_version.open_table(uri, version)
    return [(field.name, str(field.type)) for field in table.schema().fields]


def _no_table(uri: str) -> FileSinkError:
    return FileSinkError(
        f"{uri} is written by Spark's file sink, whose content cannot be replaced in one commit",
        hint="promote with --outputs point, which lets readers switch to the fork's directory",
        uri=uri,
    )
