"""Write a settings file, or create an empty store."""

from __future__ import annotations

from pathlib import Path

import click

from savepoints.cli.options import Invocation, common, tables_written
from savepoints.errors import TargetExistsError, UsageError
from savepoints.uri import tables_of


@click.command("init")
@click.argument("checkpoint", required=False)
@click.option(
    "--query",
    help="Name of the query; by default that of the checkpoint directory, unless it is a number.",
)
@tables_written
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    default=Path("savepoints.toml"),
    show_default=True,
    help="File to write; it must not exist yet.",
)
@common
def command(
    call: Invocation, checkpoint: str | None, query: str | None, tables: tuple[str, ...], file: Path
) -> None:
    """Write a settings file from a CHECKPOINT, or create an empty store.

    The file has comments that describe the query in CHECKPOINT (operators, state store, partitions,
    topics), and marks what you must fill in. The query may be running.

    Without CHECKPOINT, an empty store is created at --store, or at the location in the settings.
    This is optional: the first create, run or attach does it as well. Needs no JVM.

    \b
    Examples:
      savepoints init --store s3://bucket/savepoints
      savepoints init s3://bucket/checkpoints/clicks
      savepoints init /data/ck --query clicks --table clicks=s3://bucket/clicks --file prod.toml
    """
    from savepoints.io import Location
    from savepoints.operations.maintain import init

    if checkpoint is None:
        _make_store(call)
        return
    found = init.read_checkpoint(Location.of(checkpoint), query)
    text = init.text(found, tables_of(tables), call.store_uri or "")
    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except FileExistsError:
        raise TargetExistsError(
            f"the file {file} already exists",
            hint="write to another file with --file, or show the effective settings: "
            "savepoints config",
            file=str(file),
        ) from None
    except OSError as error:
        raise UsageError(
            f"the settings cannot be written to {file}: {error.strerror}",
            hint="create its directory, or choose another file with --file",
            file=str(file),
        ) from None
    marks = text.count(init.FILL_IN) - 1
    said = f"wrote {file}; fill in what is marked {init.FILL_IN} ({marks} in total)"
    call.output.said(said, file=str(file), to_fill_in=marks, found=found)


def _make_store(call: Invocation) -> None:
    store = call.place
    made = not store.exists()
    store.make(call.output.progress)
    if call.output.format == "json":
        call.output.document(store=str(store.root), made=made)
    elif not made:
        call.output.line(f"{store.root} is already a store: nothing was done")
