"""Names of the fields of keys in canonical rows, which Delta and Arrow accept.

Spark calls all expressions that rows are grouped by `_groupingexpression`, and a program may name
columns as it likes. Arrow's Java mixes up fields of one name, and so does Spark's `hash` of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from savepoints.checkpoint.evolution.findings import unique_names
from savepoints.checkpoint.state.schema import SparkType, StateField

# Characters that Parquet and Delta reject in column names without column mapping.
_UNFIT = re.compile(r"[ ,;{}()\n\t=.]")


def fit_name(name: str) -> str:
    """Return a name without characters that Delta rejects."""
    return _UNFIT.sub("_", name)


def fit_fields(fields: Sequence[StateField]) -> tuple[StateField, ...]:
    """Return fields with fit names, none of them twice in one struct; repeated ones are numbered.

    Delta does not tell apart names that differ in case only.
    """
    names = unique_names([fit_name(one.name) for one in fields])
    return tuple(
        replace(one, name=name, type=_fit_type(one.type))
        for name, one in zip(names, fields, strict=True)
    )


def _fit_type(spark_type: SparkType) -> SparkType:
    if isinstance(spark_type, str):
        return spark_type
    if spark_type["type"] == "struct":
        inner = fit_fields([StateField.from_json(one) for one in spark_type["fields"]])
        return {**spark_type, "fields": [one.to_json() for one in inner]}
    parts = {"elementType", "keyType", "valueType"} & spark_type.keys()
    return {**spark_type, **{part: _fit_type(spark_type[part]) for part in parts}}
