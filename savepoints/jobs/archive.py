"""A job that archives an input of a query: Kafka to Delta, exactly once, in the order of arrival.

    python -m savepoints.jobs.archive order_totals orders --until latest --compact --check

The archive is what late batches are merged from, so it must have what Kafka has long forgotten. Its
table is `[queries.QUERY.archives]` in the settings. Without `--until` it goes on until SIGTERM; the
next run continues exactly where it stopped. What each step did is one line of JSON on stdout;
problems that `--check` finds end the job with 13.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from savepoints.config import secrets
from savepoints.config import settings as config_settings
from savepoints.config.duration import parse_duration
from savepoints.config.settings import Settings
from savepoints.errors import SavepointsError, UsageError
from savepoints.json_values import to_json
from savepoints.observe import logs
from savepoints.runtime import app as apps
from savepoints.runtime.inputs import Inputs
from savepoints.runtime.stop_signals import stopped_by_signals
from savepoints.sources.archive import check, compact, progress
from savepoints.sources.combined import archiving_query
from savepoints.sources.combined.archiving_query import Archiving
from savepoints.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.2
_NOT_ALIGNED = 13


def main(arguments: list[str] | None = None, out: TextIO = sys.stdout) -> int:
    """Archive, compact and check as asked, and return the exit code."""
    given = _parser().parse_args(arguments)
    logs.to_stderr("WARNING", "text")
    logging.getLogger("savepoints").setLevel(logging.INFO)
    try:
        settings = config_settings.load(file=given.config)
        what = _what(settings, given)
        return _run(session(settings, f"archive of {what.topic}"), what, given, out)
    except SavepointsError as error:
        sys.stderr.write(json.dumps(secrets.masked(error.to_json())) + "\n")
        return error.exit_code


def _run(spark: SparkSession, what: Archiving, given: argparse.Namespace, out: TextIO) -> int:
    if given.until or not (given.check or given.compact):
        _archive(spark, what)
        known = progress.load(what.uri)
        say = {"archived": what.uri, "end": known.end, "rows": sum(one.rows for one in known.rows)}
        print(json.dumps(to_json(say)), file=out, flush=True)
    if given.compact:
        done = compact.compact(spark, what.uri)
        print(json.dumps({"compacted": what.uri, **vars(done)}), file=out, flush=True)
    if given.check:
        found = check.check(spark, what.uri, what.kafka)
        print(json.dumps({"checked": what.uri, **to_json(found)}), file=out, flush=True)
        if found.problems:
            return _NOT_ALIGNED
    return 0


def _archive(spark: SparkSession, what: Archiving) -> None:
    """Run the query until it has caught up, or a signal comes."""
    from pyspark.errors import StreamingQueryException

    stopping = threading.Event()
    query = archiving_query.start(spark, what)
    with stopped_by_signals(stopping.set):
        while query.isActive and not stopping.is_set():
            with suppress(StreamingQueryException):  # Looked at below.
                # Typed as whole seconds, but passed on in milliseconds.
                query.awaitTermination(_POLL_SECONDS)  # type: ignore[arg-type]
    # In the middle of a batch too: it is written once, now or by the next run.
    query.stop()
    if (failure := query.exception()) is not None and not stopping.is_set():
        raise SavepointsError(
            f"archiving {what.topic} failed: {str(failure)[:2000]}",
            hint="fix the cause and run the job again; it continues where the archive ends",
            uri=what.uri,
        )


def _what(settings: Settings, given: argparse.Namespace) -> Archiving:
    bound = settings.queries.get(given.query)
    if bound is None:
        raise UsageError(
            f"the query {given.query!r} is not in the settings",
            hint=f"use one of the queries in the settings: {', '.join(settings.queries)}"
            if settings.queries
            else f"add a section [queries.{given.query}] to the settings",
        )
    application = apps.load(bound.app)
    if given.input not in application.inputs:
        raise UsageError(
            f"{bound.app} has no input {given.input!r}",
            hint=f"use one of its inputs: {', '.join(application.inputs)}",
        )
    uri = bound.archives.get(given.input)
    if uri is None:
        raise UsageError(
            f"the input {given.input} of {given.query} has no archive",
            hint=f"set one in [queries.{given.query}.archives] in the settings: {given.input} "
            '= "s3://bucket/path"',
        )
    inputs = Inputs(application, bound, settings.kafka)
    return Archiving(
        uri=uri,
        topic=inputs.topic(given.input),
        decoding=inputs.decoding(given.input),
        kafka=settings.kafka,
        most=given.most,
        every=None if given.until else parse_duration(given.every),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Archive an input of a query.")
    parser.add_argument("query", help="name of the query in the settings")
    parser.add_argument("input", help="name of the input in the application")
    parser.add_argument(
        "--until",
        choices=["latest"],
        help="exit once everything currently in Kafka has been archived",
    )
    parser.add_argument("--every", default="1m", help="time between two batches (default: 1m)")
    parser.add_argument(
        "--most", type=int, default=1_000_000, help="maximum number of records per batch"
    )
    parser.add_argument(
        "--compact", action="store_true", help="compact many small files into a few large ones"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare the archive with Kafka; exit with code 13 if there are problems",
    )
    parser.add_argument("--config", type=Path, help="settings file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
