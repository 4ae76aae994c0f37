"""Verdicts on changed programs: a matrix of changes, from layouts alone; no JVM."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from savepoints.checkpoint.evolution import program_layout, renames, upgrade
from savepoints.checkpoint.evolution.findings import Start
from savepoints.checkpoint.evolution.operator_pairs import Functions
from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.evolution.upgrade import OperatorComparison, OperatorVerdict
from savepoints.checkpoint.state.schema import SparkType, StateField, StateSchema
from savepoints.errors import UsageError
from savepoints.io import Location
from tests.samples import unpack

K = StateField("k", "string")


def field(text: str, *, nullable: bool = True) -> StateField:
    """Make a field of `name type`, with `!` for one that cannot be null."""
    name, _, kind = text.partition(" ")
    return StateField(name, kind.removesuffix("!"), nullable and not kind.endswith("!"))


def fields(*texts: str | StateField) -> tuple[StateField, ...]:
    return tuple(one if isinstance(one, StateField) else field(one) for one in texts)


def aggregate(
    *values: str | StateField,
    key: Sequence[str | StateField] = (K,),
    operator_id: int = 0,
    starts: Sequence[Any] | None = None,
    name: str = "stateStoreSave",
    rows: int | None = None,
) -> OperatorShape:
    """Describe an aggregation."""
    schema = StateSchema("default", fields(*key), fields(*values))
    begun = None if starts is None else tuple(map(Start, starts))
    return OperatorShape(operator_id, name, {"default": (schema,)}, starts=begun, rows=rows)


def dedupe(*key: str | StateField, operator_id: int = 0, rows: int | None = None) -> OperatorShape:
    """Describe a deduplication."""
    return aggregate(
        "__dummy__ void", key=key or (K,), operator_id=operator_id, name="dedupe", rows=rows
    )


def compare(
    was: OperatorShape | Sequence[OperatorShape],
    now: OperatorShape | Sequence[OperatorShape],
    *maps: str,
    defaults: Mapping[str, str] | None = None,
    functions: Functions | None = None,
) -> OperatorComparison:
    return upgrade.compare_operators(
        [was] if isinstance(was, OperatorShape) else was,
        [now] if isinstance(now, OperatorShape) else now,
        given=renames.parse(maps),
        defaults=defaults,
        functions=functions,
    )


def only(found: OperatorComparison) -> OperatorVerdict:
    (one,) = found.operators
    return one


def texts(one: OperatorVerdict) -> str:
    return "\n".join(f"{each.place}: {each.text}: {each.hint}" for each in one.reasons)


def struct(*inner: str) -> SparkType:
    return {"type": "struct", "fields": [field(one).to_json() for one in inner]}


AGGREGATES = [
    # was, now, words, verdict, what is said
    ("count long;max long", "count long;max long", "", "compatible", ""),
    # The same type in each other's place, which Spark would not notice (12.11).
    (
        "max long;min long",
        "min long;max long",
        "",
        "needs_migration",
        "which Spark does not notice",
    ),
    ("count long;sum long", "sum long;count long", "", "needs_migration", "from column 1"),
    ("max integer", "max long", "", "needs_migration", "can hold all its values"),
    ("max byte", "max short", "", "needs_migration", "can hold all its values"),
    ("max float", "max double", "", "needs_migration", "can hold all its values"),
    ("sum decimal(10,2)", "sum decimal(20,4)", "", "needs_migration", "can hold all its values"),
    ("sum decimal(10,2)", "sum decimal(11,4)", "", "incompatible", "not every value"),
    ("sum decimal(10,2)", "sum decimal(10,1)", "", "incompatible", "not every value"),
    ("max long", "max integer", "", "incompatible", "not every value"),
    ("max long", "max double", "", "incompatible", "not every value"),
    ("max integer", "max double", "", "incompatible", "not every value"),
    ("max string", "max long", "", "incompatible", "not every value"),
    ("max long;min long", "max long", "", "needs_migration", "min: it was removed"),
    ("max long", "most long", "", "unknown", "--map max=most if it was renamed, --map max= if"),
    ("max long", "most long", "max=most", "compatible", "renamed from max (--map)"),
    ("max long", "most long", "0:max=most", "compatible", "renamed from max (--map)"),
    ("max integer", "most long", "max=most", "needs_migration", "can hold all its values"),
    # Three that change places are three reasons, not a rename.
    ("a long;b long;c long", "c long;a long;b long", "", "needs_migration", "from column 2"),
    # One name twice: which is which only a person can say.
    ("sum long;sum long", "sum long;sum long", "", "unknown", "--map sum=sum if they did not swap"),
    ("sum long;sum long", "sum long;sum long", "sum=sum", "compatible", ""),
    ("sum long;sum long", "sum long;sum long", "sum=sum_2", "needs_migration", "from column 1"),
    ("max long;sum long;sum long", "sum long;sum long", "", "unknown", "whether they swapped"),
    ("sum long;sum double", "sum double;sum long", "", "needs_migration", "from column 1"),
    ("sum long;sum long", "sum long", "", "unknown", "--map sum=sum"),
    ("sum long;sum long", "sum long", "sum_2=sum", "needs_migration", "sum: it was removed"),
    ("buf binary", "buf binary", "", "unknown", "whose bytes only Spark understands"),
    ("buf binary", "buf binary", "buf=buf", "compatible", ""),
    ("count long;buf binary", "count long", "", "needs_migration", "buf: it was removed"),
]


@pytest.mark.parametrize(("was", "now", "words", "verdict", "said"), AGGREGATES)
def test_what_became_of_the_columns_of_an_aggregation(
    was: str, now: str, words: str, verdict: str, said: str
) -> None:
    found = only(compare(aggregate(*was.split(";")), aggregate(*now.split(";")), *words.split()))

    assert found.verdict == verdict, texts(found)
    assert said in texts(found)


def test_a_new_column_begins_with_what_spark_says_or_a_person() -> None:
    was = aggregate("sum long")
    now = aggregate("sum long", "count long", "max long", starts=[None, 0, None])

    found = compare(was, now)
    given = compare(was, now, defaults={"count": "7"})
    unknown = compare(was, aggregate("sum long", "count long"))

    assert only(found).verdict == only(given).verdict == "needs_migration"
    assert [one.start for one in found.transfers[0].columns] == [None, 0, None]
    assert [one.start for one in given.transfers[0].columns] == [None, "7", None]
    assert only(unknown).verdict == "incompatible"
    assert "--default count=VALUE" in texts(only(unknown))


def test_a_default_for_no_new_column_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="no new column with that name") as caught:
        compare(
            aggregate("sum long"), aggregate("sum long", "max long", starts=[None] * 2),
            defaults={"maxx": "1"},
        )  # fmt: skip
    assert "max" in caught.value.hint


@pytest.mark.parametrize("text", ["nothing=more", "max=more", "1=1", "7:max=max"])
def test_a_map_that_fits_nothing_is_a_mistake(text: str) -> None:
    with pytest.raises(UsageError, match="matches nothing"):
        compare(aggregate("max long"), aggregate("max long"), text)


def test_a_map_that_fits_two_operators_says_how_to_choose() -> None:
    other = ["w long"]
    was = [aggregate("max long"), aggregate("max long", operator_id=1, key=other)]
    now = [aggregate("most long"), aggregate("most long", operator_id=1, key=other)]

    with pytest.raises(UsageError, match="matches several operators") as caught:
        compare(was, now, "max=most")

    assert caught.value.hint.endswith("--map 0:max=most")
    found = compare(was, now, "0:max=most", "1:max=most")
    assert [one.verdict for one in found.operators] == ["compatible", "compatible"]


@pytest.mark.parametrize("text", ["max", "=", ""])
def test_a_map_is_old_and_new(text: str) -> None:
    with pytest.raises(UsageError, match="is not in the form OLD=NEW"):
        renames.parse([text])


def test_a_name_is_mapped_once() -> None:
    with pytest.raises(UsageError, match="names 'a' twice"):
        renames.parse(["a=b", "a=c"])


KEYS = [
    ("k string", "k string", (), "compatible", ""),
    ("k string", "k string,v long", (), "incompatible", "KeyMigration"),
    ("k string,v long", "v long,k string", (), "incompatible", "state is found by its key"),
    ("a long,b long", "b long,a long", (), "incompatible", "its columns changed places"),
    ("a long,b long", "b long,a long", ("key.a=key.b", "key.b=key.a"), "incompatible", "places"),
    # A null would be read as a value.
    ("k string", "k string!", (), "unknown", "--map key.k=key.k if no key is null"),
    ("k string", "k string!", ("key.k=key.k",), "compatible", "as --map says"),
    ("k string!", "k string", (), "needs_migration", "Spark refuses"),
    # Of `groupBy(lower(k))` and `groupBy(upper(k))` the state has the same name.
    ("_groupingexpression string", "_groupingexpression string", (), "unknown", "an expression"),
    (
        "_groupingexpression string",
        "_groupingexpression string",
        ("key._groupingexpression=key._groupingexpression",),
        "compatible",
        "as --map says",
    ),
    ("_groupingexpression string", "k string", (), "unknown", "an expression"),
    (
        "_groupingexpression string",
        "k string",
        ("key._groupingexpression=key.k",),
        "compatible",
        "renamed",
    ),
    ("k integer", "k long", (), "incompatible", "state is found by its key"),
    ("k string", "name string", (), "unknown", "--map key.k=key.name"),
    ("k string", "name string", ("key.k=key.name",), "compatible", "renamed"),
]


@pytest.mark.parametrize(("was", "now", "maps", "verdict", "said"), KEYS)
def test_what_became_of_a_key(
    was: str, now: str, maps: tuple[str, ...], verdict: str, said: str
) -> None:
    old = aggregate("count long", key=was.split(","))
    new = aggregate("count long", key=now.split(","))

    found = only(compare(old, new, *maps))

    assert found.verdict == verdict, texts(found)
    assert said in texts(found)


def test_trap_a_window_of_another_length_has_the_same_layout() -> None:
    """Groups of the old length would never be found again."""
    ends: SparkType = struct("start timestamp", "end timestamp")
    was = aggregate("count long!", key=[StateField("window", ends, nullable=False), K])

    assert only(compare(was, was)).verdict == "unknown"
    assert "its window length and slide" in texts(only(compare(was, was)))
    assert only(compare(was, was, "key.window=key.window")).verdict == "compatible"


def begun(*texts: str, groups: Sequence[int], starts: Sequence[Any] | None = None) -> OperatorShape:
    """Describe an aggregation of a program, of which Spark says what belongs to which aggregate."""
    values = starts or [0] * len(groups)
    said = tuple(Start(one, group) for one, group in zip(values, groups, strict=True))
    return dataclasses.replace(aggregate(*texts), starts=said)


AVERAGE = ("sum double", "count long")
DEVIATION = ("n double!", "avg double!", "m2 double!")


@pytest.mark.parametrize(
    ("was", "now", "maps", "verdict", "said"),
    [
        # sum(x) became avg(x): the average would be of all sums and of the new rows only.
        (("sum double",), begun(*AVERAGE, groups=[0, 0]), (), "unknown", "--map sum=sum --map =c"),
        (("count long!",), begun(*AVERAGE, groups=[0, 0]), (), "unknown", "buffer of one aggr"),
        (("sum double",), begun(*AVERAGE, groups=[0, 0]), ("sum=sum", "=count"),
         "needs_migration", "it is new"),
        (("sum double",), begun(*AVERAGE, groups=[0, 0]), ("sum=", "=sum", "=count"),
         "needs_migration", "it was removed"),
        # sum(x), count(*) became avg(x): rows without x were counted.
        (("sum double", "count long!"), begun(*AVERAGE, groups=[0, 0]), (), "unknown", "with sum,"),
        (DEVIATION, begun(*DEVIATION, "m3 double!", groups=[0, 0, 0, 0]), (), "unknown", "n, avg"),
        # Whole: kept, new, or gone.
        (AVERAGE, begun(*AVERAGE, groups=[0, 0]), (), "compatible", ""),
        (("max long",), begun("max long", *AVERAGE, groups=[0, 1, 1]), (), "needs_migration", ""),
        (("max long", *AVERAGE), aggregate("max long"), (), "needs_migration", "it was removed"),
        (("sum double", "count long!"), aggregate("sum double"), (), "needs_migration", "removed"),
        # And the other way round, where only names tell what was one buffer.
        (AVERAGE, aggregate("sum double"), (), "unknown", "--map sum=sum --map count="),
        (AVERAGE, aggregate("sum double"), ("sum=sum", "count="), "needs_migration", "removed"),
        (AVERAGE, aggregate("count long!"), (), "unknown", "such as an average"),
        ((*DEVIATION, "m3 double!"), begun(*DEVIATION, groups=[0, 0, 0]), (), "unknown", "m3"),
        (("first long", "valueSet boolean"), aggregate("valueSet boolean"), (), "unknown", "first"),
        # agg(avg(x), count(*)) in the other order: the counts differ in whether they can be null.
        ((*AVERAGE, "count long!"), begun("count long!", *AVERAGE, groups=[0, 1, 1]), (),
         "needs_migration", "it moved from column 2 to column 0"),
    ],
)  # fmt: skip
def test_trap_a_replaced_aggregate_is_not_taken_over_by_halves(
    was: Sequence[str], now: OperatorShape, maps: Sequence[str], verdict: str, said: str
) -> None:
    found = only(compare(aggregate(*was), now, *maps))

    assert found.verdict == verdict, texts(found)
    assert said in texts(found)


def test_counts_that_change_places_are_told_by_whether_they_can_be_null() -> None:
    now = begun("count long!", *AVERAGE, groups=[0, 1, 1])

    found = compare(aggregate(*AVERAGE, "count long!"), now)

    assert [one.source for one in found.transfers[0].columns] == [2, 0, 1]


def test_what_may_be_null_inside_of_a_column() -> None:
    """The bytes of an old null would be read as 0."""

    def of(kind: SparkType) -> OperatorShape:
        return aggregate(StateField("max", kind))

    def array(*, nulls: bool) -> SparkType:
        return {"type": "array", "elementType": "long", "containsNull": nulls}

    some, never = struct("at long", "v double"), struct("at long", "v double!")

    narrower, wider = compare(of(some), of(never)), compare(of(never), of(some))
    elements, key = (
        only(compare(of(array(nulls=True)), of(array(nulls=False)))),
        only(compare(dedupe(StateField("k", some)), dedupe(StateField("k", never)))),
    )

    assert only(narrower).verdict == only(wider).verdict == "needs_migration"
    assert narrower.transfers[0].columns[0].inner[1].forbids_nulls
    assert not narrower.transfers[0].is_untouched
    assert elements.verdict == key.verdict == "incompatible"
    again = only(compare(of(array(nulls=False)), of(array(nulls=True))))
    assert again.verdict == "needs_migration"


def test_functions_of_the_program_make_what_could_not_go_on() -> None:
    was, now = aggregate("sum long"), aggregate("sum double", key=["letter long"])

    values = Functions(values=frozenset({"stateStoreSave"}))
    both = Functions(values=frozenset({"0"}), keys={"stateStoreSave": True})

    assert only(compare(was, now, functions=values)).verdict == "incompatible"
    found = compare(was, now, functions=both)
    assert only(found).verdict == "needs_migration"
    assert "rows that get the same key are merged" in texts(only(found))
    (transfer,) = found.transfers
    assert (transfer.function, transfer.key_function) == ("0", "stateStoreSave")
    assert not transfer.is_untouched


def test_keys_of_sessions_cannot_be_made_anew() -> None:
    was = aggregate("sum long", name="sessionWindowStateStoreSaveExec")

    found = only(compare(was, was, functions=Functions(keys={"0": True})))

    assert found.verdict == "incompatible"


def test_trap_the_first_format_of_aggregations_keeps_the_old_key_in_the_value() -> None:
    """Spark reads the key from there: each row went on under its old one."""
    functions = Functions(keys={"0": True}, aggregates_repeat_keys=True)
    was, now = aggregate(K, "sum long"), aggregate("letter long", "sum long", key=["letter long"])

    found = only(compare(was, now, functions=functions))
    other = only(compare(dedupe(), dedupe("letter long"), functions=functions))

    assert found.verdict == "incompatible"
    assert "a KeyMigration would leave" in texts(found)
    assert "--to-earliest" in texts(found)
    assert other.verdict == "needs_migration"


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [(True, True, "compatible"), (False, True, "needs_migration"),
     (True, False, "needs_migration"), (False, False, "compatible")],
)  # fmt: skip
def test_whether_a_column_can_be_null(before: bool, after: bool, verdict: str) -> None:
    """From not null to null Spark refuses the same bytes; the other way round it would not look."""
    was = aggregate(field("max long", nullable=before))
    now = aggregate(field("max long", nullable=after))

    found = compare(was, now)

    assert only(found).verdict == verdict
    assert found.transfers[0].columns[0].forbids_nulls == (before and not after)


def test_a_watermark_delay_is_seen_where_a_column_carries_it() -> None:
    def at(delay: int) -> StateField:
        return StateField("t", "timestamp", metadata={"spark.watermarkDelayMs": delay})

    found = only(compare(dedupe(K, at(10_000)), dedupe(K, at(60_000))))

    assert found.verdict == "compatible"
    assert "was 10000 ms and is now 60000 ms" in texts(found)


def test_structs_are_compared_inside() -> None:
    """As `applyInPandasWithState` keeps its state."""

    def pandas(*inner: str) -> OperatorShape:
        value = (StateField("groupState", struct(*inner)), field("timeoutTimestamp long"))
        return aggregate(*value, name="applyInPandasWithState")

    found = compare(pandas("n long", "s integer"), pandas("s long", "n long", "m double"))
    default = compare(
        pandas("n long"), pandas("n long", "m double"), defaults={"groupState.m": "1.5"}
    )
    renamed = compare(pandas("n long"), pandas("c long"), "groupState.n=groupState.c")

    assert only(found).verdict == "needs_migration"
    (state, _) = found.transfers[0].columns
    assert [(one.address, one.source) for one in state.inner] == [
        ("groupState.s", 1), ("groupState.n", 0), ("groupState.m", None),
    ]  # fmt: skip
    assert default.transfers[0].columns[0].inner[1].start == "1.5"
    assert only(compare(pandas("n long"), pandas("c long"))).verdict == "unknown"
    assert only(renamed).verdict == "compatible"


def test_an_operator_that_is_new_begins_empty_and_others_move() -> None:
    was = [dedupe(rows=5)]
    now = [aggregate("count long"), dedupe(operator_id=1)]

    found = compare(was, now)

    new, moved = found.operators
    assert (new.operator_id, new.was_operator_id, new.verdict) == (0, None, "needs_migration")
    assert "starts without state" in texts(new)
    assert (moved.operator_id, moved.was_operator_id, moved.rows) == (1, 0, 5)
    assert moved.verdict == "needs_migration"
    assert [(one.operator_id, one.source) for one in found.transfers] == [
        (0, None), (1, (0, "default", "default")),
    ]  # fmt: skip


def test_an_operator_that_is_gone_is_counted() -> None:
    found = compare([aggregate("count long", rows=12), dedupe(operator_id=1)], [dedupe()])

    kept, gone = found.operators
    assert (kept.operator_id, kept.was_operator_id) == (0, 1)
    assert (gone.operator_id, gone.was_operator_id, gone.verdict) == (None, 0, "needs_migration")
    assert "its 12 rows of state would be dropped" in texts(gone)
    assert [(one.what, one.rows) for one in gone.dropped] == [
        ("all state of operator 0 (stateStoreSave)", 12)
    ]


def test_which_operator_is_which_is_asked_where_names_do_not_say() -> None:
    was = [aggregate("count long")]
    now = [aggregate("max long"), aggregate("count long", operator_id=1)]

    found = compare(was, now)
    said = compare(was, now, "0=1")

    assert [one.verdict for one in found.operators][:2] == ["unknown", "unknown"]
    assert "--map 0=0" in texts(found.operators[0])
    assert "--map 0=1" in texts(found.operators[1])
    assert [one.was_operator_id for one in said.operators] == [None, 0]


def test_an_operator_is_not_mapped_to_one_of_another_kind() -> None:
    found = compare(aggregate("__dummy__ void"), dedupe(), "0=0")

    assert found.operators[0].verdict == "incompatible"
    assert "pairs different operators: stateStoreSave in the savepoint" in texts(found.operators[0])


def test_two_of_one_name_in_the_same_order_are_told_by_their_keys() -> None:
    small, large = aggregate("n long"), aggregate("n long", key=["w long"], operator_id=1)
    swapped = [
        dataclasses.replace(large, operator_id=0), dataclasses.replace(small, operator_id=1),
    ]  # fmt: skip

    assert [one.verdict for one in compare([small, large], [small, large]).operators] == [
        "compatible", "compatible",
    ]  # fmt: skip
    assert {one.verdict for one in compare([small, large], swapped).operators[:2]} == {"unknown"}
    mapped = compare([small, large], swapped, "0=1", "1=0")
    assert [one.was_operator_id for one in mapped.operators] == [1, 0]


def test_trap_two_of_one_kind_that_look_the_same_may_have_changed_places() -> None:
    """Two deduplications by one column: the inputs in another order give each the other's rows."""
    was = [dedupe(), dedupe(operator_id=1)]

    # What is said of columns is not looked at before it is known which operator is which.
    found, said = compare(was, was, "0:k=k"), compare(was, was, "0=0")

    assert [one.verdict for one in found.operators[:2]] == ["unknown", "unknown"]
    assert "--map 0=0" in texts(found.operators[0])
    assert "--map 1=1" in texts(found.operators[1])
    assert [one.verdict for one in said.operators] == ["compatible", "compatible"]
    assert [one.was_operator_id for one in said.operators] == [0, 1]


