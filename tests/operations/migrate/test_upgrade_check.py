"""What is compared besides state, and whether all that was planned was written; no JVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from savepoints.checkpoint.evolution import upgrade
from savepoints.checkpoint.evolution.findings import Dropped
from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.evolution.upgrade import OperatorVerdict, Upgrade
from savepoints.checkpoint.state.schema import StateField, StateSchema
from savepoints.errors import NativeOnlyError, NotAlignedError
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.migrate import migrate
from savepoints.operations.migrate import upgrade_check as operations_upgrade
from savepoints.operations.migrate.migration_writer import require_counts
from savepoints.operations.migrate.program_layout import NewProgram
from savepoints.operations.migrate.upgrade_check import ProgramComparison, compare_topics
from savepoints.operations.savepoint import restored_layout
from savepoints.runtime.app import App
from tests.data import make_older
from tests.samples import KAFKA, savepoint


@pytest.mark.parametrize(
    ("offsets", "topics", "found"),
    [
        ((KAFKA,), ["orders"], []),
        ((KAFKA, '{"clicks":{"0":1}}'), ["orders", "clicks"], []),
        ((KAFKA, None), ["orders", "orders"], []),
        ((KAFKA,), ["orders_v2"], ["topic orders", "topic orders_v2"]),
        ((KAFKA,), ["orders", "clicks"], ["topic clicks"]),
        ((KAFKA, '{"clicks":{"0":1}}'), ["orders"], ["topic clicks"]),
        # Positions are found by the place of a source.
        ((KAFKA, '{"clicks":{"0":1}}'), ["clicks", "orders"], ["source 0", "source 1"]),
        ((KAFKA,), ["orders", "orders"], ["sources"]),
    ],
)
def test_other_topics_are_incompatible(
    offsets: tuple[str | None, ...], topics: list[str], found: list[str]
) -> None:
    reasons = compare_topics(savepoint(1, offsets=offsets), topics)

    assert [one.place for one in reasons] == found
    assert {one.verdict for one in reasons} <= {"incompatible"}
    assert all("--source" in one.hint for one in reasons)


def test_sources_that_are_not_kafka_are_not_compared() -> None:
    (reason,) = compare_topics(savepoint(1, offsets=('{"logOffset":3}',)), ["orders"])

    assert reason.verdict == "compatible"
    assert "were not compared" in reason.text


def test_trap_state_that_spark_did_not_describe_passed_for_no_state(
    on_local: Location, local_store: Store
) -> None:
    """Spark 3.5 wrote the checkpoint: each of its operators seemed to be new in any program."""
    checkpoint = make_older.unpack("3.5_hdfs_totals", on_local / "live", Path("/in"))
    saved = local_store.create(query="totals", checkpoint=str(checkpoint)).execute()

    def migrate_it() -> object:
        return migrate.plan(local_store, saved.id, str(on_local / "next"), app="m:app")

    for attempt in (
        lambda: operations_upgrade.upgrade_check(local_store, saved.id, app="m:app"),
        migrate_it,
    ):
        with pytest.raises(NativeOnlyError, match="operator 0 is unknown") as caught:
            attempt()
        assert f"savepoints restore {saved.id} --to URI" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("counted", "merged", "is_right"),
    [(7, None, True), (6, None, False), (8, None, False), (0, None, False),
     (3, 3, True), (7, 7, True), (8, 8, False), (0, 3, False), (2, 3, False), (4, 3, False)],
)  # fmt: skip
def test_rows_that_are_missing_or_too_many_are_found(
    counted: int, merged: int | None, is_right: bool
) -> None:
    """Of ten rows three are dropped with a variable; where keys are merged are as many as keys."""
    dropped = (Dropped("variable x", (("default", "x"),), 3), Dropped("column y"))
    operators = (
        OperatorVerdict(0, 1, "a", "compatible", (), 10, dropped),
        OperatorVerdict(None, 0, "gone", "needs_migration", (), 5),
        OperatorVerdict(1, None, "new", "needs_migration", ()),
    )
    report = Upgrade("sp-1", "m:app", "needs_migration", operators)
    counts = {0: counted, 1: 0}
    made = {} if merged is None else {0: merged}

    if is_right:
        require_counts(report, counts, made)
    else:
        with pytest.raises(NotAlignedError, match=f"has {counted} rows of state in the new"):
            require_counts(report, counts, made)


def test_rows_in_an_operator_that_begins_empty_are_found() -> None:
    report = Upgrade(
        "sp-1", "m:app", "needs_migration", (OperatorVerdict(0, None, "new", "compatible", ()),)
    )

    with pytest.raises(NotAlignedError, match=r"has 1 row of state .* but should have 0"):
        require_counts(report, {0: 1}, {})


def test_trap_state_ids_of_operators_that_are_gone_leave_the_commit_log(
    on_local: Location,
) -> None:
    """With checkpoint format 2 they name files that a migrated checkpoint does not have."""
    target = on_local / "new"
    ids = {"0": [["a"]], "1": [["b"]], "2": [["c"]]}
    content = json.dumps({"nextBatchWatermarkMs": 5, "stateUniqueIds": ids})
    target.put("commits/3", f"v2\n{content}".encode())

    changed = restored_layout.name_state(target, 3, {0: (("x",),)}, {0, 1})
    again = restored_layout.name_state(target, 3, {}, {0, 1})

    assert (changed, again) == ("commits/3", None)
    written = json.loads(target.get("commits/3").split(b"\n", 1)[1])
    assert written["stateUniqueIds"] == {"0": [["x"]], "1": [["b"]]}
    assert written["nextBatchWatermarkMs"] == 5


def doubled(batch: object) -> object:
    """Stand for a function of a program."""
    return batch


def asked(**changes: Any) -> str:
    given: dict[str, Any] = {
        "files": {"state/0/0/_metadata/schema": b"a"},
        "function": doubled,
        "words": ("a",),
    }
    given |= changes
    nothing: Any = None
    app = App("q", {}, lambda _: nothing, {}, {"0": given["function"]})
    program = NewProgram("m:app", app, (), given["files"], (), {}, ())
    report = Upgrade("sp-1", "m:app", "compatible", ())
    compared = ProgramComparison(savepoint(1), program, report, ())
    return migrate.fingerprint(compared, given["words"])


def test_trap_a_migration_with_other_words_or_another_program_is_another_one() -> None:
    """A directory of one is not taken for one of the other."""

    def tripled(batch: object) -> object:
        return (batch,)

    assert asked() == asked()
    assert len({asked(), asked(words=("a", "keep:0")), asked(function=tripled),
                asked(files={"state/0/0/_metadata/schema": b"b"})}) == 4  # fmt: skip
    assert "\n" not in asked(words=("max=a\nb",))


def test_state_that_is_encoded_otherwise_goes_on_only_as_it_is() -> None:
    def schema(*names: str) -> OperatorShape:
        values = tuple(StateField(name, "long") for name in names)
        schemas = (StateSchema("default", (StateField("k", "string"),), values),)
        return OperatorShape(0, "stateStoreSave", {"default": schemas})

    def verdict(*names: str, is_avro: bool) -> str:
        found = upgrade.compare_operators([schema("max", "min")], [schema(*names)])
        return operations_upgrade.with_types(found.operators[0], found, is_avro=is_avro).verdict

    assert verdict("max", "min", is_avro=True) == "compatible"
    assert verdict("min", "max", is_avro=True) == "incompatible"
    assert verdict("min", "max", is_avro=False) == "needs_migration"
