"""The plan that every mutating verb makes before it acts: frozen, printable, JSON-able."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from savepoints import notebook
from savepoints.json_values import to_json

# Receives one line about a long operation's progress; the caller decides how to show it.
Progress = Callable[[str], None]


def silent(_line: str) -> None:
    """Show nothing: the library's default progress."""


@dataclass(frozen=True)
class Step:
    """One step of a plan.

    Attributes:
        name: As in the journal and in crash point names.
        what: A sentence for a person.
    """

    name: str
    what: str


@dataclass(frozen=True)
class Plan:
    """What a verb is going to do.

    Attributes:
        verb: The verb.
        query: Name of the query.
        steps: In execution order.
        warnings: What to know before confirming.
    """

    verb: str
    query: str
    steps: tuple[Step, ...]
    warnings: tuple[str, ...]

    @property
    def idle(self) -> str:
        """Why there is nothing to do; empty when there is something, or steps and notes say it."""
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return dict(to_json(self))

    def __str__(self) -> str:
        """Return it as the command line shows it: steps, then notes."""
        of = f" {self.query}" if self.query else ""
        steps = [f"  {number}. {step.what}" for number, step in enumerate(self.steps, 1)]
        return "\n".join(
            [
                f"{self.verb}{of}: {self.idle}".rstrip(),
                *steps,
                *(f"  note: {one}" for one in self.warnings),
            ]
        )

    def _repr_html_(self) -> str:
        """Return it as a notebook shows it: a table of the steps, then notes."""
        return notebook.table(
            f"{self.verb} {self.query}".rstrip() + (f": {self.idle}" if self.idle else ""),
            ((number, step.what) for number, step in enumerate(self.steps, 1)),
            notes=self.warnings,
        )
