"""Which programs were compared with the state that a generation goes on with, the newest last.

`checked_programs/<query>/<generation>.json`. Who holds the query's lease writes it, before the
first batch of another program; so a program that was compared, or accepted with other names, is not
compared again whenever it is started, and a merge knows which batches another program has read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from savepoints.errors import VerificationError
from savepoints.io import Location
from savepoints.json_values import from_json
from savepoints.model import checked_name
from savepoints.store.savepoint.sealed import Document

DIRECTORY = "checked_programs"


@dataclass(frozen=True)
class CheckedProgram:
    """A program of which is known that it fits.

    Attributes:
        plan: Its digest; see `program.digest`.
        first_batch: The first batch that it has read.
    """

    plan: str
    first_batch: int


@dataclass(frozen=True)
class _Programs:
    """Those of a generation, in order."""

    programs: tuple[CheckedProgram, ...]


def read(root: Location, query: str, generation: int) -> tuple[CheckedProgram, ...]:
    """Return those of a generation, the newest last; nothing is known of one that is damaged."""
    try:
        known = _document(root, query, generation).read()
    except VerificationError:
        return ()
    return () if known is None else known.programs


def find(root: Location, query: str, generation: int) -> str | None:
    """Return the newest plan's digest, None where nothing is known."""
    known = read(root, query, generation)
    return known[-1].plan if known else None


def write(root: Location, query: str, generation: int, plan: str, *, first_batch: int) -> None:
    """Write down a program's digest, behind those of others that have read batches."""
    known = read(root, query, generation)
    if known and known[-1].plan == plan:
        return
    earlier = (one for one in known if one.first_batch < first_batch)
    programs = (*earlier, CheckedProgram(plan, first_batch))
    _document(root, query, generation).put(_Programs(programs))


def forget(root: Location, query: str, generation: int) -> None:
    """Forget those of a generation that was taken back: the next one has its number."""
    root.delete([_document(root, query, generation).path])


def _document(root: Location, query: str, generation: int) -> Document[_Programs]:
    path = f"{DIRECTORY}/{checked_name(query, 'query')}/{generation}.json"
    return Document(root, path, partial(from_json, _Programs), "delete the file")
