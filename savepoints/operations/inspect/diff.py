"""`diff`: what two savepoints have that is not the same.

Operators whose content hashes are equal are equal and not read; for the rest a Spark job compares
row by row. How state is kept (partitions, provider, formats) is no difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from savepoints import notebook
from savepoints.checkpoint.logs.kafka_position import by_partition, kafka_offsets
from savepoints.errors import IncompatibleError, UsageError
from savepoints.io import Location
from savepoints.model import OperatorState, Savepoint
from savepoints.operations.inspect import read_state
from savepoints.plan import Progress, silent
from savepoints.result import Result
from savepoints.state.typed import compare, typed
from savepoints.state.typed.compare import VariableDifference
from savepoints.state.typed.typed import Variable
from savepoints.store.root import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")


@dataclass(frozen=True)
class ValueChange(Generic[T]):
    """A value in the first and in the second savepoint.

    Attributes:
        before: In the first.
        after: In the second.
    """

    before: T
    after: T

    @property
    def differs(self) -> bool:
        """Whether they are not the same."""
        return self.before != self.after


@dataclass(frozen=True)
class OffsetChange:
    """A source position that differs between the savepoints.

    Attributes:
        source: Number of the source.
        topic: Kafka's topic, None for other sources.
        partition: Kafka's partition, None for other sources.
        before: Next to read in the first savepoint: a number for Kafka, JSON text for other
            sources, None when there is no position.
        after: The same in the second one.
    """

    source: int
    topic: str | None
    partition: int | None
    before: int | str | None
    after: int | str | None

    def __str__(self) -> str:
        """Name the position: `source 0`, or with Kafka `source 0, orders/1`."""
        of_topic = "" if self.topic is None else f", {self.topic}/{self.partition}"
        return f"source {self.source}{of_topic}"


@dataclass(frozen=True)
class OperatorChange:
    """An operator that only one of the savepoints has.

    Attributes:
        operator_id: Spark's number of the operator.
        operator_name: Spark's name of the operator.
    """

    operator_id: int
    operator_name: str

    def __str__(self) -> str:
        """Name it: `operator 0 (stateStoreSave)`."""
        return f"operator {self.operator_id} ({self.operator_name})"


@dataclass(frozen=True)
class VariableDiff:
    """How the rows of a state variable differ.

    Attributes:
        variable: The variable; one that both have is described as in the second savepoint.
        rows: Counts and a sample.
    """

    variable: Variable
    rows: VariableDifference


@dataclass(frozen=True)
class Diff(Result):
    """The differences between two savepoints.

    Attributes:
        savepoints: Their ids.
        batch_id: Their batches.
        watermark_ms: Their watermarks.
        offsets: Positions that differ.
        settings: Settings of the batch that differ. They do not count as a difference: most say
            how state is kept.
        operators_added: Operators that only the second savepoint has.
        operators_removed: Operators that only the first one has.
        same_contents: Ids of operators that have equal content hashes.
        variables: State that was read and compared.
    """

    savepoints: ValueChange[str]
    batch_id: ValueChange[int]
    watermark_ms: ValueChange[int]
    offsets: tuple[OffsetChange, ...]
    settings: dict[str, ValueChange[str | None]]
    operators_added: tuple[OperatorChange, ...]
    operators_removed: tuple[OperatorChange, ...]
    same_contents: tuple[int, ...]
    variables: tuple[VariableDiff, ...]

    @property
    def equal(self) -> bool:
        """Whether they are the same but for settings."""
        return not (
            self.batch_id.differs
            or self.watermark_ms.differs
            or self.offsets
            or self.operators_added
            or self.operators_removed
            or any(not one.rows.equal for one in self.variables)
        )

    def to_json(self) -> dict[str, Any]:
        """Return the diff as JSON values; numbers in rows are exact."""
        return {"equal": self.equal, **dataclasses.asdict(self)}

    def _repr_html_(self) -> str:
        """Return it as a notebook shows it: cut, offsets and settings side by side, then state."""
        ids = self.savepoints
        rows: list[tuple[object, object, object]] = [
            ("batch", self.batch_id.before, self.batch_id.after),
            ("watermark, ms since 1970", self.watermark_ms.before, self.watermark_ms.after),
            *((one, one.before, one.after) for one in self.offsets),
            *((f"setting {name}", one.before, one.after) for name, one in self.settings.items()),
        ]
        differ = "no difference" if self.equal else "differences"
        return notebook.table(
            f"{differ} between {ids.before} and {ids.after}",
            rows,
            columns=("", ids.before, ids.after),
            notes=self._state_notes(),
        )

    def _state_notes(self) -> list[str]:
        """Say of each operator that was compared what came of it."""
        return [
            *(f"{one} was added" for one in self.operators_added),
            *(f"{one} was removed" for one in self.operators_removed),
            *(f"operator {one} has the same contents" for one in self.same_contents),
            *(
                f"{one.variable}: {one.rows.added:,} rows added, {one.rows.removed:,} removed, "
                f"{one.rows.changed:,} changed" + (", different columns" if one.rows.layout else "")
                for one in self.variables
            ),
        ]


def diff(
    store: Store,
    before: str,
    after: str,
    *,
    query: str | None = None,
    operator: int | None = None,
    sample: int = 10,
    progress: Progress = silent,
) -> Diff:
    """Compare two savepoints, of one query or of two. Nothing is changed.

    Needs no JVM if the content hashes of all operators are equal and know the order within lists.

    Args:
        before: The first one: id, prefix, tag, `latest`, `latest~2` or `@TIME`.
        after: The second one.
        operator: Compare the state of this operator only.
        sample: How many rows of each difference to give.
        progress: Called with one line for each step.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        AmbiguousNameError: If several fit.
        UsageError: If neither has this operator.
        VerificationError: If files of a savepoint are missing.
        IncompatibleError: If Spark cannot read some state as typed rows.
    """
    store = store.snapshot()
    pair = ValueChange(*(store.catalog.find(name, query=query) for name in (before, after)))
    operators = ValueChange(*(_operators(one, operator) for one in (pair.before, pair.after)))
    if operator is not None and not (operators.before or operators.after):
        raise UsageError(
            f"neither {pair.before.id} nor {pair.after.id} has an operator {operator}",
            hint="omit --operator, or see which operators there are: savepoints show "
            f"{pair.after.id}",
        )
    found = ValueChange(*(read_state.variables(store, one) for one in (pair.before, pair.after)))
    same, unknown = [], set()
    for one in operators.before.keys() & operators.after.keys():
        if pair.before.id == pair.after.id or _same_contents(
            operators.before[one], operators.after[one], found.after
        ):
            same.append(one[0])
        else:
            unknown.add(one[0])
    _require_readable(pair, found, unknown)
    return dataclasses.replace(
        of_catalog(pair.before, pair.after, operator=operator),
        same_contents=tuple(sorted(same)),
        variables=tuple(_rows(store, pair, found, unknown, sample, progress) if unknown else ()),
    )


def of_catalog(before: Savepoint, after: Savepoint, *, operator: int | None = None) -> Diff:
    """Compare what the catalog says of two savepoints; no file of them is read.

    The contents of an operator are the same when its hashes are. Those of savepoints of earlier
    versions do not know the order of elements within lists.
    """
    pair = ValueChange(before, after)
    operators = ValueChange(*(_operators(one, operator) for one in (before, after)))
    return Diff(
        savepoints=ValueChange(before.id, after.id),
        batch_id=ValueChange(before.cut.batch_id, after.cut.batch_id),
        watermark_ms=ValueChange(before.cut.watermark_ms, after.cut.watermark_ms),
        offsets=tuple(_offsets(pair)),
        settings=_settings(pair),
        operators_added=_only(operators.after, operators.before),
        operators_removed=_only(operators.before, operators.after),
        same_contents=tuple(
            sorted(
                place[0]
                for place in operators.before.keys() & operators.after.keys()
                if (known := operators.before[place].content_hash) is not None
                and known == operators.after[place].content_hash
            )
        ),
        variables=(),
    )


def _operators(savepoint: Savepoint, wanted: int | None) -> dict[tuple[int, str], OperatorState]:
    return {
        (one.operator_id, one.name): one
        for one in savepoint.operators
        if wanted in {None, one.operator_id}
    }


def _only(
    these: dict[tuple[int, str], OperatorState], others: dict[tuple[int, str], OperatorState]
) -> tuple[OperatorChange, ...]:
    return tuple(OperatorChange(*one) for one in sorted(these.keys() - others.keys()))


def _same_contents(before: OperatorState, after: OperatorState, found: Sequence[Variable]) -> bool:
    """Return True if an operator is known to be the same in both.

    Lists have to be read where the content hash does not know the order of elements.
    """
    known = after.content_hash
    if known is None or known != before.content_hash:
        return False
    lists = any(one.kind == "list" and one.operator_id == after.operator_id for one in found)
    return not lists or "-" in known


def _require_readable(
    pair: ValueChange[Savepoint], found: ValueChange[tuple[Variable, ...]], operator_ids: set[int]
) -> None:
    """Refuse operators of which neither side says what can be read: nothing read is not equal.

    Spark 3.5 writes no metadata of operators, which say that.
    """
    described = {one.operator_id for one in (*found.before, *found.after)}
    if unread := sorted(operator_ids - described):
        raise IncompatibleError(
            f"the state of operator {' and of operator '.join(map(str, unread))} in "
            f"{pair.before.id} and {pair.after.id} cannot be compared: Spark wrote no operator "
            "metadata (versions before 4.0 do not)",
            hint="compare only the outputs and metrics of the queries: savepoints compare "
            "BASELINE QUERY --no-state",
            savepoints=[pair.before.id, pair.after.id],
        )


def _settings(pair: ValueChange[Savepoint]) -> dict[str, ValueChange[str | None]]:
    names = sorted(pair.before.settings.keys() | pair.after.settings.keys())
    changes = {
        name: ValueChange(pair.before.settings.get(name), pair.after.settings.get(name))
        for name in names
    }
    return {name: change for name, change in changes.items() if change.differs}


def _offsets(pair: ValueChange[Savepoint]) -> list[OffsetChange]:
    positions = ValueChange(*(_positions(one) for one in (pair.before, pair.after)))
    places = positions.before.keys() | positions.after.keys()
    return [
        OffsetChange(*place, positions.before.get(place), positions.after.get(place))
        for place in sorted(places, key=lambda one: (one[0], one[1] or "", one[2] or 0))
        if positions.before.get(place) != positions.after.get(place)
    ]


def _positions(savepoint: Savepoint) -> dict[tuple[int, str | None, int | None], int | str | None]:
    found: dict[tuple[int, str | None, int | None], int | str | None] = {}
    for source, position in enumerate(savepoint.cut.offsets):
        topics = kafka_offsets(position)
        if topics is None:
            found[source, None, None] = position
        else:
            found |= {
                (source, topic, partition): offset
                for topic, partition, offset in by_partition(topics)
            }
    return found


def _rows(
    store: Store,
    pair: ValueChange[Savepoint],
    found: ValueChange[tuple[Variable, ...]],
    operator_ids: set[int],
    sample: int,
    progress: Progress,
) -> list[VariableDiff]:
    """Read and compare all state of some operators, which both savepoints have."""
    from savepoints.spark.session import session

    with ExitStack() as stack:
        checkpoints = [
            stack.enter_context(read_state.mounted(store, one, operator_ids, progress))
            for one in (pair.before, pair.after)
        ]
        progress("comparing the state (starts Spark if it is not running)")
        spark = session(store.settings, f"savepoints diff {pair.after.query}")

        def reader(savepoint: Savepoint, checkpoint: Location) -> Callable[[Variable], DataFrame]:
            own = typed.reading_session(spark, savepoint.cut)
            batch_id = savepoint.cut.batch_id
            return partial(typed.read_variable, own, checkpoint.uri, batch_id, whole_lists=True)

        read_before, read_after = map(reader, (pair.before, pair.after), checkpoints)
        before, after = (_by_name(one, operator_ids) for one in (found.before, found.after))
        compared = []
        for name in dict.fromkeys([*before, *after]):
            variable = after.get(name) or before[name]
            progress(f"comparing {variable}")
            rows = compare.compare_variables(
                read_before(before[name]) if name in before else None,
                read_after(after[name]) if name in after else None,
                variable.kind,
                sample,
            )
            compared.append(VariableDiff(variable, rows))
        return compared


def _by_name(
    found: Sequence[Variable], operator_ids: set[int]
) -> dict[tuple[int, str, str | None], Variable]:
    """Return what is compared: the sides of a join, not the stores that they are kept in."""
    return {
        (one.operator_id, one.kind, one.name): one
        for one in found
        if one.kind != "store" and one.operator_id in operator_ids
    }
