"""Print a completion script for your shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from savepoints.cli.options import Invocation, common


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def command(call: Invocation, shell: str) -> None:
    """Print a completion script for SHELL.

    It completes commands, options, and the names of queries, savepoints and operations in the
    store.

    \b
    Examples:
      savepoints completion bash >> ~/.bashrc
      savepoints completion zsh >> ~/.zshrc
      savepoints completion fish > ~/.config/fish/completions/savepoints.fish
    """
    script = _script(shell)
    if call.output.format == "json":
        call.output.document(shell=shell, script=script)
    else:
        call.output.write(script.rstrip())


def _script(shell: str) -> str:
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root()
    return kind(root.command, {}, "savepoints", "_SAVEPOINTS_COMPLETE").source()
