"""Checkpoints that Spark keeps for its own tests, of versions from 2.1 to 4.0.

They are in the jar of its tests, which is downloaded. Each is saved and restored with the rows that
Spark's own reader finds in the original; those that it does not read, with the same bytes.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import savepoints
from savepoints.checkpoint.state.operators import UNNAMED
from savepoints.errors import NoCommittedBatchError
from savepoints.handle import Store
from savepoints.local.jars import resolve
from savepoints.model import FORMS
from savepoints.state.storage.read import state_session
from tests.fidelity import typed_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.nightly, pytest.mark.spark, pytest.mark.timeout(1800)]

LOCK = Path(__file__).parents[1] / "data" / "spark_tests"
ROOT = "structured-streaming"
# Those of before 4.0 have no operator metadata, but for two without state.
STATELESS = {
    "checkpoint-test-offsetId-commitId-inconsistent",
    "checkpoint-version-2.3.1-for-multi-watermark-policy",
}
NOTHING_COMMITTED = {"checkpoint-version-2.1.0"}
# It holds a name that was escaped three times, and no state.
ESCAPED = "escaped-path-2.4.0"
SINCE_METADATA = "checkpoint-version-4."
# Their metadata names the schema files where they were written: Spark does not read them elsewhere.
TIED_TO_THEIR_PLACE = {
    "checkpoint-version-4.0.0-tws-avro",
    "checkpoint-version-4.0.0-tws-unsaferow",
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Give the checkpoints by what Spark calls them."""
    (jar,) = resolve(LOCK)
    place = tmp_path_factory.mktemp("kept")
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(place, [name for name in archive.namelist() if name.startswith(ROOT)])
    found = (path.parent for path in sorted((place / ROOT).rglob("metadata")))
    return {str(one.relative_to(place / ROOT)): one for one in found if (one / "offsets").is_dir()}


def saved(store: Store, name: str, checkpoint: Path) -> savepoints.Savepoint:
    query = "".join(letter if letter.isalnum() else "-" for letter in name)
    return store.create(query=query, checkpoint=str(checkpoint)).execute()


def test_what_is_older_than_operator_metadata_is_restored_as_it_is(
    kept: dict[str, Path], local_store: Store, tmp_path: Path
) -> None:
    older = {name: path for name, path in kept.items() if not name.startswith(SINCE_METADATA)}
    restored = 0
    for name, checkpoint in older.items():
        if name in NOTHING_COMMITTED:
            with pytest.raises(NoCommittedBatchError):
                saved(local_store, name, checkpoint)
            continue
        taken = saved(local_store, name, checkpoint)
        named = {one.name for one in taken.operators}
        assert named == (set() if name in STATELESS or name.startswith(ESCAPED) else {UNNAMED})
        to = tmp_path / str(restored)
        local_store.savepoint(taken.id).restore(str(to), accept_unreplayable=True).execute()
        state = [path.relative_to(to) for path in (to / "state").rglob("*") if path.is_file()]
        assert [(to / path).read_bytes() for path in state] == [
            (checkpoint / path).read_bytes() for path in state
        ], name
        assert bool(state) == bool(named), name
        restored += 1

    assert restored >= 20


def test_all_others_are_restored_with_the_rows_that_spark_finds(
    kept: dict[str, Path], spark: SparkSession, tmp_path: Path
) -> None:
    names = [name for name in kept if name.startswith(SINCE_METADATA)]
    store = Store.at(str(tmp_path / "store")).make()
    compared = 0
    for number, name in enumerate(names):
        taken = saved(store, name, kept[name])
        assert store.savepoint(taken.id).verify().findings == (), name
        if name in TIED_TO_THEIR_PLACE or any(one.native_only for one in taken.operators):
            continue  # Spark's reader does not read them.
        own = state_session(spark, taken.cut.checkpoint_format)
        own.conf.set("spark.sql.streaming.stateStore.providerClass", taken.cut.provider)
        truth = typed_state.read(own, kept[name], taken.cut.batch_id, ())
        assert sum(rows.total() for rows in truth.values()) > 0, name
        for form in FORMS:
            to = tmp_path / f"{number}-{form}"
            restored = (
                store.savepoint(taken.id)
                .restore(str(to), form=form, accept_unreplayable=True)
                .execute()
            )
            found = typed_state.read(own, to, restored.batch_id, ())
            assert found == truth, f"{name}, {form}"
            compared += 1

    assert compared >= 2 * 10
