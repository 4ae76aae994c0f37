"""A query that stands still for a merge in a batch that was begun: who has written its rows?"""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from savepoints.checkpoint import position
from savepoints.checkpoint.cut import read_query_id
from savepoints.config.settings import KafkaSettings, QuerySettings
from savepoints.errors import NotAlignedError
from savepoints.io import Location
from savepoints.model import Generation
from savepoints.operations.merge.prepare import require_no_batch_written
from savepoints.outputs.delta.write import app_id
from savepoints.runtime.inputs import Inputs
from spark_jobs.order_totals import app
from tests import samples


def died_in_a_batch(place: Location) -> Location:
    """Return a checkpoint whose newest batch is not committed."""
    files = samples.files_of("hdfs")
    newest = max(int(one.rpartition("/")[2]) for one in files if one.startswith("commits/"))
    samples.write(place, {one: files[one] for one in files if one != f"commits/{newest}"})
    return place


def written(table: Location, writer: str, batch: int) -> None:
    """Commit a batch to the output."""
    write_deltalake(
        str(table),
        pa.table({"customer_id": [1]}),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(writer, batch)]),
    )


def bound_to(table: Location, **more: dict[str, str]) -> Inputs:
    """Return what the query is bound to."""
    known = {"totals": str(table)}
    bound = QuerySettings(app="any:app", checkpoints="any", outputs=known, **more)  # type: ignore[arg-type]
    return Inputs(app, bound, KafkaSettings())


def test_trap_a_busy_run_that_pauses_has_begun_a_batch(on_local: Location) -> None:
    """Spark logs it before the run sees that it is to pause; nothing of it is in an output."""
    checkpoint = died_in_a_batch(on_local / "checkpoint")
    now = position.read(checkpoint)
    assert now.begun is not None
    assert now.committed is not None
    live = Generation(app.name, 3, str(checkpoint), "current", samples.BEGINNING, "run")
    table, mine = on_local / "totals", app_id(app.name, "totals", 3)

    require_no_batch_written(bound_to(table), live)  # No table, no rows.
    written(table, mine, now.committed)
    written(table, app_id(app.name, "totals", 2), now.begun + 7)
    require_no_batch_written(bound_to(table), live)
    written(table, mine, now.begun)
    with pytest.raises(NotAlignedError, match=f"batch {now.begun} of order_totals was started"):
        require_no_batch_written(bound_to(table), live)


@pytest.mark.parametrize("of_spark", [False, True])
def test_trap_a_driver_of_the_user_s_writes_under_other_ids(
    on_local: Location, of_spark: bool
) -> None:
    """Under one of its own, or Spark's of the query, under which it was not looked for."""
    checkpoint = died_in_a_batch(on_local / "checkpoint")
    begun = position.read(checkpoint).begun
    assert begun is not None
    live = Generation(app.name, 1, str(checkpoint), "current", samples.BEGINNING, "attach")
    writer = read_query_id(checkpoint) if of_spark else "its-own"
    written(on_local / "totals", writer, begun)
    named = {} if of_spark else {"app_ids": {"totals": writer}}
    with pytest.raises(NotAlignedError, match="its rows are already in"):
        require_no_batch_written(bound_to(on_local / "totals", **named), live)
