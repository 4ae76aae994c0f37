"""Where a program is to be after a run, as offsets of topics or versions of tables."""

from __future__ import annotations

from savepoints.errors import UsageError
from savepoints.runtime.bounded import end_offsets, table_ends
from savepoints.runtime.bounded.bounded_run import KafkaEnd
from savepoints.runtime.bounded.bounded_tables import TableEnd
from savepoints.runtime.inputs import Inputs
from savepoints.sources import delta_versions
from savepoints.store.root import Store


def resolve(store: Store, inputs: Inputs, until: str) -> KafkaEnd | TableEnd:
    """Return where a program ends; see `end_offsets` and `table_ends`.

    Raises:
        UsageError: If it reads topics and tables.
    """
    if inputs.app.table_inputs:
        return of_tables(store, inputs, until)
    return of_topics(store, inputs, until)


def of_topics(store: Store, inputs: Inputs, until: str) -> KafkaEnd:
    """Return the offsets at which to end, and what Kafka and archives have."""
    found = inputs.ranges()
    ends = end_offsets.resolve(
        store,
        until,
        query=inputs.app.name,
        ranges=found,
        settings=inputs.kafka,
        archives=inputs.archives,
    )
    return KafkaEnd(ends, found)


def of_tables(store: Store, inputs: Inputs, until: str) -> TableEnd:
    """Return the versions at which to end, and what there is of the tables."""
    query = inputs.app.name
    if len(inputs.app.table_inputs) < len(inputs.app.inputs):
        raise UsageError(
            f"{query} reads both a table and a topic, so it cannot stop at a version, at "
            "offsets, at a time or at a savepoint",
            hint=f"read to the newest record instead: savepoints run {query} --until latest",
            query=query,
        )
    tables = delta_versions.read_each(map(inputs.table, inputs.app.table_inputs))
    return TableEnd(table_ends.resolve(store, until, query=query, tables=tables), tables)