def test_trap_sides_of_a_join_that_look_the_same_may_have_changed_places() -> None:
    was = join(["k string", "v long"], ["k string", "v long"])

    assert only(compare(was, was)).verdict == "unknown"
    assert "--map left=left if they did not" in texts(only(compare(was, was)))
    assert only(compare(was, was, "left=left")).verdict == "compatible"


def join(left: Sequence[str], right: Sequence[str], key: str = "field0 string") -> OperatorShape:
    stores = {}
    for side, columns in (("left", left), ("right", right)):
        index = StateSchema("default", fields(key), fields("value long"))
        rows = StateSchema(
            "default", fields(key, "index long"), fields(*columns, "matched boolean")
        )
        stores[f"{side}-keyToNumValues"] = (index,)
        stores[f"{side}-keyWithIndexToValue"] = (rows,)
    return OperatorShape(0, "symmetricHashJoin", stores)


def test_joins() -> None:
    was = join(["k string", "v integer"], ["k2 string"])

    same = only(compare(was, was))
    wider = compare(was, join(["k string", "v long"], ["k2 string", "w long"]))
    swapped = only(compare(was, join(["k2 string"], ["k string", "v integer"])))
    other = only(compare(was, join(["k string", "v integer"], ["k2 string"], key="field0 long")))
    renamed = only(compare(was, join(["k string", "x integer"], ["k2 string"]), "left.v=left.x"))

    assert same.verdict == "compatible"
    assert "inner or an outer join" in texts(same)
    assert only(wider).verdict == "needs_migration"
    assert sorted(one.store for one in wider.transfers if not one.is_untouched) == [
        "left-keyWithIndexToValue", "right-keyWithIndexToValue",
    ]  # fmt: skip
    assert swapped.verdict == "incompatible"
    assert "left and right side have swapped places" in texts(swapped)
    assert other.verdict == "incompatible"
    assert renamed.verdict == "compatible"


