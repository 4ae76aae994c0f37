"""Show the installed versions of savepoints, Spark and Delta."""

from __future__ import annotations

from importlib import metadata

import click

from savepoints.cli.options import Invocation, common

_PACKAGES = ("savepoints", "pyspark", "delta-spark", "deltalake", "confluent-kafka")


@click.command("version")
@common
def command(call: Invocation) -> None:
    """Show the versions of savepoints, PySpark, Delta and the Kafka client.

    \b
    Example:
      savepoints version -o json
    """
    versions = {name: _version(name) for name in _PACKAGES}
    if call.output.format == "json":
        call.output.document(versions=versions)
    else:
        call.output.pairs((name, version or "not installed") for name, version in versions.items())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
