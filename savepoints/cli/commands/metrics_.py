"""Show metrics for Prometheus."""

from __future__ import annotations

import threading
from pathlib import Path

import click

from savepoints.cli.options import Invocation, common
from savepoints.errors import UsageError


@click.command("metrics")
@click.option(
    "--to",
    "path",
    type=click.Path(path_type=Path),
    help="Write the metrics to this file, for node_exporter's textfile collector.",
)
@click.option(
    "--serve",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve the metrics to Prometheus on this port until Ctrl-C.",
)
@click.option("--address", default="127.0.0.1", help="With --serve: address to listen on.")
@common
def command(call: Invocation, path: Path | None, port: int | None, address: str) -> None:
    """Show metrics of the store in Prometheus text format.

    The metrics are computed from the catalog and the events of the store, so every process reports
    the same values. If the settings name a Kafka broker, it is asked for the lag of each query,
    with a timeout of two seconds. To have the metrics written to a file after each periodic
    savepoint, set metrics_file in the settings. Needs no JVM.

    \b
    Examples:
      savepoints metrics
      savepoints metrics --to /var/lib/node_exporter/savepoints.prom
      savepoints metrics --serve 9108
    """
    from savepoints.observe import metrics

    if path is not None and port is not None:
        raise UsageError(
            "--to and --serve cannot be combined",
            hint="run the command twice, once with each option",
        )
    if path is not None:
        metrics.write(call.place, path)
        call.output.err.print(f"wrote {path}", highlight=False)
    elif port is not None:
        bound, _ = metrics.serve(call.place, port, address)
        call.output.err.print(f"serving http://{address}:{bound}/metrics (stop with Ctrl-C)")
        threading.Event().wait()
    elif call.output.format == "json":
        found = metrics.of_store(call.place)
        call.output.document(
            metrics=[
                {
                    "name": metric.name,
                    "kind": metric.kind,
                    "labels": dict(zip(metric.labels, labels, strict=True)),
                    "value": value,
                }
                for metric in metrics.METRICS
                for labels, value in sorted(found.get(metric.name, {}).items())
            ]
        )
    else:
        call.output.out.raw(metrics.text(call.place))