def variables(
    *declared: tuple[str, str, bool],
    values: Mapping[str, Sequence[str]] | None = None,
    time: str = "NoTime",
    mode: str = "Update",
) -> OperatorShape:
    """Describe a `transformWithState`, with the column families that Spark makes for it."""
    found = []
    for name, kind, ttl in declared:
        value = fields(*(values or {}).get(name, ["s long"]))
        if ttl:
            inner: SparkType = {"type": "struct", "fields": [one.to_json() for one in value]}
            value = (StateField("value", inner), field("ttlExpirationMs long"))
            found.append(
                StateSchema(f"$ttl_{name}", fields("e long", "k string"), fields("d void"))
            )
        if kind == "ListState":
            found.append(StateSchema(f"$rowCounter_{name}", (K,), fields("count long")))
        found.append(StateSchema(name, (K,), value))
    stated = [
        {"stateName": name, "stateVariableType": kind, "ttlEnabled": ttl}
        for name, kind, ttl in declared
    ]
    if time == "EventTime":
        timers = "$eventTimers_keyToTimestamp"
        found.append(StateSchema(timers, fields("k string", "e long"), fields("d void")))
        stated.append({"stateName": timers, "stateVariableType": "TimerState", "ttlEnabled": False})
    properties = {"timeMode": time, "outputMode": mode, "stateVariables": stated}
    return OperatorShape(
        0, "transformWithStateInPySparkExec", {"default": tuple(found)}, properties
    )


