"""What becomes of an output table with a feature of Delta, as docs/reference/support.md has it."""

from __future__ import annotations

from dataclasses import dataclass

from savepoints.outputs.delta.writable import Engine

_IDENTITY = "refused: identity values"
_SINCE_WIDENED = "exact from savepoints since the widening; refused from older ones"


@dataclass(frozen=True)
class TableFeature:
    """A table of data/make_tables.py, and what each verb does with it: `exact`, or refuses.

    Attributes:
        label: The feature, for people.
        engine: What makes the commit of a rewind.
        correct: Rows of entities replaced by a merge.
        promote: All rows replaced by those of a fork; `promote --outputs point` takes any table.
        base: The first batch from whose version on rows can be taken for a merge.
    """

    label: str
    engine: Engine = "spark"
    correct: str = "exact"
    promote: str = "exact"
    base: int = 1


FEATURES = {
    "plain": TableFeature("none", "deltalake"),
    "partitions": TableFeature("partitions", "deltalake"),
    "deletion_vectors": TableFeature("deletion vectors", "deltalake"),
    "column_mapping": TableFeature("column mapping by name", "deltalake"),
    "change_data_feed": TableFeature("change data feed", "deltalake"),
    "v2_checkpoint": TableFeature("v2 checkpoints", "deltalake"),
    "row_tracking": TableFeature("row tracking"),
    "in_commit_timestamps": TableFeature("in-commit timestamps"),
    "clustering": TableFeature("liquid clustering"),
    "type_widening": TableFeature("type widening", correct=_SINCE_WIDENED, base=2),
    "identity": TableFeature("identity columns", "spark", _IDENTITY, _IDENTITY),
}
BY_SPARK = [name for name, one in FEATURES.items() if one.engine == "spark"]


def render() -> str:
    """Return the section of the page."""
    lines = [
        f"| {name} | {one.label} | exact, by {'Spark' if one.engine == 'spark' else 'deltalake'} "
        f"| {one.correct} | exact | {one.promote} |"
        for name, one in FEATURES.items()
    ]
    return _HEAD + "\n".join(lines) + "\n"


_HEAD = """## Output tables

By feature of Delta: rows and transaction ids of a table rewound in one commit (`rollback`,
`reset`, `undo`), rows of entities corrected (`merge`), a table copied or cloned (`fork`), and its
rows replaced by a fork's (`promote`). *By Spark*: deltalake cannot write the table, so Delta's own
engine makes the commit in a Spark session; without PySpark and Java it is refused by name before
anything is touched, and so is a version since which columns, properties or clustering have changed,
and `own_rows`. `pytest tests/outputs -k NAME`.

| test | feature | rewind | merge | fork | promote |
| --- | --- | --- | --- | --- | --- |
"""
