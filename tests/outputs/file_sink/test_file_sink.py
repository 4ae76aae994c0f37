"""Directories of Spark's file sink are taken back by their log; no JVM needed."""

from __future__ import annotations

import json
import signal

import pytest
from hypothesis import given
from hypothesis.strategies import DataObject, data, integers, sampled_from

from savepoints.errors import FileSinkError, NotAlignedError, NotFoundError
from savepoints.io import Location
from savepoints.json_values import to_json
from savepoints.model import OutputVersion
from savepoints.outputs.delta import batch_version, missing_files, retention
from savepoints.outputs.file_sink import file_sink
from savepoints.outputs.rewind import plan_text, rewind
from savepoints.outputs.rewind.planned_rewind import Rewind
from tests.processes import script_killed_at

pytestmark = pytest.mark.drawn(5)

INTERVAL = 3
_KILLED = """
import json, sys
from savepoints.json_values import from_json
from savepoints.outputs.rewind import rewind
from savepoints.outputs.rewind.planned_rewind import Rewind
getattr(rewind, sys.argv[1])(from_json(Rewind, json.loads(sys.argv[2])), "op-1")
"""


class Sink:
    """A sink written by the rules of Spark's `FileStreamSink`, a data file and row a batch."""

    def __init__(self, at: Location) -> None:
        """Begin with an empty directory."""
        self.at, self.log, self.lives = at, at / "_spark_metadata", 0

    def write(self, *batches: int, empty: bool = False) -> None:
        """Write batches as Spark would: those up to the newest entry are silently dropped."""
        self.lives += 1
        for batch in batches:
            if batch <= max(self.entries, default=-1):
                continue
            name = f"part-{batch}-{self.lives} x.json"
            self.at.put(name, json.dumps({"n": batch}).encode())
            path = f"file:///{self.at.uri.path}/{name.replace(' ', '%20')}"
            own = [] if empty else [json.dumps({"path": path, "action": "add"})]
            if (batch + 1) % INTERVAL:
                self.log.put(str(batch), "\n".join(["v1", *own]).encode())
            else:
                lines = [*self.lines(batch - 1), *own]
                self.log.put(f"{batch}.compact", "\n".join(["v1", *lines]).encode())
            self.log.put(f".{batch}.crc", b"checksum")

    @property
    def entries(self) -> dict[int, str]:
        """Return the entries as Spark lists them: files whose names are batch ids."""
        names = [info.path for info in self.log.list() if "/" not in info.path]
        ids = {one: one.removesuffix(".compact") for one in names}
        return {int(number): one for one, number in ids.items() if number.isdigit()}

    def lines(self, newest: int) -> list[str]:
        """Read what Spark reads after a batch: its `getAllValidBatches`, all of them."""
        first = max(0, (newest + 1) // INTERVAL * INTERVAL - 1)
        lines = []
        for batch in range(first, newest + 1):
            name = str(batch) if (batch + 1) % INTERVAL else f"{batch}.compact"
            lines += self.log.get(name).decode().splitlines()[1:]
        return lines

    def rows(self) -> list[int]:
        """Read the sink."""
        paths = [json.loads(line)["path"] for line in self.lines(max(self.entries, default=-1))]
        return [int(path.rpartition("part-")[2].partition("-")[0]) for path in paths]

    def version(self, batch: int) -> OutputVersion:
        """Return the sink at a batch."""
        return batch_version.version_of_batch("clicks", str(self.at), ("q",), batch)

    def plan(self, batch: int) -> Rewind:
        """Plan to take it back."""
        return rewind.plan(self.version(batch), "orders/", "orders/clicks/2")


@pytest.fixture
def sink(on_local: Location) -> Sink:
    made = Sink(on_local / "clicks")
    made.write(*range(8))
    return made


@pytest.mark.s3
def test_each_batch_is_a_version(place: Location) -> None:
    sink = Sink(place / "clicks")
    sink.write(*range(5))

    found = sink.version(3)

    assert (found.kind, found.version, found.app_version, found.app_id) == ("files", 3, 3, "")
    assert found.uri == str(sink.at)
    assert len({sink.version(batch).table_id for batch in range(5)}) == 5


def test_trap_a_sink_that_begins_late_is_said_to_be_compacted(on_local: Location) -> None:
    """As with a second version of a query: Spark cannot read it, and fails when it compacts it."""
    sink = Sink(on_local / "clicks")
    sink.write(3, 4)

    with pytest.raises(NotAlignedError, match="begins with batch 3") as refused:
        sink.version(4)
    assert "Delta table" in refused.value.hint


@pytest.mark.parametrize("batch", range(8))
def test_batches_that_are_taken_back_are_written_again_once(sink: Sink, batch: int) -> None:
    plan = sink.plan(batch)
    assert plan.newest == 7

    assert rewind.execute(plan, "op-1") == batch

    assert sink.rows() == list(range(batch + 1))
    sink.write(*range(batch, 10))
    assert sink.rows() == list(range(10))


def test_trap_without_the_rewind_the_sink_drops_batches_that_it_has_seen(sink: Sink) -> None:
    """The negative control: they are run again, and nothing is written."""
    before = sink.lines(7)

    sink.write(*range(3, 8))

    assert sink.lines(7) == before


def test_trap_a_driver_that_goes_on_after_a_rewind_is_not_noticed(sink: Sink) -> None:
    """Spark would drop all batches up to its; and the hint told to run the same command again."""
    plan = sink.plan(3)
    rewind.execute(plan, "op-1")
    assert not rewind.is_overtaken(plan, "op-1", 7)

    sink.write(9)

    assert rewind.is_overtaken(plan, "op-1", 7)
    with pytest.raises(NotAlignedError, match=r"does not know: 9") as refused:
        rewind.undo(plan, "op-1")
    assert f"delete these files from {sink.log}" in refused.value.hint
    sink.log.delete(["9", ".9.crc"])
    rewind.undo(plan, "op-1")
    assert sink.rows() == list(range(8))


def test_it_goes_on_a_real_store_too(on_s3: Location) -> None:
    sink = Sink(on_s3 / "clicks")
    sink.write(*range(8))
    plan = sink.plan(4)

    rewind.execute(plan, "op-1")
    assert sink.rows() == [0, 1, 2, 3, 4]
    rewind.undo(plan, "op-1")
    assert sink.rows() == list(range(8))


def test_a_repetition_does_nothing(sink: Sink) -> None:
    plan = sink.plan(3)
    rewind.execute(plan, "op-1")
    sink.write(4, 5)

    assert rewind.execute(plan, "op-1") == 3
    assert sink.rows() == [0, 1, 2, 3, 4, 5]


def test_undone_it_is_as_before_also_what_hadoop_compares(sink: Sink) -> None:
    """A checksum on the local disk that is of another file would make Spark refuse the entry."""
    before = {name: sink.log.get(name) for name in sink.entries.values()}
    plan = sink.plan(3)
    rewind.execute(plan, "op-1")
    assert not [one for one in sink.log.list() if one.path in {".4.crc", ".7.crc"}]
    sink.log.put(".7.crc", b"of another file")

    assert rewind.undo(plan, "op-1") == 7

    assert {name: sink.log.get(name) for name in sink.entries.values()} == before
    assert not sink.log.exists(".7.crc")
    assert sink.log.list("_set_aside") == []
    assert rewind.undo(plan, "op-1") is None
    assert rewind.execute(plan, "op-1") == 3
    assert sink.rows() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "point", ["begun", "without_7", "without_5.compact", "without_4", "without_3"]
)
def test_killed_between_any_two_entries_it_is_readable_and_goes_on(sink: Sink, point: str) -> None:
    plan = sink.plan(2)

    killed_at(f"file_sink.{point}", "execute", plan)

    assert sink.rows() == list(range(max(sink.entries) + 1))
    assert rewind.execute(plan, "op-1") == 2
    assert sink.rows() == [0, 1, 2]
    rewind.undo(plan, "op-1")
    assert sink.rows() == list(range(8))


