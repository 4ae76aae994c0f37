"""Writing what `restore --migrate` has planned."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from savepoints import faults
from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.evolution.upgrade import Upgrade
from savepoints.checkpoint.logs.commit_log import StateIds
from savepoints.checkpoint.small_files import Skeleton, may_change
from savepoints.checkpoint.state.files import is_of_operator
from savepoints.config.settings import Settings
from savepoints.errors import (
    IncompatibleError,
    NotAlignedError,
    SavepointsError,
)
from savepoints.io import Location, in_parallel
from savepoints.model import Cut, OperatorState, Savepoint
from savepoints.operations.migrate.upgrade_check import ProgramComparison
from savepoints.operations.savepoint import restore, restore_checks, restored_layout
from savepoints.operations.savepoint.restore import Restored, RestorePlan
from savepoints.plan import Progress
from savepoints.store.root import Store
from savepoints.store.savepoint import canonical, native
from savepoints.store.savepoint.manifest import Manifest, StoredFile

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
        begun = time.monotonic()
        stored = self.store.manifest(self.plan.savepoint_id)
        read = (*copied_files(stored, self.operators), *stored.canonical)
        restore_checks.require_intact(self.store, self.plan.savepoint_id, read, self.settings)
        spark = self._spark() if self.written else None
        return restore.fill(
            self.plan, self.store, stored, lambda: self._write(stored, spark), begun=begun
        )

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

    def _spark(self) -> SparkSession:
        from savepoints.spark.session import session
        from savepoints.state.storage import write

        spark = session(self.settings, f"savepoints restore {self.plan.query}")
        write.require_writable(spark, self.cut)
        return spark

    def _write(self, stored: Manifest, spark: SparkSession | None) -> None:
        """Write everything but `metadata`, and check it."""
        plan, target, root = self.plan, self.target, self.store.root
        given = plan.sources
        sources = None if given is None else restore.source_map(self.store, stored, given)
        skeleton = Skeleton(target.uri, plan.partitions, plan.conf, sources)
        by_hand = [one.operator_id for one in self.operators if one.native_only]
        copied = copied_files(stored, self.operators)
        if sources is not None:
            places = [(file, sources.place(file.path)) for file in copied]
            copied = [replace(file, path=place) for file, place in places if place is not None]
        # Spark would refuse to write any state beside that of an operator that it cannot read.
        later = [file for file in copied if is_of_operator(file.path, by_hand)]
        first = [file for file in copied if file not in later]
        self.progress(f"copying {len(copied)} files to {target}")
        native.mount(root, first, target, skeleton)
        made = {
            path: skeleton.changed(path, data)
            for path, data in self.compared.program.files.items()
            if not is_of_operator(path, by_hand)
        }
        in_parallel(lambda path: target.put(path, made[path]), list(made))
        faults.reach("restore.files")
        renamed = self._name_state({}) if spark is None else self._write_rows(spark)
        native.mount(root, later, target, skeleton)
        faults.reach("restore.state")
        restored_layout.check(target, plan.batch_id, self.operators, plan.provider)
        restore_checks.check_copies(
            target,
            [one for one in copied if not may_change(one.path) and one.path != renamed],
        )

    def _name_state(self, ids: StateIds) -> str | None:
        """Say in the commit log of checkpoint format 2 what was written, and nothing that is gone.

        Returns:
            The file that was changed; None if nothing had to be.
        """
        numbers = {one.operator_id for one in self.operators}
        return restore.name_state(self.target, self.plan.batch_id, ids, numbers)

    def _write_rows(self, spark: SparkSession) -> str | None:
        """Write the state and count it; return the commit log file that was changed for it."""
        from savepoints.state.change import migrate
        from savepoints.state.storage import write

        plan = self.plan
        program = self.compared.program
        self.progress(f"writing {plan.rows} state rows (starts Spark if it does not run yet)")
        rows = migrate.Migration(self.compared.transfers, program.values, program.keys)
        try:
            written = write.write_state(
                spark,
                self.target,
                canonical.table(self.store.root, plan.savepoint_id).uri,
                self.cut,
                self.written,
                rows_of=rows.rows_of,
                saved=self.compared.savepoint.operators,
            )
        except SavepointsError as error:
            raise _of_a_row(error) from error
        finally:
            rows.release()
        renamed = self._name_state(written.ids)
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

    def state(one: OperatorShape) -> OperatorState:
        schemas = [schema for each in one.stores.values() for schema in each]
        return OperatorState(
            one.operator_id,
            one.name,
            tuple(sorted(one.stores)),
            1 if one.is_keyless else savepoint.cut.partitions or 1,
            native_only=one.native_only,
            keyless=one.is_keyless,
            column_families=any(schema.key_encoder is not None for schema in schemas),
        )

    return tuple(state(one) for one in compared.program.operators)


def copied_files(stored: Manifest, operators: Sequence[OperatorState]) -> list[StoredFile]:
    """Return the files that are copied: logs and sources, and operators that keep their files."""
    by_hand = [one.operator_id for one in operators if one.native_only]
    return [
        file
        for file in stored.native
        if not file.path.startswith("state/") or is_of_operator(file.path, by_hand)
    ]


def require_counts(report: Upgrade, counted: Mapping[int, int], merged: Mapping[int, int]) -> None:
    """Compare what was written with what the savepoint has.

    Args:
        merged: How many new keys there are, by operator that gets some.

    Raises:
        NotAlignedError: If rows are missing, or too many.
    """
    for one in report.operators:
        number = one.operator_id
        if number is None or number not in counted:
            continue
        expected = (one.rows or 0) - sum(each.rows or 0 for each in one.dropped)
        expected = min(expected, merged.get(number, expected))
        if counted[number] != expected:
            raise NotAlignedError(
                f"operator {number} ({one.name}) has {counted[number]} rows of state where "
                f"{expected} were to be written",
                hint="run the command again; the directory cannot be started as it is",
                operator_id=number,
            )
