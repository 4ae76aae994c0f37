"""What a plan to go back says of the records that are read once more."""

from __future__ import annotations

import pytest

from savepoints.config.settings import QuerySettings, Settings
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.moments import rfc3339, utc_now
from savepoints.operations.rollback import notes, rollback
from savepoints.store.locks.journal import Journal, Operation
from tests.samples import take, unpack

THEN = '{"orders":{"0":10,"1":20}}'


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ('{"orders":{"0":1510,"1":21}}', ["1,501 records read since then will be read again"]),
        (THEN, []),
        ('{"orders":{"0":11,"1":20,"2":5}}', []),
        ('{"logOffset":7}', []),
    ],
    ids=["some", "none", "a new partition, which began nobody knows where", "files"],
)
def test_of_kafka_it_is_known_how_many(on_local: Location, now: str, said: list[str]) -> None:
    settings = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'
    (on_local / "live").put("offsets/4", f"v1\n{settings}\n{now}".encode())

    assert [*notes.of_records(str(on_local / "live"), 4, [THEN])] == said
    assert not [*notes.of_records(str(on_local / "live"), None, [THEN])]
    assert not [*notes.of_records(str(on_local / "gone"), 4, [THEN])]


def test_trap_a_checkpoint_is_written_into_the_one_that_is_left(
    on_local: Location, local_store: Store
) -> None:
    """Whoever deletes the old one, which nothing needs any more, deletes the live one with it."""
    take(local_store, unpack("rocksdb", on_local / "totals"))

    def said(checkpoints: Location, to: str | None = None) -> list[str]:
        bound = QuerySettings(app="a:b", checkpoints=str(checkpoints))
        store = local_store.with_settings(Settings(queries={"totals": bound}))
        plan = rollback.plan(store, "latest", to=to, rewind_outputs=False)
        return [one for one in plan.warnings if "lies inside the old one" in one]

    (note,) = said(on_local)
    assert f"{on_local}/totals/2 " in note
    assert said(on_local / "next") == said(on_local, str(on_local / "totals-2")) == []

    bound = QuerySettings(app="a:b", checkpoints=str(on_local))
    (of_merges,) = notes.of_next(local_store, "totals", bound)
    assert of_merges.endswith("to choose another place: checkpoints in [queries.totals]")


def test_trap_a_reader_goes_back_to_before_a_correction_and_reads_it_as_new_rows(
    on_local: Location, local_store: Store
) -> None:
    """The correction only adds rows, so no stream fails at it; before, the plan said nothing."""
    saved = take(local_store, unpack("rocksdb", on_local / "totals"))
    follows = {"operation_id": "op-of-merge", "query": "bronze", "table": "/lake/bronze"}
    begun = Operation(
        "op-20261125-101500-aaaaaa", "cascade", "totals", {"follows": follows},
        "savepoints merge bronze --batch late --downstream merge --yes", rfc3339(utc_now()),
    )  # fmt: skip
    journal = Journal.begin(local_store.root, begun)
    live = unpack("rocksdb", on_local / "2")
    local_store.generations.begin("totals", 2, live, by="cascade", begun_from=saved.id)
    journal.record("generation_begun", generation=2)
    journal.finish()
    after = take(local_store, live)

    def said(savepoint: str) -> list[str]:
        plan = rollback.plan(local_store, savepoint, to=str(on_local / "3"), rewind_outputs=False)
        return [one for one in plan.warnings if "merged rows as new ones" in one]

    (note,) = said(saved.id)
    assert note.startswith("the correction of /lake/bronze by the merge op-of-merge, which totals ")
    assert note.endswith("savepoints pipeline rollback bronze NAME")
    assert not said(after.id)
