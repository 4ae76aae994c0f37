"""`python -m spark_jobs.ingest`: what an HTTP feed has now into a Kafka topic."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from savepoints.errors import SavepointsError
from savepoints.io import Location
from spark_jobs.ingest.feed import FeedError
from spark_jobs.ingest.load import LoadError, load

_SERVERS_VARIABLE = "SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 when Kafka has all that the feed had, 1 when not; run it again then.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser(prog="python -m spark_jobs.ingest", description=__doc__)
    parser.add_argument("--url", required=True, help="the feed")
    parser.add_argument("--topic", required=True, help="the Kafka topic")
    parser.add_argument(
        "--position", required=True, help="directory or s3:// URI where the position is kept"
    )
    parser.add_argument("--limit", type=int, default=500, help="most events of a page")
    parser.add_argument("--bootstrap-servers", default=os.environ.get(_SERVERS_VARIABLE))
    arguments = parser.parse_args(argv)
    if not arguments.bootstrap_servers:
        parser.error(f"--bootstrap-servers is needed, or {_SERVERS_VARIABLE} in the environment")
    try:
        loaded = load(
            arguments.url,
            bootstrap_servers=arguments.bootstrap_servers,
            topic=arguments.topic,
            position=Location.of(arguments.position),
            limit=arguments.limit,
        )
    except (FeedError, LoadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except SavepointsError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    print(loaded)
    return 0


if __name__ == "__main__":
    sys.exit(main())
