"""Name, describe or pin a savepoint."""

from __future__ import annotations

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import Consent, Invocation, common, mutating, of_query


@click.command("tag")
@click.argument("name", shell_complete=savepoint_names)
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@click.option("--remove", metavar="TAG", multiple=True, help="Remove a tag; may be repeated.")
@click.option(
    "--description",
    metavar="TEXT",
    help="Description of the savepoint; an empty string removes it.",
)
@click.option(
    "--pin/--unpin",
    "pinned",
    default=None,
    help="Protect the savepoint from deletion by the retention policy, or stop protecting it.",
)
@click.option(
    "--move", is_flag=True, help="Take the tag from the savepoint that already has it, if any."
)
@of_query
@mutating
@common
def command(
    call: Invocation,
    name: str,
    tags: tuple[str, ...],
    remove: tuple[str, ...],
    description: str | None,
    query: str | None,
    *,
    pinned: bool | None,
    move: bool,
    consent: Consent,
) -> None:
    """Add one or more TAGs, a description or a pin to savepoint NAME.

    A tag is a name for one savepoint of a query, as in `savepoints show before-release`. The state,
    offsets and other contents of the savepoint are not changed, so tag never asks for confirmation.

    \b
    Examples:
      savepoints tag latest before-release --description "state of 1.4"
      savepoints tag sp-20261121-101530-k3f9ab --remove before-release
      savepoints tag latest~2 golden --move --pin
      savepoints tag golden --unpin --dry-run
    """
    from savepoints.operations.maintain import tag

    plan = tag.plan(
        call.store,
        name,
        query=query,
        add=tags,
        remove=remove,
        description=description,
        pinned=pinned,
        move=move,
    )
    if not call.confirm(plan, consent, unasked=True):
        return
    changed = tag.execute(plan, call.store)
    call.output.result(
        lambda: [
            ("savepoint", changed.id),
            ("tags", ", ".join(changed.tags) or "none"),
            ("description", changed.description or "none"),
            ("pinned", "yes" if changed.pinned else "no"),
        ],
        savepoint=changed.to_json(),
    )
