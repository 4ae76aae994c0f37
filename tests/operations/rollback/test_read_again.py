"""Back to where a source cannot give again what it gave: refused, for savepoints and batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from savepoints.checkpoint.logs import file_log, offset_log
from savepoints.errors import IncompatibleError, SavepointsError, SourceDataGoneError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.fork import fork_plan
from savepoints.operations.fork.fork_plan import ForkOptions, ForkPlan
from savepoints.operations.migrate import migrate
from savepoints.operations.rollback import restore_point, rollback
from savepoints.operations.rollback.rollback import RollbackPlan
from savepoints.operations.rollback.target import AtBatch, Named, Point
from savepoints.operations.savepoint import restore
from savepoints.uri import Uri
from tests.samples import contents, take, unpack

QUERY = "totals"


class Query:
    """A query that has read the files 0 to 3, one a batch, with a savepoint of batch 1."""

    def __init__(self, place: Location, store: Store) -> None:
        self.place, self.store = place, store
        self.live = unpack("rocksdb", place / "live")
        self.files = [Path(str(place)) / "in put" / f"{number}.json" for number in range(4)]
        self.files[0].parent.mkdir()
        for number, file in enumerate(self.files):
            file.write_text("{}")
            self.log(number, self.live)
        self.saved = take(store, self.live, batch_id=1).id

    def log(self, number: int, checkpoint: Location) -> None:
        """Write the entry of a file, of the time at which it was last changed."""
        file = self.files[number]
        entry = file_log.entry(number, [Uri.parse(str(file))], int(file.stat().st_mtime * 1000))
        checkpoint.put(f"sources/0/{number}", entry)

    def plan(self, point: Point, *, accept: bool = False) -> RollbackPlan:
        return rollback.plan(
            self.store, point, query=QUERY, to=str(self.place / "next"), rewind_outputs=False,
            accept_unreplayable=accept,
        )  # fmt: skip

    def fork(self, *, check_source: bool = True) -> ForkPlan:
        options = ForkOptions(
            app="spark_jobs.order_totals:app", checkpoints=str(self.place / "own"),
            outputs={"totals": str(self.place / "own_totals")}, check_source=check_source,
        )  # fmt: skip
        return fork_plan.plan(self.store, self.saved, "variant", options)

    def refusals(self) -> list[SavepointsError]:
        """Return how all ways back to batch 1 and 2 are refused."""
        to, found = str(self.place / "other"), []
        for back in (
            lambda: self.plan(Named(self.saved)),
            lambda: self.plan(AtBatch(2)),
            lambda: restore.plan(self.store, self.saved, to),
            lambda: restore_point.plan(self.store, AtBatch(2), to, query=QUERY),
        ):
            with pytest.raises(SavepointsError) as refused:
                back()
            found.append(refused.value)
        return found


@pytest.fixture
def query(on_local: Location, local_store: Store) -> Query:
    return Query(on_local, local_store)


def test_trap_files_that_were_cleaned_up_would_be_passed_over(query: Query) -> None:
    """By Spark's `cleanSource`, or by a bucket's rules: the source lists what is there."""
    query.files[0].unlink()
    assert query.plan(Named(query.saved)).batch_id == 1, "its records are in the state"
    query.files[3].unlink()
    before = contents(query.place)

    refused = query.refusals()

    assert {type(one) for one in refused} == {SourceDataGoneError}
    gone = f"1 are gone (first: file://{query.files[3]})"
    assert [one.message for one in refused] == [
        f"of {count} that totals has read since batch {batch}, {gone}, so their records would be "
        "lost"
        for count, batch in [("2 files", 1), ("1 file", 2)] * 2
    ]
    assert "--accept-unreplayable" in refused[0].hint
    assert query.plan(Named(query.saved), accept=True).batch_id == 1
    assert query.plan(AtBatch(2), accept=True).batch_id == 2
    assert contents(query.place) == before
    query.files[3].write_text("{}")
    assert query.plan(Named(query.saved)).batch_id == 1


def test_trap_a_fork_would_pass_over_files_that_its_origin_has_read(query: Query) -> None:
    query.files[0].unlink()
    query.fork()
    query.files[3].unlink()

    with pytest.raises(SourceDataGoneError, match="of 2 files that totals has read") as refused:
        query.fork()

    assert refused.value.hint.endswith("--no-source-check")
    assert query.fork(check_source=False).batch_id == 1


def test_trap_a_source_that_is_kept_and_a_migrated_state_would_pass_over_them(query: Query) -> None:
    """With `--source` and with `--migrate` nobody looked for the files."""
    query.files[3].unlink()
    to = str(query.place / "other")

    def rolled_back(*sources: str) -> RollbackPlan:
        return rollback.plan(
            query.store, Named(query.saved), query=QUERY, to=to, rewind_outputs=False,
            sources=sources,
        )  # fmt: skip

    for back in (
        lambda: restore.plan(query.store, query.saved, to, sources=("keep:0", "new")),
        lambda: rolled_back("keep:0"),
        lambda: migrate.plan(query.store, query.saved, to, app="shop.totals:app"),
    ):
        with pytest.raises(SourceDataGoneError, match="of 2 files that totals has read"):
            back()
    assert restore.plan(query.store, query.saved, to, sources=("new",)).target == to
    assert rolled_back("new").batch_id == 1


def test_what_a_compact_entry_names_counts_and_what_the_savepoint_had_does_not(
    query: Query,
) -> None:
    entries = [query.live.get(f"sources/0/{number}") for number in range(4)]
    lines = [line for one in entries for line in one.splitlines()[1:]]
    query.live.put("sources/0/3.compact", b"\n".join([b"v1", *lines]))
    query.live.delete([f"sources/0/{number}" for number in range(4)])
    query.files[1].unlink()

    assert query.plan(Named(query.saved)).batch_id == 1
    query.files[2].unlink()
    with pytest.raises(SourceDataGoneError, match=r"of 2 files .* since batch 1, 1 are gone"):
        query.plan(Named(query.saved))


def test_a_file_that_was_written_again_is_told(query: Query) -> None:
    query.log(2, query.live)
    entry = query.live.get("sources/0/2").replace(b'"timestamp":', b'"timestamp":1')
    query.live.put("sources/0/2", entry)

    told = (
        "of 2 files that totals has read since batch 1, 1 were written again (first: "
        f"file://{query.files[2]})"
    )
    assert any(one.startswith(told) for one in query.plan(Named(query.saved)).warnings)
    assert any(
        one.startswith(told)
        for one in restore.plan(query.store, query.saved, str(query.place / "other")).warnings
    )


def test_a_checkpoint_that_does_not_say_what_was_read_is_told(query: Query) -> None:
    query.live.delete(info.path for info in query.live.list())

    plan = restore.plan(query.store, query.saved, str(query.place / "other"))

    assert any("unknown which files totals has read since batch 1" in one for one in plan.warnings)


def test_trap_a_batch_that_nobody_saved_goes_back_over_a_socket(query: Query) -> None:
    """Of savepoints alone it was asked whether their sources can be read again."""
    query.live.delete(info.path for info in query.live.list("sources"))
    for batch in (1, 2, 3):
        if query.live.exists(f"offsets/{batch}"):
            path = f"offsets/{batch}"
            data = offset_log.with_batch(query.live.get(path), path, positions=[str(batch)])
            query.live.put(path, data)
    query.saved = take(query.store, query.live, batch_id=1).id

    refused = query.refusals()

    assert {type(one) for one in refused} == {IncompatibleError}
    assert all("cannot read the records of source 0 again" in one.message for one in refused)
    assert query.plan(AtBatch(2), accept=True).batch_id == 2
