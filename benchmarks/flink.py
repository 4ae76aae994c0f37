"""`flink`: savepoints of the same state in Apache Flink, beside ours.

On both sides a query counts, sums and compares the same rows by key, and keeps that in RocksDB.
Flink runs as a cluster of its own, of two slots, and gets as much memory as Spark. Its query is SQL
that a client plans which is up already, as is our Spark; it reads the rows as CSV, since Parquet
needs more jars. Each restored query then reads one new record.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import savepoints
from benchmarks import flink_cluster, state
from benchmarks.flink_query import Query
from benchmarks.flink_rest import SavepointFormat
from benchmarks.result import Result, Sample, Side, copied, in_turns, seconds
from savepoints.model import Form

_FORMATS: dict[Form, SavepointFormat] = {"canonical": "CANONICAL", "native": "NATIVE"}
# Rows of the table, by form.
_CREATE, _RESTORE = "create {}", "restore {}"
_NEXT = "create native, the next"
_RECORD, _CLIENT = "restore {}, first record", "restore {}, accepted"
_RESTART = "Spark: restart of the query itself, first record"


def measure(directory: Path, keys: int, rounds: int) -> Result:
    """Take savepoints and restore them on both sides, in turns."""
    checkpoint = state.built(directory, keys)
    orders = directory / "orders"
    state.start().read.parquet(str(checkpoint.parent / "input")).write.csv(str(orders))
    before = directory / "before"
    before.mkdir()
    _create(savepoints.Store.at(str(before)).make(), checkpoint, "native")
    # What a further savepoint copies: one key in a hundred has changed.
    state.change(checkpoint, keys, nth=1)
    state.run(checkpoint)
    stores = {form: _store(directory, checkpoint, form) for form in _FORMATS}
    # The one record that each restored checkpoint of ours has not seen yet.
    state.change(checkpoint, state.CHANGED_OF, nth=0)
    home = directory / "cluster"
    home.mkdir()
    with flink_cluster.started(home) as cluster:
        query = Query(cluster, orders, home / "savepoints")
        query.start(keys)
        created = (
            side for form in _FORMATS for side in (_created(checkpoint, form), _saved(query, form))
        )
        restored = (
            side
            for form, store in stores.items()
            for side in (_restored(checkpoint, store, form), _run_from(query, form))
        )
        following = _created_next(checkpoint, before)
        restarted = _restarted(checkpoint)
        samples = in_turns(directory, rounds, *created, following, *restored, restarted)
    notes = (*(_client_share(samples, form) for form in _FORMATS), _restart_share(samples))
    return Result(samples, _ratios(samples), notes)


def _store(directory: Path, checkpoint: Path, form: Form) -> savepoints.Store:
    """Return a store with one savepoint, in one form."""
    root = directory / f"store-{form}"
    root.mkdir()
    store = savepoints.Store.at(str(root)).make()
    _create(store, checkpoint, form)
    return store


def _create(store: savepoints.Store, checkpoint: Path, form: Form) -> savepoints.Savepoint:
    known = store.with_settings(state.settings())
    return known.create(query="totals", checkpoint=str(checkpoint), forms=(form,)).execute()


def _created(checkpoint: Path, form: Form) -> Side:
    def side(scratch: Path) -> Mapping[str, Sample]:
        store = savepoints.Store.at(str(scratch)).make()
        begun = time.monotonic()
        taken = _create(store, checkpoint, form)
        took = time.monotonic() - begun
        if form == "native":
            sample = Sample(took, taken.cost.bytes_copied, taken.cost.objects_copied)
        else:
            sample = Sample(took, taken.cost.export_bytes, len(store.manifest(taken.id).canonical))
        return {_ours(_CREATE, form): sample}

    return side


def _created_next(checkpoint: Path, before: Path) -> Side:
    """Take a savepoint in a copy of a store that has the one before."""

    def side(scratch: Path) -> Mapping[str, Sample]:
        shutil.copytree(before, scratch / "store")
        store = savepoints.Store.open(str(scratch / "store"))
        begun = time.monotonic()
        taken = _create(store, checkpoint, "native")
        took = time.monotonic() - begun
        return {f"ours: {_NEXT}": Sample(took, taken.cost.bytes_copied, taken.cost.objects_copied)}

    return side


def _saved(query: Query, form: Form) -> Side:
    def side(scratch: Path) -> Mapping[str, Sample]:
        begun = time.monotonic()
        files = query.save(scratch, _FORMATS[form])
        took = time.monotonic() - begun
        return {_flink(_CREATE, form): Sample(took, *copied(files))}

    return side


def _restored(checkpoint: Path, store: savepoints.Store, form: Form) -> Side:
    def side(scratch: Path) -> Mapping[str, Sample]:
        target = scratch / "restored"
        begun = time.monotonic()
        done = store.savepoint("latest").restore(str(target), form=form).execute()
        there = time.monotonic() - begun
        _read_record(target, checkpoint)
        whole = time.monotonic() - begun
        return {
            _ours(_RESTORE, form): Sample(there, done.bytes_written, done.objects),
            _ours(_RECORD, form): Sample(whole, 0, 0),
        }

    return side


def _restarted(checkpoint: Path) -> Side:
    """Let the query go on where it is, without a savepoint: what only Spark takes."""

    def side(scratch: Path) -> Mapping[str, Sample]:
        target = scratch / "itself"
        shutil.copytree(checkpoint, target, copy_function=os.link)
        begun = time.monotonic()
        _read_record(target, checkpoint)
        return {_RESTART: Sample(time.monotonic() - begun, 0, 0)}

    return side


def _read_record(target: Path, checkpoint: Path) -> None:
    """Run one batch in a checkpoint, which has one record to read."""
    read = state.run(target, source=checkpoint.parent / "input")
    if read != 1:
        raise RuntimeError(f"the restored query read {read} records, which should be 1")


def _run_from(query: Query, form: Form) -> Side:
    def side(_scratch: Path) -> Mapping[str, Sample]:
        took = query.restore(_FORMATS[form])
        return {
            _flink(_RESTORE, form): Sample(took.state, 0, 0),
            _flink(_RECORD, form): Sample(took.record, 0, 0),
            _flink(_CLIENT, form): Sample(took.client, 0, 0),
        }

    return side


def _ours(what: str, form: Form) -> str:
    return f"ours: {what.format(form)}"


def _flink(what: str, form: Form) -> str:
    return f"Flink: {what.format(form)}"


def _ratios(samples: Mapping[str, Sequence[Sample]]) -> Mapping[str, float]:
    """Return Flink's cost divided by ours, of each thing that both did."""
    found: dict[str, float] = {}
    for what, name in ((_CREATE, "create"), (_RESTORE, "restore"), (_RECORD, "first-record")):
        for form in _FORMATS:
            ours, flink = samples[_ours(what, form)], samples[_flink(what, form)]
            found[f"{name}-{form}"] = seconds(flink) / seconds(ours)
    flink = samples[_flink(_CREATE, "native")]
    found["create-native-next"] = seconds(flink) / seconds(samples[f"ours: {_NEXT}"])
    for form in _FORMATS:
        ours, flink = samples[_ours(_CREATE, form)], samples[_flink(_CREATE, form)]
        found[f"bytes-{form}"] = _bytes(flink) / _bytes(ours)
    return found


def _bytes(samples: Sequence[Sample]) -> float:
    return median(sample.bytes for sample in samples)


def _restart_share(samples: Mapping[str, Sequence[Sample]]) -> str:
    alone, whole = seconds(samples[_RESTART]), seconds(samples[_ours(_RECORD, "native")])
    return (
        f"a restart of the query without any savepoint takes {alone / whole:.0%} of our time from "
        "a native savepoint to the first record"
    )


def _client_share(samples: Mapping[str, Sequence[Sample]], form: Form) -> str:
    client, whole = (seconds(samples[_flink(what, form)]) for what in (_CLIENT, _RECORD))
    return (
        f"of Flink's time from a {form} savepoint to the first record, "
        f"{client / whole:.0%} passed until the job was planned and accepted"
    )
