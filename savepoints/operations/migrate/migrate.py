"""`restore --migrate`: a new checkpoint for a changed program, with the state of a savepoint.

Logs and sources are the savepoint's; what Spark knows of the state, its schemas and the operators'
metadata, is the program's own, as it made them on empty inputs; the rows are the savepoint's, put
where the program looks for them and rewritten where their columns changed.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from savepoints.checkpoint.evolution.findings import VERDICTS
from savepoints.checkpoint.evolution.upgrade import OperatorVerdict, Upgrade
from savepoints.checkpoint.logs.source_positions import Starts
from savepoints.checkpoint.state.operators import is_metadata
from savepoints.errors import LayoutChangedError
from savepoints.json_values import to_json
from savepoints.model import Provider, Savepoint
from savepoints.observe.recorder import recorded
from savepoints.operations.migrate import upgrade_check
from savepoints.operations.migrate.migration_writer import Writing, copied_files, operators_of
from savepoints.operations.migrate.upgrade_check import ProgramComparison
from savepoints.operations.savepoint import restore, restore_checks, restored_layout
from savepoints.operations.savepoint.restore import Restored, RestorePlan
from savepoints.operations.savepoint.restore_checks import Accepts
from savepoints.plan import Progress, Step, silent
from savepoints.runtime.app import KeyMigration
from savepoints.store import bindings
from savepoints.store.root import Store
from savepoints.texts import count_text

# The steps that say what becomes of each operator.
STATE = "state"


@dataclass(frozen=True)
class MigrationOptions:
    """What people say of a migration: what the state of neither program shows.

    Attributes:
        maps: Renamed columns and variables, as `old=new`; see
            `savepoints.checkpoint.evolution.renames`.
        defaults: Initial values of new columns, as text by column.
        allow_dropped_state: Accept that state is lost that the program has no place for.
    """

    maps: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    allow_dropped_state: bool = False

    def words(self) -> list[str]:
        """Return them as options of a command line."""
        return [
            "--migrate",
            *(word for one in self.maps for word in ("--map", one)),
            *(
                word
                for pair in sorted(self.defaults.items())
                for word in ("--default", "=".join(pair))
            ),
            *(["--allow-dropped-state"] if self.allow_dropped_state else []),
        ]


@dataclass(frozen=True, kw_only=True)
class MigrationPlan(RestorePlan):
    """What `restore --migrate` is going to do.

    Attributes:
        app: The program that the checkpoint is for.
        upgrade: What happens to each operator.
    """

    app: str
    upgrade: Upgrade


@dataclass(frozen=True, kw_only=True)
class PreparedMigration(MigrationPlan):
    """A plan with the program, which is not run a second time."""

    compared: ProgramComparison

    def to_json(self) -> dict[str, Any]:
        """Return what is for people as JSON values."""
        return {one.name: to_json(getattr(self, one.name)) for one in fields(MigrationPlan)}


def plan(
    store: Store,
    name: str,
    to: str,
    *,
    app: str,
    query: str | None = None,
    maps: Sequence[str] = (),
    defaults: Mapping[str, str] | None = None,
    allow_dropped_state: bool = False,
    partitions: int | None = None,
    provider: Provider | None = None,
    sources: Starts | None = None,
    query_id: str | None = None,
    owner: str = "restore",
    even_broken: bool = False,
    check_outputs: bool = True,
    accept_unreplayable: bool = False,
    asked: bool = True,
    progress: Progress = silent,
) -> PreparedMigration:
    """Plan a restore with the state migrated for a changed program; nothing is written.

    Args:
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME`.
        to: URI of the new checkpoint directory, which must not exist.
        app: The program that it is for, `package.module:attribute`.
        maps: Renamed columns and variables, as `old=new`; see
            `savepoints.checkpoint.evolution.renames`.
        defaults: Initial values of new columns, as text by column.
        allow_dropped_state: Accept that state is lost that the program has no place for.
        partitions: Number of state partitions; by default as they were.
        provider: State store provider; by default as it was.
        sources: Where each source of the program continues; see
            `savepoints.operations.savepoint.restore`.
        query_id: Spark's id of the new query; by default as it was.
        owner: The operation that this restore is a part of.
        even_broken: Accept a savepoint that `verify` found broken.
        check_outputs: Whether to refuse a checkpoint whose next batches a table has seen already.
        accept_unreplayable: Accept that rows are lost which no source gives again.
        asked: As of `restore.plan`.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        AmbiguousNameError: If several fit.
        UsageError: If the program cannot be imported, or what is mapped or given a default is not
            there.
        NativeOnlyError: If the savepoint has only its native form, which this Spark cannot read.
        LayoutChangedError: If the program cannot continue with the state, it is not known whether
            it can, or state would be dropped that may not be.
        VerificationError: If the savepoint is broken, or files of it are missing.
        NotAlignedError, IncompatibleError, SourceDataGoneError: As of `restore.plan`.
        RescaleError: If the operators keep their number of state partitions.
        ProviderError: If the other provider cannot hold the state.
        TargetExistsError: If anything else is in the directory.
        SavepointsError: If the program fails.
    """
    store = store.snapshot()
    savepoint = store.catalog.find(name, query=query)
    stored = store.manifest(savepoint.id)
    accepts = Accepts(even_broken, not check_outputs, accept_unreplayable) if asked else None
    warnings = restore_checks.require_usable(
        store, savepoint, stored, accepts, sources=sources, query_id=query_id
    )
    compared = upgrade_check.compare_program(
        store,
        savepoint.id,
        app,
        query=None,
        maps=maps,
        defaults=defaults,
        settings=bindings.complete(store),
        are_sources_given=sources is not None,
        provider=provider,
        progress=progress,
    )
    said = (sorted(maps), sorted((defaults or {}).items()), partitions, provider, sources, query_id)
    mark = f"{savepoint.id} migrated {fingerprint(compared, said)} {owner}"
    if savepoint.operators and "canonical" not in savepoint.forms:
        compared = upgrade_check.counted(compared, store)
    report = compared.upgrade
    _require_possible(report, allow_dropped_state=allow_dropped_state)
    _require_state(savepoint, compared)
    _require_one_schema(compared)
    operators = operators_of(savepoint, compared)
    planned = restore.make_plan(
        store,
        stored,
        to,
        "canonical",
        restored_layout.plan_change(replace(savepoint, operators=operators), partitions, provider),
        copied=copied_files(stored, operators),
        rows=sum(one.rows or 0 for one in report.operators if one.operator_id is not None),
        mark=mark,
        sources=sources,
        query_id=query_id,
        steps=map(_step, report.operators),
        warnings=(*_lost(report), *report.notes, *warnings),
    )
    return PreparedMigration(**vars(planned), app=app, upgrade=report, compared=compared)


@recorded
def execute(plan: MigrationPlan, store: Store, *, progress: Progress = silent) -> Restored:
    """Write the checkpoint.

    Run again after a crash, it begins its own unfinished directory anew.

    Raises:
        TargetExistsError: If anything else is in the directory.
        PrivateApiError: If this Spark cannot write state.
        IncompatibleError: If a function of the program gives something wrong.
        NotAlignedError: If what was written is not what was planned.
    """
    assert isinstance(plan, PreparedMigration)
    with store.using(plan.savepoint_id, "restore"):
        return Writing(plan, plan.compared, store, store.settings, progress).restored()


def fingerprint(compared: ProgramComparison, words: object) -> str:
    """Return what stands for a migration in the mark of its directory: one line for one outcome.

    Args:
        compared: The program, of which layout, transfers and functions decide what is written.
    """
    program = compared.program
    functions = [
        (name, source_of(each))
        for name, one in sorted(program.app.migrate.items())
        for each in ((one.keys, one.merge) if isinstance(one, KeyMigration) else (one,))
    ]
    # Without the names of the files, and the metadata that have them: they are others each time.
    layouts = sorted(data for path, data in program.files.items() if not is_metadata(path))
    text = repr((program.reference, words, compared.transfers, layouts, functions))
    return hashlib.sha256(text.encode()).hexdigest()


def source_of(function: object) -> str:
    """Return the text of a function; its name where Python does not have it."""
    if function is None:
        return ""
    try:
        return inspect.getsource(function)  # type: ignore[arg-type]
    except (OSError, TypeError):
        return getattr(function, "__qualname__", type(function).__qualname__)


def _require_state(savepoint: Savepoint, compared: ProgramComparison) -> None:
    """Refuse to make state where there was none: Spark would write no store of no rows."""
    if compared.program.operators and not savepoint.operators:
        raise LayoutChangedError(
            f"savepoint {savepoint.id} has no state, but {compared.program.reference} keeps state",
            hint=f"save the offsets printed by `savepoints show {savepoint.id}` in a CSV file "
            "(topic,partition,offset), then start the program from these offsets with empty state: "
            f"savepoints reset {savepoint.query} --from-file FILE",
            savepoint=savepoint.id,
        )


def _require_one_schema(compared: ProgramComparison) -> None:
    """Refuse rows that say by a number which of the savepoint's schemas they are of."""
    if compared.is_evolved:
        savepoint = compared.savepoint.id
        raise LayoutChangedError(
            f"the state of savepoint {savepoint} cannot be migrated: it is encoded as Avro, and "
            "its rows are of schemas that the new checkpoint would lack",
            hint="nothing has to be migrated, because Spark reads them by the names of their "
            f"fields: savepoints restore {savepoint} --to URI, or fork without --migrate",
            savepoint=savepoint,
        )


def _require_possible(report: Upgrade, *, allow_dropped_state: bool) -> None:
    """Refuse what cannot be done exactly, before anything is written."""
    reasons = [each for one in report.operators for each in one.reasons] + list(report.sources)
    worst = max(reasons, key=lambda one: VERDICTS.index(one.verdict), default=None)
    if worst is not None and worst.verdict in {"incompatible", "unknown"}:
        verb = (
            "cannot continue"
            if worst.verdict == "incompatible"
            else ("may not be able to continue")
        )
        raise LayoutChangedError(
            f"{report.app} {verb} with the state of {report.savepoint_id}: {worst.place}: "
            f"{worst.text}",
            hint=worst.hint
            or (
                f"list all problems: savepoints upgrade check --app {report.app} --from "
                f"{report.savepoint_id}"
            ),
            savepoint=report.savepoint_id,
            verdict=report.verdict,
        )
    if report.dropped and not allow_dropped_state:
        raise LayoutChangedError(
            f"the migration to {report.app} would drop {'; '.join(_lost(report))}",
            hint="add --allow-dropped-state to drop that state",
            savepoint=report.savepoint_id,
            dropped=[one.what for one in report.dropped],
        )


def _lost(report: Upgrade) -> tuple[str, ...]:
    return tuple(
        one.what if one.rows is None else f"{one.what}, {count_text(one.rows, 'row')}"
        for one in report.dropped
    )


def _step(one: OperatorVerdict) -> Step:
    number = one.was_operator_id if one.operator_id is None else one.operator_id
    return Step(STATE, f"operator {number} ({one.name}): {_sentence(one)}")


def _sentence(one: OperatorVerdict) -> str:
    """Say what becomes of an operator, in one line."""
    if one.operator_id is None:
        return f"drop {'all' if one.rows is None else one.rows} rows"
    if one.was_operator_id is None:
        return "start without state"
    rows = "the rows" if one.rows is None else count_text(one.rows, "row")
    changed = "unchanged" if one.verdict == "compatible" else "migrated"
    return f"write {rows}, {changed}"
