"""`create`: take a savepoint of a running or stopped query.

Pin: copy the files of a committed batch, which fixes the cut and takes a moment. Export: write
canonical rows from that copy. The order of what becomes visible is files, rows, manifest, catalog
row: a savepoint exists if and only if its row does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from savepoints import faults
from savepoints.checkpoint import position
from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.logs import source_positions
from savepoints.errors import (
    CheckpointNotFoundError,
    NoCommittedBatchError,
    SavepointNotFoundError,
    TargetExistsError,
    UsageError,
)
from savepoints.io import Location
from savepoints.model import (
    FORMS,
    Form,
    Generation,
    Savepoint,
    SavepointKind,
    checked_name,
    checked_tag,
    new_id,
)
from savepoints.moments import utc_now
from savepoints.observe.recorder import recorded
from savepoints.operations.savepoint import (
    export,
    first_batch,
    group_commit,
    history,
    output_versions,
    pin,
    registration,
    restore_checks,
    topic_ends,
    topic_ids,
)
from savepoints.operations.savepoint import forms as saved_forms
from savepoints.operations.savepoint.topic_ends import TopicObservation
from savepoints.plan import Plan, Progress, Step, silent
from savepoints.store import bindings, lineage
from savepoints.store.locks import lease
from savepoints.store.root import Store
from savepoints.store.savepoint import manifest, native
from savepoints.store.savepoint.manifest import Manifest
from savepoints.store.tables import catalog
from savepoints.store.tables import tags as free_tags
from savepoints.texts import count_text


@dataclass(frozen=True, kw_only=True)
class Saved:
    """What is saved of a query, each time that a run or a driver takes a savepoint; see `plan`."""

    query: str | None = None
    checkpoint: str | None = None
    forms: Sequence[Form] = FORMS
    outputs: Mapping[str, str] | None = None
    output_topics: Sequence[str] | None = None
    app: str | None = None


@dataclass(frozen=True)
class CreatePlan(Plan):
    """What `create` is going to do.

    Attributes:
        savepoint_id: Id of the new savepoint.
        query_id: Spark's id of the query.
        checkpoint: The checkpoint directory that it is taken from.
        generation: Number of the generation of that checkpoint; None if not known yet.
        batch_id: The batch asked for, None for the newest at the time of the pin.
        newest_batch: The newest committed batch at planning time.
        forms: The forms that the state is kept in.
        outputs: Table URIs by output name.
        files: Files of the cut at planning time.
        files_bytes: Their bytes.
        tags: Names to give it.
        description: Free text.
        parent: The savepoint before it, None for the first.
        application: Reference of the application, if known.
        code_version: Version of its code, from `SAVEPOINTS_CODE_VERSION`.
        kind: Why it is taken.
        commit_group: Consumer group that the offsets are committed for afterwards, None for none.
        output_topics: Kafka topics that the query writes.
    """

    savepoint_id: str
    query_id: str
    checkpoint: str
    generation: int | None
    batch_id: int | None
    newest_batch: int
    forms: tuple[Form, ...]
    outputs: dict[str, str]
    files: int
    files_bytes: int
    tags: tuple[str, ...] = ()
    description: str = ""
    parent: str | None = None
    application: str | None = None
    code_version: str | None = None
    kind: SavepointKind = "manual"
    commit_group: str | None = None
    output_topics: tuple[str, ...] = ()


def plan(
    store: Store,
    *,
    query: str | None = None,
    checkpoint: str | None = None,
    batch_id: int | None = None,
    forms: Sequence[Form] = FORMS,
    outputs: Mapping[str, str] | None = None,
    tags: Sequence[str] = (),
    description: str = "",
    app: str | None = None,
    savepoint_id: str | None = None,
    kind: SavepointKind = "manual",
    commit_group: str | None = None,
    output_topics: Sequence[str] | None = None,
    wait: timedelta = timedelta(0),
    progress: Progress = silent,
) -> CreatePlan:
    """Plan a savepoint of a query; its `execute` takes it and returns it.

    Args:
        query: Name of the query; its current generation's checkpoint is saved.
        checkpoint: Checkpoint of a query that this library did not start. Its name is then the one
            it had before, `query`, or else Spark's id.
        batch_id: A retained batch; the newest committed one by default.
        forms: `native`, `canonical` or both.
        outputs: Delta tables by name, besides those in the settings; `{}` for no others. If neither
            names one, those of the query's newest savepoint are used.
        tags: Names to give it.
        description: Free text.
        app: The application that runs, if it is not the one in the settings.
        savepoint_id: An id chosen beforehand, so that the verb that chose it can be resumed.
        kind: Why it is taken.
        commit_group: A Kafka consumer group without members, for which the offsets are committed
            once the savepoint is taken, instead of the one in the settings.
        output_topics: Kafka topics that the query, and nobody else, writes. By default those in the
            settings, or else those of its newest savepoint.
        wait: How long to wait for the first batch of a query that runs.

    Raises:
        UsageError: If neither query nor checkpoint is given, the checkpoint has another name, or
            the consumer group that is given has members, or there are no offsets for it.
        QueryNotFoundError: If the store does not know the query.
        CheckpointNotFoundError: If there is no checkpoint.
        NoCommittedBatchError: If the batch is not there.
        UnsupportedProviderError: If the provider cannot be saved.
        NativeOnlyError: If only the canonical form is asked for and an operator has none.
        IncompatibleError: If something else about the checkpoint cannot be saved.
        TargetExistsError: If another savepoint of the query has a tag.
    """
    store = store.snapshot()
    for tag in tags:
        checked_tag(tag)
    query, generation, location = _locate(store, query, checkpoint)
    if generation is not None and generation.status == "current":
        first_batch.await_committed(store, [generation.query], wait=wait, progress=progress)
    files = _read(store, generation, location, batch_id)
    name = checked_name(query or files.query_id, "query")
    replaced = None if generation else registration.replaced(store, name, location)
    settings = bindings.complete(store)
    configured = settings.queries.get(name)
    if commit_group is not None:
        group_commit.require_possible(commit_group, files.cut.offsets, store.settings.kafka)
    group = group_commit.group_of(
        commit_group, configured.commit_group if configured else None, kind, batch_id
    )
    tables = {**(configured.outputs if configured else {}), **(outputs or {})}
    if not tables and outputs is None:
        tables = history.pinned_uris(store, name)
    every = store.catalog.all()
    if output_topics is None:
        output_topics = history.output_topics(every, name, settings)
    known = catalog.select(every, query=name)
    free_tags.require_free(known, name, tags, but=[savepoint_id or ""])
    kept, warnings = saved_forms.choose(files, forms)
    warnings += _warnings(name, files, [*tables, *output_topics], replaced)
    return CreatePlan(
        verb="create",
        query=name,
        steps=_steps(files, batch_id, kept, group),
        warnings=warnings,
        savepoint_id=savepoint_id or new_id("sp", utc_now()),
        query_id=files.query_id,
        checkpoint=str(location),
        generation=generation.generation if generation else None,
        batch_id=batch_id,
        newest_batch=files.cut.batch_id,
        forms=kept,
        outputs=tables,
        files=len(files.all),
        files_bytes=sum(info.size for info in files.all),
        tags=tuple(tags),
        description=description,
        parent=next((one.id for one in known if one.edit is None), None),
        application=app or (configured.app if configured else None),
        code_version=os.environ.get("SAVEPOINTS_CODE_VERSION"),
        kind=kind,
        commit_group=group,
        output_topics=tuple(sorted(output_topics)),
    )


def _read(
    store: Store, generation: Generation | None, location: Location, batch_id: int | None
) -> CutFiles:
    """Return the cut of a checkpoint; that of a known query is there from its first run on."""
    try:
        files = pin.read(location, batch_id)
        if generation is not None:
            history.require_state(store, generation, files)
        return files
    except NoCommittedBatchError:
        if generation is None or position.read(location).committed is not None:
            raise
        command = f"savepoints create {generation.query}"
        raise first_batch.missing(store, generation.query, command=command) from None
    except CheckpointNotFoundError as error:
        if generation is None:
            raise
        raise CheckpointNotFoundError(
            f"there is nothing to save at {location}: {generation.query} has not run since "
            f"generation {generation.generation} began, or its checkpoint was lost",
            hint=_begin(store, generation.query),
            **error.details,
        ) from None


def _begin(store: Store, query: str) -> str:
    """Say how a query without a checkpoint gets one."""
    if query in bindings.complete(store).queries:
        return (
            f"run it first: savepoints run {query} --until latest; or, if its checkpoint was lost: "
            f"savepoints run {query} --recover"
        )
    return (
        "start its driver first; or, if its checkpoint was lost: savepoints rollback latest "
        f"--query {query} --no-safety-savepoint"
    )


def _locate(
    store: Store, query: str | None, checkpoint: str | None
) -> tuple[str | None, Generation | None, Location]:
    """Return what is saved: the query's name and generation, as far as known, and a checkpoint."""
    if checkpoint is not None:
        location = Location.of(checkpoint)
        name = store.generations.name_of(location, query and checked_name(query, "query"))
        return name, store.generations.of_checkpoint(location), location
    if query is not None:
        generation = store.generations.current(query)
        return query, generation, Location.of(generation.checkpoint)
    raise UsageError(
        "neither a query nor a checkpoint was given",
        hint="name a query (savepoints create QUERY) or a checkpoint: savepoints create "
        "--checkpoint s3://bucket/path",
    )


