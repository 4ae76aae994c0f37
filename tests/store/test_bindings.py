"""Bindings: what holds, the settings or the store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from savepoints.config.settings import QuerySettings, Settings
from savepoints.errors import SavepointsError, VerificationError
from savepoints.handle import Store
from savepoints.json_values import from_json, to_json
from savepoints.store import bindings
from savepoints.store.bindings import Binding, CloneOf

OLD = QuerySettings(
    app="shop:old",
    checkpoints="s3://bucket/checkpoints",
    outputs={"totals": "s3://bucket/totals"},
    every="10m",
    trigger=timedelta(seconds=90),
)
CHANGES: dict[str, Any] = {
    "app": "shop:new",
    "app_name": "other",
    "outputs": {"totals": "s3://b/x"},
}


def settings(**queries: QuerySettings) -> Settings:
    return Settings(queries=queries)


def live(store: Store, query: str, number: int, binding: Binding | None) -> None:
    """Begin a generation, as the verbs do: its binding first."""
    bindings.write(store.root, query, number, binding)
    store.generations.begin(query, number, store.root / f"{query}-{number}", by="fork")


def of(store: Store, given: Settings, query: str = "orders") -> QuerySettings | None:
    return bindings.complete(store.with_settings(given)).queries.get(query)


def test_a_store_without_bindings_leaves_the_settings_as_they_are(local_store: Store) -> None:
    given = settings(orders=OLD)
    assert bindings.complete(local_store.with_settings(given)) is given
    live(local_store, "orders", 1, None)
    assert bindings.complete(local_store.with_settings(given)) is given


def test_what_the_settings_do_not_name_holds_until_they_do(store: Store) -> None:
    live(store, "variant", 1, bindings.fresh("variant", 1, OLD))

    assert of(store, settings(), "variant") == OLD
    # Every value of the table, also those that are left out there.
    mine = QuerySettings(app="shop:mine", checkpoints="s3://bucket/mine")
    assert of(store, settings(variant=mine), "variant") == mine


def test_an_override_holds_as_long_as_the_settings_have_what_it_replaced(store: Store) -> None:
    live(store, "orders", 2, bindings.overriding("orders", 2, OLD, CHANGES))

    held = of(store, settings(orders=OLD))
    assert held == OLD.model_copy(update=CHANGES)
    # What it does not replace comes from the settings, also when it is changed.
    faster = OLD.model_copy(update={"every": "1m", "trigger": None})
    assert of(store, settings(orders=faster)) == faster.model_copy(update=CHANGES)


def test_a_value_that_somebody_changes_wins_and_the_others_hold(local_store: Store) -> None:
    """Who follows up the program alone must not lose the tables that the query goes on in."""
    live(local_store, "orders", 2, bindings.overriding("orders", 2, OLD, CHANGES))
    elsewhere = {"totals": "s3://bucket/elsewhere"}

    followed = of(local_store, settings(orders=OLD.model_copy(update={"app": "shop:newest"})))
    moved = of(local_store, settings(orders=OLD.model_copy(update={"outputs": elsewhere})))

    assert followed is not None
    assert moved is not None
    assert (followed.app, followed.app_name) == ("shop:newest", None), "they belong together"
    assert followed.outputs == CHANGES["outputs"]
    assert (moved.app, moved.app_name) == ("shop:new", "other")
    assert moved.outputs == elsewhere


def test_going_back_undoes_what_was_followed_up_in_the_settings() -> None:
    """Else the old state would go on with the new program, in the new tables."""
    left = bindings.overriding("orders", 2, OLD, CHANGES)
    followed = OLD.model_copy(update=CHANGES)

    back = bindings.taken_back("orders", 3, left, followed)

    assert back is not None
    assert bindings.apply(settings(orders=followed), "orders", back).queries["orders"] == OLD
    newer = followed.model_copy(update={"app": "shop:newest"})
    kept = bindings.apply(settings(orders=newer), "orders", back).queries["orders"]
    assert kept.app == "shop:newest", "changed again, the settings win"
    assert bindings.taken_back("orders", 3, left, OLD) is None, "nobody followed up"


def respelled(bound: QuerySettings) -> QuerySettings:
    """Return the same settings, with other spellings of the same places."""
    outputs = {name: f"{uri.replace('s3:', 's3a:')}/" for name, uri in bound.outputs.items()}
    return bound.model_copy(update={"outputs": outputs})


def test_trap_a_place_in_another_spelling_was_a_changed_setting(store: Store) -> None:
    """So a query that writes the tables of its fork went on in those from before, and said
    nothing; and one that was taken back went on in those of the fork."""
    left = bindings.overriding("orders", 2, OLD, CHANGES)
    live(store, "orders", 2, left)

    now = of(store, settings(orders=respelled(OLD)))
    followed = respelled(OLD.model_copy(update=CHANGES))
    back = bindings.taken_back("orders", 3, left, followed)

    assert now is not None
    assert now.outputs == CHANGES["outputs"]
    assert back is not None
    assert bindings.apply(settings(orders=followed), "orders", back).queries["orders"] == OLD


def test_to_complete_twice_changes_nothing(local_store: Store) -> None:
    live(local_store, "orders", 2, bindings.overriding("orders", 2, OLD, CHANGES))
    live(local_store, "variant", 1, bindings.fresh("variant", 1, OLD))

    once = bindings.complete(local_store.with_settings(settings(orders=OLD)))

    assert once.queries.keys() == {"orders", "variant"}
    assert bindings.complete(local_store.with_settings(once)) == once


def test_only_the_current_generation_counts_unless_another_is_asked_for(
    local_store: Store,
) -> None:
    live(local_store, "variant", 1, bindings.fresh("variant", 1, OLD))
    new = OLD.model_copy(update=CHANGES)
    live(local_store, "variant", 2, bindings.fresh("variant", 2, new))

    assert of(local_store, settings(), "variant") == new
    before = bindings.complete(local_store.with_settings(settings()), generations={"variant": 1})
    assert before.queries["variant"] == OLD
    live(local_store, "variant", 3, None)
    assert of(local_store, settings(), "variant") is None


def test_a_generation_that_has_not_begun_binds_nothing(local_store: Store) -> None:
    bindings.write(local_store.root, "variant", 1, bindings.fresh("variant", 1, OLD))
    assert of(local_store, settings(), "variant") is None
    live(local_store, "variant", 1, None)  # What was left of an undone fork is gone.
    assert bindings.find(local_store.root, "variant", 1) is None


def test_a_binding_is_written_for_the_generation_that_begins_with_it(local_store: Store) -> None:
    """A rollback takes that of an older generation along."""
    clones = {"totals": CloneOf("s3://bucket/totals", 7)}
    written = bindings.fresh("variant", 1, OLD, clones)
    bindings.write(local_store.root, "variant", 4, written)

    found = bindings.find(local_store.root, "variant", 4)
    assert found is not None
    assert (found.generation, found.clone_of, found.settings()) == (4, clones, OLD)
    assert bindings.every(local_store.root) == [found]
    assert from_json(Binding, to_json(found)) == found


def test_a_binding_of_before_clones_can_be_read() -> None:
    data = to_json(bindings.fresh("variant", 1, OLD))
    del data["clone_of"]
    found = from_json(Binding, data)
    assert found.clone_of == {}


@pytest.mark.parametrize("damage", ["flipped", "cut", "foreign"])
def test_a_damaged_file_is_an_error_that_says_what_to_write(
    local_store: Store, damage: str
) -> None:
    live(local_store, "variant", 1, bindings.fresh("variant", 1, OLD))
    path = "bindings/variant/1.json"
    data = local_store.root.get(path)
    damaged = {
        "flipped": data.replace(b"shop:old", b"shop:odd"),
        "cut": data[:-7],
        "foreign": b"[]",
    }[damage]
    assert damaged != data
    local_store.root.put(path, damaged)

    for ask in (
        lambda: bindings.complete(local_store.with_settings(settings())),
        lambda: bindings.find(local_store.root, "variant", 1),
        lambda: bindings.every(local_store.root),
    ):
        with pytest.raises(VerificationError, match=path) as refused:
            ask()
        assert "[queries.variant]" in refused.value.hint


def test_a_name_cannot_leave_its_directory(local_store: Store) -> None:
    with pytest.raises(SavepointsError):
        bindings.write(local_store.root, "../x", 1, bindings.fresh("x", 1, OLD))
