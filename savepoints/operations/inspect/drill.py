"""`drill`: restore a savepoint for real, in isolation, and compare what comes of it with live.

The savepoint is restored into a scratch directory of the store, timed. When the application is
known and the query still lives in the savepoint's generation, every batch that the live query has
committed since is run again there, with the very offsets of the live offset log and into copies of
the outputs. Then state and outputs must equal those of the live query at that batch. Nothing of the
live query is touched.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from savepoints.checkpoint.cut import CutFiles, read_cut
from savepoints.checkpoint.logs.kafka_position import lowest_offsets
from savepoints.config.settings import Settings
from savepoints.errors import NoCommittedBatchError
from savepoints.io import Location
from savepoints.model import Form, OutputVersion, Savepoint, hashes_agree
from savepoints.observe.recorder import recording
from savepoints.operations.savepoint import forms, history, restore, restore_checks
from savepoints.operations.savepoint.output_versions import outputs_of
from savepoints.outputs.compare import by_row
from savepoints.plan import Progress, silent
from savepoints.result import Result
from savepoints.runtime import app as apps
from savepoints.runtime.archive_of import runner_of
from savepoints.runtime.bounded import bounded_run
from savepoints.runtime.inputs import Inputs
from savepoints.sources.combined import availability
from savepoints.store import bindings
from savepoints.store.root import Store
from savepoints.store.savepoint import native
from savepoints.store.savepoint.manifest import StoredFile
from savepoints.store.tables.events import NOT_COMPARED
from savepoints.texts import count_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from savepoints.state.storage.canonical_table import Contents

DrillVerdict = Literal["same", "different", "restored"]

_NOTHING_RECORDED = "the savepoint has only the native form, so it recorded nothing of the rows"
_CHECKPOINT, _LIVE, _PLANNED = "checkpoint", "live", "planned"  # below scratch


@dataclass(frozen=True)
class DrillDifference:
    """A difference from the live query.

    Attributes:
        what: The operator or the output.
        problem: How it differs.
    """

    what: str
    problem: str


@dataclass(frozen=True)
class NotCompared:
    """State that was restored, but could not be compared.

    Attributes:
        operator_id: The operator's number.
        why: The reason.
    """

    operator_id: int
    why: str


@dataclass(frozen=True)
class Drilled(Result):
    """What a drill found out.

    Attributes:
        savepoint_id: What was restored.
        query: Its query.
        verdict: `same` as live, `different`, or only `restored` and equal to what was recorded.
        compared_with: What it was compared with, in words.
        form: The form that was restored.
        restore_seconds: The measured recovery time: until a query could have been started.
        batch_id: The batch of the savepoint.
        live_batch: The batch of the live query up to which was replayed, None without a replay.
        replay_seconds: How long the replay took.
        differences: Empty unless `different`.
        not_compared: Operators whose state the verdict says nothing of.
        seconds: The whole drill.
    """

    savepoint_id: str
    query: str
    verdict: DrillVerdict
    compared_with: str
    form: Form
    restore_seconds: float
    batch_id: int
    live_batch: int | None
    replay_seconds: float
    differences: tuple[DrillDifference, ...]
    not_compared: tuple[NotCompared, ...]
    seconds: float


def drill(
    store: Store,
    name: str = "latest",
    *,
    query: str | None = None,
    form: Form | None = None,
    even_broken: bool = False,
    progress: Progress = silent,
) -> Drilled:
    """Restore a savepoint in isolation, replay to live, compare, and record how long it took.

    Args:
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME`.
        form: The form to restore; by default native if the savepoint has it.
        even_broken: Accept a savepoint that `verify` found broken.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        NoCommittedBatchError: If the live query no longer keeps all offsets since the savepoint.
        SourceDataGoneError: If neither Kafka nor an archive has the records.
        SavepointsError: If the restore or the replay fails.
    """
    settings = bindings.complete(store)
    savepoint = history.named_as_bound(store.catalog.find(name, query=query), settings)
    if not even_broken:
        restore_checks.refuse_broken(savepoint)
    with (
        recording(store, "drill", query=savepoint.query, savepoint=savepoint.id) as noted,
        store.using(savepoint.id, "drill"),
        store.scratch() as scratch,
    ):
        done = _Drill(store, savepoint, settings, scratch, progress).run(form)
        left_out = ", ".join(str(one.operator_id) for one in done.not_compared)
        noted.note(
            parameters={NOT_COMPARED: left_out} if left_out else {},
            result="failed" if done.verdict == "different" else "done",
            message=f"{done.verdict}: restored in {done.restore_seconds:.1f} s, "
            f"compared with {done.compared_with}{_but_for(done.not_compared)}",
        )
    return done


@dataclass(frozen=True)
class _Drill:
    """One drill under way."""

    store: Store
    savepoint: Savepoint
    settings: Settings
    scratch: Location
    progress: Progress

    def run(self, form: Form | None) -> Drilled:
        from savepoints.spark.session import session

        begun = time.monotonic()
        self.progress("starting Spark")
        spark = session(self.settings, f"savepoints drill {self.savepoint.query}")
        restored = self._restore(form)
        live = self._live()
        if live is None:
            where, batch, replayed = "the values recorded in the savepoint", None, 0.0
            files = read_cut(self.scratch / _CHECKPOINT, self.savepoint.cut.batch_id)
            left_out = {**self._unrecorded(), **forms.unreadable(files)}
            differences = self._compare_recorded(spark, files, left_out)
        else:
            batch, since = live.cut.batch_id, time.monotonic()
            outputs = self._replay(spark, batch)
            replayed = time.monotonic() - since
            where = f"the live query at batch {batch}"
            self.progress(f"comparing the restored state with {where}")
            left_out = forms.unreadable(live)
            differences = self._compare_live(spark, live, outputs)
        same: DrillVerdict = "restored" if live is None else "same"
        return Drilled(
            self.savepoint.id,
            self.savepoint.query,
            "different" if differences else same,
            where,
            restored.form,
            restored.seconds,
            self.savepoint.cut.batch_id,
            batch,
            replayed,
            tuple(differences),
            tuple(NotCompared(number, why) for number, why in sorted(left_out.items())),
            time.monotonic() - begun,
        )

    def _restore(self, form: Form | None) -> restore.Restored:
        self.progress(f"restoring the savepoint {self.savepoint.id}")
        to = str(self.scratch / _CHECKPOINT)
        plan = restore.plan(self.store, self.savepoint.id, to, form=form, asked=False)
        return restore.execute(plan, self.store)

    def _live(self) -> CutFiles | None:
        """Copy the live query's newest cut aside; None when there is nothing to compare with."""
        current = self.store.generations.find_current(self.savepoint.query)
        bound = self.settings.queries.get(self.savepoint.query)
        if bound is None or current is None or current.generation != self.savepoint.generation:
            return None
        live = Location.of(current.checkpoint)
        files = read_cut(live)
        self._plan_batches(live, files.cut.batch_id)
        copied = [StoredFile(info.path, info.path, info.size, "") for info in files.all]
        native.lay_out(live, copied, lambda _: True, self.scratch / _LIVE, files.cut.partitions)
        return files

    def _plan_batches(self, live: Location, newest: int) -> None:
        """Copy the offsets of the batches that live has run since the savepoint."""
        for batch in range(self.savepoint.cut.batch_id + 1, newest + 1):
            path = f"offsets/{batch}"
            try:
                (self.scratch / _PLANNED).copy_from(live, path, path)
            except FileNotFoundError:
                raise NoCommittedBatchError(
                    f"the checkpoint {live} no longer has the offsets of batch {batch}, so the "
                    "drill cannot repeat the batches after batch "
                    f"{self.savepoint.cut.batch_id}",
                    hint="use a newer savepoint; to keep offsets longer in future, raise "
                    "spark.sql.streaming.minBatchesToRetain",
                    checkpoint=str(live),
                    batch_id=batch,
                ) from None

    def _replay(self, spark: SparkSession, newest: int) -> dict[str, Location]:
        """Run the planned batches, one at a time, into copies of the outputs."""
        bound = self.settings.queries[self.savepoint.query]
        availability.require_available(
            self.savepoint.cut.offsets,
            self.settings.kafka,
            topics=self.savepoint.topics,
            archives=tuple(bound.archives.values()),
        )
        outputs = {one.name: self.scratch / "outputs" / one.name for one in self.savepoint.outputs}
        for one in self.savepoint.outputs:
            self.progress(f"copying version {one.version} of {one.uri}")
            by_row.copy(spark, one, outputs[one.name].uri)
        isolated = bound.model_copy(
            update={"outputs": {name: str(table) for name, table in outputs.items()}}
        )
        application = apps.load_for(self.savepoint.query, isolated)
        runner = runner_of(
            spark,
            self.store,
            Inputs(application, isolated, self.settings.kafka),
            generation=self.savepoint.generation,
            checkpoint=self.scratch / _CHECKPOINT,
            position=lowest_offsets(self.savepoint.cut.offsets),
        )
        batches = range(self.savepoint.cut.batch_id + 1, newest + 1)
        bounded_run.replay(runner, self.scratch / _PLANNED, batches, progress=self.progress)
        return outputs

    def _compare_live(
        self, spark: SparkSession, live: CutFiles, outputs: Mapping[str, Location]
    ) -> list[DrillDifference]:
        state, replayed = (
            _contents(spark, place, read_cut(place, live.cut.batch_id))
            for place in (self.scratch / _LIVE, self.scratch / _CHECKPOINT)
        )
        found = [
            DrillDifference(
                f"operator {number}", f"{_text(replayed.get(number))}, live: {_text(one)}"
            )
            for number, one in state.items()
            if replayed.get(number) != one
        ]
        own_rows = self.settings.queries[self.savepoint.query].own_rows
        for one in self.savepoint.outputs:
            mine, wanted = outputs[one.name].uri, self._live_output(one, live)
            rows = by_row.differences(spark, wanted, mine, own_rows.get(one.name))
            if rows.columns:
                problem = (
                    f"not compared, because the live table has other columns: the replayed "
                    f"{'; '.join(rows.columns)}"
                )
                found.append(DrillDifference(f"output {one.name}", problem))
            if rows.missing or rows.extra:
                problem = (
                    f"{count_text(rows.missing, 'row')} missing and {rows.extra} extra, compared "
                    "with the live table"
                )
                found.append(DrillDifference(f"output {one.name}", problem))
        return found

    def _live_output(self, output: OutputVersion, live: CutFiles) -> OutputVersion:
        query, generation = self.savepoint.query, self.savepoint.generation
        bound = self.settings.queries.get(query)
        (found,) = outputs_of(query, generation, live, {output.name: output.uri}, bound)
        return found

    def _unrecorded(self) -> dict[int, str]:
        operators = self.savepoint.operators
        return {one.operator_id: _NOTHING_RECORDED for one in operators if one.content_hash is None}

    def _compare_recorded(
        self, spark: SparkSession, files: CutFiles, left_out: Collection[int]
    ) -> list[DrillDifference]:
        """Compare the restored state with the content hashes in the catalog."""
        found = _contents(spark, self.scratch / _CHECKPOINT, files)
        return [
            DrillDifference(
                f"operator {one.operator_id}",
                f"{_text(found.get(one.operator_id))}, recorded: {one.content_hash}",
            )
            for one in self.savepoint.operators
            if one.content_hash is not None
            and one.operator_id not in left_out
            and (
                one.operator_id not in found
                or not hashes_agree(found[one.operator_id].content_hash, one.content_hash)
            )
        ]


def _contents(spark: SparkSession, checkpoint: Location, files: CutFiles) -> Mapping[int, Contents]:
    from savepoints.state.storage import canonical_table

    if len(forms.unreadable(files)) == len(files.operators):
        return {}
    return canonical_table.of_checkpoint(spark, checkpoint, files)


def _but_for(not_compared: Sequence[NotCompared]) -> str:
    numbers = [f"operator {one.operator_id}" for one in not_compared]
    return f", but for the state of {', '.join(numbers)}" if numbers else ""


def _text(contents: Contents | None) -> str:
    if contents is None:
        return "no state"
    return f"{count_text(contents.rows, 'row')} with the content hash {contents.content_hash}"
