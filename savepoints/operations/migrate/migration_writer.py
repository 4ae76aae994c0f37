"""Writing what `restore --migrate` has planned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.evolution.upgrade import Upgrade
from savepoints.checkpoint.logs.commit_log import StateIds
from savepoints.checkpoint.state.files import is_of_operator
from savepoints.config.settings import Settings
from savepoints.errors import IncompatibleError, NotAlignedError, SavepointsError
from savepoints.io import Location
from savepoints.model import Cut, OperatorState, Savepoint
from savepoints.operations.migrate.upgrade_check import ProgramComparison
from savepoints.operations.savepoint import restore, restored_layout
from savepoints.operations.savepoint.restore import Contents, Restored, RestorePlan
from savepoints.operations.savepoint.state_rows import state_rows
from savepoints.plan import Progress
from savepoints.store.root import Store
from savepoints.store.savepoint.manifest import Manifest, StoredFile
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# How our own error stands in what Spark says of a task.
_RAISED = re.compile(r"savepoints\.errors\.IncompatibleError: (.+)")
_ROW_HINT = "correct the program, or its migrate={…}, and run the command again"


@dataclass(frozen=True)
class Writing:
    """One execution of a plan."""

    plan: RestorePlan
    compared: ProgramComparison
    store: Store
    settings: Settings
    progress: Progress

    def restored(self) -> Restored:
        """Write everything, `metadata` last."""
        stored = self.store.manifest(self.plan.savepoint_id)
        copied = copied_files(stored, self.operators)
        contents = Contents(copied, self.operators, self._start, self.compared.program.files)
        return restore.make(self.plan, self.store, stored, contents, self.progress)

    @property
    def target(self) -> Location:
        """The directory to be."""
        return Location.of(self.plan.target)

    @property
    def cut(self) -> Cut:
        """As it is to be."""
        cut = self.compared.savepoint.cut
        return replace(cut, partitions=self.plan.partitions, provider=self.plan.provider)

    @property
    def operators(self) -> tuple[OperatorState, ...]:
        """The program's."""
        return operators_of(self.compared.savepoint, self.compared)

    @property
    def written(self) -> tuple[OperatorState, ...]:
        """Those whose rows are written."""
        return tuple(one for one in self.operators if one.native_only is None)

    def _start(self) -> Callable[[], str | None]:
        """Start Spark, if any rows are to be written, and return what writes them."""
        if not self.written:
            return partial(self._name, {})
        from savepoints.spark.session import session
        from savepoints.state.storage import write

        spark = session(self.settings, f"savepoints restore {self.plan.query}")
        write.require_writable(spark, self.cut)
        return partial(self._write_rows, spark)

    def _name(self, ids: StateIds) -> str | None:
        """Name in the commit log of format 2 what was written, and nothing that is gone."""
        numbers = {one.operator_id for one in self.operators}
        return restored_layout.name_state(self.target, self.plan.batch_id, ids, numbers)

    def _write_rows(self, spark: SparkSession) -> str | None:
        """Write the state and count it; return the commit log file that was changed for it."""
        from savepoints.state.change import migrate
        from savepoints.state.storage import read, write

        plan = self.plan
        program = self.compared.program
        self.progress(f"writing {plan.rows} state rows (starts Spark if it is not running)")
        rows = migrate.Migration(self.compared.transfers, program.values, program.keys)
        stored = self.store.manifest(plan.savepoint_id)
        own = read.reading_session(spark, self.cut.checkpoint_format)
        try:
            with state_rows(stored, self.store, own) as saved:
                written = write.write_state(
                    spark,
                    self.target,
                    saved,
                    self.cut,
                    self.written,
                    rows_of=rows.rows_of,
                    saved_operators=self.compared.savepoint.operators,
                )
        except SavepointsError as error:
            raise _of_a_row(error) from error
        finally:
            rows.release()
        renamed = self._name(written.ids)
        counted = write.count(spark, self.target, self.cut, self.written, written)
        require_counts(self.compared.upgrade, counted, rows.merged)
        return renamed


def _of_a_row(error: SavepointsError) -> SavepointsError:
    """Return what went wrong with a row, of what Spark says of the task that failed."""
    match = _RAISED.search(error.message)
    if match is None:
        return error
    return IncompatibleError(match.group(1), hint=_ROW_HINT)


def operators_of(savepoint: Savepoint, compared: ProgramComparison) -> tuple[OperatorState, ...]:
    """Describe the operators of the program as a savepoint would have them."""
    partitions = savepoint.cut.partitions or 1
    return tuple(state_of(one, partitions) for one in compared.program.operators)


def state_of(one: OperatorShape, partitions: int) -> OperatorState:
    """Describe an operator of a program as a savepoint with so many state partitions would."""
    schemas = [schema for each in one.stores.values() for schema in each]
    return OperatorState(
        one.operator_id,
        one.name,
        tuple(sorted(one.stores)),
        1 if one.is_keyless else partitions,
        native_only=one.native_only,
        keyless=one.is_keyless,
        column_families=any(schema.key_encoder is not None for schema in schemas),
    )


def copied_files(stored: Manifest, operators: Sequence[OperatorState]) -> list[StoredFile]:
    """Return the files that are copied: logs and sources, and operators that keep their files."""
    by_hand = [one.operator_id for one in operators if one.native_only]
    return [
        file
        for file in stored.native
        if not file.path.startswith("state/") or is_of_operator(file.path, by_hand)
    ]


def require_counts(report: Upgrade, counted: Mapping[int, int], merged: Mapping[int, int]) -> None:
    """Compare what was written with the savepoint; `merged` has the new keys by operator."""
    for one in report.operators:
        number = one.operator_id
        if number is None or number not in counted:
            continue
        expected = (one.rows or 0) - sum(each.rows or 0 for each in one.dropped)
        expected = min(expected, merged.get(number, expected))
        if counted[number] != expected:
            raise NotAlignedError(
                f"operator {number} ({one.name}) has {count_text(counted[number], 'row')} of state "
                f"in the new checkpoint, but should have {expected:,}",
                hint="run the command again; do not start the query from this checkpoint",
                operator_id=number,
            )
