"""Which Delta tables deltalake can write, and which only Spark: asked before anything is touched.

A table names its features in its protocol (Delta protocol, "Table Features"), and a writer that
does not know one must not write. Here is what deltalake 1.6 commits to, and what Delta's engine
takes back exactly through `savepoints.spark.delta_transaction`; the tests try each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from savepoints.delta_reader import refuse_unwritable
from savepoints.errors import LEAVE_OUTPUTS, REBUILD_OUTPUT, IncompatibleError
from savepoints.uri import Uri

if TYPE_CHECKING:
    from deltalake import DeltaTable

_KNOWN = {
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    "columnMapping",
    "deletionVectors",
    "generatedColumns",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
    "variantType-preview",
}
_KNOWN_TO_SPARK = {
    "allowColumnDefaults",
    "clustering",
    "domainMetadata",
    "identityColumns",
    "inCommitTimestamp",
    "rowTracking",
    "typeWidening",
    "vacuumProtocolCheck",
}
# What makes a commit: the library, or Delta's own engine in a Spark session.
Engine = Literal["deltalake", "spark"]
# Before writers named features, this version of theirs stood for one more than the one before.
_WITH_IDENTITY = 6
_NAMED = 7


def only_by_spark(table: DeltaTable) -> list[str]:
    """Return the features of a table that deltalake cannot write."""
    protocol = table.protocol()
    if protocol.min_writer_version == _WITH_IDENTITY:
        return ["identityColumns"]
    if protocol.min_writer_version > _NAMED:
        return [f"writer version {protocol.min_writer_version}"]
    return sorted({*(protocol.writer_features or ())} - _KNOWN)


def refused(uri: str, features: list[str], why: str = "") -> IncompatibleError:
    """Return the refusal of a table that cannot be taken back, which names its features."""
    return IncompatibleError(
        f"{uri} cannot be rewound here, because only Spark can write a table with these features: "
        f"{', '.join(features)}" + (f" ({why})" if why else ""),
        # A reset that keeps the outputs commits transaction ids, and those only Spark can, too.
        hint="leave all outputs as they are: savepoints rollback SAVEPOINT --outputs none; for a "
        "reset, remove the table from [queries.NAME.outputs] until the query is reset",
        uri=uri,
        features=features,
    )


def engine(table: DeltaTable, uri: str, *, removes: bool, instead: str = LEAVE_OUTPUTS) -> Engine:
    """Return what can take a table back.

    Args:
        removes: Whether rows are removed.
        instead: What to do where the table does not allow that, for the hint.

    Raises:
        IncompatibleError: If nothing can; the error names the features that prevent it.
        UsageError: If deltalake cannot write where the table is.
    """
    refuse_unwritable(Uri.parse(uri), "an output", instead)
    found = only_by_spark(table)
    if strange := sorted({*found} - _KNOWN_TO_SPARK):
        raise refused(uri, strange, "not tested with savepoints")
    if removes and table.metadata().configuration.get("delta.appendOnly") == "true":
        raise IncompatibleError(
            f"rows of {uri} cannot be removed, because the table does not allow it "
            "(delta.appendOnly)",
            hint="set delta.appendOnly to false, with Spark SQL: ALTER TABLE delta.`"
            f"{Uri.parse(uri).for_spark}` SET TBLPROPERTIES ('delta.appendOnly' = 'false'); or "
            f"{instead}",
            uri=uri,
            features=["appendOnly"],
        )
    return "spark" if found else "deltalake"


def refuse_identity(table: DeltaTable, uri: str) -> None:
    """Refuse a table of which rows are to be replaced that have identity values.

    Delta does not count explicit values: it could give out the same ones again later.
    """
    columns = [
        field.name
        for field in table.schema().fields
        if any(key.startswith("delta.identity.") for key in field.metadata)
    ]
    if columns:
        raise IncompatibleError(
            f"rows of {uri} cannot be replaced, because Delta could later generate the same "
            f"values again for the table's identity columns: {', '.join(columns)}",
            hint=f"drop these columns, or {REBUILD_OUTPUT}; for a fork: savepoints "
            "promote FORK --outputs point",
            uri=uri,
            features=["identityColumns"],
        )
