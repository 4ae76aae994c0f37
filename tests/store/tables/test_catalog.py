"""The catalog: which savepoints exist, and which one a name means."""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import replace
from datetime import timedelta

import pytest
from deltalake import DeltaTable

from savepoints.errors import (
    AmbiguousNameError,
    SavepointNotFoundError,
    SavepointsError,
    UsageError,
)
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import FORMS, Edit, OperatorState, OutputVersion, Savepoint
from savepoints.store.savepoint import labels
from savepoints.store.tables.catalog import Catalog, resolve
from tests.processes import at_once
from tests.samples import BEGINNING, KAFKA, savepoint

pytestmark = pytest.mark.drawn(4)

OUTPUT = OutputVersion("totals", "s3://bucket/totals", "id", 7, "orders/totals/1", None)


@pytest.mark.s3
def test_a_savepoint_is_read_as_it_was_added(store: Store) -> None:
    added = savepoint(
        1, tags=("a", "b"), offsets=(KAFKA, None, '{"logOffset":3}'), outputs=(OUTPUT,)
    )

    store.catalog.add(added)

    assert store.catalog.all() == [added]


def test_trap_the_clock_of_s3_has_seconds_and_ids_of_one_second_are_random(
    local_store: Store,
) -> None:
    """Of savepoints that were taken within one second the one of the later batch is the newer."""
    earlier, later = (
        savepoint(batch, id=f"sp-20261120-100000-{suffix}", created_at=BEGINNING)
        for batch, suffix in ((1, "zzzzzz"), (2, "aaaaaa"))
    )
    for one in (later, earlier):
        local_store.catalog.add(one)

    assert local_store.catalog.all() == [later, earlier]


def with_operators(number: int) -> Savepoint:
    one = savepoint(number, tags=("before",))
    return dataclasses.replace(
        one,
        cut=dataclasses.replace(one.cut, checkpoint_format=2),
        operators=(
            OperatorState(0, "globalLimit", ("default",), 1, native_only="why", keyless=True),
            OperatorState(1, "transformWithState", ("default",), 2, column_families=True),
            OperatorState(2, "stateStoreSave", ("default",), 1),
        ),
    )


def test_what_is_known_of_operators_is_read_as_it_was_added(store: Store) -> None:
    store.catalog.add(with_operators(1))

    assert store.catalog.all() == [with_operators(1)]


def exported(one: Savepoint) -> Savepoint:
    operators = tuple(
        operator
        if operator.native_only
        else dataclasses.replace(operator, rows=7, state_bytes=70, content_hash="ab" * 16)
        for operator in one.operators
    )
    cost = dataclasses.replace(one.cost, export_seconds=1.5, export_bytes=700)
    return dataclasses.replace(
        one, forms=FORMS, operators=operators, cost=cost, spark_version="4.2.0"
    )


def test_an_export_changes_what_it_found_out_and_nothing_else(store: Store) -> None:
    mine, other = with_operators(1), with_operators(2)
    for one in (mine, other):
        store.catalog.add(one)
    # What a person may have changed since stays as the catalog has it.
    stale = dataclasses.replace(exported(mine), tags=(), description="stale", state="broken")

    store.catalog.exported(stale)

    assert store.catalog.all() == [other, exported(mine)]


def test_to_say_again_that_it_was_exported_changes_nothing(local_store: Store) -> None:
    local_store.catalog.add(with_operators(1))
    local_store.catalog.exported(exported(with_operators(1)))
    version = DeltaTable(str(local_store.root / "catalog")).version()

    local_store.catalog.exported(exported(with_operators(1)))

    assert DeltaTable(str(local_store.root / "catalog")).version() == version
    assert local_store.catalog.all() == [exported(with_operators(1))]


EXPORT = """
from dataclasses import replace
store = Store.at(uri).make()
one = next(one for one in store.catalog.all() if one.cut.batch_id == number)
store.catalog.exported(replace(one, forms=("native", "canonical")))
store.catalog.add(savepoint(number + 100))
"""


@pytest.mark.nightly
def test_four_processes_that_export_and_add_at_once_lose_nothing(on_s3: Location) -> None:
    catalog = Store.at(str(on_s3)).make().catalog
    for number in range(4):
        catalog.add(savepoint(number))

    with at_once(EXPORT, str(on_s3), 4) as processes:
        failed, errors = processes.end()

    assert failed == 0, errors
    forms = {one.cut.batch_id: one.forms for one in catalog.all()}
    assert forms == {
        **dict.fromkeys(range(4), FORMS),
        **dict.fromkeys(range(100, 104), ("native",)),
    }


