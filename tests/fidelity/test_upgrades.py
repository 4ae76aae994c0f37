"""A changed program goes on with the state of the old one, as if it had run from the beginning.

The truth is the new program, run from scratch over everything; for columns that are new, which
begin at the savepoint, a computation in pandas.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from savepoints import faults
from savepoints.checkpoint.state import layout
from savepoints.cli.main import _run
from savepoints.cli.output import Terminal
from savepoints.errors import LayoutChangedError, SavepointsError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.model import FORMS, Form
from tests import spark_session
from tests.fidelity import harness
from tests.fidelity.harness import STORES, Run
from tests.fidelity.programs import PROGRAMS
from tests.fidelity.queries import FILES, write_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from savepoints.model import Savepoint

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), pytest.mark.drawn(3)]

# The old program reads so many files, the new one the others.
FILES_BEFORE = 3
SEED = 1


@pytest.fixture(autouse=True, scope="module")
def _maintenance(spark: SparkSession) -> Iterator[None]:
    with harness.own_maintenance(spark):
        yield


@dataclass(frozen=True)
class Shop:
    """A query over files, and a store with a savepoint of its old program."""

    spark: SparkSession
    root: Path
    store: Store
    state_store: str

    @classmethod
    def of(cls, spark: SparkSession, root: Path, state_store: str = "rocksdb_1") -> Shop:
        """Write all input, and show the query the first files."""
        write_inputs(root / "all", SEED)
        (root / "store").mkdir()
        shop = cls(spark, root, Store.at(str(root / "store")).make(), state_store)
        shop.show(range(FILES_BEFORE))
        return shop

    def show(self, files: Sequence[int]) -> None:
        """Let the query see more files."""
        for source in ("0", "1"):
            (self.root / "in" / source).mkdir(parents=True, exist_ok=True)
            for number in files:
                name = f"{source}/{number}.json"
                shutil.copy2(self.root / "all" / name, self.root / "in" / name)

    def run(self, program: str, checkpoint: str) -> Run:
        """Run a program until it has read what there is."""
        return harness.run(
            self.spark,
            PROGRAMS[program],
            STORES[self.state_store],
            self.root / "in",
            self.root / checkpoint,
        )

    def saved(
        self, program: str, truth: str | None = None, forms: Sequence[Form] = FORMS
    ) -> Savepoint:
        """Run the old program and take a savepoint; let the new one see the same by itself."""
        self.run(program, "old")
        if truth is not None:
            self.run(truth, "scratch")
        return (
            self.store.with_settings(spark_session.settings())
            .create(query="q", checkpoint=str(self.root / "old"), forms=forms)
            .execute()
        )

    def restore(
        self, program: str, *, maps: Sequence[str] = (), allow_dropped_state: bool = False
    ) -> None:
        """Restore for the new program."""
        self.store.with_settings(spark_session.settings()).savepoint("latest").migrate(
            str(self.root / "new"),
            app=reference(program),
            maps=maps,
            allow_dropped_state=allow_dropped_state,
        ).execute()

    def migrated(
        self, program: str, *, maps: Sequence[str] = (), allow_dropped_state: bool = False
    ) -> Run:
        """Restore for the new program, and let it go on with the other files."""
        self.restore(program, maps=maps, allow_dropped_state=allow_dropped_state)
        self.show(range(FILES_BEFORE, FILES))
        return self.run(program, "new")

    def from_scratch(self, program: str) -> Run:
        """Let the new program, which has seen the first files, go on with the others."""
        return self.run(program, "scratch")

    def rows(self, files: Sequence[int]) -> pd.DataFrame:
        """Read input as pandas does."""
        paths = [self.root / "all" / "0" / f"{number}.json" for number in files]
        lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        return pd.DataFrame(lines).fillna({"k": ""})


class KilledError(Exception):
    """Stands for the end of the process."""


def killed_at(point: str) -> Callable[[str], None]:
    """Return what ends a verb when it reaches a point."""

    def reach(reached: str) -> None:
        if reached == point:
            raise KilledError

    return reach


def reference(program: str) -> str:
    """Return what `--app` takes."""
    return f"tests.fidelity.programs:{program}"


def require_equal(got: Run, truth: Run, after: int) -> None:
    """Compare each later batch, the watermarks, and the state at the end."""
    assert truth.after(after).batches
    assert got.after(after).batches == truth.after(after).batches
    assert got.after(after).watermarks == truth.after(after).watermarks
    assert got.state == truth.state


@dataclass(frozen=True)
class Case:
    """A change after which the new program is as if it had run from the beginning."""

    old: str
    new: str
    maps: tuple[str, ...] = ()
    drops: bool = False
    state_store: str = "rocksdb_1"
    forms: tuple[Form, ...] = FORMS


QUICK = [
    # What was dropped, put in another order and widened, min and max in each other's place.
    Case("many", "fewer", drops=True, forms=("native",)),
]
SLOW = [
    Case("distinct_counted", "distinct", drops=True),
    Case("totals", "letters"),
    Case("many", "fewer", drops=True, state_store="hdfs"),
    Case("many", "fewer", drops=True, state_store="rocksdb_2_changelog"),
    Case("extremes", "swapped"),
    Case("sums", "quarters"),
    Case("sessions", "changed_sessions"),
    Case("joined", "changed_joined", drops=True, forms=("native",)),
    Case("totals", "letters", state_store="hdfs", forms=("native",)),
]


@pytest.mark.parametrize(
    "case",
    [*QUICK, *(pytest.param(one, marks=pytest.mark.nightly) for one in SLOW)],
    ids=lambda case: f"{case.old}-{case.new}-{case.state_store}",
)
def test_a_migrated_query_goes_on_as_if_its_program_had_run_from_the_beginning(
    spark: SparkSession, tmp_path: Path, case: Case
) -> None:
    shop = Shop.of(spark, tmp_path, case.state_store)
    taken = shop.saved(case.old, case.new, case.forms)

    got = shop.migrated(case.new, maps=case.maps, allow_dropped_state=case.drops)

    require_equal(got, shop.from_scratch(case.new), taken.cut.batch_id)
    new, scratch = (layout.read(Location.of(str(tmp_path / one))) for one in ("new", "scratch"))
    layout.require_names(new, scratch, case.new)


def test_new_columns_begin_at_the_savepoint_and_others_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Not with NULL, in which an average would stay for ever, and a count cannot be."""
    shop = Shop.of(spark, tmp_path)
    taken = shop.saved("totals")

    with pytest.raises(LayoutChangedError, match="of type long was 1 and is now 2"):
        shop.restore("more")
    # An average has a count, too.
    got = shop.migrated("more", maps=["count=count"])

    before, after = shop.rows(range(FILES_BEFORE)), shop.rows(range(FILES_BEFORE, FILES))
    everything, fresh = pd.concat([before, after]).groupby("k").v, after.groupby("k").v
    expected = {
        k: (fresh.max()[k], everything.size()[k], fresh.mean()[k], everything.sum()[k], sorted(v))
        for k, v in fresh
    }
    last = {}
    for batch in sorted(batch for batch in got.batches if batch > taken.cut.batch_id):
        for text in got.batches[batch]:
            row = eval(text, {"Row": dict})
            last[row["k"] or ""] = (*(row[name] for name in "anms"), sorted(row["l"]))
    assert last == expected


