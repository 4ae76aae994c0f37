"""A walk through the verbs on a query that joins two topics, of which each has a watermark."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from savepoints.io import Location
from tests.e2e import late_desk
from tests.e2e.desk import PARTITIONS
from tests.e2e.late_desk import Event
from tests.fidelity.verb_walk import Walk
from tests.fidelity.walk_model import Batch, Change, Present
from tests.sources.broker import Broker

# Even numbers are sent to the first, odd ones to the second.
INPUTS = ("asked", "answered")


@dataclass
class JoinedWalk(Walk):
    """Such a walk; `log` has the partitions of the first topic before those of the second."""

    def after(self, present: Present, checkpoint: Location, batch: int) -> Present:
        lines = checkpoint.get(f"offsets/{batch}").decode().splitlines()
        ends = {topic: at for one in lines[2:] for topic, at in json.loads(one).items()}
        topics = [self.desk.desk.topics[one] for one in INPUTS]
        offsets = (ends[one].get(str(part), 0) for one in topics for part in range(PARTITIONS))
        return present.reading(self.log, tuple(offsets), json.loads(lines[1])["batchWatermarkMs"])

    def send(self, events: list[Event]) -> None:
        if self.chance.random() < 0.6:  # To one of them alone.
            odd = self.chance.randrange(2)
            events = [one._replace(n=one.n + (one.n + odd) % 2) for one in events]
        for side, name in enumerate(INPUTS):
            mine = [one for one in events if one.n % 2 == side]
            self.desk.desk.produce(name, (one.value for one in mine))
            for number, one in enumerate(mine):
                self.log[side * PARTITIONS + number % PARTITIONS].append(one)

    def _batch(self, now: Present) -> tuple[str, list[Change]]:
        side = self.chance.randrange(2)
        self.late_input, self.late_numbers, self.merged = INPUTS[side], (10 + side,), []
        # What is newer than all that an input has is not late for it.
        mine = tuple(one for one in now.events if one.n % 2 == side)
        newest = max((one.s for one in mine), default=0)
        return super()._batch(replace(now, batches=(Batch(mine, 0, newest),)))

    def archive(self) -> None:
        self.note("archive")
        for name in INPUTS:
            late_desk.archive(self.desk.spark, self.desk.desk.settings, self.name, name)
        self.archived = self.ends

    def forget(self) -> None:
        self.note(f"Kafka forgets what is before {self.archived}")
        for number, to in enumerate(self.archived):
            topic = self.desk.desk.topics[INPUTS[number // PARTITIONS]]
            if to:
                Broker.of(self.world).forget(topic, number % PARTITIONS, to)
