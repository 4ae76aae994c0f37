"""What arrives for a driver, and in which pieces: files, versions of a table, or records."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from deltalake import write_deltalake

from tests.fidelity.driver_job import Job
from tests.fidelity.driver_model import Event, Log

KEYS = "abcd"
_FIRST_FILE = 1_700_000_000


@dataclass
class DriverInput:
    """The two sources of a job: files and a table, or two partitions of a topic.

    Attributes:
        log: What arrived, by source and piece.
    """

    job: Job
    log: Log = field(default_factory=lambda: [[], []])

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(map(len, self.log))

    def add(self, chance: random.Random, *, everywhere: bool = False) -> None:
        """Let a piece arrive in one of the sources, or in each."""
        for source in (0, 1) if everywhere else (chance.choice((0, 1)),):
            count = 1 if self.job.topic else chance.randint(1, 4)
            events = [self._event(chance) for _ in range(count)]
            number = len(self.log[source])
            # Whoever reads it may be faster than this process.
            self.log[source].append(events)
            if self.job.topic:
                self._produce(source, events)
            elif source:
                columns = dict(zip("kn", map(list, zip(*events, strict=True)), strict=True))
                write_deltalake(f"{self.job.directory}/tables/in", pa.table(columns), mode="append")
            else:
                self._write(number, events)

    def _event(self, chance: random.Random) -> Event:
        return chance.choice(KEYS), chance.randint(1, 20)

    def _produce(self, partition: int, events: list[Event]) -> None:
        producer = Producer({"bootstrap.servers": self.job.servers})
        for k, n in events:
            producer.produce(self.job.topic, json.dumps({"k": k, "n": n}).encode(), None, partition)
        assert producer.flush(30) == 0

    def _write(self, number: int, events: list[Event]) -> None:
        path = Path(self.job.directory, "in", f"{number}.json")
        made = path.with_suffix(".tmp")
        made.write_text("".join(json.dumps({"k": k, "n": n}) + "\n" for k, n in events))
        # Spark reads files by their time; of those of one tick of the clock any may be first.
        os.utime(made, (_FIRST_FILE + number,) * 2)
        made.rename(path)
