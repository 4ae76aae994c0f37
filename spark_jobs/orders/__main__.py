"""`python -m spark_jobs.orders`: the CDNOW orders into a Kafka topic, or late ones into a file."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from savepoints.errors import SavepointsError
from spark_jobs.orders import late
from spark_jobs.orders.cdnow import orders_between, read_orders
from spark_jobs.orders.producer import ProduceError, produce

_SERVERS_VARIABLE = "SAVEPOINTS_KAFKA__BOOTSTRAP_SERVERS"
_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments; None for those of the process.

    Returns:
        The exit code: 0 when every order was acknowledged or written, 1 when sending failed, 2
        for a wrong call or missing data, 130 when interrupted.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.command == "held-back":
        written = late.write(late.held_back(read_orders(), arguments.customers)[1], arguments.to)
        print(f"{written} orders of {arguments.customers} customers in {arguments.to}")
        return 0
    if not arguments.bootstrap_servers:
        parser.error(f"--bootstrap-servers is needed, or {_SERVERS_VARIABLE} in the environment")
    if None not in (arguments.from_date, arguments.until_date) and (
        arguments.from_date >= arguments.until_date
    ):
        parser.error(f"--from {arguments.from_date} is not before --until {arguments.until_date}")
    try:
        known = read_orders()
        if arguments.held_back:
            known, _ = late.held_back(known, arguments.held_back)
        orders = orders_between(
            known, from_date=arguments.from_date, until_date=arguments.until_date
        )
        produced = produce(
            orders[: arguments.limit],
            bootstrap_servers=arguments.bootstrap_servers,
            topic=arguments.topic,
            partitions=arguments.partitions,
            rows_per_second=arguments.rate,
        )
    except ProduceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except SavepointsError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: some orders may not have been sent", file=sys.stderr)
        return _INTERRUPTED
    print(produced)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spark_jobs.orders", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    lost = commands.add_parser(
        "held-back",
        help="write orders that a broken feed held back into a file",
        description="Write all orders that some customers placed in 1997 as Kafka records into a "
        "Parquet file: what produce --held-back leaves out.",
    )
    lost.add_argument(
        "--customers", type=_count, default=200, metavar="N", help="default: %(default)s"
    )
    lost.add_argument("--to", type=Path, required=True, metavar="FILE", help="such as late.parquet")
    command = commands.add_parser(
        "produce",
        help="send the CDNOW orders to a Kafka topic",
        description="Send the CDNOW orders to a Kafka topic in the order in which they happened, "
        "keyed by customer. Creates the topic if it is missing.",
    )
    command.add_argument("--topic", default="orders", help="default: %(default)s")
    command.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        default=os.environ.get(_SERVERS_VARIABLE),
        help=f"Kafka; default: ${_SERVERS_VARIABLE}",
    )
    command.add_argument(
        "--from", dest="from_date", type=_day, metavar="DATE", help="first day to send (UTC)"
    )
    command.add_argument(
        "--until", dest="until_date", type=_day, metavar="DATE", help="first day not to send (UTC)"
    )
    command.add_argument(
        "--rate", type=_rate, metavar="ROWS_PER_SECOND", help="default: as fast as Kafka takes"
    )
    command.add_argument(
        "--partitions",
        type=_count,
        default=4,
        metavar="N",
        help="of the topic, if it is created; default: %(default)s",
    )
    command.add_argument(
        "--held-back",
        type=_count,
        metavar="N",
        help="leave out what N customers ordered in 1997",
    )
    command.add_argument("--limit", type=_count, metavar="N", help="send at most N orders")
    return parser


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a date like 1997-04-01") from None


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return rate


if __name__ == "__main__":
    sys.exit(main())