def _warnings(
    name: str, files: CutFiles, outputs: Sequence[str], replaced: Generation | None
) -> tuple[str, ...]:
    found = []
    if replaced is not None:
        found.append(
            f"{replaced.checkpoint} was the checkpoint of {name} until now; this one begins its "
            "next generation (if it is another query's, name that: --name NAME)"
        )
    paths = [info.path for info in files.all]
    if sources := source_positions.unreplayable(files.positions, paths):
        unreplayable = restore_checks.unreplayable_text(name, sources)
        found.append(f"a rollback would lose rows: {unreplayable}")
    if not outputs:
        found.append(
            f"the output tables of {name} are unknown, so a rollback would not rewind them: name "
            "them with --table NAME=URI"
        )
    return tuple(found)


def _steps(
    files: CutFiles, batch_id: int | None, forms: Sequence[Form], group: str | None
) -> tuple[Step, ...]:
    batch = f"batch {files.cut.batch_id}"
    if batch_id is None:
        batch = f"the newest committed batch, currently {files.cut.batch_id}"
    steps = [Step("pinned", f"copy {count_text(len(files.all), 'file')} of {batch}")]
    if "canonical" in forms:
        steps.append(Step("exported", "write the state rows as a Delta table"))
    steps += [
        Step("manifest", "write the savepoint's manifest"),
        Step("catalog", "add the savepoint to the catalog"),
    ]
    if group is not None:
        steps.append(Step("committed", f"commit the offsets for the consumer group {group}"))
    return tuple(steps)


