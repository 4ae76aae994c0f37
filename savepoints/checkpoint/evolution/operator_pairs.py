"""Compare an operator of a savepoint with the program's, store by store.

An operator has one kind of state, two for each side of a join, or some for each variable of a
`transformWithState`: a variable's own, and those in which Spark indexes expiry times, counts
elements and the like.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from savepoints.checkpoint.evolution import columns
from savepoints.checkpoint.evolution.findings import (
    Column,
    ColumnFindings,
    Dropped,
    UpgradeVerdict,
    Words,
)
from savepoints.checkpoint.evolution.program_layout import OperatorShape
from savepoints.checkpoint.state.schema import StateSchema
from savepoints.errors import UsageError

JOIN = "symmetricHashJoin"
_SIDE = re.compile(r"(left|right)-(?:keyWithIndexToValue|keyWithTsToValues)")
# Spark places their rows by the whole key.
WITH_PLAIN_KEYS = frozenset(
    {"stateStoreSave", "dedupe", "dedupeWithinWatermark", "applyInPandasWithState"}
)


_REPEATED = (
    "start the changed program without state: savepoints reset QUERY --to-earliest "
    "--outputs truncate"
)


@dataclass(frozen=True)
class Functions:
    """A program's functions for changed state.

    Attributes:
        values: Names and numbers of operators, names of variables and sides, with one for values.
        keys: Names and numbers of operators with one for keys; true where it merges.
        aggregates_repeat_keys: Whether aggregations keep their keys in the values, too, where no
            function changes them.
    """

    values: frozenset[str] = frozenset()
    keys: Mapping[str, bool] = field(default_factory=dict)
    aggregates_repeat_keys: bool = False


@dataclass(frozen=True)
class Transfer:
    """How a column family of a program gets its rows.

    Attributes:
        source: Number of the operator, store and column family in the savepoint; None for empty.
        columns: How values are made from the old ones; none where a function makes them.
    """

    operator_id: int
    store: str
    schema: StateSchema
    source: tuple[int, str, str] | None = None
    was: StateSchema | None = None
    columns: tuple[Column, ...] = ()
    function: str | None = None
    key_function: str | None = None
    operator: str = ""

    @property
    def is_untouched(self) -> bool:
        """Whether keys and values are kept byte for byte."""
        if self.was is None:
            return True
        if self.function or self.key_function:
            return False
        return columns.is_untouched(self.columns, len(self.was.value))


@dataclass
class OperatorPair:
    """An operator of a savepoint, its counterpart in the program, and the findings."""

    old: OperatorShape
    new: OperatorShape
    words: Words
    functions: Functions
    compared: ColumnFindings = field(default_factory=ColumnFindings)
    transfers: list[Transfer] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)

    def say(self, verdict: UpgradeVerdict, place: str, text: str, hint: str = "") -> None:
        """Add a reason."""
        self.compared.say(verdict, place, text, hint)

    def drop(self, what: str, place: str, families: tuple[tuple[str, str], ...]) -> None:
        """Add something that is dropped."""
        text = "it was removed, and its state would be dropped"
        self.say("needs_migration", place, text, "allow this with --allow-dropped-state")
        self.dropped.append(Dropped(what, families))

    def begin_empty(self, store: str, schema: StateSchema) -> None:
        """Add a column family that the savepoint has no rows for."""
        self.transfers.append(Transfer(self.new.operator_id, store, schema))

    def carry(
        self, source: tuple[str, StateSchema], store: str, now: StateSchema, label: str
    ) -> None:
        """Compare one column family, with a prefix of names, and decide how it gets its rows."""
        old_store, was = source
        single = len(in_order(self.new)) == 1
        named = [label] if label else []
        named += [str(self.new.operator_id), self.new.name] if single else []
        key_function = self._keys(was, now, label, named)
        function = next((one for one in named if one in self.functions.values), None)
        made: tuple[Column, ...] = ()
        if function is None:
            values = columns.compare_values(was.value, now.value, label, self.words)
            self.compared.add(values)
            self.dropped += [Dropped(f"column {name} of {self.old}") for name in values.dropped]
            made = values.columns
        else:
            text = "the program's function computes its values"
            self.say("needs_migration", label or "value", text)
        self.transfers.append(
            Transfer(
                self.new.operator_id,
                store,
                now,
                (self.old.operator_id, old_store, was.column_family),
                was,
                made,
                function,
                key_function,
                self.new.name,
            )
        )

    def _keys(
        self, was: StateSchema, now: StateSchema, label: str, named: Sequence[str]
    ) -> str | None:
        """Compare keys; return the name of the function that makes them, if any."""
        # All variables of an operator have the same grouping key.
        prefix = f"{label}." if label and not self.new.has_variables else ""
        function = next((one for one in named if one in self.functions.keys), None)
        if function is not None and self.new.name not in WITH_PLAIN_KEYS:
            text = f"a KeyMigration cannot produce the keys of a {self.new.name}"
            self.say("incompatible", str(self.new), text)
            function = None
        if function is not None and self.functions.aggregates_repeat_keys and self.new.is_aggregate:
            text = (
                "in Spark's first format of aggregations each value repeats its key, which a "
                "KeyMigration would leave as it was"
            )
            self.say("incompatible", f"{prefix}key", text, _REPEATED)
            function = None
        if function is None:
            self.compared.add(columns.compare_keys(was.key, now.key, prefix, self.words))
            if was.key_encoder != now.key_encoder or was.user_key != now.user_key:
                self.say("incompatible", f"{prefix}key", "its keys have a different layout")
        else:
            merges = self.functions.keys[function]
            then = (
                "rows that get the same key are merged"
                if merges
                else "two rows with the same key are refused"
            )
            text = f"the program's function computes new keys; {then}"
            self.say("needs_migration", f"{prefix}key", text)
        return function


def in_order(one: OperatorShape) -> list[tuple[str, StateSchema]]:
    """Return stores and schemas of all column families of an operator."""
    return [(store, schema) for store, schemas in sorted(one.stores.items()) for schema in schemas]


def empty(new: OperatorShape) -> list[Transfer]:
    """Return the column families of an operator that starts without state."""
    return [Transfer(new.operator_id, store, schema) for store, schema in in_order(new)]


def compare_states(pair: OperatorPair) -> None:
    """Compare an operator without named state variables with its old self."""
    new = pair.new
    olds = {(store, one.column_family): one for store, one in in_order(pair.old)}
    news = {(store, one.column_family): one for store, one in in_order(new)}
    if new.name == JOIN:
        text = (
            "the state does not show whether it is an inner or an outer join, or its join columns"
        )
        pair.say("compatible", str(new), text)
    if olds.keys() != news.keys():
        pair.say(
            "incompatible",
            str(new),
            f"its state was in {_listed(olds)} and is now in {_listed(news)}: Spark uses a "
            "different layout",
            "start the program with the settings that the savepoint was taken with",
        )
    elif new.name == JOIN and _swapped(olds, news):
        text = "its left and right side have swapped places"
        pair.say("incompatible", str(new), text, "put the join's inputs back in their old order")
    else:
        if new.name == JOIN:
            _ask_for_sides(pair, olds)
        for place, now in news.items():
            pair.carry((place[0], olds[place]), place[0], now, _label(place))


def _label(place: tuple[str, str]) -> str:
    """Return the prefix of a column's name: the side of a join, or nothing."""
    store, family = place
    name = store if family == "default" else family
    if name == "default":
        return ""
    match = _SIDE.fullmatch(name)
    return match.group(1) if match else name


