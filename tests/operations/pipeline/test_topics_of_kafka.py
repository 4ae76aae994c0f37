"""Queries with a real topic between them, taken back without a JVM: the reader is not behind."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from savepoints.checkpoint.logs.kafka_position import kafka_position
from savepoints.config.settings import Settings
from savepoints.errors import NotAlignedError, StalePlanError, UnfinishedOperationError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.local import LocalWorld
from savepoints.model import Savepoint
from savepoints.operations import unfinished
from savepoints.operations.fork import fork as forking
from savepoints.operations.fork import fork_plan
from savepoints.operations.fork.fork_plan import ForkOptions, ForkPlan
from savepoints.operations.pipeline import group_savepoint
from savepoints.operations.pipeline_rollback import pipeline_rollback, rollback_plan
from savepoints.operations.rollback import journalled, last_operation, target
from savepoints.operations.rollback.journalled import JournalledPlan
from savepoints.operations.rollback.query_context import QueryContext
from savepoints.operations.rollback.target import AtTime
from savepoints.operations.run import recover
from savepoints.sources.kafka.reset_targets import Target
from savepoints.store.locks import journal
from savepoints.store.locks.journal import Journal
from tests.operations.pipeline.lines import NEWEST, SAVED, Line, topic
from tests.processes import killed_at
from tests.sources.broker import HOUR, MINUTE, Broker

pytestmark = [pytest.mark.kafka, pytest.mark.nightly]

POINTS = (
    "begun",
    "gold.safety_savepoint",
    "silver.topics_ended",
    "gold.checkpoint_written",
    "gold.caught_up",
    "gold.followed",
    "gold.generation_begun",
    "silver.generation_begun",
    "gold.first_savepoint",
    "finished",
)
LATER = [f"{log}/{batch}" for log in ("offsets", "commits") for batch in (SAVED + 1, NEWEST)]


@dataclass
class TopicLine(Line):
    """Silver writes a table and a topic of two partitions, which gold reads."""

    broker: Broker | None = None
    topic: str = ""

    @classmethod
    def make(cls, store: Store, place: Location, world: LocalWorld) -> TopicLine:
        broker = Broker.of(world)
        made = cls(store.with_settings(Settings(kafka=broker.settings)), place, broker=broker)
        made.topic = broker.make()
        made.add("silver", topic)
        made.add("gold", lambda batch: kafka_position({made.topic: {0: 1 + batch, 1: 2}}))
        made.configured["silver"] = made.configured["silver"].model_copy(
            update={"output_topics": (made.topic,)}
        )
        return made

    @property
    def configured_store(self) -> Store:
        assert self.broker is not None
        return self.store.with_settings(
            Settings(queries=self.configured, kafka=self.broker.settings)
        )

    def config(self) -> str:
        assert self.broker is not None
        file = Path(super().config())
        text = file.read_text().replace(
            "[queries.silver]", f'[queries.silver]\noutput_topics = ["{self.topic}"]'
        )
        servers = self.broker.settings.bootstrap_servers
        file.write_text(f'{text}\n[kafka]\nbootstrap_servers = "{servers}"\n')
        return str(file)

    def put(self, first: int, second: int) -> None:
        """Produce so many records into each partition."""
        assert self.broker is not None
        for part, count in enumerate((first, second)):
            self.broker.put(self.topic, part, *[HOUR] * count)

    def grouped(self) -> None:
        """Take a group when silver and gold are at the same batch, and let both go on."""
        kept = {
            query: {name: self.live(query).get(name) for name in LATER}
            for query in ("silver", "gold")
        }
        for query in kept:
            self.live(query).delete(LATER)
        self.put(2, 2)
        store = self.configured_store
        group_savepoint.execute(group_savepoint.plan(store, "gold", name="before"), store)
        for query, files in kept.items():
            for name, data in files.items():
                self.live(query).put(name, data)
        self.put(2, 0)

    def saved(self, query: str) -> Savepoint:
        return self.store.catalog.find("before", query=query)


@pytest.fixture
def line(local_store: Store, on_local: Location, world: LocalWorld) -> TopicLine:
    made = TopicLine.make(local_store, on_local, world)
    made.grouped()
    return made


def words(line: TopicLine) -> tuple[str, ...]:
    said = ("pipeline", "rollback", "silver", "before", "--yes", "--no-source-check")
    return (*said, "--config", line.config())


def assert_back(
    line: TopicLine, *, generation: int = 2, ends: tuple[int, int] = (4, 2), more: int = 0
) -> None:
    for query, number in (("silver", generation), ("gold", generation + more)):
        assert line.store.generations.current(query).generation == number
    behind = kafka_position({line.topic: dict(enumerate(ends))})
    for batch in (SAVED - 1, SAVED):
        assert line.sources("gold", batch) == (behind,)
    assert line.sources("silver", SAVED) == (topic(SAVED),)
    assert journal.all_unfinished(line.store.root) == []


def test_a_savepoint_has_exactly_what_was_there(line: TopicLine) -> None:
    (found,) = line.saved("silver").output_topics

    assert (found.topic, found.ends, found.is_exact) == (line.topic, (2, 2), True)
    assert found.topic_id == line.saved("gold").topics[line.topic]
    group = line.configured_store.query("gold").group("before")
    assert group.problems == ()
    (read,) = group.topic_reads
    assert (read.held, read.read) == ((2, 2), {0: 2, 1: 2})


def test_a_reader_is_set_behind_what_is_rolled_back(line: TopicLine) -> None:
    plan = line.configured_store.query("silver").rollback_pipeline("before", check_source=False)
    plan.execute()

    assert_back(line)
    assert f"topic {line.topic} keeps the rolled-back records of silver (from offsets 0:2" in (
        str(plan)
    )


@pytest.mark.parametrize("point", POINTS)
def test_killed_and_run_again_it_is_as_if_it_had_not_been_killed(
    line: TopicLine, point: str
) -> None:
    """What is written to the topic meanwhile, by nobody that is known, is not skipped."""
    assert killed_at(f"pipeline rollback.{point}", *words(line)) == -signal.SIGKILL
    recorded = POINTS.index(point) > POINTS.index("silver.topics_ended")
    line.put(0, 3)

    assert killed_at("", *words(line)) == 0

    assert_back(line, ends=(4, 2) if recorded else (4, 5))


def test_undone_they_go_on_from_where_they_were(line: TopicLine) -> None:
    store = line.configured_store
    store.query("silver").rollback_pipeline("before", check_source=False).execute()
    line.put(1, 1)

    back = rollback_plan.undo_plan(store, last_operation.require(store, "gold"))
    pipeline_rollback.execute(back, store)

    behind = kafka_position({line.topic: {0: 5, 1: 3}})
    assert line.store.generations.current("gold").generation == 3
    assert [line.sources("gold", batch) for batch in (NEWEST - 1, NEWEST)] == [(behind,)] * 2
    without_first(line)
    with pytest.raises(NotAlignedError, match="before the pipeline rollback") as refused:
        recover.recover(store, "gold", "it was lost")
    assert "again" not in refused.value.hint


def without_first(line: TopicLine) -> None:
    """Take away the savepoint that a rollback has taken of gold behind the topic."""
    first = line.store.catalog.find("latest", query="gold")
    assert first.cut.offsets == line.sources("gold", first.cut.batch_id)
    line.store.catalog.remove([first.id])


def test_trap_a_reader_is_recovered_to_where_it_was_set(line: TopicLine) -> None:
    """There was no savepoint of that, so it could not be recovered at all until its next one."""
    store = line.configured_store
    store.query("silver").rollback_pipeline("before", check_source=False).execute()
    line.checkpoint("gold").delete([f"commits/{SAVED}"])

    recovered = recover.recover(store, "gold", "a commit is gone")

    assert recovered == line.store.catalog.find("latest", query="gold").id
    assert line.store.generations.current("gold").generation == 3
    assert line.sources("gold", SAVED) == (kafka_position({line.topic: {0: 4, 1: 2}}),)


def test_trap_a_reader_is_not_recovered_to_before_it_was_set_behind_what_is_rolled_back(
    line: TopicLine,
) -> None:
    """It read what was rolled back, without a word, until its next savepoint had been taken."""
    store = line.configured_store
    store.query("silver").rollback_pipeline("before", check_source=False).execute()
    without_first(line)
    line.checkpoint("gold").delete([f"commits/{SAVED}"])

    with pytest.raises(NotAlignedError, match="before the pipeline rollback that began") as refused:
        recover.recover(store, "gold", "a commit is gone")

    saved = line.saved("gold").id
    back, again = re.findall(r"savepoints (.*?)(?:;|$)", refused.value.hint)
    assert back == f"rollback {saved} --no-safety-savepoint"
    for words in (back, again):
        said = (*words.removesuffix(" --yes").split(), "--yes", "--no-source-check", "--stopped")
        assert killed_at("", *said, "--config", line.config()) == 0
    assert_back(line, generation=3, more=1)


def test_trap_no_time_is_reached_over_what_is_rolled_back(line: TopicLine) -> None:
    """It read what was rolled back, with a warning, and called that exact."""
    assert line.broker is not None
    store = line.configured_store
    times = [line.broker.now - age for age in (MINUTE * 30, MINUTE / 2)]
    store.query("silver").rollback_pipeline("before", check_source=False).execute()
    without_first(line)
    line.broker.put(line.topic, 0, MINUTE, MINUTE)

    for moment in times:
        with pytest.raises(NotAlignedError, match="would read offsets 2 to 3 of topic") as refused:
            store.query("gold").rollback(AtTime(moment))
        with pytest.raises(NotAlignedError, match="would read offsets 2 to 3 of topic"):
            store.query("gold").restore(AtTime(moment), to=str(line.place / "there"))

    back, again = re.findall(r"savepoints (.*?)(?:;|$)", refused.value.hint)[1:]
    assert back == f"rollback {line.saved('gold').id}"
    for words in (back, again):
        said = (*words.removesuffix(" --yes").split(), "--yes", "--no-source-check", "--stopped")
        assert killed_at("", *said, "--config", line.config()) == 0
    assert_back(line, generation=3, ends=(6, 2), more=1)


def test_trap_a_reset_reads_again_what_was_rolled_back_without_a_word(line: TopicLine) -> None:
    store = line.configured_store
    store.query("silver").rollback_pipeline("before", check_source=False).execute()
    line.put(2, 0)

    def said(offset: int) -> list[str]:
        plan = store.query("gold").reset(Target("offset", offset), outputs="truncate")
        return [one for one in plan.plan.warnings if "rolled back by a pipeline rollback" in one]

    (one,) = said(0)
    assert one.startswith(f"offsets 2 to 3 of topic {line.topic} partition 0 were rolled back")
    line.put(0, 4)
    assert said(4) == []


def test_a_time_is_reached_from_what_was_saved_behind_what_is_rolled_back(line: TopicLine) -> None:
    assert line.broker is not None
    store = line.configured_store
    store.query("silver").rollback_pipeline("before", check_source=False).execute()
    line.broker.put(line.topic, 0, MINUTE, MINUTE)
    first = line.store.catalog.find("latest", query="gold")

    def found(moment: datetime) -> tuple[str, str | None]:
        there = target.resolve(QueryContext.open(store, "gold"), AtTime(moment))
        return there.savepoint_id, there.ends

    ends = kafka_position({line.topic: {0: 6, 1: 2}})
    assert found(line.broker.now - MINUTE / 2) == (first.id, ends)
    assert found(line.broker.now - MINUTE * 30) == (first.id, None)


def test_trap_a_reader_that_has_come_since_is_not_left_behind_by_the_undo(line: TopicLine) -> None:
    """It would keep what silver has written since, which is rolled back, and nobody would know."""
    store = line.configured_store
    store.query("silver").rollback_pipeline("before", check_source=False).execute()
    line.put(1, 1)
    line.add("fork", lambda batch: kafka_position({line.topic: {0: 1 + batch, 1: 3}}))

    with pytest.raises(NotAlignedError, match="fork reads silver's topic") as refused:
        rollback_plan.undo_plan(store, last_operation.require(store, "gold"))

    assert "savepoints end fork" in refused.value.hint
    store.query("fork").end().execute()
    back = rollback_plan.undo_plan(store, last_operation.require(store, "gold"))
    pipeline_rollback.execute(back, store)
    assert line.store.generations.current("gold").generation == 3


@pytest.mark.parametrize("point", ["", "gold.followed"], ids=["planned", "killed"])
def test_trap_a_reader_that_has_come_since_the_plan(line: TopicLine, point: str) -> None:
    plan = line.configured_store.query("silver").rollback_pipeline("before", check_source=False)
    if point:
        assert killed_at(f"pipeline rollback.{point}", *words(line)) == -signal.SIGKILL
        plan = line.configured_store.query("silver").rollback_pipeline("before", check_source=False)
    line.add("fork", lambda batch: kafka_position({line.topic: {0: 1 + batch, 1: 2}}))

    with pytest.raises(NotAlignedError, match="fork reads silver's topic"):
        plan.execute()

    assert line.store.generations.current("gold").generation == 1
    line.configured_store.query("fork").end().execute()
    plan.execute()
    assert_back(line)


def test_of_two_rollbacks_planned_at_once_one_is_refused(line: TopicLine) -> None:
    query = line.configured_store.query("silver")
    first, second = (query.rollback_pipeline("before", check_source=False) for _ in range(2))
    first.execute()

    with pytest.raises(StalePlanError):
        second.execute()
    assert_back(line)


def test_trap_a_writer_that_died_in_a_batch_cannot_be_put_back_to(line: TopicLine) -> None:
    """Its topic may have records of a batch that no savepoint holds."""
    live = line.live("silver")
    live.put(f"offsets/{NEWEST + 1}", live.get(f"offsets/{NEWEST}"))

    plan = line.configured_store.query("silver").rollback_pipeline("before", check_source=False)
    assert f"silver has begun batch {NEWEST + 1} but not committed it" in plan.plan.warnings[0]
    plan.execute()

    assert_back(line)
    store = line.configured_store
    with pytest.raises(NotAlignedError, match="does not say how far topic"):
        rollback_plan.undo_plan(store, last_operation.require(store, "gold"))


def test_a_group_waits_for_a_batch_that_was_begun_and_names_it(line: TopicLine) -> None:
    live = line.live("silver")
    live.put(f"offsets/{NEWEST + 1}", live.get(f"offsets/{NEWEST}"))
    store = line.configured_store
    plan = group_savepoint.plan(store, "gold", name="later")

    with pytest.raises(NotAlignedError, match=f"silver has not committed batch {NEWEST + 1}"):
        group_savepoint.execute(plan, store, wait=HOUR * 0)


def fork(line: TopicLine) -> ForkPlan:
    return fork_plan.plan(
        line.configured_store,
        line.saved("gold").id,
        "trial",
        ForkOptions(outputs={"gold": str(line.place / "trial")}, check_source=False),
    )


def test_trap_a_fork_of_a_reader_begins_while_records_are_rolled_back(line: TopicLine) -> None:
    """It read them without a word: the rollback had looked for readers before it was there."""
    planned = fork(line)
    assert killed_at("pipeline rollback.silver.topics_ended", *words(line)) == -signal.SIGKILL

    with pytest.raises(UnfinishedOperationError, match=f"rolls back records of topic {line.topic}"):
        fork(line)
    with pytest.raises(UnfinishedOperationError, match="which gold reads") as refused:
        forking.execute(planned, line.configured_store)

    (again,) = re.findall(r"finish it first: savepoints (.*?);", refused.value.hint)
    assert again.split() == [*words(line)[:4], "--yes"]
    with pytest.raises(UnfinishedOperationError, match="fork op-"):
        line.configured_store.query("silver").rollback_pipeline(
            "before", check_source=False
        ).execute()
    unfinished.undo(line.configured_store, planned.operation_id)
    assert killed_at("", *words(line)) == 0
    assert_back(line)


@pytest.mark.parametrize("is_made", [True, False], ids=["made", "being made"])
def test_trap_a_fork_and_a_rollback_pass_each_other(
    line: TopicLine, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    """Each had looked for the other before the other stood in the journal."""
    planned, store = fork(line), line.configured_store
    rollback = store.query("silver").rollback_pipeline("before", check_source=False)
    begin = journalled.begin

    def begin_after_the_fork(plan: JournalledPlan, store: Store) -> Journal:
        monkeypatch.setattr(journalled, "begin", begin)
        if is_made:
            forking.execute(planned, store)
        else:
            begin(planned, store)
        return begin(plan, store)

    monkeypatch.setattr(journalled, "begin", begin_after_the_fork)
    refusal = NotAlignedError if is_made else UnfinishedOperationError
    with pytest.raises(refusal, match="trial"):
        rollback.execute()

    done = [(one.verb, one.state) for one in journal.all_operations(store.root)]
    assert ("pipeline rollback", "undone") in done
    assert [line.store.generations.current(one).generation for one in ("silver", "gold")] == [1, 1]
    assert line.live("gold").list() != []


def test_trap_a_fork_that_was_planned_before_a_rollback_is_begun_after_it(line: TopicLine) -> None:
    planned, store = fork(line), line.configured_store
    store.query("silver").rollback_pipeline("before", check_source=False).execute()

    with pytest.raises(StalePlanError, match=f"will read topic {line.topic}") as refused:
        forking.execute(planned, store)

    undo, again = re.findall(r"savepoints (.*?)(?:;|$)", refused.value.hint)
    assert killed_at("", *undo.split(), "--yes", "--config", line.config()) == 0
    assert killed_at("", *again.split(), "--config", line.config()) == 0
    assert line.store.generations.current("trial").begun_from == line.saved("gold").id
