"""Where the rows of a seed are: which table has those of which variable, as it was planned."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from savepoints.errors import StalePlanError, UsageError
from savepoints.io import Location
from savepoints.outputs.delta import batch_version
from savepoints.sources.late import files, stored_files
from savepoints.state.seed.visible import Visible
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOTHING = "none"
_NAMED = re.compile(r"(?:(?P<operator>\d+)(?:\.|$))?(?P<variable>[A-Za-z_$][\w$]*)?", re.ASCII)
_FORMATS = frozenset({"delta", "parquet"})


@dataclass(frozen=True)
class GivenTable:
    """The rows of a variable.

    Attributes:
        operator_id: Spark's number of the operator; operators count from the sink.
        variable: The name of the variable of the operator; None if it has only one state.
        place: A Delta table or Parquet files; None for no rows.
        kind: Spark's name of the format.
        version: Of a Delta table, the version that is read.
        files: Of files, a hash of their names and sizes, and of their ETags.
        rows: How many rows it has.
    """

    operator_id: int
    variable: str | None
    place: str | None
    kind: str = ""
    version: int | None = None
    files: str | None = None
    rows: int = 0

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return _full_name(self.operator_id, self.variable)

    def read(self, spark: SparkSession, known: Visible) -> DataFrame:
        """Return the rows of a state as they were when it was found.

        Raises:
            IncompatibleError: If Spark cannot read the files.
            StalePlanError: If files have changed since.
        """
        assert self.place is not None
        if self.files is not None and self.files != _fingerprint(self.place):
            raise StalePlanError(
                f"the files of {self.place} have changed since the plan was made",
                hint="run savepoints seed again to make a new plan",
            )
        stored = stored_files.find(self.place)
        if self.version is not None:
            return stored.reader(spark).option("versionAsOf", self.version).load(stored.path)
        with files.failures(self.place, stored.kind):
            return stored.load_with(spark, known.types_by_name)


def assigned(given: Iterable[tuple[str, str]], known: Sequence[Visible]) -> list[GivenTable]:
    """Return what each variable of a program gets.

    Args:
        given: Names and places. A name is `OPERATOR.VARIABLE`, one of both where that is clear, or
            empty where the program has one state alone; the place `none` stands for no rows.

    Raises:
        UsageError: If a name fits no variable or several, or a variable gets nothing or two places.
    """
    found: dict[tuple[int, str | None], GivenTable] = {}
    for name, place in given:
        variable = _variable(name, known).variable
        key = (variable.operator_id, variable.name)
        if key in found:
            raise UsageError(
                f"two tables are given for {variable}: {found[key].place} and {place}",
                hint="pass one table for each state; if the rows are in several places, write "
                "them to one table first",
            )
        found[key] = _table(*key, place)
    missing = [one for one in known if (one.variable.operator_id, one.variable.name) not in found]
    if missing:
        raise UsageError(
            "no rows are given for " + "; ".join(str(one.variable) for one in missing),
            hint="name a table for each, or replace TABLE with none if a state has no rows: "
            + " ".join(f"--from {_name(one, known)}=TABLE" for one in missing)
            + " (columns of "
            + "; of ".join(f"{_name(one, known)}: {', '.join(one.columns)}" for one in missing)
            + ")",
        )
    return list(found.values())


def name_of(one: Visible) -> str:
    """Return the full name of a state, as `GivenTable.name` is."""
    return _full_name(one.variable.operator_id, one.variable.name)


def parse(text: str) -> tuple[str, str]:
    """Read what the command line has: `NAME=PLACE` or a place alone."""
    name, separator, place = text.partition("=")
    if separator and _NAMED.fullmatch(name):
        return name, place
    return "", text


def _full_name(operator_id: int, variable: str | None) -> str:
    return f"{operator_id}" + (f".{variable}" if variable else "")


def _variable(name: str, known: Sequence[Visible]) -> Visible:
    match = _NAMED.fullmatch(name)
    operator, variable = match.groups() if match else (None, name)
    fitting = [
        one
        for one in known
        if operator in (None, str(one.variable.operator_id))
        and variable in (None, one.variable.name)
    ]
    if len(fitting) == 1:
        return fitting[0]
    raise UsageError(
        f"{name or 'a table without a name'} must match exactly one state of the program, but "
        f"matches {len(fitting)}; the states are: " + "; ".join(str(one.variable) for one in known),
        hint="use " + " ".join(f"--from {_name(one, known)}=TABLE" for one in known),
    )


def _name(one: Visible, known: Sequence[Visible]) -> str:
    operators = {each.variable.operator_id for each in known}
    variable = one.variable
    if variable.name is None:
        return str(variable.operator_id)
    alike = [each for each in known if each.variable.name == variable.name]
    if len(operators) == 1 or len(alike) == 1:
        return variable.name
    return f"{variable.operator_id}.{variable.name}"


def _table(operator_id: int, variable: str | None, place: str) -> GivenTable:
    if place == NOTHING:
        return GivenTable(operator_id, variable, None)
    stored = stored_files.find(place)
    if stored.is_pattern:
        raise UsageError(
            f"{place} is a pattern, which may match other files when the plan is executed",
            hint="pass one Parquet file, a directory of them, or a Delta table",
        )
    kind = stored.kind
    where = str(Uri.parse(place)) if "://" in place else str(Location.of(place))
    if kind not in _FORMATS:
        raise UsageError(
            f"{place} is in {kind} format, which does not preserve exact types",
            hint="write the rows as a Delta table or as Parquet files",
        )
    if kind == "delta":
        version = int(batch_version.open_table(where).version())
        return GivenTable(operator_id, variable, where, kind, version=version)
    return GivenTable(operator_id, variable, where, kind, files=_fingerprint(where))


def _fingerprint(place: str) -> str:
    location = Location.of(place)
    listed = location.list()
    if not listed:
        parent, _, name = str(location).rpartition("/")
        listed = [one for one in Location.of(parent).list() if one.path == name]
    text = "\n".join(sorted(f"{one.path} {one.size} {one.etag}" for one in listed))
    return hashlib.sha256(text.encode()).hexdigest()


def by_operator(
    tables: Iterable[GivenTable], known: Sequence[Visible]
) -> Mapping[int, list[tuple[GivenTable, Visible]]]:
    """Return the tables with rows and their columns, by operator."""
    visible = {(one.variable.operator_id, one.variable.name): one for one in known}
    found: dict[int, list[tuple[GivenTable, Visible]]] = {}
    for one in tables:
        if one.place is not None:
            pair = (one, visible[one.operator_id, one.variable])
            found.setdefault(one.operator_id, []).append(pair)
    return found
