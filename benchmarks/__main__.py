"""The benchmarks from a shell: `python -m benchmarks export --keys 3000000 --rounds 3`."""

from __future__ import annotations

import argparse
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from benchmarks import (
    bounded_run,
    cluster,
    disturbance,
    export,
    flink,
    incremental,
    late,
    list_,
    merge,
    migrate,
    pin,
    restore_canonical,
    restore_native,
    result,
    seed,
    small_merge,
    state,
)
from benchmarks.result import Result
from savepoints.errors import SavepointsError

Measure: TypeAlias = Callable[[Path, int, int], Result]

MEASURES: dict[str, Measure] = {
    "pin": pin.measure,
    "export": export.measure,
    "restore-canonical": restore_canonical.measure,
    "restore-migrated": migrate.measure,
    "restore-native": restore_native.measure,
    "seed": seed.measure,
    "incremental": incremental.measure,
    "list": list_.measure,
    "merge": merge.measure,
    "small-merge": small_merge.measure,
    "late": late.measure,
    "bounded-run": bounded_run.measure,
    "disturbance": disturbance.measure,
    "cluster": cluster.measure,
    "flink": flink.measure,
}
# Only run by name, as they download what nothing else here needs.
DOWNLOADING = ("flink",)
_TERMINATED = 143


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one measure, or all.

    Args:
        arguments: Of the command line; the process's own when not given.

    Returns:
        The exit code.
    """
    given = _parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger(__package__).setLevel(logging.INFO)
    if given.name is None:
        return _run_all(given.keys, given.rounds)
    try:
        with TemporaryDirectory(prefix="savepoints-benchmarks-") as directory:
            found = MEASURES[given.name](Path(directory), given.keys, given.rounds)
    except SavepointsError as error:
        print(f"{error.message}\nHint: {error.hint}", file=sys.stderr)
        return error.exit_code
    print(result.text(given.name, found))
    return 0


def _run_all(keys: int, rounds: int) -> int:
    """Run each measure in a process of its own, so that none finds warm what others left."""
    options = ["--keys", str(keys), "--rounds", str(rounds)]
    for name in MEASURES:
        if name in DOWNLOADING:
            continue
        command = [sys.executable, "-m", "benchmarks", name, *options]
        code = subprocess.run(command, check=False).returncode
        if code != 0:
            return code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "name",
        nargs="?",
        choices=MEASURES,
        help=f"the measure; without it all but {', '.join(DOWNLOADING)}, which downloads its peer",
    )
    parser.add_argument(
        "--keys",
        type=partial(_at_least, state.CHANGED_OF),
        default=3_000_000,
        help="rows of state (default: %(default)s)",
    )
    parser.add_argument(
        "--rounds",
        type=partial(_at_least, 1),
        default=3,
        help="samples of each side (default: %(default)s)",
    )
    return parser


def _at_least(least: int, text: str) -> int:
    value = int(text)
    if value < least:
        raise argparse.ArgumentTypeError(f"{value} is less than {least}")
    return value


if __name__ == "__main__":
    # As an exception, so that the directory is removed.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(_TERMINATED))
    sys.exit(main())
