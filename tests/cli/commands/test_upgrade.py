"""`upgrade check` and `restore --migrate`: what is refused before Spark is started; no JVM.

What they find and do: see `tests/fidelity/test_upgrades.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from savepoints.handle import Store
from savepoints.io import Location
from tests.samples import saved

# From conftest.py: the function that calls the command line.
Call = Any

APP = ("--app", "tests.fidelity.programs:totals")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--map", "max=most"), "require --migrate"),
        (("--allow-dropped-state", *APP), "require --migrate"),
        (("--default", "max=1"), "require --migrate"),
        (("--migrate",), "--migrate requires a savepoint"),
        (("--migrate", *APP, "--format", "native"), "--migrate requires a savepoint"),
        (("--migrate", *APP, "--default", "max"), "is not in the form COLUMN=VALUE"),
    ],
)
def test_a_migration_that_cannot_be_is_refused_at_once(
    call: Call, local_store: Store, on_local: Location, words: tuple[str, ...], message: str
) -> None:
    saved(local_store, "rocksdb")
    to = on_local / "new"

    done = call(
        "restore", "latest", "--to", str(to), "--store", str(local_store.root), "--yes", *words
    )

    assert done.code == 2
    assert message in done.err
    assert not to.list()


def test_a_check_of_what_is_not_there(call: Call, local_store: Store) -> None:
    store = ("--store", str(local_store.root))

    nowhere = call("upgrade", "check", *APP, "--from", "latest", *store)
    saved(local_store, "rocksdb")
    unwritten = call("upgrade", "check", *APP, "--from", "latest", *store, "--map", "max")
    default = call("upgrade", "check", *APP, "--from", "latest", *store, "--default", "max")
    source = call("upgrade", "check", *APP, "--from", "latest", *store, "--source", "keep:7")

    assert nowhere.code == 10
    assert unwritten.code == 2
    assert "is not in the form OLD=NEW" in unwritten.err
    assert default.code == source.code == 2
    assert "is not in the form COLUMN=VALUE" in default.err
    assert "--source names source 7" in source.err
