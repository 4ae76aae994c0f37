"""`state`: read what a savepoint holds as typed rows.

The savepoint is laid out as a checkpoint in a directory of its own below `scratch/` in the store,
which is on the same system as its files, and read there by Spark. The directory goes away with the
last look at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from savepoints.checkpoint.state import operators
from savepoints.checkpoint.state.files import is_of_operator, is_state_data
from savepoints.errors import UsageError
from savepoints.io import Location, in_parallel
from savepoints.model import Savepoint
from savepoints.operations.savepoint import restore, restore_checks
from savepoints.plan import Progress, silent
from savepoints.state.typed import to_json, typed
from savepoints.state.typed.typed import Variable
from savepoints.store.root import Store
from savepoints.store.savepoint import native
from savepoints.uri import Uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def read_state(
    store: Store,
    name: str,
    *,
    query: str | None = None,
    operator: int | None = None,
    state_store: str | None = None,
    variable: str | None = None,
    key: Mapping[str, str] | None = None,
    where: str | None = None,
    progress: Progress = silent,
) -> AbstractContextManager[DataFrame]:
    """Read state of a savepoint as a DataFrame, which can be used inside of a `with` block.

    ```python
    with store.savepoint("latest", query="clicks").read_state(key={"user": "ann"}) as rows:
        rows.show()
    ```

    Its columns are described in `savepoints.state.typed.typed`. The savepoint does not change.

    Args:
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME`.
        operator: The operator; not needed if there is only one.
        state_store: A store of a join as Spark lays it out, instead of its sides.
        variable: State variable of a `transformWithState`, `timers`, or side of a join, `left` or
            `right`; not needed if there is only one.
        key: Only rows whose key has these values, by field, written as text: `{"k": "42"}`; binary
            ones in base64.
        where: Only rows for which this SQL expression over the columns is true.
        progress: Called with one line for each step.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        AmbiguousNameError: If several fit.
        UsageError: If it is not clear which state is meant, the key has no such field, or the
            expression is none; the hint says what there is.
        VerificationError: If files of the savepoint are missing.
        IncompatibleError: If Spark cannot read this state as typed rows.
    """
    savepoint = store.catalog.find(name, query=query)
    chosen = choose(
        savepoint, variables(store, savepoint), operator, state_store=state_store, variable=variable
    )
    return rows(store, savepoint, chosen, key=key, where=where, progress=progress)


def variables(store: Store, savepoint: Savepoint) -> tuple[Variable, ...]:
    """List what can be read of a savepoint; no JVM."""
    described = [
        file for file in store.manifest(savepoint.id).native if operators.is_metadata(file.path)
    ]
    with restore_checks.damage_named(savepoint.id):
        data = in_parallel(lambda file: store.root.get(file.stored_at), described)
    found = [
        variable
        for file, content in zip(described, data, strict=True)
        for variable in typed.variables(content, file.path, savepoint.settings)
    ]
    return tuple(sorted(found, key=lambda one: one.operator_id))


def choose(
    savepoint: Savepoint,
    found: Sequence[Variable],
    operator: int | None = None,
    *,
    state_store: str | None = None,
    variable: str | None = None,
) -> Variable:
    """Find the one that is meant; if none fits, or several do, the hint lists them."""

    def fits(one: Variable) -> bool:
        if operator not in {None, one.operator_id}:
            return False
        if one.kind == "store":
            return one.store == state_store and variable is None
        if one.kind == "side" and state_store is not None:
            return False
        return state_store in {None, one.store} and variable in {None, one.name}

    fitting = [one for one in found if fits(one)]
    if len(fitting) == 1:
        return fitting[0]
    unreadable = [one for one in savepoint.operators if one.native_only]
    if not found and unreadable:
        raise UsageError(
            f"the state of savepoint {savepoint.id} cannot be read: {unreadable[0].native_only}",
            hint="restore the native form, which is complete: savepoints restore "
            f"{savepoint.id} --to s3://bucket/path",
            savepoint=savepoint.id,
        )
    if not found:
        raise UsageError(
            f"savepoint {savepoint.id} has no state, only offsets and outputs",
            hint=f"show the offsets and outputs: savepoints show {savepoint.id}",
            savepoint=savepoint.id,
        )
    listed = fitting or [one for one in found if one.kind != "store" or state_store is not None]
    problem = "has several kinds of state" if fitting else "has no state that matches the options"
    raise UsageError(
        f"savepoint {savepoint.id} {problem}",
        hint=f"choose one of: {'; '.join(one.options for one in listed)}",
        savepoint=savepoint.id,
    )


@contextmanager
def rows(
    store: Store,
    savepoint: Savepoint,
    variable: Variable,
    *,
    key: Mapping[str, str] | None = None,
    where: str | None = None,
    progress: Progress = silent,
) -> Iterator[DataFrame]:
    """Read one of the `variables` of a savepoint; see `read_state`."""
    from savepoints.spark.session import session

    with mounted(store, savepoint, {variable.operator_id}, progress) as checkpoint:
        progress("reading the state (starts Spark if it is not running)")
        spark = session(store.settings, f"savepoints state {savepoint.query}")
        own = typed.reading_session(spark, savepoint.cut)
        frame = typed.read_variable(own, checkpoint.uri, savepoint.cut.batch_id, variable)
        if key:
            frame = to_json.with_key(frame, key)
        yield to_json.where(frame, where) if where else frame


def free_target(to: str) -> Uri:
    """Return where Parquet files can be written: a directory without anything."""
    target = Location.of(to)
    parent, _, name = str(target).rpartition("/")
    if target.list() or Location.of(parent).exists(name):
        raise to_json.taken(target.uri)
    return target.uri


@contextmanager
def mounted(
    store: Store, savepoint: Savepoint, operator_ids: set[int], progress: Progress
) -> Iterator[Location]:
    """Lay out a savepoint as a checkpoint with the state of some operators, for a while."""
    progress(f"preparing savepoint {savepoint.id}")
    with store.scratch() as scratch:
        if "native" in savepoint.forms:
            with restore_checks.damage_named(savepoint.id):
                native.lay_out(
                    store.root,
                    store.manifest(savepoint.id).native,
                    lambda path: not is_state_data(path) or is_of_operator(path, operator_ids),
                    scratch,
                    savepoint.cut.partitions,
                )
        else:
            plan = restore.plan(store, savepoint.id, str(scratch), asked=False)
            restore.execute(plan, store, progress=progress)
        yield scratch
