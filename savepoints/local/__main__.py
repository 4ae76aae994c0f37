"""A Kafka broker and an S3 server on this machine: `python -m savepoints.local up`."""

from __future__ import annotations

import argparse
import logging
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from savepoints.errors import SavepointsError
from savepoints.local import classes
from savepoints.local.jars import resolve_jars
from savepoints.local.java import find_java
from savepoints.local.world import LocalWorld

# One to begin with; docs/getting-started.md uses it.
BUCKET = "lake"

_INTERRUPTED = 130
_TERMINATED = 143


def main() -> int:
    """Run one command."""
    arguments = _parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    # As an exception, so that the services are stopped and the directory is removed.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_TERMINATED))
    try:
        if arguments.command == "up":
            _up(arguments.directory, arguments.buckets or [BUCKET])
        elif arguments.command == "down":
            LocalWorld.stop_detached(arguments.directory)
        elif arguments.command == "java":
            find_java()
        else:
            found = resolve_jars()
            classes.java_option(find_java(), found)
            print(found.spark_directory)
    except SavepointsError as error:
        print(f"{error.message}\nHint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    return 0


def _up(directory: Path | None, buckets: Sequence[str]) -> None:
    with LocalWorld.start(directory) as world:
        for bucket in buckets:
            world.create_bucket(bucket)
        for name, value in world.environment.items():
            print(f"export {name}={shlex.quote(value)}")
        names = ", ".join(buckets)
        print(f"# buckets: {names}; logs and data: {world.directory}; Ctrl-C stops everything")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            while True:
                world.check()
                time.sleep(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m savepoints.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser(
        "up", help="start a broker and an S3 server on free ports, and run until Ctrl-C"
    )
    up.add_argument("--directory", type=Path, help="where logs and data are stored")
    up.add_argument(
        "--bucket",
        dest="buckets",
        action="append",
        metavar="NAME",
        help=f"a bucket to create; may be repeated; by default {BUCKET}",
    )
    down = commands.add_parser("down", help="stop a broker and an S3 server that were left running")
    down.add_argument("directory", type=Path, help="where their logs and data are stored")
    commands.add_parser("java", help="check for a Java version that Spark supports")
    commands.add_parser(
        "jars",
        help="download the jars, create a Java class archive so that Spark starts faster, and "
        "print the directory of the jars",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
