"""`restore`: write a complete new checkpoint directory from a savepoint.

Native: the files are copied back. Canonical: the rows are written through Spark's own state store
writer; they are those of the canonical table, or read from the native files where there is none.
`metadata` comes last, so a half-written directory can never be started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from savepoints import faults
from savepoints.checkpoint.cut import committed_batches, committed_in
from savepoints.checkpoint.logs import offset_log
from savepoints.checkpoint.logs.offset_log import OffsetLogEntry
from savepoints.checkpoint.logs.source_positions import SourceMap, Starts, checked
from savepoints.checkpoint.small_files import Skeleton, may_change
from savepoints.checkpoint.state.files import is_of_operator, is_state_data
from savepoints.errors import NativeOnlyError, TargetExistsError, UsageError
from savepoints.io import Location, in_parallel
from savepoints.model import Form, OperatorState, Provider, Savepoint
from savepoints.observe.recorder import recorded
from savepoints.operations.savepoint import forms, restore_checks, restored_layout
from savepoints.operations.savepoint.restore_checks import Accepts
from savepoints.operations.savepoint.restored_layout import LayoutChange
from savepoints.operations.savepoint.state_rows import rows_in_place, state_rows
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.result import Result
from savepoints.spark import classic
from savepoints.store.root import Store
from savepoints.store.savepoint import native
from savepoints.store.savepoint.manifest import Manifest, StoredFile
from savepoints.texts import count_text
from savepoints.uri import Uri


@dataclass(frozen=True)
class RestorePlan(Plan):
    """What `restore` is going to do.

    Attributes:
        savepoint_id: What is restored.
        target: The new checkpoint directory.
        form: `native` or `canonical`.
        batch_id: The restored query continues with the batch after this one.
        partitions: Number of state partitions, None without state.
        provider: Class of the state store provider.
        conf: Settings that differ in the offset log of the new checkpoint.
        files: Files to copy.
        files_bytes: Their bytes.
        rows: State rows to write, 0 for the native form; None where they were not counted.
        owner: Marks the target as this restore's, so that it can continue after a crash.
        sources: Where each source of the program continues (see
            `savepoints.checkpoint.logs.source_positions`); None to continue as it was.
        query_id: Spark's id of the new query; None to keep that of the savepoint.
    """

    savepoint_id: str
    target: str
    form: Form
    batch_id: int
    partitions: int | None
    provider: str
    conf: dict[str, str]
    files: int
    files_bytes: int
    rows: int | None
    owner: str
    sources: Starts | None = None
    query_id: str | None = None


@dataclass(frozen=True)
class Restored(Result):
    """What a restore did.

    Attributes:
        savepoint_id: Id of the savepoint that was restored.
        checkpoint: The new checkpoint directory: start a query with it as `checkpointLocation`.
        form: The form that it was restored from.
        batch_id: The batch that was restored; the query continues with the next one.
        seconds: How long it took.
        objects: Files in the new checkpoint that came from the savepoint.
        bytes_written: Their bytes; for the canonical form those of all files written.
        already_restored: The same restore had finished there before; nothing was done.
    """

    savepoint_id: str
    checkpoint: str
    form: Form
    batch_id: int
    seconds: float
    objects: int
    bytes_written: int
    already_restored: bool


@dataclass(frozen=True)
class Contents:
    """What a new checkpoint is made of, besides `metadata`.

    Attributes:
        start: Starts Spark, and returns what writes the rows and says so in the commit log, whose
            path that returns if it changed; None without rows.
    """

    copied: Sequence[StoredFile]
    operators: Sequence[OperatorState]
    start: Callable[[], Callable[[], str | None]] | None
    made: Mapping[str, bytes] = field(default_factory=dict)


def plan(
    store: Store,
    name: str,
    to: str,
    *,
    query: str | None = None,
    form: Form | None = None,
    partitions: int | None = None,
    provider: Provider | None = None,
    sources: Starts | None = None,
    query_id: str | None = None,
    owner: str = native.RESTORE,
    even_broken: bool = False,
    check_outputs: bool = True,
    accept_unreplayable: bool = False,
    asked: bool = True,
) -> RestorePlan:
    """Plan a new checkpoint with the state and offsets of a savepoint.

    The query, its outputs and its present checkpoint stay as they are. Start a driver on the new
    one with `.option("checkpointLocation", restored.checkpoint)`. With a `query_id` of its own it
    is a second query beside the first, to try other code on the same state:

    ```python
    before = store.savepoint("before-release", query="clicks")
    plan = before.restore("s3://bucket/checkpoints/clicks_v2/1", query_id=str(uuid.uuid4()))
    restored = plan.execute()
    # Your driver, with the new code: .queryName("clicks_v2"), a table of its own that is empty, and
    # .option("checkpointLocation", restored.checkpoint); attach to it, or create a savepoint:
    store.create(checkpoint=restored.checkpoint, query="clicks_v2").execute()
    print(store.savepoint("latest", query="clicks").diff(store.query("clicks_v2").latest.id))
    ```

    The empty table gets what the second query writes from then on: whole with output mode
    `complete`, else the rows that change.

    Args:
        name: Id, prefix, tag, `latest`, `latest~2` or `@TIME`.
        to: URI of the new checkpoint directory, which must not exist.
        form: Which form to restore from. By default native when the savepoint has it and nothing
            changes; otherwise rows are written, from the canonical form or else the native one.
        partitions: Number of state partitions; by default as they were.
        provider: State store provider; by default as it was.
        sources: Where each source of the program continues, one text each: `keep:0`, `new`, or a
            position as Spark's JSON. See `savepoints.checkpoint.logs.source_positions`.
        query_id: Spark's id of the new query, such as `str(uuid.uuid4())`, for a query of its own;
            by default that of the savepoint, whose query continues in the same tables.
        owner: The operation that this restore is a part of.
        even_broken: Accept a savepoint that `verify` found broken.
        check_outputs: Whether to refuse a checkpoint whose next batches a table has seen already.
        accept_unreplayable: Accept a source that keeps nothing, or files that are gone, so that
            rows are lost.
        asked: Whether the three above are checked; False where another verb restores as one of its
            steps and has checked them itself.

    Raises:
        SavepointNotFoundError: If there is no such savepoint.
        AmbiguousNameError: If several fit.
        VerificationError: If the savepoint is broken, or files of it are missing.
        UsageError: If the savepoint lacks the form that is needed.
        RescaleError: If the operators keep their number of state partitions.
        ProviderError: If the other provider cannot hold the state.
        NativeOnlyError: If something is to change and an operator has no canonical form.
        TargetExistsError: If anything else is in the directory.
        NotAlignedError: If a table would silently drop what the restored query writes.
        IncompatibleError: If a source cannot be read again.
        SourceDataGoneError: If files are gone that were read since.
    """
    store = store.snapshot()
    savepoint = store.catalog.find(name, query=query)
    stored = store.manifest(savepoint.id)
    accepts = Accepts(even_broken, not check_outputs, accept_unreplayable) if asked else None
    usable = restore_checks.require_usable(
        store, savepoint, stored, accepts, sources=sources, query_id=query_id
    )
    warnings = (*usable, *restore_checks.clock_notes(store, savepoint))
    change = restored_layout.plan_change(savepoint, partitions, provider)
    chosen = _choose_form(savepoint, form, change)
    copied = _copied(stored, chosen)
    mark = " ".join([savepoint.id, chosen, *change.words, *(sources or ()), owner])
    steps = []
    rows = 0 if chosen == "native" else _rows(savepoint)
    if chosen == "canonical" and savepoint.operators:
        what = "the state rows" if rows is None else count_text(rows, "state row")
        source = "" if stored.canonical else ", read from the native files,"
        steps.append(Step("state", f"write {what}{source} with Spark"))
    return make_plan(
        store, stored, to, chosen, change,
        copied=copied, rows=rows, mark=mark, sources=sources, query_id=query_id, steps=steps,
        warnings=warnings,
    )  # fmt: skip


def make_plan(
    store: Store,
    stored: Manifest,
    to: str,
    form: Form,
    change: LayoutChange,
    *,
    copied: Sequence[StoredFile],
    rows: int | None,
    mark: str,
    sources: Starts | None,
    query_id: str | None,
    steps: Iterable[Step],
    warnings: Iterable[str],
) -> RestorePlan:
    """Return the plan of a restore whose directory is free and whose files are all there."""
    savepoint = stored.savepoint
    if form == "canonical" and savepoint.operators:
        classic.require_possible(store.settings.spark)
        forms.require_writable(savepoint, change.provider)
    restore_checks.require_present(store, savepoint, (*copied, *_read_for_rows(stored, form)))
    if sources is not None:
        source_map(store, stored, sources)
    target = Location.of(to)
    native.refuse_taken(target, mark)
    own_id = "" if query_id is None else f" of a new query, {query_id}"
    return RestorePlan(
        verb="restore",
        query=savepoint.query,
        steps=(
            Step("files", f"copy {count_text(len(copied), 'file')} to {target}"),
            *steps,
            Step("metadata", f"write the file metadata{own_id}, which makes this a checkpoint"),
        ),
        warnings=(*change.notes, *warnings),
        savepoint_id=savepoint.id,
        target=str(target),
        form=form,
        batch_id=savepoint.cut.batch_id,
        partitions=change.partitions,
        provider=change.provider,
        conf=change.conf(form),
        files=len(copied),
        files_bytes=sum(file.size for file in copied),
        rows=rows,
        owner=mark,
        sources=sources,
        query_id=query_id,
    )


@recorded
def execute(plan: RestorePlan, store: Store, *, progress: Progress = silent) -> Restored:
    """Write the checkpoint.

    Run again after a crash, it begins its own unfinished directory anew.

    Raises:
        TargetExistsError: If anything else is in the directory.
        PrivateApiError: If this Spark cannot write the canonical form.
        NotAlignedError: If what was written is not what the savepoint has.
        VerificationError: If a file has another checksum than the manifest says.
    """
    with store.using(plan.savepoint_id, "restore"):
        stored = store.manifest(plan.savepoint_id)
        operators = stored.savepoint.operators
        start = None
        if plan.form == "canonical" and operators:
            start = partial(_writer, plan, store, stored, progress)
        contents = Contents(_copied(stored, plan.form), operators, start)
        return make(plan, store, stored, contents, progress)


def make(
    plan: RestorePlan, store: Store, stored: Manifest, contents: Contents, progress: Progress
) -> Restored:
    """Write the checkpoint of a plan from files that are as the manifest says; see `execute`."""
    begun = time.monotonic()
    read = _read_for_rows(stored, plan.form)
    restore_checks.require_intact(store, plan.savepoint_id, (*contents.copied, *read))
    write_state = contents.start() if contents.start else None
    return fill(
        plan,
        store,
        stored,
        lambda: _write(plan, store, stored, contents, write_state, progress),
        begun=begun,
    )


def fill(
    plan: RestorePlan, store: Store, stored: Manifest, write: Callable[[], None], *, begun: float
) -> Restored:
    """Claim the directory of a plan, have it written, and make it a checkpoint."""
    target = Location.of(plan.target)
    claim = native.claim(target, plan.owner)
    if claim is not None:
        faults.reach("restore.claimed")
        write()
        claim.require()
        with restore_checks.damage_named(plan.savepoint_id):
            native.seal(store.root, stored.native, target, query_id=plan.query_id)
        faults.reach("restore.metadata")
    elif committed_in(target)[-1] != plan.batch_id:
        raise run_since(plan.target, plan.savepoint_id)
    return restored(plan, begun=begun, already=claim is None)


def run_since(target: str, savepoint_id: str) -> TargetExistsError:
    """Return the refusal of a directory in which a query has run after it was restored."""
    return TargetExistsError(
        f"{target} was already restored from {savepoint_id}, and a query has run there since",
        hint="name a new directory with --to; nothing was overwritten",
        target=target,
    )


def restored(plan: RestorePlan, *, begun: float, already: bool) -> Restored:
    """Return what a plan's directory has become since `begun`, by `time.monotonic`."""
    target = Location.of(plan.target)
    files = [info for info in target.list() if info.path != native.RESTORE_MARKER]
    return Restored(
        plan.savepoint_id,
        Uri.parse(plan.target).for_spark,
        plan.form,
        committed_batches(files)[-1],
        time.monotonic() - begun,
        len(files),
        sum(info.size for info in files),
        already,
    )