def test_trap_a_full_disk_leaves_labels_that_the_catalog_does_not_have(
    local_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever expired savepoints to make room had them expired in their files alone."""
    local_store.catalog.add(savepoint(1))
    full = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)

    with pytest.raises(SavepointsError, match="too little free space"):
        local_store.catalog.relabel(
            [savepoint(1).id], lambda labels: dataclasses.replace(labels, state="expired")
        )

    assert labels.read(local_store.root, savepoint(1).id) is None


def test_adding_again_changes_nothing(on_local: object, local_store: Store) -> None:
    local_store.catalog.add(savepoint(1))
    local_store.catalog.add(savepoint(1))

    assert local_store.catalog.all() == [savepoint(1)]
    assert DeltaTable(str(local_store.root / "catalog")).version() == 1


def test_an_empty_store_has_no_savepoints(store: Store) -> None:
    assert store.catalog.all() == []


def test_any_delta_reader_sees_kafkas_offsets_as_numbers(local_store: Store) -> None:
    local_store.catalog.add(savepoint(1, offsets=('{"logOffset":3}', KAFKA)))

    (row,) = DeltaTable(str(local_store.root / "catalog")).to_pyarrow_table().to_pylist()

    assert row["offsets"] == [
        {"source": 1, "topic": "orders", "partition": 0, "offset": 1200},
        {"source": 1, "topic": "orders", "partition": 1, "offset": 1180},
    ]


def test_the_order_is_that_of_the_recorded_times_not_of_the_names(local_store: Store) -> None:
    names = {1: "sp-20300101-000000-zzzzzz", 2: "sp-20200101-000000-aaaaaa", 3: None}
    for number in (2, 1, 3):
        local_store.catalog.add(savepoint(number, id=names[number]))

    assert [one.cut.batch_id for one in local_store.catalog.all()] == [3, 2, 1]
    assert local_store.catalog.find("latest~1").id == names[2]


ADD = "Store.at(uri).make().catalog.add(savepoint(number))"


def test_eight_processes_that_add_savepoints_at_once_lose_nothing(on_s3: Location) -> None:
    catalog = Store.at(str(on_s3)).make().catalog
    catalog.add(savepoint(99))

    with at_once(ADD, str(on_s3), 8) as processes:
        failed, errors = processes.end()

    assert failed == 0, errors
    assert sorted(one.cut.batch_id for one in catalog.all()) == [*range(8), 99]


def test_eight_processes_that_add_the_first_savepoints_at_once_lose_nothing(
    local_store: Store,
) -> None:
    with at_once(ADD, str(local_store.root), 8) as processes:
        failed, errors = processes.end()

    assert failed == 0, errors
    assert sorted(one.cut.batch_id for one in local_store.catalog.all()) == list(range(8))


THREE = [savepoint(number, tags=("even",) if number == 2 else ()) for number in (3, 2, 1)]


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("latest", 3),
        ("latest~0", 3),
        ("latest~1", 2),
        ("latest~2", 1),
        ("even", 2),
        (THREE[2].id, 1),
        (THREE[2].id[:-4], 1),
        ("@2026-11-20T10:59:00Z", 1),
        ("@2026-11-20T11:58:59.999Z", 1),
        ("@2026-11-20T11:59Z", 2),
        ("@2026-11-20T13:00:00+01:00", 2),
        ("@2026-11-21T00:00:00Z", 3),
    ],
)
def test_a_name_means_one_savepoint(name: str, number: int) -> None:
    assert resolve(THREE, name).cut.batch_id == number


@pytest.mark.parametrize(
    "name", ["", "nothing", "latest~3", "@2026-11-20T10:58:59Z", "sp-2027", "LATEST"]
)
def test_a_name_that_means_none_is_not_found(name: str) -> None:
    with pytest.raises(SavepointNotFoundError) as refused:
        resolve(THREE, name)

    assert refused.value.details["savepoint"] == name
    assert "savepoints list" in refused.value.hint


def test_a_time_before_the_oldest_says_which_that_is() -> None:
    with pytest.raises(SavepointNotFoundError) as refused:
        resolve(THREE, "@2026-11-20T10:58:59Z")

    assert refused.value.message == (
        "no savepoint was committed at or before 2026-11-20T10:58:59Z; the oldest is "
        f"{THREE[2].id}, committed 2026-11-20T10:59:00.000Z"
    )


def test_a_time_in_the_future_is_refused() -> None:
    """Whoever mistypes the year does not mean the newest."""
    with pytest.raises(UsageError, match=r"2999-01-01T00:00:00.000Z is in the future"):
        resolve(THREE, "@2999-01-01T00:00:00Z")


def test_a_time_means_the_newest_cut_committed_by_then_whenever_it_was_saved() -> None:
    late = savepoint(9, committed_at=BEGINNING + timedelta(minutes=1))

    found = resolve([late, *THREE], "@2026-11-20T10:30:00Z")

    assert found == late


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(UsageError, match="no time zone"):
        resolve(THREE, "@2026-11-20T10:30:00")


def test_an_ambiguous_prefix_lists_the_candidates() -> None:
    with pytest.raises(AmbiguousNameError) as refused:
        resolve(THREE, "sp-2026")

    assert refused.value.details["candidates"] == [one.id for one in THREE]
    assert all(one.id in refused.value.message for one in THREE)
    assert "batch 3" in refused.value.message


def test_many_candidates_are_counted_not_listed() -> None:
    with pytest.raises(AmbiguousNameError, match="and 12 more"):
        resolve([savepoint(number) for number in range(20)], "sp-")


def test_a_tag_of_several_savepoints_is_ambiguous() -> None:
    tagged = [savepoint(number, tags=("t",)) for number in (2, 1)]

    with pytest.raises(AmbiguousNameError) as refused:
        resolve(tagged, "t")

    assert "savepoints tag ID t --move" in refused.value.hint


def test_a_tag_of_several_queries_is_no_move_that_was_interrupted() -> None:
    group = [savepoint(1, tags=("t",)), savepoint(2, query="clicks", tags=("t",))]

    with pytest.raises(AmbiguousNameError) as refused:
        resolve(group, "t")

    assert "--move" not in refused.value.hint


def test_an_id_wins_over_a_prefix_and_a_tag() -> None:
    longer = savepoint(2, id=f"{THREE[0].id}-longer", tags=(THREE[0].id,))

    assert resolve([longer, *THREE], THREE[0].id) == THREE[0]


@pytest.mark.parametrize("name", ["latest", "latest~1", "@2026-11-21T00:00:00Z"])
def test_relative_names_need_a_query_where_there_are_several(name: str) -> None:
    several = [savepoint(9, query="clicks"), *THREE]

    with pytest.raises(AmbiguousNameError) as refused:
        resolve(several, name)

    assert refused.value.details["candidates"] == ["clicks", "orders"]
    assert resolve(several, name, query="orders") in THREE


def test_a_query_narrows_every_name() -> None:
    several = [savepoint(9, query="clicks", tags=("even",)), *THREE]

    assert resolve(several, "even", query="orders").cut.batch_id == 2
    with pytest.raises(SavepointNotFoundError):
        resolve(several, THREE[0].id, query="clicks")


@pytest.mark.parametrize("state", ["broken", "expired"])
def test_relative_names_pass_over_savepoints_that_are_not_complete(state: str) -> None:
    several = [savepoint(9, state=state), *THREE]

    assert resolve(several, "latest") == THREE[0]
    assert resolve(several, "@2026-11-21T00:00:00Z") == THREE[0]


def test_relative_names_pass_over_savepoints_that_were_edited_by_hand() -> None:
    """An edit may be a try only: it becomes production state when somebody names it."""
    edited = replace(savepoint(9, tags=("repaired",)), edit=Edit("me", "ticket", 0))
    several = [edited, *THREE]

    assert [resolve(several, name) for name in ("latest", "latest~1")] == THREE[:2]
    assert resolve(several, "@2026-11-21T00:00:00Z") == THREE[0]
    for name in (edited.id, edited.id[:-4], "repaired"):
        assert resolve(several, name) == edited
    with pytest.raises(SavepointNotFoundError):
        resolve([edited], "latest")


def test_a_broken_savepoint_is_found_by_its_id_and_one_that_is_being_removed_is_not() -> None:
    broken, expired = savepoint(8, state="broken"), savepoint(9, state="expired")

    assert resolve([expired, broken, *THREE], broken.id) == broken
    with pytest.raises(SavepointNotFoundError):
        resolve([expired, broken, *THREE], expired.id)


def test_find_resolves_among_the_stored_ones(local_store: Store) -> None:
    for one in THREE:
        local_store.catalog.add(one)

    assert Catalog(local_store.root).find("latest~1") == THREE[1]
