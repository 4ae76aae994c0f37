"""What a comparison of two state layouts takes and finds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from savepoints.checkpoint.evolution.renames import Rename
from savepoints.checkpoint.state.schema import StateField, exact_text, type_text

UpgradeVerdict: TypeAlias = Literal["compatible", "needs_migration", "unknown", "incompatible"]
# From the best to the worst.
VERDICTS: tuple[UpgradeVerdict, ...] = ("compatible", "needs_migration", "unknown", "incompatible")

COLLATIONS = "__COLLATIONS"


@dataclass(frozen=True)
class Reason:
    """A finding, in words.

    Attributes:
        verdict: The verdict that follows from it.
        place: What it is about, such as `value column max`.
        text: What was found and what that means.
        hint: What to do; empty if nothing.
    """

    verdict: UpgradeVerdict
    place: str
    text: str
    hint: str = ""


@dataclass(frozen=True)
class Dropped:
    """State that a program has no place for.

    Attributes:
        what: The state, such as `column max of operator 0 (stateStoreSave)`.
        families: The stores and column families; none for a column.
        rows: How many rows of state; None for a column, or where they were not counted.
    """

    what: str
    families: tuple[tuple[str, str], ...] = ()
    rows: int | None = None


@dataclass(frozen=True)
class Column:
    """How a column of the new state is made.

    Attributes:
        address: Its name in `--map` and `--default`.
        source: Place among the savepoint's columns; None for a column that is new.
        inner: How the fields of a struct are made; empty where they are unchanged.
        start: What a new column begins with, as JSON has it; None for NULL.
    """

    address: str
    field: StateField
    source: int | None
    was: StateField | None = None
    inner: tuple[Column, ...] = ()
    start: Any = None

    @property
    def is_cast(self) -> bool:
        """Whether its type or inner nullability changes."""
        return self.was is not None and exact_text(self.was.type) != exact_text(self.field.type)

    @property
    def forbids_nulls(self) -> bool:
        """Whether the savepoint may have nulls where the program can have none."""
        return self.was is not None and self.was.nullable and not self.field.nullable


@dataclass(frozen=True)
class Start:
    """What a column of an aggregate starts with, according to Spark.

    Attributes:
        value: As JSON has it; bytes for an aggregate whose buffer only Spark understands.
        aggregate: Which of the operator's aggregates it belongs to, from 0; None when not known.
    """

    value: Any
    aggregate: int | None = None


@dataclass(frozen=True)
class Words:
    """What the user and Spark specify about an operator's columns.

    Attributes:
        starts: What Spark starts an aggregate's last columns with; None where it is unknown.
        is_aggregate: The columns are buffers of aggregates, where NULL is not always empty.
    """

    renames: tuple[Rename, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)
    starts: tuple[Start, ...] | None = None
    is_aggregate: bool = False


@dataclass
class ColumnFindings:
    """Findings about the columns of a state."""

    columns: tuple[Column, ...] = ()
    dropped: list[str] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    used: list[Rename] = field(default_factory=list)
    known: list[str] = field(default_factory=list)

    def say(self, verdict: UpgradeVerdict, place: str, text: str, hint: str = "") -> None:
        """Add a reason."""
        self.reasons.append(Reason(verdict, place, text, hint))

    def add(self, other: ColumnFindings) -> None:
        """Add other findings to these."""
        self.dropped += other.dropped
        self.reasons += other.reasons
        self.used += other.used
        self.known += other.known


def worst(verdicts: Iterable[UpgradeVerdict]) -> UpgradeVerdict:
    """Return the worst of some verdicts; `compatible` of none."""
    return max(verdicts, key=VERDICTS.index, default="compatible")


def unique_names(names: Sequence[str]) -> list[str]:
    """Number repeated names, ignoring case: `buf`, `buf_2`."""
    found: list[str] = []
    for name in names:
        taken = {one.lower() for one in found}
        numbered = (name if n == 1 else f"{name}_{n}" for n in range(1, len(names) + 2))
        found.append(next(one for one in numbered if one.lower() not in taken))
    return found


def addresses(fields: Sequence[StateField], prefix: str) -> list[str]:
    """Name columns as `--map` and `--default` do."""
    dot = "." if prefix and not prefix.endswith(".") else ""
    return [f"{prefix}{dot}{name}" for name in unique_names([one.name for one in fields])]


def kind_of(one: StateField) -> str:
    """Return the type of a column, with its collation."""
    return f"{type_text(one.type)} {one.metadata.get(COLLATIONS, '')}".strip()