def _choose_form(savepoint: Savepoint, wanted: Form | None, change: LayoutChange) -> Form:
    """Decide which form is restored: the native one only where nothing changes."""
    form = wanted or ("canonical" if change.words else savepoint.forms[0])
    if form == "native" and change.words:
        raise UsageError(
            "the native form can be restored only with its own partitions and provider, not "
            f"with {change.text}",
            hint="omit --format, or use --format canonical",
            savepoint=savepoint.id,
        )
    reasons = [one.native_only for one in savepoint.operators if one.native_only]
    if form == "canonical" and reasons and len(reasons) == len(savepoint.operators):
        raise NativeOnlyError(
            f"savepoint {savepoint.id} has no canonical form: {reasons[0]}",
            hint="restore it with --format native",
            savepoint=savepoint.id,
        )
    if form == "canonical" and wanted is None and form not in savepoint.forms:
        forms.require_readable(savepoint)
    elif form not in savepoint.forms:
        only = ", ".join(savepoint.forms)
        raise UsageError(
            f"savepoint {savepoint.id} has no {form} form, only {only}",
            hint=f"add it first: savepoints export {savepoint.id}"
            if form == "canonical"
            else f"restore it with --format {savepoint.forms[0]}",
            savepoint=savepoint.id,
        )
    return form


