"""Queries that read topics which others write: who they are, and what is told or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from savepoints.cli.render import pipeline_text
from savepoints.errors import IncompatibleError, NotAlignedError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Generation, OutputTopic
from savepoints.moments import utc_now
from savepoints.operations.cascade import readers
from savepoints.operations.pipeline import topic_check, topic_reads
from savepoints.operations.pipeline.pipeline_graph import ExternalInput, Pipeline, TopicEdge
from savepoints.operations.pipeline.topic_reads import TopicRead
from savepoints.operations.pipeline_rollback import rollback_plan
from savepoints.operations.rollback import restore_point, rollback
from savepoints.operations.rollback.target import AtBatch, AtTime
from savepoints.operations.savepoint import create, restore, topic_ends
from savepoints.operations.savepoint.topic_ends import TopicObservation
from savepoints.plan import Plan
from savepoints.sources.kafka.topics import TopicEnds
from tests.operations.pipeline.lines import SAVED, Line, topic
from tests.pipelines import Queries, next_version
from tests.samples import BEGINNING, savepoint

ALERTS = '{"alerts":{"0":12,"1":7}}'
EDGE = TopicEdge("silver", "gold", 0, "alerts", {0: 12, 1: 7})


@pytest.fixture
def queries(local_store: Store, on_local: Location) -> Queries:
    """Silver reads a table and writes a topic, which gold reads."""
    found = Queries(local_store, on_local)
    table = found.append("bronze", 3)
    found.add("bronze", ['{"orders":{"0":10}}'], writes=("bronze",))
    found.add("silver", [next_version(table, 3)])
    found.add("gold", [ALERTS], writes=("gold",))
    found.append("gold")
    names(found, "silver", "alerts")
    return found


def names(queries: Queries, query: str, *topics: str) -> None:
    """Name the topics that a query writes in the settings."""
    bound = queries.configured[query]
    queries.configured[query] = bound.model_copy(update={"output_topics": topics})


def kinds(found: Pipeline) -> dict[str, tuple[str, ...]]:
    return {one.kind: one.queries for one in found.findings}


def test_a_topic_between_two_queries(queries: Queries) -> None:
    found = queries.of("gold")

    assert found.topic_edges == (EDGE,)
    assert [one.name for one in found.queries] == ["bronze", "silver", "gold"]
    assert found.upstream == ("bronze", "silver")
    assert queries.of("bronze").downstream == ("silver", "gold")
    assert found.inputs == (ExternalInput("topic", "orders", ("bronze",)),)
    assert found.findings == ()
    assert found.to_json()["topic_edges"] == [
        {
            "writer": "silver", "reader": "gold", "source": 0, "topic": "alerts",
            "offsets": {"0": 12, "1": 7},
        }
    ]  # fmt: skip


def test_it_is_drawn(queries: Queries) -> None:
    found = queries.of("silver")

    assert pipeline_text.tree(found).splitlines()[-1].strip() == (
        "└── gold (generation 1, batch 2), reads topic alerts"
    )
    assert 'n2 -->|"topic alerts"| n3' in pipeline_text.mermaid(found)


def test_a_topic_that_nobody_names_comes_from_outside(queries: Queries) -> None:
    names(queries, "silver")

    found = queries.of("gold")

    assert found.topic_edges == ()
    assert found.inputs == (ExternalInput("topic", "alerts", ("gold",)),)
    assert [one.name for one in found.queries] == ["gold"]


def test_a_topic_that_two_write_has_two_edges_and_is_told(queries: Queries) -> None:
    names(queries, "bronze", "alerts")

    found = queries.of("gold")

    assert [one.writer for one in found.topic_edges] == ["bronze", "silver"]
    assert kinds(found) == {"shared_topic": ("bronze", "silver")}


def test_a_cycle_through_a_topic_is_told(queries: Queries) -> None:
    names(queries, "gold", "orders")

    found = queries.of("gold")

    assert kinds(found) == {"cycle": ("bronze", "gold", "silver")}
    assert "bronze, gold and silver read each other in a cycle" in found.findings[0].what


def test_a_savepoint_names_what_its_query_writes(local_store: Store, on_local: Location) -> None:
    """As one does for a query in a driver of its own, which is in no settings."""
    line = Line(local_store, on_local)
    line.add("silver", topic, configure=False)
    line.add("gold", lambda _batch: ALERTS, configure=False)
    store = line.configured_store

    def taken(**how: object) -> tuple[OutputTopic, ...]:
        plan = create.plan(store, query="silver", forms=("native",), **how)  # type: ignore[arg-type]
        return create.execute(plan, store).output_topics

    assert taken() == ()
    assert taken(output_topics=["alerts"]) == (OutputTopic("alerts"),)
    assert [one.topic for one in taken(batch_id=SAVED)] == ["alerts"], "by the one before"
    again = store.catalog.all()[0]
    assert store.manifest(again.id).savepoint.output_topics == again.output_topics
    assert [one.writer for one in store.query("gold").pipeline().topic_edges] == ["silver"]


def test_trap_a_query_that_went_back_to_before_its_topic_was_named(
    local_store: Store, on_local: Location
) -> None:
    """Its living line has no savepoint that names the topic, but it goes on to write it."""
    line = Line(local_store, on_local)
    line.add("silver", topic)
    line.add("gold", lambda _batch: ALERTS)
    before = line.save("silver")
    store = line.configured_store
    naming = create.plan(store, query="silver", forms=("native",), output_topics=["alerts"])
    create.execute(naming, store)

    plan = rollback.plan(store, before.id, query="silver", check_source=False)
    rollback.execute(plan, store)

    assert [one.writer for one in store.query("gold").pipeline().topic_edges] == ["silver"]


def test_a_rollback_of_the_writer_alone_names_the_reader(
    local_store: Store, on_local: Location
) -> None:
    line = Line(local_store, on_local)
    line.add("silver", topic)
    line.add("gold", lambda _batch: ALERTS)
    line.save("gold")
    line.configured["silver"] = line.configured["silver"].model_copy(
        update={"output_topics": ("alerts",)}
    )
    saved = line.save("silver")

    plan = rollback.plan(line.configured_store, saved.id, query="silver", check_source=False)

    (told,) = [one for one in plan.warnings if "topic alerts" in one]
    assert "keeps the records of the batches that run again" in told
    assert "to roll back its readers (gold) as well" in told


def test_a_correction_does_not_go_through_a_topic(queries: Queries) -> None:
    bound = {"app": "spark_jobs.medallion.bronze:app", "outputs": {"orders": queries.uri("bronze")}}
    queries.configured["bronze"] = queries.configured["bronze"].model_copy(update=bound)
    store = queries.configured_store

    assert readers.behind_topics(store, "bronze") == {"gold"}
    with pytest.raises(IncompatibleError, match="gold reads topic alerts, which silver writes"):
        readers.find(store, "bronze")


def test_a_pipeline_is_not_forked_through_a_topic(queries: Queries) -> None:
    with pytest.raises(
        NotAlignedError, match="gold reads topic alerts, which silver writes, and a topic"
    ):
        queries.configured_store.query("silver").fork_pipeline("latest", "other")


def seen(committed: int | None, begun: int | None, *ends: int) -> TopicObservation:
    return TopicObservation(committed, begun, {"alerts": TopicEnds("id", ends)})


@pytest.mark.parametrize(
    ("observed", "ends", "is_exact"),
    [
        pytest.param([seen(5, 5, 9)], (9,), True, id="nothing_else_ran"),
        pytest.param([seen(4, 5, 9)], (9,), False, id="it_was_running_when_kafka_was_asked"),
        pytest.param([seen(5, 6, 9)], None, False, id="the_next_one_was_running"),
        pytest.param([seen(4, 5, 7), seen(5, 6, 9)], (7,), False, id="the_earlier_look_counts"),
        pytest.param([seen(4, 5, 7), seen(5, 5, 9)], (9,), True, id="the_exact_one_counts"),
        pytest.param([seen(3, 4, 7), seen(4, 5, 9)], (9,), False, id="the_later_says_more"),
        pytest.param([seen(6, 6, 9)], None, False, id="an_older_batch_is_saved"),
        pytest.param([seen(None, None)], (), False, id="no_partitions"),
        pytest.param([], None, False, id="kafka_did_not_answer"),
    ],
)
def test_what_of_a_topic_belongs_to_batch_5(
    observed: list[TopicObservation], ends: tuple[int, ...] | None, is_exact: bool
) -> None:
    (found,) = topic_ends.of_batch(["alerts"], observed, 5)

    assert (found.ends, found.is_exact) == (ends, is_exact)
    assert found.topic_id == ("id" if observed else None)


def fit(*outputs: OutputTopic, topics: dict[str, str] | None = None) -> str:
    """Return why a savepoint of gold does not fit to one of silver; empty when it does."""
    gold = replace(savepoint(1, query="gold", offsets=(ALERTS,)), topics=topics or {})
    silver = replace(savepoint(2, query="silver", offsets=(None,)), output_topics=outputs)
    (read,) = topic_check.reads([gold], [silver], [EDGE])
    assert read.read == {0: 12, 1: 7}
    return read.problem


def test_savepoints_that_fit_together_through_a_topic() -> None:
    assert fit(OutputTopic("alerts", "id", (12, 7), is_exact=True)) == ""
    assert fit(OutputTopic("alerts", "id", (13, 7))) == ""
    assert fit(OutputTopic("alerts", "id", (13, 7)), topics={"alerts": "id"}) == ""


def test_savepoints_that_do_not() -> None:
    assert fit(OutputTopic("alerts", "id", (12, 6), is_exact=True)) == (
        "gold is ahead of silver: it has read topic alerts up to offset 7 of partition 1, but the "
        "savepoint of silver ends at offset 6"
    )
    assert "offset 7 of partition 1" in fit(OutputTopic("alerts", "id", (12,)))
    assert "another batch was running" in fit(OutputTopic("alerts", "id"))
    assert "the topic was not yet named" in fit()
    recreated = fit(OutputTopic("alerts", "id", (12, 7)), topics={"alerts": "other"})
    assert "deleted and recreated" in recreated


def test_a_group_is_not_taken_without_kafka(local_store: Store, on_local: Location) -> None:
    """How far silver had written the topic would not be known."""
    line = Line(local_store, on_local)
    line.add("silver", topic)
    line.add("gold", lambda _batch: ALERTS)
    line.configured["silver"] = line.configured["silver"].model_copy(
        update={"output_topics": ("alerts",)}
    )

    group = line.configured_store.query("gold").create_group(name="before")

    assert group.plan.members == ("gold", "silver")
    with pytest.raises(NotAlignedError, match="end offsets of the topic could not be read"):
        group.execute()


def read_of(
    reads: str, *outputs: OutputTopic, generations: Sequence[Generation] = (), written_in: int = 1
) -> tuple[tuple[TopicRead, ...], str]:
    gold = replace(savepoint(1, query="gold", offsets=(reads,)))
    silver = replace(
        savepoint(2, query="silver", offsets=(None,)), output_topics=outputs, generation=written_in
    )
    return topic_reads.reads_of(gold, [silver], [EDGE], generations)


def generation(begun_from: str | None, *, hours: int) -> Generation:
    at = BEGINNING + timedelta(hours=hours)
    return Generation("silver", 1, "ck", "current", at, "rollback", begun_from)


EXACT = OutputTopic("alerts", "id", (14, 7), is_exact=True)


def test_a_reader_is_brought_to_the_ends_and_then_behind_what_is_rolled_back() -> None:
    """A source may read another topic, too, which stays where it is."""
    position = '{"alerts":{"0":12,"1":7},"other":{"0":3}}'

    (read,) = read_of(position, EXACT)[0]

    assert (read.behind, read.ends) == (2, (14, 7))
    assert read.at_the_cut(position) == '{"alerts":{"0":14,"1":7},"other":{"0":3}}'
    past = '{"alerts":{"0":20,"1":9,"2":1},"other":{"0":3}}'
    assert read.past(position, (20, 9, 1)) == past
    # Run again after a crash, it does not go back.
    assert read.at_the_cut(past) == past


def test_a_partition_that_the_reader_has_not_seen_is_read_from_its_beginning() -> None:
    (read,) = read_of('{"alerts":{"0":12}}', EXACT)[0]

    assert read.behind == 2 + 7
    assert read.at_the_cut('{"alerts":{"0":12}}') == '{"alerts":{"0":14,"1":7}}'


def test_trap_ends_that_are_not_exact_are_no_place_to_go_back_to() -> None:
    """A lower bound says that savepoints fit together, not where a batch ended."""
    bound = replace(EXACT, is_exact=False)

    assert "does not say exactly where" in read_of(ALERTS, bound)[1]
    assert fit(bound) == ""


def test_trap_a_reader_from_before_a_generation_would_read_what_was_rolled_back() -> None:
    later = [generation("sp-1", hours=2)]

    assert "was taken before generation 1 of silver" in read_of(ALERTS, EXACT, generations=later)[1]
    at_the_end = '{"alerts":{"0":14,"1":7}}'
    assert read_of(at_the_end, EXACT, generations=later)[1] == "", "there is nothing to read"
    assert read_of(ALERTS, EXACT, generations=[generation("sp-1", hours=0)])[1] == ""
    assert read_of(ALERTS, EXACT, generations=[generation(None, hours=2)])[1] == ""


@pytest.mark.parametrize("hours", [0, 2])
def test_trap_a_reader_from_before_a_merge_was_refused(hours: int) -> None:
    """It goes on at the batch where it has paused the query; a rollback before it does not."""
    merge = replace(generation("sp-2", hours=3), generation=2, begun_by="merge")
    known = [merge, generation("sp-1", hours=hours)]

    _, why = read_of(ALERTS, EXACT, generations=known, written_in=2)

    assert (why == "") == (hours == 0)


@pytest.mark.parametrize(
    ("there", "problem"),
    [
        pytest.param(None, "no longer exists", id="gone"),
        pytest.param(TopicEnds("other", (14, 7)), "deleted and recreated", id="recreated"),
        pytest.param(TopicEnds("id", (14, 6)), "no longer reaches the offsets", id="shorter"),
        pytest.param(
            TopicEnds(None, (14,)), "no longer reaches the offsets", id="fewer_partitions"
        ),
    ],
)
def test_a_topic_that_is_another_now_is_refused(there: TopicEnds | None, problem: str) -> None:
    reads = read_of(ALERTS, EXACT)[0]
    topic_reads.refuse_changed(reads, {"alerts": TopicEnds("id", (14, 7, 0))})

    with pytest.raises(NotAlignedError, match=problem):
        topic_reads.refuse_changed(reads, {"alerts": there} if there else {})


def test_an_exact_time_is_refused_through_a_topic(queries: Queries) -> None:
    with pytest.raises(IncompatibleError, match="gold reads topic alerts, which silver writes"):
        queries.configured_store.query("silver").rollback_pipeline(
            "@2026-11-24T10:00:00Z", every=True, exact=True
        )


def test_trap_a_reader_that_goes_back_alone_reads_what_was_rolled_back(
    local_store: Store, on_local: Location
) -> None:
    """In a table it would fail at the rewind; a topic reads as if nothing had happened."""
    line = Line(local_store, on_local)
    line.add("silver", topic)
    line.add("gold", lambda _batch: ALERTS)
    line.configured["silver"] = line.configured["silver"].model_copy(
        update={"output_topics": ("alerts",)}
    )
    gold, silver = line.save("gold"), line.save("silver")
    store = line.configured_store

    def told() -> list[bool]:
        to = str(on_local / "restored")
        plans: list[Plan] = [
            restore.plan(store, gold.id, to, check_outputs=False),
            rollback_plan.plan(store, "gold", gold.id, check_source=False),
            rollback.plan(store, gold.id, query="gold", check_source=False),
            *(rollback.plan(store, one, query="gold", check_source=False) for one in points),
            *(
                restore_point.plan(store, one, to, query="gold", check_outputs=False)
                for one in points
            ),
        ]
        return ["which writes the topic, has since" in str(one.warnings) for one in plans]

    points = (AtBatch(SAVED), AtBatch(SAVED - 1), AtTime(utc_now(), by="commit"))
    assert told() == [False] * 9
    # A merge goes on at the batch where it has paused the query.
    place = Location.of(str(on_local / "merged"))
    for one in line.checkpoint("silver").list():
        place.put(one.path, line.checkpoint("silver").get(one.path))
    store.generations.begin("silver", 2, place, by="merge", begun_from=silver.id)
    assert told() == [False] * 9
    plan = rollback.plan(store, silver.id, query="silver", check_source=False)
    rollback.execute(plan, store)
    assert told() == [True] * 9
