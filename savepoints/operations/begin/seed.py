"""`seed`: a query begins with rows of state that somebody has computed.

The rows become a checkpoint at batch 0: the state that the program would have, at given positions
of its sources and with a given watermark. Spark itself wrote the small files of it, in a run of the
program on empty inputs; only positions, watermark and partitions are put in. The rows are encoded
and placed on the executors, and written by the writer that every restore from rows uses.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from savepoints import faults
from savepoints.checkpoint.logs import commit_log, offset_log
from savepoints.checkpoint.logs.offset_log import PROVIDER_KEY
from savepoints.checkpoint.small_files import Skeleton
from savepoints.errors import StalePlanError
from savepoints.io import Location, in_parallel
from savepoints.model import Cut
from savepoints.moments import epoch_ms, utc_now
from savepoints.observe.recorder import recorded
from savepoints.operations.begin import given_tables, new_query, seed_plan
from savepoints.operations.begin.new_query import Begun
from savepoints.operations.begin.seed_plan import BATCH, VERB, SeededProgram, SeedPlan
from savepoints.operations.migrate.migration_writer import state_of
from savepoints.operations.rollback import generation_change, journalled, taking_back
from savepoints.operations.rollback.generation_change import NewCheckpoint
from savepoints.operations.savepoint import restored_layout
from savepoints.plan import Progress, silent
from savepoints.state.seed import given
from savepoints.store.locks import lease
from savepoints.store.root import Store
from savepoints.store.savepoint import native


@dataclass(frozen=True, kw_only=True)
class Seeded(Begun):
    """What a seed did.

    Attributes:
        rows: Rows of state that were given.
        bytes_written: Bytes of the checkpoint.
    """

    rows: int
    bytes_written: int


@recorded
def execute(plan: SeedPlan, store: Store, *, progress: Progress = silent) -> Seeded:
    """Write the checkpoint, begin the generation and take its savepoint, holding the lease.

    Goes on where an earlier attempt was killed.

    Raises:
        StalePlanError: If the query, its program or the given files have changed since the plan.
    """
    started = time.monotonic()
    with lease.hold(store.root, plan.query, VERB) as held:
        log = journalled.begin_or_resume(plan, store, lambda: new_query.refuse_changed(plan, store))
        with generation_change.new_generation(
            plan, store, lambda: _write(plan, store, progress), log, held
        ):
            new_query.take_over_outputs(
                plan, BATCH, store.settings, check=held.check, progress=progress
            )
        saved = new_query.save(plan, store, log, "seed", check=held.check, progress=progress)
        log.finish()
    seconds = time.monotonic() - started
    return Seeded(
        **{**generation_change.summary(plan, seconds), "savepoint_id": saved.id},
        batch_id=BATCH,
        rows=plan.rows,
        bytes_written=int(log.operation.done["checkpoint_written"]["bytes"]),
    )


def undo(plan: SeedPlan, store: Store, *, progress: Progress = silent) -> None:
    """Remove what an interrupted seed has made, and nothing else; killed, it is run again."""
    taking_back.take_back(plan, store, lambda _check: None, progress)


def _write(plan: SeedPlan, store: Store, progress: Progress) -> NewCheckpoint:
    """Write the checkpoint, `metadata` last."""
    begun = time.monotonic()
    target = Location.of(plan.checkpoint)
    if native.claim(target, plan.operation_id):
        faults.reach("seed.claimed")
        new = new_query.find(store, plan.query, VERB)
        program = seed_plan.find_program(store, new, progress)
        _write_state(plan, program, target, progress)
        new_query.make_outputs(plan.outputs, new.inputs.app, program.session, program.empty.result)
        faults.reach("seed.state")
        target.put("metadata", json.dumps({"id": plan.query_id}).encode())
    size = sum(info.size for info in target.list())
    return NewCheckpoint(time.monotonic() - begun, size)


def _write_state(
    plan: SeedPlan, program: SeededProgram, target: Location, progress: Progress
) -> None:
    from savepoints.state.seed.stores import SeededState
    from savepoints.state.storage import write

    _require_same(plan, program)
    cut = Cut(
        BATCH, utc_now(), plan.watermark_ms, plan.positions, plan.provider, plan.partitions,
        plan.checkpoint_format,
    )  # fmt: skip
    write.require_writable(program.session, cut)
    rows = {
        number: [
            (known, given.bound(table.read(program.session, known), known))
            for table, known in tables
        ]
        for number, tables in given_tables.by_operator(plan.tables, program.visible).items()
    }
    frames = [frame for tables in rows.values() for _, frame in tables]
    made = _small_files(plan, program, target, given.before_due(frames, epoch_ms(utc_now())))
    in_parallel(lambda path: target.put(path, made[path]), list(made))
    faults.reach("seed.files")
    operators = [state_of(one, plan.partitions) for one in program.empty.operators]
    progress(f"writing {plan.rows} state rows")
    state = SeededState(program.session, seed_plan.shapes(program.empty), rows)
    ids = write.write_rows(program.session, target, cut, operators, state.rows_of).ids
    if ids:
        restored_layout.name_state(target, BATCH, ids, [one.operator_id for one in operators])
    restored_layout.check(target, BATCH, operators, plan.provider)


def _small_files(
    plan: SeedPlan, program: SeededProgram, target: Location, timestamp_ms: int
) -> Mapping[str, bytes]:
    """Return the logs, metadata and schemas of the checkpoint."""
    offsets, commits = f"offsets/{BATCH}", f"commits/{BATCH}"
    written = restored_layout.written_conf(plan.provider, program.conf)
    skeleton = Skeleton(target.uri, plan.partitions, {PROVIDER_KEY: plan.provider, **written})
    placed = offset_log.with_batch(
        program.empty.offsets,
        offsets,
        positions=plan.positions,
        watermark_ms=plan.watermark_ms,
        timestamp_ms=timestamp_ms,
    )
    return {
        **{path: skeleton.changed(path, data) for path, data in program.empty.files.items()},
        offsets: skeleton.changed(offsets, placed),
        commits: commit_log.with_watermark(program.empty.commit, commits, plan.watermark_ms),
    }


def _require_same(plan: SeedPlan, program: SeededProgram) -> None:
    """Refuse a program whose state, or whose settings, are other ones than when it was planned."""
    found = (*seed_plan.settings_of(program), len(program.empty.inputs))
    planned = (plan.partitions, plan.provider, plan.checkpoint_format, len(plan.positions))
    if found != planned:
        raise StalePlanError(
            f"{plan.app} or Spark's settings have changed since the plan was made: state "
            "partitions, state store provider, checkpoint format and number of inputs were "
            f"{planned} and are now {found}",
            hint=f"undo the operation (savepoints operations undo {plan.operation_id}), then run "
            "savepoints seed again",
            query=plan.query,
        )
