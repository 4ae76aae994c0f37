"""Which field of a key is the entity, and whose rows come from where."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from savepoints.checkpoint.state.operators import Operator
from savepoints.errors import IncompatibleError
from savepoints.model import OperatorState
from savepoints.state.merge import splice
from tests.state.given_rows import GivenRows, number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.drawn(3)]

AGGREGATE = Operator(0, "stateStoreSave", ("default",), 2)
JOIN = Operator(0, "symmetricHashJoin", ("default",), 2)
STATE = OperatorState(0, "stateStoreSave", ("default",), 2)


def entities(spark: SparkSession, *names: str) -> DataFrame:
    """Return them as a frame."""
    return spark.createDataFrame([(name,) for name in names], "entity string")


def rows(spark: SparkSession, key: str, *keys: tuple[object, ...], value: float = 1) -> GivenRows:
    """Return a row for each key."""
    given = [("default", one, at, repr(one).encode(), number(value)) for at, one in enumerate(keys)]
    return GivenRows(spark, key, given)


def found(
    spark: SparkSession, operator: Operator, saved: GivenRows, *names: str, **joined: str
) -> str:
    """Return the entity field of the only operator, with `client` as the entity key."""
    by = {0: tuple(joined.items())}
    keys = splice.keys(saved, [operator], {"client"}, by)
    return splice.entity_fields(keys, saved, [operator], entities(spark, *names))[0]


def test_the_field_is_found_by_its_name(spark: SparkSession) -> None:
    """Whatever its type is, and the others are."""
    saved = rows(spark, "hour long, client long", (7, 1), (1, 2))
    assert found(spark, AGGREGATE, saved, "1", "2", "7") == "client"


def test_trap_small_numbers_are_found_where_a_cast_writes_exponents(spark: SparkSession) -> None:
    """The entity is 0.0000001 among the events, and a cast without ANSI makes it 1E-7."""
    theirs = spark.newSession()
    theirs.conf.set("spark.sql.ansi.enabled", "false")
    saved = rows(theirs, "client decimal(8, 7)", (Decimal("0.0000001"),))
    assert found(theirs, AGGREGATE, saved, "0.0000001") == "client"


def test_a_renamed_field_is_found_by_rows_of_known_entities(spark: SparkSession) -> None:
    """It is the one that has no other values."""
    saved = rows(spark, "hour long, customer string", (7, "a"), (8, "b"))
    assert found(spark, AGGREGATE, saved, "a", "b") == "customer"


def test_a_join_says_what_it_goes_by(spark: SparkSession) -> None:
    """Its state has numbered fields; the names are those of the plan, on either side."""
    saved = rows(spark, "field0 string, field1 string", ("a", "a"))
    assert found(spark, JOIN, saved, "a", product="product2", theirs="client") == "field1"
    with pytest.raises(IncompatibleError, match="field0 and field1 could each be the entity"):
        found(spark, JOIN, saved, "a")


def test_trap_a_second_operator_by_another_key_is_refused(spark: SparkSession) -> None:
    """Counts by hour of counts by client are of all clients."""
    saved = rows(spark, "hour long", (7,), (8,))
    with pytest.raises(
        IncompatibleError, match=r"operator 0 .* the values of hour are not"
    ) as error:
        found(spark, AGGREGATE, saved, "a", "b")
    assert "--policy replay-all" in error.value.hint


def test_a_field_that_is_only_called_so_is_refused(spark: SparkSession) -> None:
    """Its values say that it is something else."""
    with pytest.raises(IncompatibleError, match="the values of client are not"):
        found(spark, AGGREGATE, rows(spark, "client string", ("a",), ("other",)), "a", "b")


def test_one_state_for_all_is_refused(spark: SparkSession) -> None:
    """A global aggregate has no key."""
    with pytest.raises(IncompatibleError, match="one state for all rows"):
        splice.keys(_Keyless(spark), [AGGREGATE], {"client"}, {})


def test_without_rows_only_the_name_counts(spark: SparkSession) -> None:
    """Nothing else is known."""
    named, other = (rows(spark, f"hour long, {name} string") for name in ("client", "user"))
    assert found(spark, AGGREGATE, named, "a") == "client"
    with pytest.raises(IncompatibleError, match="it is unclear which"):
        found(spark, AGGREGATE, other, "a")


def test_rows_of_the_entities_are_replaced_and_no_others(spark: SparkSession) -> None:
    """One that the replay no longer has is gone; one that only it has comes in."""
    live = rows(spark, "client string", ("a",), ("b",), ("c",), (None,), value=1)
    replayed = rows(spark, "client string", ("a",), ("new",), ("control",), value=2)
    wanted = entities(spark, "a", "b", "new")
    spliced = splice.spliced(live, replayed, {0: "client"}, wanted)(STATE, "default")
    assert {(row.key_bytes.decode(), row.value_bytes) for row in spliced.collect()} == {
        ("('c',)", number(1)),
        ("(None,)", number(1)),
        ("('a',)", number(2)),
        ("('new',)", number(2)),
    }


class _Keyless:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def rows(self, operator_id: int, store: str) -> DataFrame:
        """Return a row as a global aggregate has it."""
        return self._spark.sql("SELECT CAST(NULL AS BOOLEAN) AS key")