V, L, M = "ValueState", "ListState", "MapState"
TOTAL, SEEN = ("total", V, False), ("seen", L, False)
VARIABLES = [
    (variables(TOTAL), variables(TOTAL), "", "compatible", ""),
    (variables(TOTAL), variables(TOTAL, SEEN), "", "compatible", "new and starts empty"),
    (variables(TOTAL, SEEN), variables(TOTAL), "", "needs_migration", "--allow-dropped-state"),
    (variables(TOTAL), variables(("sum", V, False)), "",
     "unknown", "--map total=sum if it was renamed"),
    (variables(TOTAL), variables(("sum", V, False), values={"sum": ["n long", "s long"]}), "",
     "unknown", "--map total=sum if it was renamed"),
    (variables(TOTAL), variables(("at", V, False), values={"at": ["t timestamp"]}), "",
     "needs_migration", "at: it is new and starts empty"),
    (variables(TOTAL), variables(("sum", V, False)), "total=sum", "needs_migration", "is kept"),
    (variables(TOTAL), variables(("sum", V, False)), "total=", "needs_migration", "removed"),
    (variables(TOTAL), variables(("total", L, False)), "", "incompatible", "is now a ListState"),
    (variables(TOTAL), variables(("total", V, True)), "", "incompatible", "now expire"),
    (variables(("a", V, True)), variables(("a", V, True)), "", "compatible", "keep their expiry"),
    (variables(TOTAL), variables(TOTAL, mode="Append"), "", "needs_migration", "output mode"),
    (variables(TOTAL), variables(TOTAL, time="EventTime"), "", "needs_migration", "time mode"),
    (variables(TOTAL, time="EventTime"), variables(TOTAL, time="ProcessingTime"), "",
     "incompatible", "would mean different times"),
    (variables(TOTAL), variables(TOTAL, values={"total": ["s long", "n long"]}), "",
     "needs_migration", "total.n: it is new"),
    (variables(TOTAL), variables(TOTAL, values={"total": ["s string"]}), "", "incompatible", ""),
]  # fmt: skip