@pytest.mark.parametrize("point", ["with_3", "with_5.compact", "with_7", "put_back"])
def test_an_undo_that_is_killed_is_readable_and_goes_on(sink: Sink, point: str) -> None:
    plan = sink.plan(2)
    rewind.execute(plan, "op-1")

    killed_at(f"file_sink.{point}", "undo", plan)

    assert sink.rows() == list(range(max(sink.entries) + 1))
    assert rewind.undo(plan, "op-1") == 7
    assert sink.rows() == list(range(8))


def test_after_an_undo_that_was_killed_it_can_be_done_again(sink: Sink) -> None:
    plan = sink.plan(2)
    rewind.execute(plan, "op-1")
    killed_at("file_sink.with_4", "undo", plan)

    assert rewind.execute(plan, "op-1") == 2
    assert sink.rows() == [0, 1, 2]


def test_a_later_rollback_goes_to_batches_that_were_taken_back_before(sink: Sink) -> None:
    """As `rollback --undo` does, after the replayed batches were written anew."""
    safety, old = sink.version(7), sink.lines(7)
    rewind.execute(sink.plan(3), "op-1")
    sink.write(*range(4, 12))
    new = sink.lines(11)

    there = rewind.plan(safety, "orders/", "orders/clicks/3")
    assert rewind.execute(there, "op-2") == 7

    assert sink.lines(7) == old
    assert rewind.undo(there, "op-2") == 11
    assert sink.lines(11) == new