def _copied(stored: Manifest, form: Form) -> list[StoredFile]:
    """Return the files that are copied: all, or those that are not written as rows."""
    by_hand = _native_only(stored.savepoint.operators)
    return [
        file
        for file in stored.native
        if form == "native" or not is_state_data(file.path) or is_of_operator(file.path, by_hand)
    ]


def _read_for_rows(stored: Manifest, form: Form) -> Sequence[StoredFile]:
    """Return the files from which state rows are read: of the canonical table, or native ones."""
    if form == "native":
        return ()
    by_hand = _native_only(stored.savepoint.operators)
    return stored.canonical or [
        file
        for file in stored.native
        if is_state_data(file.path) and not is_of_operator(file.path, by_hand)
    ]


def _rows(savepoint: Savepoint) -> int | None:
    """Return how many rows there are; None where nobody has counted them."""
    counts = [one.rows for one in savepoint.operators if one.native_only is None]
    return None if None in counts else sum(one or 0 for one in counts)


def saved_offsets(store: Store, stored: Manifest) -> OffsetLogEntry:
    """Return what a savepoint has of its batch's offset log."""
    path = f"offsets/{stored.savepoint.cut.batch_id}"
    file = next(one for one in stored.native if one.path == path)
    return offset_log.parse(store.root.get(file.stored_at), path)


