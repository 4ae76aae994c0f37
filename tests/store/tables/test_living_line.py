"""`latest`, `latest~N` and times follow the line that lives, beside a model that is a list."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from savepoints.errors import SavepointNotFoundError
from savepoints.handle import Store
from savepoints.model import Edit, Generation, Savepoint
from savepoints.moments import rfc3339
from savepoints.store.tables import living_line
from savepoints.store.tables.catalog import resolve
from tests.samples import BEGINNING, savepoint

EDIT = Edit("me", "a reason", 0, None, "k = 1", ("v = 0",), None, 1, 0)


def generation(
    number: int, begun_from: str | None = None, *, ended: bool = False, by: str = "run"
) -> Generation:
    made = Generation("orders", number, f"/ck/{number}", "current", BEGINNING, by, begun_from)
    return dataclasses.replace(made, status="ended") if ended else made


def of(number: int, *, batch: int, taken: int, edited: bool = False) -> Savepoint:
    made = savepoint(taken)
    cut = dataclasses.replace(made.cut, batch_id=batch)
    return dataclasses.replace(made, generation=number, cut=cut, edit=EDIT if edited else None)


FIRST, BUG = of(1, batch=1, taken=1), of(1, batch=2, taken=2)
SAFETY = of(1, batch=3, taken=3)
ROLLED_BACK = [generation(2, FIRST.id, by="rollback"), generation(1, ended=True)]


def names(generations: list[Generation], *savepoints: Savepoint) -> list[str]:
    """Return what latest, latest~1, … mean, as long as they mean something."""
    newest_first = sorted(savepoints, key=lambda one: one.created_at, reverse=True)
    found: list[str] = []
    while True:
        try:
            name = f"latest~{len(found)}"
            found.append(resolve(newest_first, name, generations=generations).id)
        except SavepointNotFoundError:
            return found


def test_trap_after_a_rollback_latest_gives_back_the_bug() -> None:
    assert names(ROLLED_BACK, FIRST, BUG, SAFETY) == [FIRST.id]
    fixed = of(2, batch=2, taken=4)
    assert names(ROLLED_BACK, FIRST, BUG, SAFETY, fixed) == [fixed.id, FIRST.id]


def test_times_mean_what_lived_then_and_lives_now() -> None:
    after_the_bug = f"@{rfc3339(SAFETY.cut.committed_at + timedelta(minutes=1))}"
    known = [SAFETY, BUG, FIRST]

    assert resolve(known, after_the_bug, generations=ROLLED_BACK) == FIRST
    assert resolve(known, after_the_bug) == SAFETY, "without generations nothing is rolled back"


def test_what_was_rolled_back_later_is_not_said_to_be_before_a_time() -> None:
    """Nor that `--any-line` would find it."""
    known = [SAFETY, BUG, FIRST]
    before, between = (
        f"@{rfc3339(one.cut.committed_at - timedelta(minutes=1))}" for one in (FIRST, BUG)
    )

    with pytest.raises(SavepointNotFoundError) as refused:
        resolve(known, before, generations=ROLLED_BACK)

    assert "rolled back" not in refused.value.message
    assert "--any-line" not in refused.value.hint
    assert resolve(known, between, generations=ROLLED_BACK) == FIRST


def test_what_was_rolled_back_is_meant_by_its_id_and_said_to_be_there() -> None:
    known = [SAFETY, BUG, FIRST]

    assert resolve(known, BUG.id, generations=ROLLED_BACK) == BUG
    with pytest.raises(SavepointNotFoundError, match="and 2 rolled back") as refused:
        resolve(known, "latest~1", generations=ROLLED_BACK)
    assert "--any-line" in refused.value.hint
    left = living_line.left(known, ROLLED_BACK)
    assert left == {BUG.id: "rolled back", SAFETY.id: "rolled back"}


def test_trap_a_promotion_replaces_and_rolls_nothing_back() -> None:
    """What an earlier rollback had taken away stays rolled back; only the rest was replaced.

    What the fork had begun from is neither: the query is still what came of it.
    """
    fixed, later = of(2, batch=2, taken=4), of(2, batch=3, taken=6)
    forked = dataclasses.replace(of(1, batch=5, taken=5), query="orders_b")
    promoted = [
        generation(3, forked.id, by="promote"),
        *(dataclasses.replace(one, status="ended") for one in ROLLED_BACK),
        dataclasses.replace(generation(1, fixed.id, by="fork"), query="orders_b"),
    ]
    known = [later, forked, fixed, SAFETY, BUG, FIRST]

    assert living_line.left(known, promoted) == {
        BUG.id: "rolled back",
        SAFETY.id: "rolled back",
        later.id: "replaced by promote",
    }
    mine = [one for one in known if one.query == "orders"]
    line = living_line.of_query("orders", promoted, known)
    assert line.backwards(mine) == [fixed, FIRST]
    assert line.origins == {fixed.id, FIRST.id}, "a fork's are of its own line"


def test_undone_it_lives_again() -> None:
    undone = [generation(3, SAFETY.id), generation(2, FIRST.id, ended=True), ROLLED_BACK[1]]

    assert names(undone, FIRST, BUG, SAFETY, of(2, batch=2, taken=4)) == [
        SAFETY.id, BUG.id, FIRST.id,
    ]  # fmt: skip


def test_clocks_do_not_decide() -> None:
    """A machine whose clock is behind took the later batch."""
    earlier, later = of(1, batch=1, taken=5), of(1, batch=2, taken=4)

    assert names([generation(1)], earlier, later) == [later.id, earlier.id]


def test_an_edited_one_is_meant_where_the_query_went_on_from_it() -> None:
    edited = of(1, batch=1, taken=4, edited=True)

    assert names(ROLLED_BACK, FIRST, edited) == [FIRST.id]
    went_on = [generation(2, edited.id), ROLLED_BACK[1]]
    assert names(went_on, FIRST, BUG, edited) == [edited.id, FIRST.id]


def test_a_query_that_has_ended_goes_by_its_newest_generation() -> None:
    ended = [dataclasses.replace(one, status="ended") for one in ROLLED_BACK]

    assert names(ended, FIRST, BUG) == [FIRST.id]


def test_the_flag_of_the_store_means_any_line(local_store: Store) -> None:
    for one in (FIRST, BUG):
        local_store.catalog.add(one)
    checkpoint = local_store.root / "ck"
    local_store.generations.begin("orders", 1, checkpoint / "1", by="run")
    local_store.generations.begin("orders", 2, checkpoint / "2", by="rollback", begun_from=FIRST.id)

    assert local_store.catalog.find("latest") == FIRST
    assert Store.at(str(local_store.root), any_line=True).make().catalog.find("latest") == BUG


@given(
    st.lists(
        st.tuples(st.sampled_from(["save", "roll back", "promote"]), st.integers(0, 30)),
        min_size=1,
        max_size=30,
    )
)
def test_whatever_was_saved_rolled_back_and_promoted(actions: list[tuple[str, int]]) -> None:
    """A batch is run and saved; or the query goes on from one of the savepoints so far, or from a
    fork of it that ran for a batch.

    The model keeps with each savepoint the list of those before it.
    """
    line: list[Savepoint] = []
    lines: dict[str, list[Savepoint]] = {}
    saved: list[Savepoint] = []
    forks: list[tuple[Savepoint, Generation]] = []
    generations = [generation(1)]
    batch = 0
    for moment, (action, which) in enumerate(actions):
        if action == "save":
            batch += 1
            made = of(generations[0].generation, batch=batch, taken=moment)
            line = [made, *line]
            lines[made.id] = line
            saved.append(made)
        elif saved:
            origin = begins_from = saved[which % len(saved)]
            line, batch = lines[origin.id], origin.cut.batch_id
            if action == "promote":
                name, batch = f"fork_{moment}", batch + 1
                begins_from = of(1, batch=batch, taken=moment)
                begins_from = dataclasses.replace(begins_from, query=name)
                fork = dataclasses.replace(generation(1, origin.id, by="fork"), query=name)
                forks.append((begins_from, fork))
            ended = dataclasses.replace(generations[0], status="ended")
            begun = generation(ended.generation + 1, begins_from.id)
            generations = [begun, ended, *generations[1:]]

    everything = [*saved, *(savepoint for savepoint, _ in forks)]
    known = [*generations, *(fork for _, fork in forks)]
    alive = living_line.of_query("orders", known, everything).backwards(saved)
    assert [one.id for one in alive] == [one.id for one in line]
    if not forks:
        assert names(generations, *saved) == [one.id for one in line]
    gone = {one.id for one in saved} - {one.id for one in line}
    assert living_line.left(everything, known).keys() == gone


class Counted(list[Savepoint]):
    """Savepoints that know how often somebody went through them."""

    times = 0

    def __iter__(self) -> Iterator[Savepoint]:
        self.times += 1
        return super().__iter__()


def test_trap_each_query_goes_through_the_savepoints_of_all() -> None:
    """Of 400 queries with 100 savepoints each, `list` took 15 seconds to say what was left."""
    made = [dataclasses.replace(FIRST, query=f"q{n}", id=f"sp-{n}") for n in range(50)]
    begun = [
        dataclasses.replace(one, query=saved.query, begun_from=one.begun_from and saved.id)
        for saved in made
        for one in ROLLED_BACK
    ]
    bugs = [dataclasses.replace(BUG, query=one.query, id=f"{one.id}-bug") for one in made]
    known = Counted([*made, *bugs])

    assert living_line.left(known, begun) == {one.id: "rolled back" for one in bugs}
    assert known.times <= 2