def test_a_batch_of_another_life_is_not_taken_for_that_of_the_savepoint(sink: Sink) -> None:
    """Batch 7 was written again with other rows, and the first one cannot be had any more."""
    old = sink.version(7)
    rewind.execute(sink.plan(3), "op-1")
    sink.write(*range(4, 8))
    aside = [info.path for info in sink.log.list("_set_aside")]
    sink.log.delete(aside)

    with pytest.raises(FileSinkError, match="have the entries of that batch") as refused:
        rewind.plan(old, "orders/", "x")

    assert "savepoints reset QUERY --to-earliest --outputs truncate" in refused.value.hint
    assert refused.value.exit_code == 16


def test_trap_entries_that_a_compact_one_swallowed_and_that_were_deleted_are_refused(
    sink: Sink,
) -> None:
    """The compact entry does not say which files are of which batch."""
    old = sink.version(3)
    sink.log.delete(["2.compact", "3", "4"])

    with pytest.raises(NotAlignedError, match="no longer has"):
        sink.version(3)
    with pytest.raises(FileSinkError, match="compacted"):
        rewind.plan(old, "orders/", "x")
    assert sink.version(5).version == 5
    rewind.execute(sink.plan(5), "op-1")
    assert sink.rows() == [0, 1, 2, 3, 4, 5]


def test_a_batch_without_rows_has_an_entry_too(on_local: Location) -> None:
    sink = Sink(on_local / "clicks")
    sink.write(0)
    sink.write(1, empty=True)
    sink.write(2, 3)

    rewind.execute(sink.plan(1), "op-1")

    assert sink.rows() == [0]
    sink.write(1, 2, 3)
    assert sink.rows() == [0, 2, 3]


def test_a_batch_that_was_not_written_is_not_aligned(sink: Sink) -> None:
    with pytest.raises(NotAlignedError, match="ends at batch 7"):
        sink.version(8)


@pytest.mark.parametrize("entry", ["8", "8.compact"])
def test_trap_an_empty_entry_of_the_log_is_the_log_of_another_query(sink: Sink, entry: str) -> None:
    """It is not in a list, so the query was said not to write to the directory."""
    sink.log.put(entry, b"")

    with pytest.raises(NotAlignedError, match=f"the entry _spark_metadata/{entry} of") as refused:
        sink.version(8)

    assert "remove it, then" in refused.value.hint


def test_what_was_written_since_the_plan_is_refused(sink: Sink) -> None:
    plan = sink.plan(3)
    rewind.refuse_changed(plan)
    sink.write(8)

    with pytest.raises(NotAlignedError, match="newest batch was 7 and is now 8"):
        rewind.refuse_changed(plan)
    with pytest.raises(NotAlignedError, match="is now 8"):
        rewind.execute(plan, "op-1")


def test_what_was_written_since_the_rewind_is_not_undone(sink: Sink) -> None:
    plan = sink.plan(3)
    rewind.execute(plan, "op-1")
    sink.write(4)

    with pytest.raises(NotAlignedError, match="written to"):
        rewind.undo(plan, "op-1")

    assert sink.rows() == [0, 1, 2, 3, 4]


def test_emptied_the_first_batch_is_written_again(sink: Sink) -> None:
    plan = rewind.plan_empty("clicks", str(sink.at), "orders/", (), "x")

    assert rewind.execute(plan, "op-1") == -1

    assert sink.rows() == []
    sink.write(0, 1)
    assert sink.rows() == [0, 1]


