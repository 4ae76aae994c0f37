"""Show the settings and where each comes from."""

from __future__ import annotations

import json

import click

from savepoints.cli.options import Invocation, common


@click.command("config")
@common
def command(call: Invocation) -> None:
    """Show the effective settings and where each comes from.

    The order of precedence is: command-line options; the environment (for example
    SAVEPOINTS_STORE or SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS); a profile; savepoints.toml;
    [tool.savepoints] in pyproject.toml; the user's settings file; defaults. Secrets are shown as
    ***.

    \b
    Examples:
      savepoints config
      savepoints config --profile prod -o json
    """
    from savepoints.config import effective

    found = effective.effective(file=call.config, profile=call.profile, flags=call.flags)
    if call.output.format == "json":
        call.output.document(settings=[vars(one) for one in found])
    else:
        call.output.table(
            ("key", "value", "origin"), ((one.key, _text(one.value), one.origin) for one in found)
        )


def _text(value: object) -> str:
    if value is None or value == "":
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
