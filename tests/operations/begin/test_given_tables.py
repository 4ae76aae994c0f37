"""Which table has the rows of which state, by what was written on the command line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.state.schema import StateField, StateSchema
from savepoints.errors import NotFoundError, StalePlanError, UsageError
from savepoints.operations.begin import given_tables
from savepoints.state.seed import visible
from savepoints.state.typed.typed import Variable, VariableKind

TEXT, LONG = StateField("k", "string"), StateField("count", "long", nullable=False)
INNER = {"type": "struct", "fields": [TEXT.to_json()]}
DAY = {"type": "struct", "fields": [StateField("v", "long").to_json()]}


def aggregate(number: int) -> visible.Visible:
    schema = StateSchema("default", (TEXT,), (LONG, StateField("count", "long")))
    shape = OperatorShape(number, "stateStoreSave", {"default": (schema,)})
    return visible.of(Variable(number, shape.name, "rows"), shape)


def join() -> OperatorShape:
    of_side = StateSchema("default", (StateField("field0", "string"), LONG), (TEXT,))
    stores = {f"{side}-keyWithIndexToValue": (of_side,) for side in ("left", "right")}
    return OperatorShape(0, "symmetricHashJoin", stores)


def sides() -> list[visible.Visible]:
    names = ("left", "right")
    return [
        visible.of(
            Variable(0, "symmetricHashJoin", "side", f"{one}-keyWithIndexToValue", one), join()
        )
        for one in names
    ]


def variables() -> OperatorShape:
    timer = (StateField("key", INNER), StateField("expiryTimestampMs", "long"))
    entry = (StateField("key", INNER), StateField("userKey", DAY))
    expiring = (StateField("value", DAY), StateField("ttlExpirationMs", "long"))
    found = (
        StateSchema("$eventTimers_keyToTimestamp", timer, (StateField("__dummy__", "void"),), {}),
        StateSchema("counts", entry, (LONG,), {}),
        StateSchema("seen", (TEXT,), expiring, {}),
    )
    return OperatorShape(0, "transformWithStateInPySparkExec", {"default": found})


@pytest.fixture
def place(tmp_path: Path) -> str:
    pq.write_table(pa.table({"k": ["a"]}), tmp_path / "rows.parquet")
    return str(tmp_path / "rows.parquet")


def test_columns_are_those_of_the_reader_of_state() -> None:
    assert aggregate(0).columns == (
        "key.k string", "value.count long not null", "value.count_2 long",
    )  # fmt: skip
    assert sides()[0].columns == ("key.field0 string", "value.k string")
    of = variables()
    declared: tuple[tuple[VariableKind, str, bool], ...] = (
        ("timers", "timers", False),
        ("map", "counts", False),
        ("list", "seen", True),
    )
    timers, counts, seen = (
        visible.of(Variable(0, of.name, kind, name=name, ttl=ttl), of)
        for kind, name, ttl in declared
    )
    assert timers.columns == ("key.k string", "fires_at_ms long not null")
    assert counts.columns == ("key.k string", "map_key.v long", "value.count long not null")
    assert seen.columns == (
        "key.k string", "value.v long", "position integer not null", "expires_at_ms long not null",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("s3://lake/totals", ("", "s3://lake/totals")),
        ("s3://lake/day=1/totals", ("", "s3://lake/day=1/totals")),
        ("/lake/day=1", ("", "/lake/day=1")),
        ("0=s3://lake/totals", ("0", "s3://lake/totals")),
        ("left=s3://lake/day=1", ("left", "s3://lake/day=1")),
        ("1.left=none", ("1.left", "none")),
    ],
)
def test_a_name_stands_before_the_place(text: str, parsed: tuple[str, str]) -> None:
    assert given_tables.parse(text) == parsed


def test_one_state_needs_no_name(place: str) -> None:
    (found,) = given_tables.assigned([("", place)], [aggregate(0)])
    assert (found.name, found.place, found.kind) == ("0", place, "parquet")


def test_each_state_is_named_by_operator_or_variable(place: str) -> None:
    known = sides()
    for names in (("left", "right"), ("0.left", "0.right")):
        given = [(names[0], place), (names[1], given_tables.NOTHING)]
        assert [(one.name, one.place) for one in given_tables.assigned(given, known)] == [
            ("0.left", place),
            ("0.right", None),
        ]
    two = [aggregate(0), aggregate(1)]
    given = [("1", place), ("0", given_tables.NOTHING)]
    assert [one.operator_id for one in given_tables.assigned(given, two)] == [1, 0]


def test_what_is_unclear_is_refused(place: str) -> None:
    for given, why in (
        ([("", place)], "a table without a name must match .*, but matches 2"),
        ([("middle", place)], "middle must match .*, but matches 0"),
        ([("left", place)], r"no rows are given for operator 0 \(symmetricHashJoin\), right"),
        ([("left", place), ("0.left", place)], "two tables are given for .*left"),
    ):
        with pytest.raises(UsageError, match=why):
            given_tables.assigned(given, sides())
    with pytest.raises(NotFoundError):
        given_tables.assigned([("", f"{place}.gone")], [aggregate(0)])


def test_text_has_no_exact_types(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("k\na\n")
    with pytest.raises(UsageError, match="csv format, which does not preserve exact types"):
        given_tables.assigned([("", str(tmp_path / "rows.csv"))], [aggregate(0)])


def test_trap_files_that_changed_since_the_plan_are_refused(place: str) -> None:
    (found,) = given_tables.assigned([("", place)], [aggregate(0)])
    pq.write_table(pa.table({"k": ["a", "b"]}), place)
    with pytest.raises(StalePlanError, match="have changed since the plan"):
        found.read(None, aggregate(0))  # type: ignore[arg-type]  # Nothing is read.


def test_trap_files_of_a_pattern_could_change_since_the_plan_without_a_word(place: str) -> None:
    pattern = str(Path(place).with_name("*.parquet"))
    with pytest.raises(UsageError, match=r"parquet is a pattern"):
        given_tables.assigned([("", pattern)], [aggregate(0)])


def test_the_version_of_a_table_is_that_of_the_plan(tmp_path: Path) -> None:
    for number in range(3):
        write_deltalake(str(tmp_path / "rows"), pa.table({"k": [str(number)]}), mode="append")
    (found,) = given_tables.assigned([("", str(tmp_path / "rows"))], [aggregate(0)])
    assert (found.kind, found.version, found.files) == ("delta", 2, None)