def test_emptied_it_can_be_undone(sink: Sink) -> None:
    plan = rewind.plan_empty("clicks", str(sink.at), "orders/", (), "x")
    rewind.execute(plan, "op-1")

    rewind.undo(plan, "op-1")

    assert sink.rows() == list(range(8))


def test_data_files_that_are_gone_are_named_and_refused(sink: Sink) -> None:
    old = sink.version(3)
    assert missing_files.unreadable_files(old) == []
    sink.at.delete(["part-2-1 x.json"])

    (gone,) = missing_files.unreadable_files(old)
    assert gone.endswith("/clicks/part-2-1 x.json")
    with pytest.raises(
        NotAlignedError, match=r"is missing 1 file \(for example .*\), deleted by VACUUM or by hand"
    ):
        rewind.plan(old, "orders/", "x")
    assert missing_files.unreadable_files(sink.version(1)) == []


def test_the_plan_says_what_stays_and_what_readers_see(sink: Sink) -> None:
    plan = sink.plan(3)

    assert plan_text.what(plan) == (
        f"truncate the sink log of {sink.at} after batch 3; it now ends at batch 7"
    )
    stay, seen, compacted = plan_text.notes(plan)
    assert "data files of the batches after 3 remain" in stay
    assert "they have read, and read the rewritten batches" in seen
    assert "compactInterval=3" in compacted
    assert plan_text.notes(sink.plan(7)) == ()


def test_trap_left_as_it_is_it_drops_what_is_run_again(sink: Sink) -> None:
    (dropped,) = plan_text.kept(sink.version(3), "x")

    assert f"{sink.at} is left as it is and will silently drop batches 4 to 7" in dropped
    assert plan_text.kept(sink.version(7), "x") == ()


def test_there_is_no_date_until_which_it_can_be_read(sink: Sink) -> None:
    old = sink.version(3)
    found = retention.of_output(old)
    assert (found.version, found.newest, found.until) == (3, 7, None)

    sink.log.delete(["2.compact", "3", "4"])
    with pytest.raises(FileSinkError):
        retention.of_output(old)


def test_rows_of_a_shared_directory_cannot_be_told_apart(sink: Sink) -> None:
    with pytest.raises(FileSinkError, match="whole batches"):
        rewind.plan(sink.version(3), "orders/", "x", "source = 'shop'")


def test_a_directory_that_is_gone_is_not_found(sink: Sink) -> None:
    old = sink.version(3)
    sink.at.delete([info.path for info in sink.at.list()])

    with pytest.raises(NotFoundError):
        rewind.plan(old, "orders/", "x")
    assert not file_sink.is_one(sink.at)


@given(data())
def test_any_saved_state_is_reached_again_whatever_happened_since(
    tmp_path_factory: pytest.TempPathFactory, draw: DataObject
) -> None:
    """Batches, savepoints, rollbacks to any of them and undos in any order."""
    sink = Sink(Location.of(str(tmp_path_factory.mktemp("sink"))) / "clicks")
    sink.write(0)
    saved = [(sink.version(0), sink.lines(0))]
    for number in range(draw.draw(integers(1, 12), label="steps")):
        newest = max(sink.entries)
        step = draw.draw(sampled_from(["write", "save", "roll back", "undo"]), label="step")
        if step == "write":
            sink.write(*range(newest + 1, newest + 1 + draw.draw(integers(1, 4))))
        elif step == "save":
            at = draw.draw(integers(0, newest))
            try:
                lines = sink.lines(at)
            except FileNotFoundError:
                # A rollback to a compact entry has left none before it.
                with pytest.raises(NotAlignedError, match="no longer has the entries"):
                    sink.version(at)
            else:
                saved.append((sink.version(at), lines))
        else:
            version, lines = draw.draw(sampled_from(saved))
            before, plan = sink.lines(newest), rewind.plan(version, "orders/", "x")
            rewind.execute(plan, f"op-{number:02}")
            assert sink.lines(max(sink.entries)) == lines
            if step == "undo":
                rewind.undo(plan, f"op-{number:02}")
                assert sink.lines(max(sink.entries)) == before


def killed_at(point: str, step: str, plan: Rewind) -> None:
    """Do a step in a process of its own, which is killed at a crash point."""
    assert script_killed_at(point, _KILLED, step, json.dumps(to_json(plan))) == -signal.SIGKILL