@pytest.mark.nightly
def test_an_operator_that_is_new_begins_empty_and_those_that_moved_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The aggregate in front was operator 0 and is 1; the new one has only windows closed since."""
    shop = Shop.of(spark, tmp_path)
    taken = shop.saved("distinct_counted", "distinct_counted_again")
    maps = ("0=1", "1=2", "key.window=key.window")

    with pytest.raises(LayoutChangedError, match="its window length and slide"):
        shop.restore("distinct_counted_again", maps=maps[:2])
    got = shop.migrated("distinct_counted_again", maps=maps)

    truth = shop.from_scratch("distinct_counted_again")
    moved = [part for part in truth.state if not part.startswith("0 ")]
    assert len(moved) == 2
    assert [got.state[part] for part in moved] == [truth.state[part] for part in moved]
    assert got.after(taken.cut.batch_id).watermarks == truth.after(taken.cut.batch_id).watermarks


@pytest.mark.nightly
def test_variables_that_are_new_renamed_or_have_more_fields(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows are those of the program that had them from the beginning, killed or not."""
    shop = Shop.of(spark, tmp_path)
    taken = shop.saved("notes", "changed_notes")

    with pytest.raises(LayoutChangedError, match="whether it was renamed"):
        shop.restore("changed_notes", allow_dropped_state=True)
    with monkeypatch.context() as patch:
        patch.setattr(faults, "reach", killed_at("restore.state"))
        with pytest.raises(KilledError):
            shop.restore("changed_notes", maps=["total=sum"], allow_dropped_state=True)
    assert not (tmp_path / "new" / "metadata").exists()
    got = shop.migrated("changed_notes", maps=["total=sum"], allow_dropped_state=True)

    truth = shop.from_scratch("changed_notes")
    after = taken.cut.batch_id
    assert truth.after(after).batches
    assert got.after(after).batches == truth.after(after).batches


def test_what_cannot_go_on_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    shop = Shop.of(spark, tmp_path)
    shop.saved("totals")

    with pytest.raises(LayoutChangedError, match="sum: it was long and is now double"):
        shop.restore("retyped")
    with pytest.raises(LayoutChangedError, match="would drop column count of operator 0"):
        shop.restore("sums")
    assert not (tmp_path / "new").exists()

    # Two keys that become one are only known when the rows are looked at.
    with pytest.raises(SavepointsError, match="returns the same new key for several rows"):
        shop.restore("unmerged")
    assert not (tmp_path / "new" / "metadata").exists()


def test_trap_aggregates_that_were_swapped_in_place(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark looks at types only and would go on with each other's state; see section 12.11."""
    shop = Shop.of(spark, tmp_path)
    shop.saved("extremes")

    def check(program: str, *more: str) -> int:
        store = ["--store", str(shop.store.root)]
        words = ["upgrade", "check", "--app", reference(program), "--from", "latest"]
        return _run(Terminal(), [*words, *store, *more])

    assert check("swapped", "-o", "json") == 3
    found = json.loads(capsys.readouterr().out)["upgrade"]
    assert found["verdict"] == "needs_migration"
    assert {one["place"] for one in found["operators"][0]["reasons"]} == {
        "value column max",
        "value column min",
    }
    assert check("extremes") == 0
    assert "nothing changed" in capsys.readouterr().out
    assert check("distinct", "--map", "0=0") == 16
