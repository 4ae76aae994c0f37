"""Record what the real restic keeps: `python tests/data/retention/make_golden.py [RESTIC]`.

Makes a repository in a temporary directory, with one host for each scenario and one tiny snapshot
for each of its times, and writes what `restic forget --dry-run` says for many combinations of flags
into `restic.json` beside this file. Times are UTC. Needs restic 0.16 or newer and two minutes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FORMAT = "%Y-%m-%d %H:%M:%S"

# Those whose number is here in their scenario get the tag `release`.
TAGGED = {3, 8}

COUNTS = ("last", "hourly", "daily", "weekly", "monthly")
COMBINATIONS: tuple[dict[str, str | int], ...] = (
    {"last": 1, "daily": 1},
    {"last": 2, "hourly": 3, "daily": 2},
    {"hourly": 4, "daily": 3, "weekly": 2, "monthly": 2},
    {"hourly": 24, "daily": 7, "weekly": 4, "monthly": 12},
    {"daily": 7, "within": "6h"},
    {"weekly": 2, "within": "2d"},
    {"last": 3, "monthly": "unlimited"},
    {"daily": 2, "tag": "release"},
    {"tag": "release", "within": "1h"},
    {"monthly": 3, "tag": "release", "within": "30d"},
)


def scenarios() -> dict[str, list[datetime]]:
    """Return the times of each scenario."""
    dice = random.Random(5)
    year_end = _at("2025-12-31 22:40")
    noon = _at("2026-03-01 12:00")
    days = [0, 1, 2, 3, 3.25, 3.5, 6, 7, 8, 15, 15.5, 16, 29, 30]
    return {
        "every ten minutes over a year's end": [
            year_end + timedelta(minutes=10 * number) for number in range(15)
        ],
        "days with gaps": [noon - timedelta(days=day) for day in days],
        "edges of ISO weeks": [
            _at(f"{day} {time}")
            for day in ("2024-12-29", "2024-12-30", "2024-12-31", "2025-01-01", "2025-01-05",
                        "2025-01-06", "2025-12-28", "2025-12-29", "2026-01-04", "2026-01-05")
            for time in ("00:00", "23:59")
        ],
        "months with gaps": [
            _at(f"{day} 03:00")
            for day in ("2024-01-31", "2024-02-29", "2024-03-01", "2024-03-31", "2024-07-01",
                        "2024-12-31", "2025-01-01", "2025-02-28", "2025-06-30", "2025-07-01",
                        "2026-02-28", "2026-03-31")
        ],
        "irregular": sorted(
            _at("2026-05-01 00:00") + timedelta(seconds=dice.randrange(21 * 86400))
            for _ in range(25)
        ),
        "a single one": [noon],
    }  # fmt: skip


def flags() -> Iterator[dict[str, str | int]]:
    """Yield combinations of flags."""
    for name in COUNTS:
        for count in (1, 2, 3, 5, 100, "unlimited"):
            yield {name: count}
    for within in ("1h", "25h", "1d", "7d", "14d12h", "365d"):
        yield {"within": within}
    yield from COMBINATIONS


def main(restic: str = "restic") -> None:
    """Make the repository and record."""
    times = scenarios()
    with tempfile.TemporaryDirectory() as directory:
        call = _Restic(restic, Path(directory))
        call("init")
        for host, moments in times.items():
            for number, moment in enumerate(moments):
                tag = ("--tag", "release") if number in TAGGED else ()
                when = moment.strftime(FORMAT)
                call("backup", "--host", host, "--time", when, *tag, str(call.file))
        runs = [{"flags": one, "kept": _kept(call, one)} for one in flags()]
        version = call("version").split()[1]
    content = {
        "restic": version,
        "scenarios": {host: [_text(one) for one in moments] for host, moments in times.items()},
        "tagged": sorted(TAGGED),
    }
    lines = ",\n".join(json.dumps(run, separators=(",", ":")) for run in runs)
    head = json.dumps(content, indent=1)[:-2]
    (HERE / "restic.json").write_text(f'{head},\n "runs": [\n{lines}\n]}}\n')


def _kept(call: _Restic, one: dict[str, str | int]) -> dict[str, dict[str, list[str]]]:
    """Ask restic what it keeps of each scenario, with its reasons."""
    words = [f"--keep-{name}={value}" for name, value in one.items()]
    found: list[dict[str, Any]] = json.loads(
        call("forget", "--dry-run", "--json", "--group-by", "host", *words)
    )
    return {
        group["host"]: {
            _text(datetime.fromisoformat(reason["snapshot"]["time"])): [
                match.replace(" snapshot", "") for match in reason["matches"]
            ]
            for reason in group["reasons"] or ()
        }
        for group in found
    }


class _Restic:
    def __init__(self, program: str, directory: Path) -> None:
        self._program = program
        self.file = directory / "file"
        self.file.write_text("state")
        self._environment = {
            **os.environ,
            "TZ": "UTC",
            "RESTIC_REPOSITORY": str(directory / "repository"),
            "RESTIC_PASSWORD": "golden",
            "RESTIC_CACHE_DIR": str(directory / "cache"),
        }

    def __call__(self, *words: str) -> str:
        command: Sequence[str] = (self._program, *words)
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, check=True
        )
        return done.stdout


def _at(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


if __name__ == "__main__":
    main(*sys.argv[1:])
