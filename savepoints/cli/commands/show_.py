"""Show everything about a savepoint."""

from __future__ import annotations

import click

from savepoints.cli.names import savepoint_names
from savepoints.cli.options import Invocation, common, of_query
from savepoints.cli.render import savepoint_text


@click.command("show")
@click.argument("name", shell_complete=savepoint_names)
@click.option(
    "--no-source-check",
    is_flag=True,
    help="Do not ask Kafka whether it still has the records that a restore needs.",
)
@of_query
@common
def command(call: Invocation, name: str, query: str | None, *, no_source_check: bool) -> None:
    """Show everything about savepoint NAME.

    NAME is an id, a unique prefix of an id, a tag, latest, latest~2 (the second before the latest)
    or @TIME (the newest at that time). The last three skip savepoints that were rolled back or
    replaced, unless --any-line is given. The size includes files shared with other savepoints.

    If the settings name a Kafka broker, it is asked whether the savepoint can be restored, and
    until when. Needs no JVM.

    \b
    Examples:
      savepoints show latest
      savepoints show @2026-11-20T10:00:00Z -o json
    """
    from savepoints.operations.inspect import availability
    from savepoints.store import bindings

    store = call.store.snapshot()
    savepoint = store.catalog.find(name, query=query)
    kafka = call.settings.kafka
    asks = bool(kafka.bootstrap_servers) and not no_source_check
    bound_to = bindings.complete(store).queries.get(savepoint.query)
    archives = tuple(bound_to.archives.values()) if bound_to else ()
    found = availability.check_savepoint(savepoint, kafka, archives) if asks else None
    bound = bindings.find(store.root, savepoint.query, savepoint.generation)
    clone_of = bound.clone_of if bound else {}
    if call.output.format == "json":
        call.output.document(savepoint=savepoint, availability=found, clone_of=dict(clone_of))
        return
    savepoint_text.details(call.output, savepoint)
    for output, one in clone_of.items():
        call.output.line(
            f"Output {output} is a shallow clone: it reads files of version {one.version} of "
            f"{one.uri}, and VACUUM there breaks it."
        )
    if found is not None:
        savepoint_text.availability(call.output, found)
