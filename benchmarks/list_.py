"""`list`: the catalog of a thousand savepoints on S3, beside deltalake's bare read of its table.

The S3 server is the tests' own, on this machine, so that both sides wait for the same requests.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

import savepoints
from benchmarks.result import Result, Sample, in_turns, seconds
from savepoints.cli.main import cli
from savepoints.cli.output import Terminal
from savepoints.io import storage_options
from savepoints.local import s3
from savepoints.local.service import Service
from savepoints.model import Cut, OperatorState
from savepoints.store.tables import catalog

_SAVEPOINTS = 1000
# In commits of this size, as compaction leaves them.
_A_COMMIT = 200
_BUCKET = "benchmark"


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """List a thousand savepoints, and let deltalake read their rows; there are no keys in it."""
    del keys
    with _s3(directory):
        store = savepoints.Store.at(f"s3://{_BUCKET}/store").make()
        rows = [catalog._to_row(_savepoint(number)) for number in range(_SAVEPOINTS)]
        for first in range(0, _SAVEPOINTS, _A_COMMIT):
            store.catalog._table.append(rows[first : first + _A_COMMIT])
        samples = in_turns(directory, rounds, lambda _: _listed(store), lambda _: _read(store))
    return Result(samples, seconds(samples["deltalake: read"]) / seconds(samples["list"]))


def _listed(store: savepoints.Store) -> Mapping[str, Sample]:
    shown = io.StringIO()
    begun = time.monotonic()
    with redirect_stdout(shown):
        words = ["list", "--store", str(store.root)]
        cli.main(words, standalone_mode=False, obj=Terminal())
    return {"list": Sample(time.monotonic() - begun, len(shown.getvalue()), _SAVEPOINTS)}


def _read(store: savepoints.Store) -> Mapping[str, Sample]:
    place = store.root / "catalog"
    begun = time.monotonic()
    table = DeltaTable(str(place), storage_options=storage_options(place.uri))
    rows = pa.table(QueryBuilder().register("rows", table).execute("select * from rows"))
    found = rows.to_pylist()
    return {"deltalake: read": Sample(time.monotonic() - begun, rows.nbytes, len(found))}


def _savepoint(number: int) -> savepoints.Savepoint:
    created = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=10 * number)
    return savepoints.Savepoint(
        id=f"sp-{created:%Y%m%d-%H%M%S}-{number:06d}",
        query="totals",
        query_id="c8a54052-ae64-4515-a59b-49b09fc453cb",
        generation=1,
        cut=Cut(number, created, 0, ('{"orders":{"0":1200,"1":1180}}',), "RocksDB", 2),
        created_at=created,
        forms=("native",),
        operators=(OperatorState(0, "stateStoreSave", ("default",), 2),),
    )


@contextmanager
def _s3(directory: Path) -> Iterator[None]:
    """Run an S3 server and point this process to it."""
    service = Service("s3", s3.prepare_s3, directory, detach=False)
    before = dict(os.environ)
    try:
        service.wait_ready()
        os.environ.update(
            AWS_ENDPOINT_URL=service.endpoint,
            AWS_ACCESS_KEY_ID=s3.ACCESS_KEY_ID,
            AWS_SECRET_ACCESS_KEY=s3.SECRET_ACCESS_KEY,
            AWS_DEFAULT_REGION=s3.REGION,
        )
        s3.create_bucket(service.endpoint, _BUCKET)
        yield
    finally:
        service.stop()
        os.environ.clear()
        os.environ.update(before)
