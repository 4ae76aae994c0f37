"""Which program is known to fit a generation, until another one is."""

from __future__ import annotations

from savepoints.handle import Store
from savepoints.store import checked_programs
from savepoints.store.checked_programs import CheckedProgram


def test_each_generation_has_its_own(local_store: Store) -> None:
    root = local_store.root
    checked_programs.write(root, "orders", 1, "a", first_batch=0)
    checked_programs.write(root, "orders", 2, "b", first_batch=4)
    checked_programs.write(root, "orders", 2, "c", first_batch=7)

    assert [checked_programs.find(root, "orders", number) for number in (1, 2, 3)] == [
        "a",
        "c",
        None,
    ]
    assert checked_programs.find(root, "other", 1) is None
    both = (CheckedProgram("b", 4), CheckedProgram("c", 7))
    assert checked_programs.read(root, "orders", 2) == both


def test_a_program_that_read_no_batch_is_forgotten(local_store: Store) -> None:
    root = local_store.root
    for plan, first in (("a", 0), ("b", 5), ("c", 5)):
        checked_programs.write(root, "orders", 1, plan, first_batch=first)

    assert checked_programs.read(root, "orders", 1) == (
        CheckedProgram("a", 0),
        CheckedProgram("c", 5),
    )


def test_those_of_a_generation_that_was_taken_back_are_forgotten(local_store: Store) -> None:
    root = local_store.root
    checked_programs.forget(root, "orders", 1)
    checked_programs.write(root, "orders", 1, "a", first_batch=9)
    checked_programs.forget(root, "orders", 1)

    assert checked_programs.read(root, "orders", 1) == ()


def test_trap_a_damaged_file_stops_no_query(local_store: Store) -> None:
    """All that is lost is that the program is compared once more."""
    root = local_store.root
    checked_programs.write(root, "orders", 1, "a", first_batch=0)
    path = "checked_programs/orders/1.json"
    root.put(path, root.get(path).replace(b'"a"', b'"b"'))

    assert checked_programs.find(root, "orders", 1) is None
    checked_programs.write(root, "orders", 1, "c", first_batch=3)
    assert checked_programs.find(root, "orders", 1) == "c"
