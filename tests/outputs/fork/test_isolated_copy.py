"""Tables of a fork's own: the same rows, nothing in common, and an independent reader agrees."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from savepoints.errors import IncompatibleError, NotAlignedError, TargetExistsError
from savepoints.io import Location
from savepoints.model import OutputVersion
from savepoints.outputs.delta import (
    batch_version,
    log,
    missing_files,
    snapshot,
)
from savepoints.outputs.fork import isolated_copy
from savepoints.outputs.fork.isolated_copy import CopyMode, Isolation
from savepoints.outputs.rewind import rewind
from tests import draw
from tests.data.make_tables import TABLES
from tests.outputs import tables
from tests.outputs.vectors import delete_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.drawn(3)

# Spark wrote each: 4 batches, then a DELETE. Version 4 is the last batch, before that.
ROWS_AT = 4
WAYS: tuple[CopyMode, ...] = ("copy", "clone")
# deltalake does not read it.
SPARK_ALONE = {"type_widening"}
OPERATION = "op-20261121-101530-k3f9ab"
APP, BATCH = "variant/totals/1", 3


def pinned(uri: str, version: int = ROWS_AT) -> OutputVersion:
    found = batch_version.open_table(uri)
    return OutputVersion("totals", uri, batch_version.table_id(found), version, tables.APP, BATCH)


def planned(uri: str, target: Location, way: CopyMode, version: int = ROWS_AT) -> Isolation:
    return isolated_copy.plan(pinned(uri, version), str(target), way, APP, BATCH)


def isolated(uri: str, target: Location, way: CopyMode, version: int = ROWS_AT) -> str:
    isolated_copy.execute(planned(uri, target, way, version), OPERATION)
    return str(target)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", sorted(TABLES.keys() - SPARK_ALONE))
def test_rows_and_description_are_those_of_the_version(
    on_local: Location, name: str, way: CopyMode
) -> None:
    uri = tables.unpack(name, on_local / "with space" / name)
    newest = int(tables.opened(uri).version())
    for version in (ROWS_AT, newest):
        made = isolated(uri, on_local / f"forks at {version}" / name, way, version)

        assert tables.rows(made) == tables.rows(uri, version)
        old, new = tables.opened(uri, version), tables.opened(made)
        assert new.version() == 0
        assert new.schema() == old.schema()
        assert new.metadata().partition_columns == old.metadata().partition_columns
        gone = old.metadata().configuration.keys() - new.metadata().configuration.keys()
        assert all("inCommitTimestampEnablement" in key for key in gone)
        assert new.metadata().id != old.metadata().id
        assert log.transactions(made, 0) == {APP: BATCH}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", sorted(TABLES.keys() - SPARK_ALONE))
def test_a_column_that_only_the_program_has_is_null_in_the_rows_there_are(
    on_local: Location, name: str, way: CopyMode
) -> None:
    uri = tables.unpack(name, on_local / name)
    output, target = pinned(uri), str(on_local / "fork")
    known = tables.opened(uri).schema().fields[0].name.upper()
    more = [{"name": "Most", "type": "long"}, {"name": known, "type": "long"}]
    nested = {"name": "n", "type": {"type": "array"}}
    columns = json.dumps({"fields": [*more, nested]})

    one = isolated_copy.plan(output, target, way, APP, BATCH, columns)
    isolated_copy.execute(one, OPERATION)

    configuration = tables.opened(uri).metadata().configuration
    mapped = configuration.get("delta.columnMapping.mode", "none") != "none"
    assert one.added == (() if mapped else (("Most", "long"),))
    added = {} if mapped else {"Most": None}
    assert tables.rows(target) == [{**row, **added} for row in tables.rows(uri, ROWS_AT)]


@pytest.mark.s3
def test_it_works_on_each_kind_of_storage(place: Location) -> None:
    """A clone is looked at through its copy: deltalake does not read data at `s3a://`."""
    uri = tables.unpack("partitions", place / "totals")

    copied = isolated(uri, place / "copied", "copy")
    cloned = isolated(uri, place / "cloned", "clone")
    again = isolated_again(cloned, place / "again", "copy")

    assert tables.rows(copied) == tables.rows(again) == tables.rows(uri, ROWS_AT)
    scheme = "s3a://" if place.uri.scheme == "s3" else "file:/"
    assert all(add["path"].startswith(scheme) for add in snapshot.read(cloned, 0).files)
    output = OutputVersion(
        "totals", cloned, batch_version.table_id(batch_version.open_table(cloned)), 0, APP, 3
    )
    assert missing_files.unreadable_files(output) == []
    rewind.execute(rewind.plan(output, "variant/", "variant/totals/2"), OPERATION)
    assert log.transactions(cloned, 1)["variant/totals/2"] == BATCH


def isolated_again(made: str, target: Location, way: CopyMode) -> str:
    """Isolate a table that was isolated itself: a fork of a fork."""
    output = OutputVersion(
        "totals", made, batch_version.table_id(batch_version.open_table(made)), 0, APP, BATCH
    )
    isolated_copy.execute(
        isolated_copy.plan(output, str(target), way, "other/totals/1", BATCH), OPERATION
    )
    return str(target)


@pytest.mark.parametrize("way", WAYS)
def test_trap_files_that_vacuum_removes_between_plan_and_execution(
    on_local: Location, way: CopyMode
) -> None:
    """A clone reads none of them, and would refer to files that are gone."""
    uri = tables.unpack("deletion_vectors", on_local / "totals")
    newest = int(tables.opened(uri).version())
    plan = planned(uri, on_local / "fork", way, newest)
    adds, place = snapshot.read(uri, newest).files, Location.of(uri)
    vectors = [one.path for add in adds if (one := snapshot.vector_at(add, place)) is not None]
    place.delete(vectors)

    with pytest.raises(NotAlignedError, match="is missing"):
        isolated_copy.execute(plan, OPERATION)

    assert not (on_local / "fork").exists("_delta_log/00000000000000000000.json")
    isolated_copy.undo(plan, OPERATION)
    assert (on_local / "fork").list() == []


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
def test_a_fork_of_a_fork_has_the_rows_too(
    on_local: Location, first: CopyMode, second: CopyMode
) -> None:
    uri = tables.unpack("deletion_vectors", on_local / "totals")
    newest = int(tables.opened(uri).version())
    made = isolated(uri, on_local / "fork", first, newest)

    again = isolated_again(made, on_local / "again", second)

    assert tables.rows(again) == tables.rows(uri, newest)
    if second == "copy":
        for info in (*(on_local / "fork").list(), *(on_local / "totals").list()):
            (on_local / "fork").delete([info.path])
            (on_local / "totals").delete([info.path])
        assert len(tables.rows(again)) == 2 * BATCH + 1, "its files are its own"


def test_a_copy_outlives_the_original_and_a_clone_does_not(on_local: Location) -> None:
    uri = tables.unpack("plain", on_local / "totals")
    wanted = tables.rows(uri, ROWS_AT)
    copied = isolated(uri, on_local / "copy", "copy")
    cloned = isolated(uri, on_local / "clone", "clone")

    (on_local / "totals").delete([info.path for info in (on_local / "totals").list()])

    assert tables.rows(copied) == wanted
    with pytest.raises(Exception, match=r"(?i)not found|no such file"):
        tables.rows(cloned)
    output = OutputVersion(
        "totals", cloned, batch_version.table_id(batch_version.open_table(cloned)), 0, APP, 3
    )
    assert len(missing_files.unreadable_files(output)) == len(snapshot.read(cloned, 0).files) > 0
    with pytest.raises(NotAlignedError, match="is missing"):
        isolated_copy.plan(output, str(on_local / "again"), "copy", APP, BATCH)


def test_the_original_is_not_touched(on_local: Location) -> None:
    uri = tables.unpack("deletion_vectors", on_local / "totals")
    before = (on_local / "totals").list()

    for way in WAYS:
        made = isolated(uri, on_local / way, way)
        tables.append(made, {"n": [7], "part": ["x"]}, APP, BATCH + 1)

    assert (on_local / "totals").list() == before


@pytest.mark.parametrize("way", WAYS)
def test_trap_a_clone_can_be_taken_back_although_its_files_lie_elsewhere(
    on_local: Location, way: CopyMode
) -> None:
    uri = tables.unpack("deletion_vectors", on_local / "totals")
    newest = int(tables.opened(uri).version())
    made = isolated(uri, on_local / "fork", way, newest)
    write_deltalake(
        made,
        pa.table({"n": [1], "part": ["x"]}),
        mode="overwrite",
        commit_properties=tables.recorded(APP, BATCH + 1),
    )

    found = batch_version.version_of_batch("totals", made, [APP], BATCH)
    assert (found.version, found.app_version) == (0, BATCH)
    rewind.execute(rewind.plan(found, "variant/", "variant/totals/2"), OPERATION)

    assert tables.rows(made) == tables.rows(uri, newest)


def test_what_is_made_again_by_the_same_operation_stays_as_it_is(on_local: Location) -> None:
    uri = tables.unpack("plain", on_local / "totals")
    plan = planned(uri, on_local / "fork", "copy")
    isolated_copy.execute(plan, OPERATION)
    before = (on_local / "fork").list()

    isolated_copy.execute(plan, OPERATION)

    assert (on_local / "fork").list() == before


def test_another_operation_never_writes_there(on_local: Location) -> None:
    uri = tables.unpack("plain", on_local / "totals")
    plan = planned(uri, on_local / "fork", "copy")
    isolated_copy.execute(plan, OPERATION)

    with pytest.raises(TargetExistsError, match="already has"):
        isolated_copy.execute(plan, "op-20261121-101530-other0")
    with pytest.raises(TargetExistsError, match="already has"):
        isolated_copy.refuse_taken(plan.uri)
    with pytest.raises(TargetExistsError, match="lies within the Delta table"):
        isolated_copy.refuse_taken(f"{uri}/forks/a")


def test_undone_it_leaves_nothing_and_removes_nothing_of_others(on_local: Location) -> None:
    uri = tables.unpack("plain", on_local / "totals")
    plan = planned(uri, on_local / "fork", "copy")
    (on_local / "fork").put("mine", b"1")
    isolated_copy.undo(plan, OPERATION)
    assert [info.path for info in (on_local / "fork").list()] == ["mine"]
    (on_local / "fork").delete(["mine"])

    isolated_copy.execute(plan, OPERATION)
    isolated_copy.undo(plan, "op-20261121-101530-other0")
    assert tables.rows(plan.uri)
    isolated_copy.undo(plan, OPERATION)
    assert (on_local / "fork").list() == []


def test_a_table_that_was_written_to_since_is_not_undone(on_local: Location) -> None:
    uri = tables.unpack("plain", on_local / "totals")
    plan = planned(uri, on_local / "fork", "copy")
    isolated_copy.execute(plan, OPERATION)
    tables.append(plan.uri, {"n": [7], "part": ["x"]}, None)

    with pytest.raises(NotAlignedError, match="something other than the fork has committed"):
        isolated_copy.undo(plan, OPERATION)


def test_an_unknown_feature_is_refused_with_a_way_out(on_local: Location) -> None:
    uri = tables.unpack("row_tracking", on_local / "totals")
    tables.name_feature(uri, "aFeatureOfTomorrow")

    with pytest.raises(IncompatibleError, match="aFeatureOfTomorrow") as refused:
        planned(uri, on_local / "fork", "copy", version=6)
    assert "DROP FEATURE" in refused.value.hint


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("way", WAYS)
def test_row_ids_are_those_of_the_original_and_go_on_after_them(
    spark: SparkSession, on_local: Location, way: CopyMode
) -> None:
    """In files written anew, too, where Delta keeps the ids in columns of their own."""
    uri = tables.unpack("row_tracking", on_local / "totals")
    spark.sql(f"UPDATE delta.`{uri}` SET part = 'none' WHERE n = 100")

    def row_ids(table: str) -> dict[int, tuple[int, int]]:
        read = spark.read.format("delta").load(table)
        found = read.selectExpr("n", "_metadata.row_id", "_metadata.row_commit_version").collect()
        return {row[0]: (row[1], row[2]) for row in found}

    before = row_ids(uri)
    made = isolated(uri, on_local / way, way, version=6)
    assert row_ids(made) == before
    spark.sql(f"INSERT INTO delta.`{made}` VALUES (500, 'even'), (501, 'even')")

    after = row_ids(made)
    assert {n: after[n] for n in before} == before
    assert len({number for number, _ in after.values()}) == len(before) + 2


def test_a_table_that_was_made_anew_is_refused(on_local: Location) -> None:
    uri = tables.unpack("plain", on_local / "totals")
    output = pinned(uri)
    (on_local / "totals").delete([info.path for info in (on_local / "totals").list()])
    tables.unpack("partitions", on_local / "totals")

    with pytest.raises(NotAlignedError, match="has been deleted and recreated since the savepoint"):
        isolated_copy.plan(output, str(on_local / "fork"), "copy", APP, BATCH)


def test_a_lost_deletion_vector_is_found_before_anything_is_copied(on_local: Location) -> None:
    table = on_local / "totals"
    tables.append(str(table), {"n": [1, 2, 3]}, None)
    vector = delete_row(table, 1, tables.APP)
    plan = planned(str(table), on_local / "fork", "copy", version=1)
    assert plan.files == 1
    isolated_copy.execute(plan, OPERATION)
    assert (on_local / "fork").exists(vector)
    table.delete([vector])

    with pytest.raises(NotAlignedError, match=vector):
        planned(str(table), on_local / "other", "copy", version=1)


def test_the_log_is_read_with_and_without_its_checkpoints(on_local: Location) -> None:
    """The version is the same whether its commits are there, or only a checkpoint of the log."""
    uri = tables.unpack("plain", on_local / "totals")
    before = snapshot.read(uri, ROWS_AT)
    table = tables.opened(uri, ROWS_AT)
    table.create_checkpoint()
    tables.clean_up(uri, ROWS_AT)

    after = snapshot.read(uri, ROWS_AT)

    def files(one: snapshot.Snapshot) -> set[tuple[str, int]]:
        return {(add["path"], add["size"]) for add in one.files}

    assert files(after) == files(before)
    assert json.loads(after.metadata["schemaString"]) == json.loads(before.metadata["schemaString"])
    with pytest.raises(NotAlignedError, match="can no longer be read"):
        snapshot.read(uri, ROWS_AT - 1)
    made = isolated(uri, on_local / "fork", "copy")
    assert tables.rows(made) == tables.rows(uri, ROWS_AT)


# Its files have paths in two ways, which a clone has to change; the others are tried at night.
_TRIED = ("deletion_vectors",)
_REST = sorted(TABLES.keys() - {*_TRIED})


@pytest.mark.spark
@pytest.mark.timeout(900)
@draw.taking_turns("copied table", "dropped rows", "rewind by Spark")
@pytest.mark.parametrize(
    "names", [_TRIED, pytest.param(tuple(_REST), marks=pytest.mark.nightly)], ids=["some", "others"]
)
def test_spark_reads_and_writes_what_was_made(
    spark: SparkSession, on_local: Location, names: tuple[str, ...]
) -> None:
    """By Delta's own implementation, both ways."""
    for name in names:
        uri = tables.unpack(name, on_local / name)
        newest = int(tables.opened(uri).version())
        original = spark.read.format("delta").load(uri)
        wanted = sorted(original.collect())
        for way in WAYS:
            made = isolated(uri, on_local / f"{name}_{way}", way, newest)
            there = spark.read.format("delta").load(made)
            assert there.schema == original.schema
            assert sorted(there.collect()) == wanted, (name, way)
            spark.sql(f"INSERT INTO delta.`{made}` (n, part) VALUES (500, 'even')")
            spark.sql(f"DELETE FROM delta.`{made}` WHERE n = 0")
            left = sorted(row.n for row in spark.read.format("delta").load(made).collect())
            assert left == sorted([row.n for row in wanted if row.n] + [500]), (name, way)
