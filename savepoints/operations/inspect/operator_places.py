"""Where the state of a query is: the stores of each operator, their columns and files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.state import files as state_files
from savepoints.checkpoint.state import layout, schema
from savepoints.checkpoint.state.operators import Operator
from savepoints.checkpoint.state.schema import StateField
from savepoints.errors import IncompatibleError
from savepoints.io import Location, in_parallel
from savepoints.model import Savepoint

_NO_SCHEMA = "it has no state schema file"


@dataclass(frozen=True)
class StateColumn:
    """A column of a state key or value.

    Attributes:
        name: Its name.
        type: Its type on one line: `struct<start:timestamp,end:timestamp>`.
    """

    name: str
    type: str


@dataclass(frozen=True)
class ColumnFamily:
    """A part of a state store with a key and a value of its own.

    Attributes:
        name: Its name; `default` in stores without column families.
        key: Columns of the key; none in a state without grouping keys.
        value: Columns of the value, none in a deduplication; columns of type void hold nothing and
            are left out.
    """

    name: str
    key: tuple[StateColumn, ...]
    value: tuple[StateColumn, ...]


@dataclass(frozen=True)
class StorePlace:
    """A state store of an operator, over all its partitions.

    Attributes:
        name: Spark's name of it.
        files: State files that make the batch.
        bytes: Their bytes.
        families: Its column families, one in most stores; empty where they could not be read.
        problem: Why its columns could not be read; empty when they were.
    """

    name: str
    files: int
    bytes: int
    families: tuple[ColumnFamily, ...]
    problem: str = ""


@dataclass(frozen=True)
class CountedRows:
    """Rows of an operator as a savepoint counted them.

    Attributes:
        rows: How many.
        savepoint_id: The savepoint.
        batch_id: Its batch, which may be older than the newest one.
    """

    rows: int
    savepoint_id: str
    batch_id: int


@dataclass(frozen=True)
class OperatorPlace:
    """A stateful operator and where its state is.

    Attributes:
        operator_id: Spark's number; operators count from the sink.
        name: Spark's name, such as `stateStoreSave`; `unknown` before Spark 4.0.
        partitions: Number of state partitions that exist.
        files: State files of all its stores that make the batch.
        bytes: Their bytes.
        rows: As the newest savepoint that counted them has them; null when none did.
        stores: Its state stores.
    """

    operator_id: int
    name: str
    partitions: int
    files: int
    bytes: int
    rows: CountedRows | None
    stores: tuple[StorePlace, ...]


def of_cut(
    checkpoint: Location, files: CutFiles, saved: Sequence[Savepoint]
) -> tuple[OperatorPlace, ...]:
    """Describe the operators of a batch, from the sink."""
    schemas = _schemas(checkpoint, files)
    counts, sizes = _sizes(files)

    def store(operator_id: int, name: str) -> StorePlace:
        families, problem = schemas.get((operator_id, name), ((), _NO_SCHEMA))
        of = (operator_id, name)
        return StorePlace(name, counts[of], sizes[of], families, problem)

    found = []
    for one in files.operators:
        stores = tuple(store(one.operator_id, name) for name in one.stores)
        found.append(
            OperatorPlace(
                operator_id=one.operator_id,
                name=one.name,
                partitions=files.partitions[one.operator_id],
                files=sum(store.files for store in stores),
                bytes=sum(store.bytes for store in stores),
                rows=_counted(one, saved),
                stores=stores,
            )
        )
    return tuple(found)


def _schemas(
    checkpoint: Location, files: CutFiles
) -> dict[tuple[int, str], tuple[tuple[ColumnFamily, ...], str]]:
    """Read the columns of each store, or why they cannot be read, by operator and store."""
    paths = layout.newest(info.path for info in files.small)

    def read(path: str) -> tuple[tuple[ColumnFamily, ...], str]:
        try:
            return tuple(
                ColumnFamily(one.column_family, _columns(one.key), _columns(one.value))
                for one in schema.parse(checkpoint.get(path), path)
            ), ""
        except IncompatibleError as error:
            return (), error.message
        except FileNotFoundError:
            return (), f"{path} was removed in the meantime"

    return dict(zip(paths, in_parallel(read, list(paths.values())), strict=True))


def _columns(fields: Sequence[StateField]) -> tuple[StateColumn, ...]:
    return tuple(
        StateColumn(one.name, schema.type_text(one.type)) for one in fields if one.type != "void"
    )


def _sizes(files: CutFiles) -> tuple[Counter[tuple[int, str]], Counter[tuple[int, str]]]:
    """Return the number of state files and their bytes, by operator and store."""
    counts: Counter[tuple[int, str]] = Counter()
    sizes: Counter[tuple[int, str]] = Counter()
    by_path = {info.path: info.size for info in (*files.state, *files.ssts)}
    for directory in state_files.store_directories(by_path):
        of = (directory.operator_id, directory.store)
        counts[of] += len(directory.files)
        sizes[of] += sum(by_path[f"{directory.path}/{name}"] for name in directory.files)
    return counts, sizes


def _counted(operator: Operator, saved: Sequence[Savepoint]) -> CountedRows | None:
    """Return the newest count of an operator's rows."""
    return next(
        (
            CountedRows(state.rows, savepoint.id, savepoint.cut.batch_id)
            for savepoint in saved
            for state in savepoint.operators
            if (state.operator_id, state.name) == (operator.operator_id, operator.name)
            and state.rows is not None
        ),
        None,
    )
