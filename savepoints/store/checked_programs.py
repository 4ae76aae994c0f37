"""Which program was compared with the state that a generation goes on with.

`checked_programs/<query>/<generation>.json`. Who holds the query's lease writes it, before the
first batch of another program; so a program that was compared, or accepted with other names, is not
compared again whenever it is started.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from savepoints.errors import VerificationError
from savepoints.io import Location
from savepoints.model import checked_name, from_json
from savepoints.store.savepoint.sealed import Document

DIRECTORY = "checked_programs"


@dataclass(frozen=True)
class CheckedProgram:
    """A program of which is known that it fits.

    Attributes:
        plan: Digest of the plan; see `Runner.plan`.
    """

    plan: str


def find(root: Location, query: str, generation: int) -> str | None:
    """Return the plan's digest, None where nothing is known, or where it is damaged."""
    try:
        known = _document(root, query, generation).read()
    except VerificationError:
        return None
    return None if known is None else known.plan


def write(root: Location, query: str, generation: int, plan: str) -> None:
    """Write down the plan's digest, in place of another program's."""
    _document(root, query, generation).put(CheckedProgram(plan))


def _document(root: Location, query: str, generation: int) -> Document[CheckedProgram]:
    path = f"{DIRECTORY}/{checked_name(query, 'query')}/{generation}.json"
    return Document(root, path, partial(from_json, CheckedProgram), "delete the file")