@recorded
def execute(
    plan: CreatePlan,
    store: Store,
    *,
    before: TopicObservation | None = None,
    progress: Progress = silent,
) -> Savepoint:
    """Take the savepoint.

    Running the same plan again after a crash goes on or starts over; a savepoint that is in the
    catalog already is returned as it is. If the rows cannot be written it is kept in the native
    form, and says why in `rows_missing`; `export` adds them later.

    Args:
        before: What was seen of the query's output topics, if anything was.

    Raises:
        LockedError: If another savepoint of the query is being taken, or one removed.
        NoCommittedBatchError: If the query removes files faster than they can be copied.
        NotAlignedError: If no version of an output belongs to the batch.
        TargetExistsError: If another savepoint was given a tag meanwhile.
    """
    savepoint = _taken(plan, store, before, progress)
    if plan.commit_group is not None:
        group_commit.commit(plan.commit_group, savepoint, store, progress)
    return savepoint


def save(
    store: Store,
    query: str,
    *,
    description: str,
    kind: SavepointKind,
    checkpoint: str | None = None,
    batch_id: int | None = None,
    outputs: Mapping[str, str] | None = None,
    savepoint_id: str | None = None,
) -> Savepoint:
    """Take a savepoint in the native form, as a step of another verb; it takes a moment and no JVM.

    Args: See `plan`.
    """
    saving = plan(
        store,
        query=query,
        checkpoint=checkpoint,
        batch_id=batch_id,
        forms=("native",),
        outputs=outputs,
        description=description,
        savepoint_id=savepoint_id,
        kind=kind,
    )
    return execute(saving, store)


