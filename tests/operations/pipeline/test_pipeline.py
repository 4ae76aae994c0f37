"""Who reads whom, over real tables and checkpoints, against what the test wrote."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
from deltalake import DeltaTable

from savepoints.cli.render import pipeline_text
from savepoints.errors import QueryNotFoundError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.pipeline.pipeline_graph import (
    ExternalInput,
    Pipeline,
    PipelineFinding,
)
from savepoints.outputs.delta import batch_version
from savepoints.store import bindings
from tests.pipelines import BATCH, Queries, chain, next_version
from tests.samples import contents, savepoint

pytestmark = pytest.mark.drawn(3)


@pytest.fixture
def queries(local_store: Store, on_local: Location) -> Queries:
    return Queries(local_store, on_local)


def arcs(found: Pipeline) -> list[tuple[str | None, str, int | None]]:
    """Return who writes, who reads, and how far that is behind."""
    return [(edge.writer, edge.reader, edge.behind) for edge in found.edges]


def kinds(found: Pipeline) -> dict[str, tuple[str, ...]]:
    return {one.kind: one.queries for one in found.findings}


def finding(found: Pipeline, kind: str) -> PipelineFinding:
    (one,) = [one for one in found.findings if one.kind == kind]
    return one


def test_a_chain_with_who_is_behind_by_how_much(queries: Queries) -> None:
    ids = chain(queries)
    before = contents(queries.place)

    found = queries.of("silver")

    assert contents(queries.place) == before, "nothing is written"
    assert arcs(found) == [("bronze", "silver", 3), ("silver", "gold", 0)]
    first, second = found.edges
    assert (first.table_id, first.table_uri) == (ids["bronze"], queries.uri("bronze"))
    assert (first.version, first.position.version, first.source) == (4, 2, 0)
    assert (second.table_id, second.version, second.position.version) == (ids["silver"], 1, 2)
    assert [one.name for one in found.queries] == ["bronze", "silver", "gold"]
    assert {one.batch_id for one in found.queries} == {BATCH}
    assert {one.checkpoint for one in found.queries} == {
        str(queries.checkpoint(name)) for name in ("bronze", "silver", "gold")
    }
    assert [(one.name, one.version) for one in found.queries[0].outputs] == [("bronze", 4)]
    assert found.inputs == (ExternalInput("topic", "orders", ("bronze",)),)
    assert (found.upstream, found.downstream) == (("bronze",), ("gold",))
    assert found.findings == ()


def test_of_each_query_it_is_the_same_pipeline(queries: Queries) -> None:
    chain(queries)

    one, other = queries.of("bronze"), queries.of("gold")

    assert (one.upstream, one.downstream) == ((), ("silver", "gold"))
    assert (other.upstream, other.downstream) == (("bronze", "silver"), ())
    same = dataclasses.replace(other, query="bronze", upstream=(), downstream=one.downstream)
    assert one == same


def test_the_handle_gives_it_too(queries: Queries) -> None:
    chain(queries)
    store = queries.configured_store

    assert store.query("gold").pipeline() == queries.of("gold")
    with pytest.raises(QueryNotFoundError, match="no query 'lead'"):
        store.query("lead").pipeline()


def test_a_table_that_goes_on_leaves_its_readers_behind(queries: Queries) -> None:
    chain(queries)
    queries.append("silver", 2)

    assert arcs(queries.of("gold")) == [("bronze", "silver", 3), ("silver", "gold", 2)]


def test_a_version_of_which_some_files_are_read_still_counts(queries: Queries) -> None:
    ids = chain(queries)
    queries.move("silver", [next_version(ids["bronze"], 3, index=0)])
    queries.move("gold", [next_version(ids["silver"], 1, index=7, snapshot=True)])

    found = queries.of("gold")

    assert arcs(found) == [("bronze", "silver", 2), ("silver", "gold", 1)]
    assert [edge.position.in_snapshot for edge in found.edges] == [False, True]


def test_a_diamond(queries: Queries) -> None:
    bronze, left, right = (queries.append(name, 3) for name in ("bronze", "left", "right"))
    queries.add("bronze", ['{"orders":{"0":1}}'], writes=("bronze",))
    queries.add("left", [next_version(bronze, 3)], writes=("left",))
    queries.add("right", [next_version(bronze, 1)], writes=("right",))
    queries.add("gold", [next_version(right, 3), next_version(left, 0)])

    found = queries.of("left")

    assert arcs(found) == [
        ("bronze", "left", 0),
        ("bronze", "right", 2),
        ("left", "gold", 3),
        ("right", "gold", 0),
    ]
    assert [one.source for one in found.edges if one.reader == "gold"] == [1, 0]
    assert [one.name for one in found.queries] == ["bronze", "left", "right", "gold"]
    assert (found.upstream, found.downstream) == (("bronze",), ("gold",))
    # Gold is drawn once with what it reads, and named where it is reached again.
    drawn = pipeline_text.tree(found).splitlines()
    assert [line.split("(")[0].split(",")[0].strip("│├└─ ") for line in drawn] == [
        "topic orders", "bronze", "left", "gold", "right", "gold",
    ]  # fmt: skip
    assert drawn[-1].endswith(", see above")
    assert kinds(found) == {"no_outputs": ("gold",)}


def test_a_cycle_is_told_and_drawn(queries: Queries) -> None:
    there, back = queries.append("there", 2), queries.append("back", 2)
    queries.add("there", [next_version(back, 1)], writes=("there",))
    queries.add("back", [next_version(there, 2)], writes=("back",))
    queries.add("after", [next_version(there, 0)], writes=("after",))
    queries.append("after")

    found = queries.of("there")

    assert kinds(found) == {"cycle": ("back", "there")}
    assert "back and there read each other in a cycle" in finding(found, "cycle").what
    assert [one.name for one in found.queries] == ["back", "there", "after"]
    assert found.upstream == ("back", "there")
    assert found.downstream == ("back", "there", "after")
    assert len(pipeline_text.tree(found).splitlines()) == 4
    assert kinds(queries.of("after")) == {"cycle": ("back", "there")}


def test_a_query_that_reads_what_it_writes(queries: Queries) -> None:
    table = queries.append("own", 2)
    queries.add("own", [next_version(table, 2)], writes=("own",))

    found = queries.of("own")

    assert arcs(found) == [("own", "own", 0)]
    assert finding(found, "cycle").what == "own reads a table or topic that it writes itself"


def test_a_table_of_nobody_is_named_by_its_id(queries: Queries) -> None:
    table = queries.append("raw", 4)
    queries.append("silver")
    queries.add("silver", [next_version(table, 1)], writes=("silver",))
    queries.add("other", [next_version(table, 2)])

    found = queries.of("silver")

    assert found.inputs == (ExternalInput("table", table, ("silver",)),)
    (edge,) = found.edges
    assert (edge.writer, edge.table_id, edge.table_uri) == (None, table, None)
    assert (edge.version, edge.behind, edge.position.version) == (None, None, 1)
    # Reading the same does not make them one pipeline; but the other may be who writes it.
    assert [one.name for one in found.queries] == ["silver"]
    assert kinds(found) == {"no_outputs": ("other",)}


def test_of_an_archive_the_place_is_known(queries: Queries) -> None:
    table = queries.append("archive", 4)
    queries.append("silver")
    queries.add("silver", [next_version(table, 1)], writes=("silver",))
    silver = {"silver": queries.uri("silver")}
    queries.bind("silver", silver, archives=queries.uri("archive"))

    found = queries.of("silver")

    assert found.inputs == (ExternalInput("table", queries.uri("archive"), ("silver",)),)
    assert arcs(found) == [(None, "silver", 3)]
    assert found.findings == ()


def test_where_a_table_was_when_a_savepoint_saw_it(queries: Queries) -> None:
    """A table that some query wrote in another generation, and no query writes now."""
    table = queries.append("old", 3)
    save(queries, "former", {"out": queries.uri("old")})
    queries.append("silver")
    queries.add("silver", [next_version(table, 1)], writes=("silver",))

    found = queries.of("silver")

    assert found.inputs == (ExternalInput("table", queries.uri("old"), ("silver",)),)
    assert arcs(found) == [(None, "silver", 2)]

    shutil.rmtree(queries.uri("old"))
    (edge,) = queries.of("silver").edges
    assert (edge.table_uri, edge.version, edge.behind) == (queries.uri("old"), None, None)

    queries.append("old")
    replaced = queries.of("silver")
    assert (replaced.edges[0].table_uri, replaced.edges[0].writer) == (None, None)
    said = finding(replaced, "replaced_table")
    assert said.queries == ("silver",)
    assert table in said.what
    assert str(DeltaTable(queries.uri("old")).metadata().id) in said.what


def test_outputs_that_only_a_savepoint_names(queries: Queries) -> None:
    chain(queries)
    del queries.configured["bronze"]
    assert arcs(queries.of("silver")) == [(None, "silver", None), ("silver", "gold", 0)]

    save(queries, "bronze", {"bronze": queries.uri("bronze")})

    assert arcs(queries.of("silver")) == [("bronze", "silver", 3), ("silver", "gold", 0)]


def test_two_that_write_one_table(queries: Queries) -> None:
    shared = queries.append("shared", 3)
    queries.append("other")
    queries.add("one", ['{"a":{"0":1}}'], writes=("shared",))
    queries.add("two", ['{"b":{"0":1}}'], writes=("shared",))
    queries.add("reader", [next_version(shared, 1)], writes=("other",))

    found = queries.of("one")

    assert arcs(found) == [("one", "reader", 2), ("two", "reader", 2)]
    assert kinds(found) == {"shared_table": ("one", "two")}
    assert queries.uri("shared") in finding(found, "shared_table").what
    assert (found.upstream, found.downstream) == ((), ("reader",))


def test_of_another_pipeline_only_that_is_told_which_may_concern_this_one(queries: Queries) -> None:
    chain(queries)
    queries.append("shared")
    own = queries.append("own")
    queries.add("one", ['{"a":{"0":1}}'], writes=("shared",))
    queries.add("two", ['{"b":{"0":1}}'], writes=("shared",))
    queries.add("own", [next_version(own, 1)], writes=("own",))
    queries.add("console", ['{"a":{"0":1}}'])

    assert queries.of("silver").findings == ()
    assert kinds(queries.of("two")) == {"shared_table": ("one", "two")}


def test_a_fork_writes_the_tables_that_it_is_bound_to(queries: Queries) -> None:
    ids = chain(queries)
    queries.add("silver_b", [next_version(ids["bronze"], 5)], writes=("silver_b",))
    table = queries.append("silver_b", 3)
    bound = queries.configured.pop("silver_b")
    root = queries.store.root
    bindings.write(root, "silver_b", 1, bindings.fresh("silver_b", 1, bound))
    queries.add("gold_b", [next_version(table, 2)])

    found = queries.of("gold_b")

    assert ("silver_b", "gold_b", 1) in arcs(found)
    assert found.upstream == ("bronze", "silver_b")


def test_where_a_table_is_the_newest_savepoint_knows_best(queries: Queries) -> None:
    table = queries.append("moved", 2)
    queries.append("silver")
    queries.add("silver", [next_version(table, 1)], writes=("silver",))
    seen = batch_version.present("out", queries.uri("moved"), "app")
    before = dataclasses.replace(seen, uri=queries.uri("before"))
    for number, output in ((3, seen), (1, before)):
        queries.store.catalog.add(savepoint(number, query="former", outputs=(output,)))

    assert arcs(queries.of("silver")) == [(None, "silver", 1)]


def test_two_tables_with_one_id_and_nobody_can_tell_which_is_read(queries: Queries) -> None:
    ids = chain(queries)
    shutil.copytree(queries.uri("bronze"), queries.uri("copy"))
    queries.add("copier", ['{"a":{"0":1}}'], writes=("copy",))

    found = queries.of("silver")

    assert arcs(found) == [(None, "silver", None), ("silver", "gold", 0)]
    said = finding(found, "copied_table")
    assert said.queries == ("bronze", "copier", "silver")
    assert ids["bronze"] in said.what
    assert queries.uri("copy") in said.what


def test_a_table_that_is_older_than_its_reader(queries: Queries) -> None:
    ids = chain(queries)
    queries.move("silver", [next_version(ids["bronze"], 9)])

    found = queries.of("silver")

    assert arcs(found) == [("bronze", "silver", None), ("silver", "gold", 0)]
    assert kinds(found) == {"beyond_table": ("silver",)}
    assert "from version 9 on, but the table ends at version 4" in found.findings[0].what


def test_a_table_that_is_gone_is_known_by_its_savepoint(queries: Queries) -> None:
    chain(queries)
    save(queries, "bronze", {"bronze": queries.uri("bronze")})
    shutil.rmtree(queries.uri("bronze"))

    found = queries.of("gold")

    assert arcs(found) == [("bronze", "silver", None), ("silver", "gold", 0)]
    assert found.edges[0].table_uri == queries.uri("bronze")
    assert kinds(found) == {"unreadable_table": ("bronze",)}


@pytest.mark.parametrize("how", ["several begun", "unknown version", "unknown scheme", "torn"])
def test_a_checkpoint_that_cannot_be_read_is_told_of_every_pipeline(
    how: str, queries: Queries
) -> None:
    chain(queries)
    queries.append("lost")
    queries.add("lost", ['{"a":{"0":1}}'], writes=("lost",))
    checkpoint = queries.checkpoint("lost")
    if how == "several begun":
        for batch in (BATCH + 1, BATCH + 2):
            checkpoint.put(f"offsets/{batch}", checkpoint.get(f"offsets/{BATCH}"))
    elif how == "unknown version":
        checkpoint.put(f"offsets/{BATCH}", b"v9\n{}\n-")
    elif how == "torn":
        checkpoint.put(f"offsets/{BATCH}", b"")
    else:
        known = queries.store.generations.current("lost")
        queries.store.generations.end("lost", why="test")
        elsewhere = dataclasses.replace(known, generation=2, checkpoint="hdfs://cluster/lost")
        queries.store.generations._table.append([vars(elsewhere)])

    found = queries.of("gold")

    assert arcs(found) == [("bronze", "silver", 3), ("silver", "gold", 0)]
    said = finding(found, "unreadable_checkpoint")
    assert said.queries == ("lost",)
    assert "the checkpoint of lost cannot be read" in said.what
    (alone,) = queries.of("lost").queries
    assert (alone.name, alone.batch_id, alone.sources) == ("lost", None, ())
    assert [one.uri for one in alone.outputs] == [queries.uri("lost")]


def test_before_the_first_batch_nothing_is_known_of_what_is_read(queries: Queries) -> None:
    chain(queries)
    queries.append("new")
    queries.bind("new", {"new": queries.uri("new")})
    queries.store.generations.begin("new", 1, queries.checkpoint("new"), by="run")

    assert kinds(queries.of("gold")) == {"no_batch": ("new",)}


def test_a_source_that_has_read_nothing_yet(queries: Queries) -> None:
    ids = chain(queries)
    queries.move("gold", [None, next_version(ids["silver"], 2)])

    found = queries.of("gold")

    assert kinds(found) == {"no_position": ("gold",)}
    assert [(one.reader, one.source) for one in found.edges] == [("silver", 0), ("gold", 1)]
    assert found.inputs == (ExternalInput("topic", "orders", ("bronze",)),)


def test_other_sources_are_inputs_of_which_no_more_is_known(queries: Queries) -> None:
    queries.append("mixed")
    reads = ['{"logOffset":3}', "17", '{"b":{"0":1},"a":{"0":2}}', '{"reservoirId":"x"}']
    queries.add("mixed", [*reads], writes=("mixed",))

    found = queries.of("mixed")

    assert found.inputs == (
        ExternalInput("files", "source 0 of mixed", ("mixed",)),
        ExternalInput("topic", "a", ("mixed",)),
        ExternalInput("topic", "b", ("mixed",)),
        ExternalInput("unknown", "source 1 of mixed", ("mixed",)),
        ExternalInput("unknown", "source 3 of mixed", ("mixed",)),
    )
    assert found.edges == ()


def test_a_file_sink_is_an_output_without_versions(queries: Queries) -> None:
    (queries.place / "tables" / "files" / "_spark_metadata").put("0", b"v1")
    queries.add("files", ['{"a":{"0":1}}'], writes=("files",))

    found = queries.of("files")

    (output,) = found.queries[0].outputs
    assert (output.uri, output.table_id, output.version) == (queries.uri("files"), None, None)
    assert found.findings == ()


def test_queries_that_have_ended_are_not_part_of_it(queries: Queries) -> None:
    chain(queries)
    queries.store.generations.end("gold", why="test")

    assert [one.name for one in queries.of("silver").queries] == ["bronze", "silver"]
    with pytest.raises(QueryNotFoundError):
        queries.of("gold")


def test_the_current_generation_counts(queries: Queries) -> None:
    ids = chain(queries)
    restored = queries.place / "checkpoints" / "silver" / "2"
    shutil.copytree(str(queries.checkpoint("silver")), str(restored))
    queries.store.generations.begin("silver", 2, restored, by="rollback")
    # What the checkpoint of before goes on to says nothing any more.
    queries.move("silver", [next_version(ids["bronze"], 5)])

    found = queries.of("silver")

    assert arcs(found)[0] == ("bronze", "silver", 3)
    assert found.queries[1].generation == 2


def test_the_diagram_has_every_query_and_every_read(queries: Queries) -> None:
    chain(queries)

    lines = pipeline_text.mermaid(queries.of("silver")).splitlines()

    assert lines == [
        "flowchart LR",
        '  n0(["topic orders"])',
        f'  n1["bronze (generation 1, batch {BATCH})"]',
        f'  n2["silver (generation 1, batch {BATCH})"]',
        f'  n3["gold (generation 1, batch {BATCH})"]',
        "  n0 --> n1",
        f'  n1 -->|"{queries.uri("bronze")}, next version 2, 3 versions behind version 4"| n2',
        f'  n2 -->|"{queries.uri("silver")}, up to date at version 1"| n3',
    ]


def test_in_the_diagram_a_table_of_nobody_stands_where_it_begins(queries: Queries) -> None:
    table = queries.append("raw", 4)
    queries.add("silver", [next_version(table, 1)])

    lines = pipeline_text.mermaid(queries.of("silver")).splitlines()

    assert lines[1] == f'  n0(["table {table}"])'
    assert lines[-1] == '  n0 -->|"next version 1"| n1'


def save(queries: Queries, query: str, outputs: dict[str, str]) -> None:
    """Record in a savepoint where the outputs of a query are, with the ids that they have."""
    seen = tuple(batch_version.present(name, uri, query) for name, uri in outputs.items())
    queries.store.catalog.add(savepoint(1, query=query, outputs=seen))
