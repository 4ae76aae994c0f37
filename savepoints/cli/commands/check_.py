"""Diagnose the store, settings and machine, and suggest fixes."""

from __future__ import annotations

import click

from savepoints.cli.commands.verify_ import grade
from savepoints.cli.options import Consent, Invocation, common, mutating
from savepoints.errors import UsageError, VerificationError


@click.command("check")
@click.option(
    "--rebuild-catalog",
    is_flag=True,
    help="Rebuild the catalog, which lists all savepoints, from the savepoints' manifests.",
)
@mutating
@common
def command(call: Invocation, *, rebuild_catalog: bool, consent: Consent) -> int:
    """Diagnose the store, settings and machine, and suggest fixes.

    Tests every permission needed on the store, and that conditional PUT works. Compares this
    machine's clock with the store's, and the catalog with the savepoints' manifests. Checks
    generations, leases, unfinished operations and leftover files; Java, packages and Spark's
    settings; and how long the output tables keep old versions. Changes nothing without
    --rebuild-catalog.

    Exit code 13 if something is broken, 0 if there are only warnings. To check the contents of
    savepoints, use `savepoints verify --all`.

    \b
    Examples:
      savepoints check
      savepoints check -o json
      savepoints check --rebuild-catalog --dry-run
      savepoints check --rebuild-catalog --yes
    """
    if rebuild_catalog:
        _rebuild(call, consent)
        return 0
    if consent.dry_run:
        raise UsageError(
            "--dry-run applies only to check --rebuild-catalog",
            hint="omit --dry-run: check itself changes nothing",
        )
    from savepoints.operations.check.check import check

    health = check(call.place, progress=call.output.progress)
    if call.output.format == "json":
        call.output.document(**vars(health))
    else:
        for one in health.seen:
            advice = f"\n    {one.advice}" if one.advice else ""
            grade(call.output, one.grade, f"{one.name}: {one.seen}{advice}")
        grade(call.output, health.grade, f"{call.place.root}, {health.seconds:.1f} s")
    return VerificationError.exit_code if health.grade == "broken" else 0


def _rebuild(call: Invocation, consent: Consent) -> None:
    from savepoints.operations.maintain import rebuild_catalog

    plan = rebuild_catalog.plan(call.place)
    if not call.confirm(plan, consent, unasked=plan.done):
        return
    done = rebuild_catalog.execute(plan, call.place.make(), progress=call.output.progress)
    call.output.result(
        lambda: [
            ("savepoints", done.savepoints),
            ("added", ", ".join(done.added) or "none"),
            ("corrected", ", ".join(done.changed) or "none"),
            ("removed", ", ".join(done.removed) or "none"),
            *([("kept despite damage", ", ".join(done.kept))] if done.kept else []),
            *([("lost", ", ".join(done.lost))] if done.lost else []),
            *([("damaged catalog moved to", done.aside)] if done.aside else []),
            ("took", f"{done.seconds:.2f} s"),
            ("next", "savepoints verify --all"),
        ],
        rebuilt=done,
    )
