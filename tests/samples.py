"""Sample checkpoints that Spark wrote, and savepoints of them; no JVM needed."""

from __future__ import annotations

import functools
import json
import os
import time
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from savepoints.checkpoint.logs import file_log
from savepoints.checkpoint.logs.kafka_position import KafkaOffsets
from savepoints.handle import Store
from savepoints.io import Location, in_parallel
from savepoints.model import Cut, OperatorState, OutputVersion, Savepoint
from savepoints.operations.savepoint import create
from savepoints.plan import Progress, silent
from savepoints.store.tables.merge_ledger import Merge

CHECKPOINTS = Path(__file__).parent / "data" / "checkpoints"
OLDER = Path(__file__).parent / "data" / "older_spark"
BEGINNING = datetime(2026, 11, 20, 10, tzinfo=UTC)
KAFKA = '{"orders":{"0":1200,"1":1180}}'


def files_of(name: str) -> dict[str, bytes]:
    """Return the files of a sample checkpoint; see data/README.md.

    The files that its query had read are there, unchanged, as they were then.
    """
    directory = OLDER if name[0].isdigit() else CHECKPOINTS
    with zipfile.ZipFile(directory / f"{name}.zip") as archive:
        found = {info.filename: archive.read(info) for info in archive.infolist()}
    return {
        path: _with_inputs(data, path) if path.startswith("sources/") else data
        for path, data in found.items()
    }


def _with_inputs(data: bytes, name: str) -> bytes:
    """Let an entry of a file source's log name files of this process, and make them."""
    for one in file_log.files(data, name):
        path = one.path.removeprefix("file:")
        place = Path(_inputs().name, *Path(path).parts[-2:])
        place.parent.mkdir(exist_ok=True)
        place.touch()
        os.utime(place, ns=(one.modified_ms * 1_000_000,) * 2)
        data = data.replace(one.path.encode(), f"file://{place}".encode())
    return data


@functools.cache
def _inputs() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


def query_id(name: str) -> str:
    """Return Spark's id of the query of a sample checkpoint."""
    return str(json.loads(files_of(name)["metadata"])["id"])


def unpack(name: str, target: Location) -> Location:
    """Put the files of a sample checkpoint into a directory and return it.

    On a disk its commits are of an hour ago, as of a driver that has stopped: what has just been
    committed is watched before it is rolled back.
    """
    write(target, files_of(name))
    if target.uri.scheme != "s3":
        hour_ago = time.time() - 3600
        for commit in Path(str(target)).glob("commits/*"):
            os.utime(commit, (hour_ago, hour_ago))
    return target


def write(target: Location, files: dict[str, bytes]) -> None:
    """Write files into a directory."""
    in_parallel(lambda path: target.put(path, files[path]), list(files))


def contents(location: Location) -> dict[str, bytes]:
    """Return all files of a directory."""
    paths = [info.path for info in location.list()]
    return dict(zip(paths, in_parallel(location.get, paths), strict=True))


def lasting(store: Store) -> dict[str, bytes]:
    """Return all files of a store but those that every verb writes: leases and events."""
    return {
        path: data
        for path, data in contents(store.root).items()
        if not path.startswith(("leases/", "events/"))
    }


def take(
    store: Store,
    checkpoint: Location,
    *,
    batch_id: int | None = None,
    query: str | None = "totals",
    tags: tuple[str, ...] = (),
    outputs: dict[str, str] | None = None,
    progress: Progress = silent,
) -> Savepoint:
    """Take a savepoint in the native form, which needs no JVM."""
    plan = create.plan(
        store,
        query=query,
        checkpoint=str(checkpoint),
        batch_id=batch_id,
        forms=("native",),
        tags=tags,
        outputs=outputs,
    )
    return create.execute(plan, store, progress=progress)


def saved(store: Store, sample: str, batch_id: int | None = None) -> Savepoint:
    """Return a native savepoint of a sample, taken when it is first asked for."""
    for one in store.catalog.all():
        if one.query == sample and batch_id in {None, one.cut.batch_id}:
            return one
    checkpoint = Location.of(f"{store.root}-{sample}")
    if not checkpoint.list():
        unpack(sample, checkpoint)
    return take(store, checkpoint, query=sample, batch_id=batch_id)


def savepoint(
    number: int,
    *,
    id: str | None = None,  # noqa: A002 - as in the model
    query: str = "orders",
    tags: tuple[str, ...] = (),
    committed_at: datetime | None = None,
    created_at: datetime | None = None,
    state: str = "complete",
    offsets: tuple[str | None, ...] = (KAFKA,),
    outputs: tuple[OutputVersion, ...] = (),
) -> Savepoint:
    """Describe a savepoint: number N was taken N hours after the beginning."""
    created = created_at or BEGINNING + timedelta(hours=number)
    return Savepoint(
        id=id or f"sp-{created:%Y%m%d-%H%M%S}-{number:06d}",
        query=query,
        query_id="c8a54052-ae64-4515-a59b-49b09fc453cb",
        generation=1,
        cut=Cut(
            batch_id=number,
            committed_at=committed_at or created - timedelta(minutes=1),
            watermark_ms=0,
            offsets=offsets,
            provider="RocksDB",
            partitions=2,
        ),
        created_at=created,
        forms=("native",),
        operators=(OperatorState(0, "stateStoreSave", ("default",), 2),),
        outputs=outputs,
        tags=tags,
        state=state,  # type: ignore[arg-type]
    )


def merge(query: str, offsets: KafkaOffsets, at: datetime, merge_id: str = "op-merge") -> Merge:
    """Return a merge of one event, which a query made when it had read up to some offsets."""
    return Merge(
        id=merge_id,
        query=query,
        generation=2,
        input="orders",
        batch="late.parquet",
        content_hash="",
        rows=1,
        known=0,
        entities=1,
        first_event_time=None,
        last_event_time=None,
        policy="exact",
        way="short",
        controls=0,
        controls_differing=0,
        batch_id=7,
        offsets=offsets,
        outputs=(),
        descent=(),
        pause_seconds=0.0,
        by="test",
        at=at,
    )