def _ask_for_sides(pair: OperatorPair, olds: Mapping[tuple[str, str], StateSchema]) -> None:
    """Report sides with the same columns, which may have swapped places."""
    pair.compared.known += ["left", "right"]
    said = [one for one in pair.words.renames if (one.old, one.new) == ("left", "left")]
    pair.compared.used += said
    sides = _sides(olds)
    if sides["left"] == sides["right"] and not said:
        text = (
            "its two sides have the same columns: the state does not show whether they swapped "
            "places"
        )
        pair.say("unknown", str(pair.new), text, "pass --map left=left if they did not")


def _sides(of: Mapping[tuple[str, str], StateSchema]) -> dict[str, list[str]]:
    labels = {_label(place): [one.name for one in schema.value] for place, schema in of.items()}
    return {side: labels[side] for side in ("left", "right")}


def _swapped(
    olds: Mapping[tuple[str, str], StateSchema], news: Mapping[tuple[str, str], StateSchema]
) -> bool:
    was, now = _sides(olds), _sides(news)
    return was != now and was == {"left": now["right"], "right": now["left"]}


def _listed(places: Iterable[tuple[str, str]]) -> str:
    return ", ".join(sorted(store if family == "default" else family for store, family in places))


def new_columns(transfers: Iterable[Transfer]) -> set[str]:
    """Return the addresses of all new columns, including those inside structs."""

    def inside(made: Iterable[Column]) -> set[str]:
        return {one.address for one in made if one.source is None} | {
            address for one in made for address in inside(one.inner)
        }

    return {address for one in transfers for address in inside(one.columns)}


def require_new(defaults: Iterable[str], transfers: Iterable[Transfer]) -> None:
    """Check that each default is for a new column."""
    fresh = new_columns(transfers)
    for address in defaults:
        if address not in fresh:
            raise UsageError(
                f"--default {address}: there is no new column with that name",
                hint=f"use one of the new columns: {', '.join(sorted(fresh))}"
                if fresh
                else "omit --default, because no column is new",
            )
