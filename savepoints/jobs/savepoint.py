r"""A job that takes one savepoint: for cron, Airflow or Kubernetes.

    python -m savepoints.jobs.savepoint --store s3://bucket/savepoints \
        --checkpoint s3a://bucket/checkpoints/clicks --name clicks --table clicks=s3://bucket/clicks

`spark-submit` takes this file itself. The query runs elsewhere and is not touched. When another
process takes a savepoint of it at this moment the job says so, skips, and ends with 0; a failure
ends with the exit code of the error, so that the scheduler sees it. With `--format native` it needs
no Spark: any Python will do.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TextIO

from savepoints.config import secrets
from savepoints.config import settings as config_settings
from savepoints.errors import SavepointsError, UsageError
from savepoints.model import BOTH, FORMS, Form
from savepoints.observe import logs
from savepoints.operations.run import periodic
from savepoints.operations.run.periodic import Attempt
from savepoints.operations.savepoint.create import Saved
from savepoints.store.root import Store
from savepoints.uri import tables_of


def main(arguments: list[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Take a savepoint and return the exit code."""
    given = _parser().parse_args(arguments)
    logs.to_stderr("INFO", "text")
    try:
        attempt = _take(given, out)
    except SavepointsError as error:  # No savepoint was tried: of the settings or the store.
        attempt = Attempt("failed", error=error)
    if attempt.error is not None:
        print(secrets.mask(f"{attempt.result}: {attempt.error}"), file=out)
    return attempt.error.exit_code if attempt.error and attempt.result == "failed" else 0


def _take(given: argparse.Namespace, out: TextIO) -> Attempt:
    for name in ("store", "checkpoint", "name"):
        if getattr(given, name) == "":
            raise UsageError(f"--{name} is empty", hint=f"give --{name} a value, or omit it")
    settings = config_settings.load(file=given.config, flags={"store": given.store})
    forms: tuple[Form, ...] = FORMS if given.format == BOTH else (given.format,)

    def progress(line: str) -> None:
        print(secrets.mask(line), file=out)

    return periodic.take(
        Store.at(settings.store, settings=settings).make(progress),
        Saved(
            query=given.name,
            checkpoint=given.checkpoint,
            forms=forms,
            outputs=tables_of(given.table) or None,
            output_topics=given.output_topic or None,
        ),
        progress=progress,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Take one savepoint of a query.")
    parser.add_argument("--store", help="root of the store (default: the one in the settings)")
    parser.add_argument(
        "--checkpoint", help="checkpoint of a query that `savepoints run` did not start"
    )
    parser.add_argument("--name", help="name of the query")
    parser.add_argument(
        "--table",
        action="append",
        default=[],
        metavar="NAME=URI",
        help="Delta table that the query writes, and a name for it; may be repeated",
    )
    parser.add_argument(
        "--output-topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="Kafka topic that only this query writes to; may be repeated",
    )
    parser.add_argument(
        "--format",
        choices=[BOTH, *FORMS],
        default=BOTH,
        help=f"form of the state (default: {BOTH}); native needs no Spark",
    )
    parser.add_argument("--config", type=Path, help="settings file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
