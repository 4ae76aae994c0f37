"""Every cell of the table in `matrix.py`: a restored query goes on exactly, or is refused."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from savepoints.checkpoint.state.operators import PROVIDERS
from savepoints.handle import Store
from savepoints.model import FORMS, Savepoint
from savepoints.operations.savepoint import restore
from tests.fidelity import harness
from tests.fidelity.harness import PARTITIONS, STORES, Run
from tests.fidelity.matrix import Case, Verdict, cases, cell, chosen
from tests.fidelity.queries import QUERIES, SEEDS, write_inputs
from tests.fidelity.typed_state import without_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The batch of the savepoint, and the other number of state partitions.
BATCH = dict(zip(SEEDS, (3, 2, 1), strict=True))
OTHER_PARTITIONS = dict(zip(SEEDS, (5, 2, 4), strict=True))


@dataclass(frozen=True)
class Original:
    """A query that nobody interrupted, and savepoints of a batch in its middle.

    Attributes:
        savepoint: In both forms, where there are two.
        files: In the native form only.
    """

    run: Run
    store: Store
    savepoint: Savepoint
    files: Savepoint
    checkpoint: Path


@dataclass(frozen=True)
class Lab:
    """Originals, each made once, and places for what is restored."""

    spark: SparkSession
    home: Path
    original: Callable[[str, str, int], Original]

    def run(self, case: Case, checkpoint: Path) -> Run:
        """Run a query, or let it go on."""
        inputs = _inputs(self.home, case.seed)
        return harness.run(self.spark, QUERIES[case.query], STORES[case.store], inputs, checkpoint)


def _inputs(home: Path, seed: int) -> Path:
    directory = home / f"inputs-{seed}"
    if not directory.exists():
        write_inputs(directory, seed)
    return directory


@pytest.fixture(scope="module")
def lab(spark: SparkSession) -> Iterator[Lab]:
    """Give a directory for this process alone, in memory where there is one."""
    memory = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(prefix="fidelity-", dir=memory if memory.is_dir() else None))

    @functools.cache
    def original(query: str, store: str, seed: int) -> Original:
        place = home / f"{query}-{store}-{seed}"
        (place / "store").mkdir(parents=True)
        checkpoint = place / "checkpoint"
        inputs = _inputs(home, seed)
        run = harness.run(spark, QUERIES[query], STORES[store], inputs, checkpoint)
        kept = Store.at(str(place / "store")).make()
        saved, files = (
            kept.create(
                checkpoint=str(checkpoint), query=query, batch_id=BATCH[seed], forms=forms
            ).execute()
            for forms in (FORMS, ("native",))
        )
        # A restored checkpoint must not need the one that it came from.
        moved = checkpoint.rename(place / "ended")
        return Original(run, kept, saved, files, moved)

    with harness.own_maintenance(spark):
        yield Lab(spark, home, original)
    shutil.rmtree(home)


def _of(*verdicts: Verdict) -> pytest.MarkDecorator:
    """Parametrise with the cells of these verdicts; but for those that are drawn they are nightly.

    Cells of one original stay together, so that it is made once.
    """
    drawn = chosen()
    return pytest.mark.parametrize(
        "case",
        [
            pytest.param(
                one,
                id=str(one),
                marks=[
                    pytest.mark.xdist_group(f"{one.query}-{one.store}-{one.seed}"),
                    *([] if one in drawn else [pytest.mark.nightly]),
                ],
            )
            for one in cases()
            if cell(one.query, one.store, one.way).verdict in verdicts
        ],
    )


def _changes(case: Case) -> dict[str, Any]:
    """Return the arguments of `restore` for the way of a case."""
    if case.way == "partitions":
        return {"partitions": OTHER_PARTITIONS[case.seed]}
    if case.way == "provider":
        return {"provider": _other_provider(case)}
    return {"form": case.way}


def _source(case: Case, original: Original) -> Savepoint:
    """Return what is restored: with other partitions or provider, also what has no rows yet."""
    is_changed = case.way in {"partitions", "provider"}
    return original.files if is_changed and case.seed != SEEDS[0] else original.savepoint


def _other_provider(case: Case) -> Literal["rocksdb", "hdfs"]:
    return "hdfs" if STORES[case.store].provider == "rocksdb" else "rocksdb"


def _content(savepoint: Savepoint) -> list[tuple[int, int | None, str | None]]:
    """Return what does not depend on form, provider and number of partitions."""
    return [(one.operator_id, one.rows, one.content_hash) for one in savepoint.operators]


@pytest.mark.spark
@_of("exact")
def test_a_restored_query_goes_on_exactly(lab: Lab, case: Case, tmp_path: Path) -> None:
    original = lab.original(case.query, case.store, case.seed)
    saved, batch = original.savepoint, BATCH[case.seed]
    expected = original.run.after(batch)
    assert expected.batches, "there must be later batches"
    target = lab.home / str(case)

    source = _source(case, original)
    original.store.savepoint(source.id).restore(str(target), **_changes(case)).execute()

    again = original.store.create(checkpoint=str(target), query=str(case)).execute()
    assert _content(again) == _content(saved), "a restored savepoint saves the same contents"
    assert (again.cut.batch_id, again.cut.watermark_ms, again.cut.offsets) == (
        saved.cut.batch_id,
        saved.cut.watermark_ms,
        saved.cut.offsets,
    )

    found = lab.run(case, target)
    assert found.batches == expected.batches
    assert found.after(batch).watermarks == expected.watermarks
    assert without_partitions(found.state) == without_partitions(expected.state)
    if case.way != "partitions":
        assert found.state == expected.state, "each row in its state partition"
    _require_layout(target, case, saved)


def _require_layout(checkpoint: Path, case: Case, saved: Savepoint) -> None:
    """Check that the query ran with what it was restored to, which its session does not say."""
    partitions = OTHER_PARTITIONS[case.seed] if case.way == "partitions" else PARTITIONS
    provider = _other_provider(case) if case.way == "provider" else STORES[case.store].provider
    newest = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    conf = json.loads(newest.read_text().splitlines()[1])["conf"]
    assert conf["spark.sql.shuffle.partitions"] == str(partitions)
    assert conf[f"{harness.STATE_STORE}.providerClass"] == PROVIDERS[provider]
    for operator in saved.operators:
        directories = (checkpoint / "state" / str(operator.operator_id)).iterdir()
        there = {int(path.name) for path in directories if path.name.isdigit()}
        assert there == set(range(1 if operator.keyless else partitions))


@pytest.mark.spark
@_of("refused", "native only")
def test_what_cannot_be_exact_is_refused(lab: Lab, case: Case) -> None:
    original = lab.original(case.query, case.store, case.seed)
    truth = cell(case.query, case.store, case.way)
    assert not isinstance(truth.error, str)
    before = _files(original.store)
    target = lab.home / str(case)

    with pytest.raises(truth.error, match=truth.says) as refused:
        original.store.savepoint(_source(case, original).id).restore(
            str(target), **_changes(case)
        ).execute()

    assert refused.value.hint
    assert not target.exists()
    if truth.verdict == "native only":
        assert original.savepoint.forms == ("native",)
        assert any(truth.says in (one.native_only or "") for one in original.savepoint.operators)
        with pytest.raises(truth.error, match=truth.says):
            original.store.create(
                checkpoint=str(original.checkpoint),
                query=f"{case.query}-again",
                forms=("canonical",),
            ).execute()
    assert _files(original.store) == before, "nothing was written"


def _files(store: Store) -> list[str]:
    return sorted(info.path for info in store.root.list())


@pytest.mark.spark
@_of("–")
def test_spark_itself_does_not_run_it(lab: Lab, case: Case) -> None:
    from pyspark.errors import StreamingQueryException

    condition = cell(case.query, case.store, case.way).error
    assert isinstance(condition, str)

    with pytest.raises(StreamingQueryException) as failed:
        lab.run(case, lab.home / str(case))

    assert f"[{condition}]" in str(failed.value)


@pytest.mark.nightly  # Forks of real queries go on exactly in the small tier, too.
@pytest.mark.spark
@pytest.mark.parametrize(
    "case",
    [
        Case("transform_event", "rocksdb_2", "native", 3),
        Case("transform", "rocksdb_1", "canonical", 1),
        Case("join_outer_4", "rocksdb_1_changelog", "native", 3),
    ],
    ids=str,
)
def test_a_query_goes_on_exactly_under_another_id_of_sparks(lab: Lab, case: Case) -> None:
    """As a fork does; timers and variables do not hang on the id."""
    original = lab.original(case.query, case.store, case.seed)
    target = lab.home / f"{case}-fork"
    other = str(uuid.uuid4())

    plan = restore.plan(
        original.store,
        original.savepoint.id,
        str(target),
        form="canonical" if case.way == "canonical" else "native",
        query_id=other,
    )
    restore.execute(plan, original.store)

    expected = original.run.after(BATCH[case.seed])
    assert expected.batches, "there must be later batches"
    found = lab.run(case, target)
    assert json.loads((target / "metadata").read_text())["id"] == other
    assert other != original.savepoint.query_id
    assert found.batches == expected.batches
    assert found.after(BATCH[case.seed]).watermarks == expected.watermarks
    assert found.state == expected.state