@pytest.mark.parametrize(("was", "now", "words", "verdict", "said"), VARIABLES)
def test_what_became_of_variables(
    was: OperatorShape, now: OperatorShape, words: str, verdict: str, said: str
) -> None:
    found = only(compare(was, now, *words.split()))

    assert found.verdict == verdict, texts(found)
    assert said in texts(found)


def test_the_families_beside_a_variable_go_along_with_it() -> None:
    was = variables(SEEN, ("brief", V, True))
    now = variables(("noted", L, False), ("short", V, True))

    found = compare(was, now, "seen=noted", "brief=short")

    assert {one.schema.column_family: one.source for one in found.transfers} == {
        "noted": (0, "default", "seen"),
        "$rowCounter_noted": (0, "default", "$rowCounter_seen"),
        "short": (0, "default", "brief"),
        "$ttl_short": (0, "default", "$ttl_brief"),
    }
    assert all(one.is_untouched for one in found.transfers)


def test_all_families_of_a_variable_that_is_gone_are_counted() -> None:
    found = only(compare(variables(TOTAL, SEEN), variables(TOTAL)))

    assert [one.families for one in found.dropped] == [
        (("default", "$rowCounter_seen"), ("default", "seen"))
    ]


def test_a_function_for_a_variable_makes_its_values_alone() -> None:
    was, now = variables(TOTAL, SEEN), variables(TOTAL, SEEN, values={"total": ["s string"]})

    found = compare(was, now, functions=Functions(values=frozenset({"total"})))

    assert only(found).verdict == "needs_migration"
    assert [one.schema.column_family for one in found.transfers if not one.is_untouched] == [
        "total"
    ]


