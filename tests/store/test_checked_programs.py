"""Which program is known to fit a generation, until another one is."""

from __future__ import annotations

from savepoints.handle import Store
from savepoints.store import checked_programs


def test_each_generation_has_its_own(local_store: Store) -> None:
    root = local_store.root
    checked_programs.write(root, "orders", 1, "a")
    checked_programs.write(root, "orders", 2, "b")
    checked_programs.write(root, "orders", 2, "c")

    assert [checked_programs.find(root, "orders", number) for number in (1, 2, 3)] == [
        "a",
        "c",
        None,
    ]
    assert checked_programs.find(root, "other", 1) is None


def test_trap_a_damaged_file_stops_no_query(local_store: Store) -> None:
    """All that is lost is that the program is compared once more."""
    root = local_store.root
    checked_programs.write(root, "orders", 1, "a")
    path = "checked_programs/orders/1.json"
    root.put(path, root.get(path).replace(b'"a"', b'"b"'))

    assert checked_programs.find(root, "orders", 1) is None
    checked_programs.write(root, "orders", 1, "c")
    assert checked_programs.find(root, "orders", 1) == "c"
