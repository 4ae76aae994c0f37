"""What many tests begin with: made once by the real verbs, and copied for each test.

A savepoint has no absolute path in it; only a generation says where its checkpoint is, and is told
the new place.
"""

from __future__ import annotations

import copy
import dataclasses
import shutil
from collections.abc import Callable
from functools import update_wrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Concatenate, ParamSpec, TypeVar

from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import Savepoint
from tests.samples import take, unpack

P = ParamSpec("P")
T = TypeVar("T")
Make = Callable[Concatenate[Store, Location, P], T]


def made_once(make: Make[P, T]) -> Make[P, T]:
    """Make a place and the store in it once, and copy both for who wants the same again.

    It is really made each time on S3, and where the store or the place has something already. Ask
    before anything is patched: others get the same.
    """
    known: dict[object, tuple[TemporaryDirectory[str], T]] = {}

    def given(store: Store, place: Location, /, *args: P.args, **kwargs: P.kwargs) -> T:
        empty = place.uri.scheme == "file" and not place.list() and store.root == place / "store"
        if not empty:
            return make(store, place, *args, **kwargs)
        key = (args, tuple(kwargs.items()))
        if key not in known:
            directory = TemporaryDirectory(prefix="savepoints-template-")
            (Path(directory.name) / "store").mkdir()
            first = Location.of(directory.name)
            made = make(Store.at(str(first / "store")).make(), first, *args, **kwargs)
            for info in first.list():
                if info.path.endswith(".json") and "_delta_log/" not in info.path:
                    assert directory.name.encode() not in first.get(info.path), info.path
            known[key] = directory, made
        directory, made = known[key]
        shutil.copytree(directory.name, str(place), dirs_exist_ok=True)
        _move(store, directory.name, str(place))
        return copy.copy(made)  # A list may be changed by the test.

    update_wrapper(given, make)
    return given


def _move(store: Store, there: str, here: str) -> None:
    known = store.generations.all()
    if any(one.checkpoint.startswith(f"{there}/") for one in known):
        table = store.generations._table
        shutil.rmtree(str(table.location))
        moved = [
            dataclasses.replace(one, checkpoint=one.checkpoint.replace(f"{there}/", f"{here}/"))
            for one in known
        ]
        table.append([vars(one) for one in reversed(moved)])


@made_once
def first_of(store: Store, place: Location, sample: str, tags: tuple[str, ...] = ()) -> Savepoint:
    """Save the newest batch of a sample, whose checkpoint is `checkpoint` in the place."""
    return take(store, unpack(sample, place / "checkpoint"), tags=tags)