def _taken(
    plan: CreatePlan, store: Store, before: TopicObservation | None, progress: Progress
) -> Savepoint:
    with lease.hold_files(store.root, plan.query_id, plan.query, "create") as held:
        store = store.snapshot()
        done = store.catalog.get(plan.savepoint_id)
        if done and done.state == "expired":
            raise SavepointNotFoundError(
                f"savepoint {plan.savepoint_id} was taken and then deleted",
                hint=f"take a new one: savepoints create {plan.query}",
                savepoint=plan.savepoint_id,
            )
        if done:
            return done
        require_free = partial(
            free_tags.require_free, query=plan.query, tags=plan.tags, but=[plan.savepoint_id]
        )
        require_free(store.catalog.all())
        path = manifest.manifest_path(plan.savepoint_id)
        if not store.root.exists(path):
            with pin.taken_back(store.root, held) as begun:
                made = _make(plan, store, held.moment(), before, begun, progress)
            # Files that it shares must not have been removed under a lease that seemed expired.
            held.confirm()
            written = made.to_bytes()
            store.root.create(path, written)
            faults.reach("create.manifest")
            stored = Manifest.parse(written, path)
        else:
            stored = store.manifest(plan.savepoint_id)
        savepoint = stored.savepoint
        held.check()
        store.catalog.add(savepoint)
        faults.reach("create.catalog")
    try:
        require_free(store.reopened().catalog.all() if plan.tags else ())
    except TargetExistsError as error:
        # Somebody gave it away at this moment; see `tag`.
        store.catalog.relabel([savepoint.id], lambda old: replace(old, tags=()))
        error.message += f"; {savepoint.id} was taken without tags"
        raise
    return savepoint


def _make(
    plan: CreatePlan,
    store: Store,
    taken_at: datetime,
    before: TopicObservation | None,
    begun: set[str],
    progress: Progress,
) -> Manifest:
    checkpoint = Location.of(plan.checkpoint)
    now = topic_ends.observe(checkpoint, plan.output_topics, store.settings.kafka, progress)
    generation = registration.generation_of(store, plan.query, checkpoint)
    earlier = pin.earlier_files(store, plan.parent, plan.query_id, generation.generation)
    files, pinned, attempts = pin.copy(
        checkpoint, plan.batch_id, store.root, plan.savepoint_id, earlier, begun, progress
    )
    faults.reach("create.pinned")

    # Somebody may have renamed it since.
    query = generation.query
    bound = bindings.complete(store).queries.get(query)
    outputs = output_versions.outputs_of(query, generation.generation, files, plan.outputs, bound)
    since = time.monotonic()
    stored = native.checksummed(
        store.root, pinned, {file.stored_at: file.sha256 for file in earlier}
    )
    cost = pinned.cost(stored, attempts, checksum_seconds=time.monotonic() - since)
    made = Manifest(
        Savepoint(
            id=plan.savepoint_id,
            query=query,
            query_id=files.query_id,
            generation=generation.generation,
            cut=history.dated(files.cut, store.catalog.get(generation.begun_from)),
            created_at=taken_at,
            forms=("native",),
            operators=files.operator_states,
            outputs=outputs,
            output_topics=topic_ends.of_batch(
                plan.output_topics, [one for one in (before, now) if one], files.cut.batch_id
            ),
            cost=cost,
            parent=plan.parent,
            application=plan.application,
            code_version=plan.code_version,
            settings=files.conf,
            topics=topic_ids.known_ids(
                files.cut, lineage.of_topics(store, generation), store.settings.kafka, progress
            ),
            tags=plan.tags,
            description=plan.description,
            kind=plan.kind,
        ),
        stored,
    )
    if "canonical" not in plan.forms:
        return made
    progress("writing the state rows (starts Spark if it is not running)")
    try:
        exported = export.with_rows(made, store)
    except Exception as error:  # noqa: BLE001  (what was pinned is whole, whatever comes of its rows)
        return export.without_rows(made, error)
    faults.reach("create.exported")
    return exported if "native" in plan.forms else exported.without_native()
