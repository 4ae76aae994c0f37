"""Which Delta tables deltalake can write: asked before anything is touched.

A table names its features in its protocol (Delta protocol, "Table Features"), and a writer that
does not know one must not write. Here is what deltalake 1.6 commits to; the tests try each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from savepoints.errors import LEAVE_OUTPUTS, IncompatibleError

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
# Before writers named features, this version of theirs stood for one more than the one before.
_WITH_IDENTITY = 6
_NAMED = 7


def unknown(table: DeltaTable) -> list[str]:
    """Return the features of a table that deltalake cannot write."""
    protocol = table.protocol()
    if protocol.min_writer_version == _WITH_IDENTITY:
        return ["identityColumns"]
    if protocol.min_writer_version > _NAMED:
        return [f"writer version {protocol.min_writer_version}"]
    return sorted({*(protocol.writer_features or ())} - _KNOWN)


def require_writable(table: DeltaTable, uri: str, *, removes: bool) -> None:
    """Refuse a table that cannot be taken back, and name the features that prevent it."""
    if found := unknown(table):
        raise IncompatibleError(
            f"{uri} cannot be rewound: it has table features that only Spark can write: "
            f"{', '.join(found)}",
            # A reset that keeps the outputs commits transaction ids, and those only Spark can, too.
            hint="leave the table as it is: rollback --outputs none, or for a reset remove it "
            "from [queries.NAME.outputs] temporarily",
            uri=uri,
            features=found,
        )
    if removes and table.metadata().configuration.get("delta.appendOnly") == "true":
        raise IncompatibleError(
            f"{uri} cannot be rewound: it does not allow rows to be removed (delta.appendOnly)",
            hint=f"set delta.appendOnly to false, or {LEAVE_OUTPUTS}",
            uri=uri,
            features=["appendOnly"],
        )
