"""In which forms a savepoint can be taken: natively always, as rows where Spark can read them."""

from __future__ import annotations

from collections.abc import Sequence

from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.state.operators import ROCKSDB_PROVIDER, UNNAMED
from savepoints.errors import NativeOnlyError
from savepoints.model import FORMS, Form, Savepoint
from savepoints.spark import classic
from savepoints.spark.versions import SparkVersion

_EXPORT_LATER = "run `savepoints export NAME` where Spark 4.2 is installed"


def choose(files: CutFiles, wanted: Sequence[Form]) -> tuple[tuple[Form, ...], tuple[str, ...]]:
    """Choose the forms that a savepoint gets, with notes on what it lacks.

    Raises:
        NativeOnlyError: If only the canonical form is asked for and an operator has none.
    """
    if not files.operators:
        note = "the query has no state: the savepoint holds only offsets and outputs"
        return tuple(form for form in FORMS if form in wanted), (note,)
    reasons = {
        f"operator {one.operator_id} ({one.name})": one.native_only
        for one in files.operator_states
        if one.native_only
    }
    if reasons and "native" not in wanted:
        what, reason = next(iter(reasons.items()))
        raise NativeOnlyError(
            f"{what} cannot be saved in the canonical form: {reason}",
            hint="use --format native, or --format both to save the other operators in both forms",
            operators=list(reasons),
        )
    notes = [
        f"{what} is saved in the native form only, because {why}" for what, why in reasons.items()
    ]
    nothing = len(reasons) == len(files.operators)
    if not nothing and "canonical" in wanted and (problem := _no_raw_rows(files.cut.provider)):
        if "native" not in wanted:
            raise NativeOnlyError(
                problem,
                hint="use --format native; then, where Spark 4.2 is installed, run: "
                "savepoints export NAME",
                operators=[],
            )
        notes.append(f"saved in the native form only: {problem}; {_EXPORT_LATER}")
        nothing = True
    kept = [form for form in FORMS if form in wanted and not (form == "canonical" and nothing)]
    return tuple(kept), tuple(notes)


def has(savepoint: Savepoint, wanted: Sequence[Form]) -> bool:
    """Say whether a savepoint has the state in these forms, as far as it can have them here.

    One whose rows could not be written counts: trying again at the same batch helps nobody.
    """
    missing = set(wanted) - set(savepoint.forms)
    if missing != {"canonical"}:
        return not missing
    return bool(
        savepoint.rows_missing is not None
        or _no_raw_rows(savepoint.cut.provider)
        or all(one.native_only for one in savepoint.operators)
    )


def require_readable(savepoint: Savepoint) -> None:
    """Check that the rows of a savepoint without a canonical form can be read from its files."""
    if problem := _no_raw_rows(savepoint.cut.provider):
        raise NativeOnlyError(
            f"savepoint {savepoint.id} has only the native form, and its state rows cannot be read "
            f"here: {problem}",
            hint=f"where Spark 4.2 is installed, run: savepoints export {savepoint.id}",
            savepoint=savepoint.id,
        )


def require_writable(savepoint: Savepoint, provider: str) -> None:
    """Check that state rows can be written here, before anything is.

    Args:
        provider: Of the state that is to be written.
    """
    version = SparkVersion.installed()
    if provider != ROCKSDB_PROVIDER or version is None or version.writes_rows:
        return
    otherwise = ""
    if "native" in savepoint.forms:
        otherwise = "omit --partitions, --provider and --format to restore the native form; or "
    elif savepoint.cut.provider != provider:
        otherwise = "omit --provider to keep the state in Spark's default store; or "
    raise NativeOnlyError(
        f"Spark {version} cannot write state rows to RocksDB, so savepoint {savepoint.id} cannot "
        "be restored from its rows here",
        hint=f"{otherwise}run the command where Spark 4.2 is installed",
        savepoint=savepoint.id,
    )


def unreadable(files: CutFiles) -> dict[int, str]:
    """Return why state rows cannot be read here, by operator; without those that can be."""
    problem = _no_raw_rows(files.cut.provider)
    reasons = {one.operator_id: one.native_only or problem for one in files.operator_states}
    return {number: why for number, why in reasons.items() if why}


def require_rows(query: str, files: CutFiles) -> None:
    """Check that the Spark that is installed here can read and write the state rows of a query."""
    unknown = [one.native_only for one in files.operator_states if one.name == UNNAMED]
    if problem := _no_raw_rows(files.cut.provider) or next(iter(unknown), None):
        raise NativeOnlyError(
            f"late events cannot be merged into the state of {query} here: {problem}",
            hint="run the command where Spark 4.2 is installed, after Spark 4.0 or newer has "
            "run a batch of the query; or use --policy append, which needs no state rows",
            query=query,
        )


def _no_raw_rows(provider: str) -> str | None:
    """Return why no Spark here can read state rows; None if the one that is installed can."""
    if problem := classic.problem():
        return problem
    version = SparkVersion.installed()
    if version is not None and not version.reads_rows:
        return f"Spark {version} cannot read state rows"
    if provider != ROCKSDB_PROVIDER or version is None or version.reads_raw_rows:
        return None
    return f"Spark {version} cannot read state rows from RocksDB"