def source_map(store: Store, stored: Manifest, sources: Starts) -> SourceMap:
    """Return where the sources of a program come from."""
    entry = saved_offsets(store, stored)
    return SourceMap(tuple(map(checked, sources)), entry.names, tuple(entry.sources))


def _native_only(operators: Iterable[OperatorState]) -> list[int]:
    return [one.operator_id for one in operators if one.native_only]


def _write(
    plan: RestorePlan,
    store: Store,
    stored: Manifest,
    contents: Contents,
    write_state: Callable[[], str | None] | None,
    progress: Progress,
) -> None:
    """Write everything but `metadata`, and check it."""
    target = Location.of(plan.target)
    sources = None if plan.sources is None else source_map(store, stored, plan.sources)
    skeleton = Skeleton(target.uri, plan.partitions, plan.conf, sources)
    copied = list(contents.copied)
    if sources is not None:
        places = [(file, sources.place(file.path)) for file in copied]
        copied = [replace(file, path=place) for file, place in places if place is not None]
    # Spark would refuse to write any state beside that of an operator that it cannot read.
    by_hand = _native_only(contents.operators) if write_state else []
    first = [file for file in copied if not is_of_operator(file.path, by_hand)]
    later = [file for file in copied if is_of_operator(file.path, by_hand)]
    progress(f"copying {count_text(len(copied), 'file')} to {target}")
    with restore_checks.damage_named(plan.savepoint_id):
        native.mount(store.root, first, target, skeleton)
    made = {
        path: skeleton.changed(path, data)
        for path, data in contents.made.items()
        if not is_of_operator(path, by_hand)
    }
    in_parallel(lambda path: target.put(path, made[path]), list(made))
    faults.reach("restore.files")
    renamed = None
    if write_state is not None:
        renamed = write_state()
        with restore_checks.damage_named(plan.savepoint_id):
            native.mount(store.root, later, target, skeleton)
        faults.reach("restore.state")
    restored_layout.check(target, plan.batch_id, contents.operators, plan.provider)
    # With checkpoint format 2 the commit log was given the ids of what was written.
    restore_checks.check_copies(
        target, [one for one in copied if not may_change(one.path) and one.path != renamed]
    )


def _writer(
    plan: RestorePlan, store: Store, stored: Manifest, progress: Progress
) -> Callable[[], str | None]:
    """Start Spark, find out whether it can write state, and return what writes it."""
    from savepoints.spark.session import session
    from savepoints.state.storage import read, write

    savepoint = stored.savepoint
    spark = session(store.settings, f"savepoints restore {savepoint.query}")
    cut = replace(savepoint.cut, partitions=plan.partitions, provider=plan.provider)
    operators = [one for one in savepoint.operators if one.native_only is None]
    write.require_writable(spark, cut)
    target, own = Location.of(plan.target), read.reading_session(spark, cut.checkpoint_format)

    def write_state() -> str | None:
        what = "the state rows" if plan.rows is None else count_text(plan.rows, "state row")
        progress(f"writing {what} (starts Spark if it is not running)")
        in_place = rows_in_place(stored, store, own, cut)
        if in_place is not None:
            written = write.write_in_place(spark, target, in_place, cut, operators)
        else:
            with state_rows(stored, store, own) as rows:
                written = write.write_state(spark, target, rows, cut, operators)
        restored_layout.require_rows(target, savepoint, written.rows)
        ids, numbers = written.ids, [one.operator_id for one in savepoint.operators]
        return restored_layout.name_state(target, plan.batch_id, ids, numbers) if ids else None

    return write_state