def test_an_operator_whose_rows_nobody_can_write_stays_where_it_is() -> None:
    limit = dataclasses.replace(
        dedupe(), name="globalLimit", native_only="Spark cannot read the state rows of it"
    )

    assert only(compare(limit, limit)).verdict == "compatible"
    moved = dataclasses.replace(limit, operator_id=1)
    assert compare(limit, [dedupe(), moved]).operators[1].verdict == "incompatible"
    assert compare([], limit).operators[0].verdict == "incompatible"


@pytest.mark.parametrize(
    ("sample", "names"),
    [("rocksdb", ["stateStoreSave"]), ("join", ["symmetricHashJoin"]),
     ("limit", ["globalLimit", "dedupe"]), ("session", ["sessionWindowStateStoreSaveExec"]),
     ("join_3", ["symmetricHashJoin"]), ("two_sources", []),
     ("transform_with_state", ["transformWithStateInPySparkExec"])],
)  # fmt: skip
def test_a_program_that_did_not_change_is_compatible(
    on_local: Location, sample: str, names: list[str]
) -> None:
    """With layouts as Spark wrote them."""
    checkpoint = unpack(sample, on_local / "checkpoint")

    was = program_layout.read(checkpoint, {})

    assert [one.name for one in was] == names
    found = compare(was, was)
    assert {one.verdict for one in found.operators} <= {"compatible"}
    assert all(one.is_untouched and one.source for one in found.transfers)


def test_the_variables_of_a_real_checkpoint_are_found(on_local: Location) -> None:
    (was,) = program_layout.read(unpack("transform_with_state", on_local / "checkpoint"), {})
    properties = dict(was.properties)
    properties["stateVariables"] = [
        one for one in properties["stateVariables"] if one["stateName"] != "seen"
    ]
    fewer = {
        store: tuple(one for one in schemas if not one.column_family.endswith("seen"))
        for store, schemas in was.stores.items()
    }

    found = only(compare(was, dataclasses.replace(was, properties=properties, stores=fewer)))

    assert found.verdict == "needs_migration"
    assert [one.families for one in found.dropped] == [
        (("default", "$rowCounter_seen"), ("default", "seen"))
    ]
