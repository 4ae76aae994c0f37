"""Applications: what a query computes, without saying what it is bound to.

```python
app = App(
    name="order_totals",
    inputs={
        "orders": Input(
            topic="orders", decode=decode, entity_key="customer_id", event_time="ordered_at"
        )
    },
    build=build,  # (inputs: Mapping[str, DataFrame]) -> DataFrame, pure
    outputs={"totals": Output(mode="upsert", key=("customer_id",))},
)
```

`build` is a function of streaming DataFrames only; topics, servers, tables and checkpoints come
from the settings when the application runs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, get_args

from savepoints.errors import UsageError, message_of
from savepoints.model import checked_name, several
from savepoints.outputs.delta.row_selection import RowSelection
from savepoints.outputs.delta.write import Mode

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from savepoints.config.settings import QuerySettings

# What Delta's change data feed has beside the columns of a table.
CHANGE_COLUMNS = "_change_type string, _commit_version long, _commit_timestamp timestamp_ltz"
# From rows of state as they were, in columns `key.NAME` and `value.NAME`, to the new columns, in
# the same order and called as the program's state calls them.
ValueMigration: TypeAlias = "Callable[[pa.RecordBatch], pa.RecordBatch]"
# From what a query has and what late events gave alone, row by row under the same key, to what they
# are together.
CombineFunction: TypeAlias = "Callable[[pa.RecordBatch, pa.RecordBatch], pa.RecordBatch]"


@dataclass(frozen=True)
class Input:
    """One source of events.

    Attributes:
        topic: Kafka topic, unless the settings name another.
        decode: From Kafka's raw columns (`key, value, headers, topic, partition, offset,
            timestamp`) to the columns that `build` wants.
        entity_key: Column that the state is kept by.
        event_time: Column with the time at which an event happened; Kafka's `timestamp` where
            events have none of their own.
        event_id: Columns by which two records are the same event; needed to archive the input, and
            to merge late events into it. `decode` then keeps Kafka's columns `topic`, `partition`
            and `offset`, which say whose record an event is.
        encode: From the columns of `decode` to Kafka's `key` and `value`, and to `timestamp` and
            `headers` where `decode` uses them, for late events that come decoded; `decode` has to
            give back the same. Without it they have to come as records.
    """

    topic: str
    decode: Callable[[DataFrame], DataFrame]
    entity_key: str
    event_time: str
    event_id: tuple[str, ...] = ()
    encode: Callable[[DataFrame], DataFrame] | None = None

    def __post_init__(self) -> None:
        """Refuse a text for columns, as `("id")` without a comma is."""
        several(self.event_id, "event_id")


def _as_they_are(rows: DataFrame) -> DataFrame:
    return rows


@dataclass(frozen=True, kw_only=True)
class TableInput:
    """A Delta table as a source of events: what another query writes, for example.

    The settings say where the table is, in `[queries.NAME.tables]`. It is read from its beginning,
    and then commit by commit.

    Examples:
        >>> orders = savepoints.TableInput(
        ...     columns="customer_id long, amount long, at timestamp",
        ...     entity_key="customer_id",
        ...     event_time="at",
        ... )
        >>> app = savepoints.App(
        ...     name="totals",
        ...     inputs={"orders": orders},  # [queries.totals.tables] orders = "s3://lake/orders"
        ...     build=lambda inputs: inputs["orders"].groupBy("customer_id").count(),
        ...     outputs={"totals": savepoints.Output(mode="complete")},
        ... )
        >>> list(app.table_inputs)
        ['orders']

    Attributes:
        columns: Those that the program reads, in Spark's words: `customer_id long, at timestamp`.
            The table may have others.
        entity_key: Column that the state is kept by, of what `decode` returns.
        event_time: Column of what `decode` returns with the time at which an event happened.
        event_id: Columns of what `decode` returns by which two rows are the same event.
        decode: From these columns of the table to those that `build` wants.
        changes: Read the table's change data feed, for a table whose rows change: `decode` then
            gets `_change_type`, `_commit_version` and `_commit_timestamp`, too.
    """

    columns: str
    entity_key: str
    event_time: str
    event_id: tuple[str, ...] = ()
    decode: Callable[[DataFrame], DataFrame] = _as_they_are
    changes: bool = False

    def __post_init__(self) -> None:
        """Refuse a text for columns, as `("id")` without a comma is."""
        several(self.event_id, "event_id")

    @property
    def schema(self) -> str:
        """What `decode` gets, in Spark's words."""
        return f"{self.columns}, {CHANGE_COLUMNS}" if self.changes else self.columns


@dataclass(frozen=True)
class Output:
    """One Delta table that the query writes.

    Attributes:
        mode: `append` adds rows; `upsert`, for Spark's output mode update, merges them into the
            table by `key`; `complete` replaces the table.
        key: Columns that identify a row, for `upsert`.
        entity_key: Column with the entity that a row is about, for merges; by default,
            the inputs' `entity_key`.
        where: SQL predicate over the columns of the result, when the table has only some of its
            rows: `rejected IS NULL`. It may depend on the row alone. Not for `upsert`: a row that
            no longer matches would stay in the table.
        columns: Names of columns, in the order of the table, when it has only some of them.
    """

    mode: Mode
    key: tuple[str, ...] = ()
    entity_key: str | None = None
    where: str | None = None
    columns: tuple[str, ...] = ()

    @property
    def selection(self) -> RowSelection:
        """Which part of the result it has."""
        return RowSelection(self.where, self.columns)

    def __post_init__(self) -> None:
        """Refuse other modes, what does not go with a mode, and a text for columns."""
        several(self.key, "key")
        several(self.columns, "columns")
        if self.mode not in get_args(Mode):
            raise UsageError(
                f"{self.mode!r} is not an output mode",
                hint=f"use one of: {', '.join(get_args(Mode))} (upsert is what Spark calls update)",
            )
        if (self.mode == "upsert") != bool(self.key):
            wrong = "needs a key" if self.mode == "upsert" else f"cannot have key={self.key!r}"
            raise UsageError(
                f"an output in mode {self.mode} {wrong}",
                hint="pass key=(…,) with the key columns in mode upsert, and no key in other modes",
            )
        if self.mode == "upsert" and self.where is not None:
            raise UsageError(
                f"an output in mode upsert cannot have where={self.where!r}: a row that no "
                "longer matches would stay in the table",
                hint="write all rows and let readers use a view with this condition, or use "
                "mode append",
            )
        if lacking := [name for name in self.key if self.columns and name not in self.columns]:
            raise UsageError(
                f"the key column {lacking[0]!r} is not among the columns of the output: "
                f"{', '.join(self.columns)}",
                hint=f"add {lacking[0]} to columns=(…,)",
            )


@dataclass(frozen=True)
class KeyMigration:
    """How state gets other keys when a savepoint is restored for a changed program.

    Attributes:
        keys: From rows of state as they were, in columns `key.NAME` and `value.NAME`, to the new
            key columns, in the same order and called as the program's state calls them.
        merge: From all rows that got one new key, with the program's key and value columns in
            `key.NAME` and `value.NAME`, to one row of its value columns. Without it two rows with
            one new key are refused.
    """

    keys: ValueMigration
    merge: ValueMigration | None = None


@dataclass(frozen=True)
class RowCombination:
    """How rows of an output become one, of the query's and of what late events gave alone.

    Attributes:
        key: Columns by which two rows are about the same.
        combine: From the rows of the query and the late ones, in the columns of the table, to what
            they are together; keys as they were, row for row.
    """

    key: tuple[str, ...]
    combine: CombineFunction


@dataclass(frozen=True)
class MergeFunctions:
    """How late events are worked in without replaying anything: `merge --policy merge-function`.

    The application reads the late events alone, beginning with nothing, and what it then has and
    writes is combined with what the query has and has written.

    Attributes:
        states: By Spark's name or the number of an operator: from the rows of state of the query
            and the late ones, both in columns `key.NAME` and `value.NAME`, to the value columns,
            called `NAME`, row for row.
        rows: By output.
    """

    states: Mapping[str, CombineFunction]
    rows: Mapping[str, RowCombination]


@dataclass(frozen=True)
class App:
    """A query that this library can run, restore, fork and compare.

    Attributes:
        name: Name of the query.
        inputs: Its sources by name, of Kafka or tables, in any order.
        build: Gets the decoded events by name of their input, and returns the result as a
            streaming DataFrame. It must be pure: it is called again after each restore.
        outputs: Where the result is written; each output gets all of it, or the part that its
            `where` and `columns` choose.
        migrate: For `restore --migrate`: how values of state become what they are now, or keys; by
            Spark's name or the number of the operator, the name of a state variable, or the side
            of a join.
        merge: For `merge --policy merge-function`; None where late events are only replayed.

    Examples:
        >>> def decode(records):  # Kafka's raw columns
        ...     return records.selectExpr(
        ...         "from_json(CAST(value AS STRING), 'user STRING, amount LONG') AS event",
        ...         "timestamp",
        ...     ).select("event.*", "timestamp")
        >>> def build(inputs):
        ...     return inputs["orders"].groupBy("user").agg({"amount": "sum"})
        >>> app = savepoints.App(
        ...     name="totals",
        ...     inputs={
        ...         "orders": savepoints.Input(
        ...             topic="orders", decode=decode, entity_key="user", event_time="timestamp"
        ...         )
        ...     },
        ...     build=build,
        ...     outputs={"totals": savepoints.Output(mode="upsert", key=("user",))},
        ... )
    """

    name: str
    inputs: Mapping[str, Input | TableInput]
    build: Callable[[Mapping[str, DataFrame]], DataFrame]
    outputs: Mapping[str, Output]
    migrate: Mapping[str, ValueMigration | KeyMigration] = field(default_factory=dict)
    merge: MergeFunctions | None = None

    def __post_init__(self) -> None:
        """Check that the names can be parts of paths and transaction ids."""
        for name in (self.name, *self.inputs, *self.outputs):
            checked_name(name, "application, input or output")

    @property
    def table_inputs(self) -> dict[str, TableInput]:
        """Its inputs that are tables."""
        return {name: one for name, one in self.inputs.items() if isinstance(one, TableInput)}

    def kafka_input(self, name: str) -> Input:
        """Return an input that is a topic.

        Raises:
            UsageError: If it is a table.
        """
        found = self.inputs[name]
        if isinstance(found, TableInput):
            raise UsageError(
                f"the input {name} of {self.name} is a table, but this operation works only if all "
                "inputs of the query are Kafka topics",
                hint="see what works for queries that read tables: docs/pipelines.md",
                query=self.name,
                input=name,
            )
        return found


def load(reference: str) -> App:
    """Import an application by `package.module:attribute`.

    Modules in the working directory are found, as with `python -m`.
    """
    module_name, separator, attribute = reference.partition(":")
    if not separator or not module_name or not attribute:
        raise UsageError(
            f"{reference!r} is not in the form package.module:attribute",
            hint="write, for example, spark_jobs.order_totals:app",
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the application {reference} cannot be imported: {error}",
            hint="run the command in the directory that contains the package, or install the "
            "package",
        ) from None
    except (Exception, SystemExit) as error:  # It is whatever the program raises.
        raise UsageError(
            f"the application {reference} cannot be imported: {type(error).__name__}: "
            f"{message_of(error)}",
            hint=f"find the cause with: python -c 'import {module_name}'",
        ) from error
    found = getattr(module, attribute, None)
    if not isinstance(found, App):
        known = [f"{module_name}:{n}" for n, v in vars(module).items() if isinstance(v, App)]
        raise UsageError(
            f"{reference} is of type {type(found).__name__}, not savepoints.App"
            if hasattr(module, attribute)
            else f"{module_name} has no attribute {attribute}",
            hint=f"name an App of that module: {', '.join(known)}"
            if known
            else "name another module, or define a savepoints.App in that one",
        )
    return found


def load_for(query: str, bound: QuerySettings) -> App:
    """Import what runs a query, under the name of the query.

    One application may run as several queries: a fork, for example. That has to be said by
    `app_name`, so that a query does not by mistake go on with the program of another one.
    """
    application = load(bound.app)
    if application.name not in {query, bound.app_name}:
        raise UsageError(
            f"{bound.app} is the application {application.name!r}, not {bound.app_name or query!r}",
            hint=f"run it under its own name: savepoints run {application.name}; or set "
            f'app_name = "{application.name}" in [queries.{query}]',
        )
    named = replace(application, name=query)
    require_tables(named, bound.outputs)
    _require_sources(named, bound.tables)
    return named


def require_tables(application: App, tables: Mapping[str, str]) -> None:
    """Check that each output has a table."""
    missing = [name for name in application.outputs if name not in tables]
    if missing:
        raise UsageError(
            f"output {missing[0]!r} of {application.name} has no table",
            hint=_naming(
                missing[0], f"queries.{application.name}.outputs", application.outputs, tables
            ),
        )


def _require_sources(application: App, tables: Mapping[str, str]) -> None:
    wanted = application.table_inputs
    missing = [name for name in wanted if name not in tables]
    if missing:
        raise UsageError(
            f"the input {missing[0]!r} of {application.name} is a table, but the settings do "
            "not say where it is",
            hint=_naming(missing[0], f"queries.{application.name}.tables", wanted, tables),
        )


def _naming(missing: str, section: str, wanted: Iterable[str], tables: Mapping[str, str]) -> str:
    """Return how to name a table in the settings, where one may have a misspelt name."""
    unknown = [name for name in tables if name not in wanted]
    if near := get_close_matches(missing, unknown, n=1):
        return f"rename {near[0]} to {missing} in [{section}] in the settings"
    return f'name it in [{section}] in the settings: {missing} = "s3://bucket/path"'
