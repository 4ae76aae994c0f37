"""A merge into a query that was rolled back with the driver whose topic it reads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from savepoints.local import LocalWorld
from tests.e2e.late_desk import Event, LateDesk
from tests.e2e.marks import NIGHTLY
from tests.fidelity.driver_job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = NIGHTLY


@pytest.mark.parametrize("entity", ["b", "c"], ids=["same-entity", "another-entity"])
def test_trap_what_was_rolled_back_in_a_topic_counted_as_seen(
    world: LocalWorld,
    world_environment: dict[str, str],
    spark: SparkSession,
    tmp_path: Path,
    entity: str,
) -> None:
    """The topic keeps the event, but the query has never read it since."""
    desk = LateDesk.open(world, spark, tmp_path, "running")
    job = Job(
        "events", str(tmp_path), str(tmp_path), "driver",
        servers=world.bootstrap_servers, topic=desk.desk.topics["events"],
    )  # fmt: skip
    (tmp_path / "in").mkdir()

    def write(*events: Event) -> None:
        name = f"{len(list((tmp_path / 'in').iterdir()))}.json"
        (tmp_path / name).write_text("".join(one.value.decode() + "\n" for one in events))
        (tmp_path / name).rename(tmp_path / "in" / name)
        query, attached = job.start(spark)
        query.processAllAvailable()
        attached.stop()
        desk.desk.run(until="latest")
        desk.archive()

    store = desk.desk.store
    write(Event("1", "a", 1, 1), Event("2", "c", 2, 2))
    store.query("driver").create_group(name="before").execute()
    write(Event("wrong", "b", 3, 3))
    store.query("driver").rollback_pipeline("before", stopped=True).execute()
    # The driver reads the same file again, which is another one by now.
    corrected = Event("4", "a", 40, 40)
    (tmp_path / "in" / "1.json").write_bytes(corrected.value + b"\n")
    write()
    write(Event("5", "c", 5, 50))
    late = Event("wrong", entity, 7, 45)

    desk.merge(desk.prepare(desk.write([late])))

    rows = [(one["k"], one["count"], one["total"]) for one in desk.desk.rows()]
    wanted = {"a": [1, 40], "c": [2, 5]}
    wanted[entity] = [*wanted.get(entity, []), 7]
    assert rows == [(k, len(found), sum(found)) for k, found in sorted(wanted.items())]
