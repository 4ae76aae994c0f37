"""Check whether changed code can start from a savepoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from savepoints.cli.options import Invocation, common, of_query
from savepoints.cli.options_migrate import DEFAULT, MAP, defaults_of
from savepoints.errors import IncompatibleError, PartlyDoneError

if TYPE_CHECKING:
    from savepoints.checkpoint.evolution.upgrade import OperatorVerdict


@click.group("upgrade")
def command() -> None:
    """Check whether changed code can start from a savepoint.

    If the state has to be converted for the changed code, `savepoints restore --migrate` writes a
    checkpoint with the converted state.

    \b
    Examples:
      savepoints upgrade check --app jobs.totals_v2:app --from latest
    """


@command.command("check")
@click.option("--app", required=True, metavar="MODULE:ATTR", help="Changed program to check.")
@click.option("--from", "name", required=True, metavar="SAVEPOINT", help="Savepoint to start from.")
@MAP
@DEFAULT
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="START",
    help="Where a source of the program would start, as for `savepoints restore`: keep:N, new, or "
    "a position as JSON. Repeat the option for each source, in the program's order. If it is "
    "given, the program's topics are not compared with those of the savepoint.",
)
@of_query
@common
def check(
    call: Invocation,
    name: str,
    app: str,
    maps: tuple[str, ...],
    defaults: tuple[str, ...],
    sources: tuple[str, ...],
    query: str | None,
) -> int:
    """Check whether a changed program can start from a savepoint.

    Compares the operators of the program, their state variables and their columns (by name and
    type) with those of the savepoint. The program is run once on empty inputs: no event is read
    and nothing is changed.

    Exit code 0 if the program is compatible, 3 if the state needs a migration, 16 if the program is
    incompatible or cannot be judged.

    \b
    Examples:
      savepoints upgrade check --app jobs.totals_v2:app --from latest
      savepoints upgrade check --app jobs.totals_v2:app --from latest --query totals --map max=most
      savepoints upgrade check --app jobs.totals_v2:app --from before-release --map 1=0 -o json
      savepoints upgrade check --app jobs.totals_v2:app --from latest --default count=0
    """
    from savepoints.operations.migrate.upgrade_check import upgrade_check

    found = upgrade_check(
        call.store,
        name,
        app=app,
        query=query,
        maps=maps,
        defaults=defaults_of(defaults),
        sources=sources or None,
        progress=call.output.progress,
    )
    if call.output.format == "json":
        call.output.document(upgrade=found)
    else:
        words = f"--app {app} --migrate --dry-run"
        call.output.pairs(
            [
                ("savepoint", found.savepoint_id),
                ("program", found.app),
                ("verdict", _words(found.verdict)),
                *(
                    [
                        ("next", f"savepoints fork {found.savepoint_id} NEW_NAME {words}"),
                        ("or", f"savepoints restore {found.savepoint_id} --to URI {words}"),
                    ]
                    if found.verdict == "needs_migration"
                    else []
                ),
            ]
        )
        call.output.table(
            ("operator", "state", "verdict", "what was found", "what to do"),
            [
                *(row for one in found.operators for row in _rows(one)),
                *(
                    ("", one.place, _words(one.verdict), one.text, one.hint)
                    for one in found.sources
                ),
            ],
        )
        for note in found.notes:
            call.output.err.print(note)
    codes = {"compatible": 0, "needs_migration": PartlyDoneError.exit_code}
    return codes.get(found.verdict, IncompatibleError.exit_code)


def _rows(one: OperatorVerdict) -> list[tuple[str, ...]]:
    """Return a row for each reason, or one that reports no findings."""
    number = one.was_operator_id if one.operator_id is None else one.operator_id
    name = f"{number} {one.name}"
    if not one.reasons:
        return [(name, "", _words(one.verdict), "nothing changed", "")]
    return [(name, each.place, _words(each.verdict), each.text, each.hint) for each in one.reasons]


def _words(verdict: str) -> str:
    return verdict.replace("_", " ")
