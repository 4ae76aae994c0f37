"""Resolve the targets of Kafka's reset tools to one offset per partition.

The words are those of `kafka-consumer-groups --reset-offsets` and of the streams reset tool
(`StreamsResetter`). Those tools clamp what is out of range and skip the unknown; here everything
wrong is refused at once, with what is available, and a reset is never partial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from savepoints.checkpoint.logs.kafka_position import KafkaOffsets, by_partition, is_added
from savepoints.errors import SourceDataGoneError, UsageError
from savepoints.sources.kafka.offsets import Range, Ranges

TargetKind = Literal["earliest", "latest", "current", "offset", "time", "shift", "file"]
# Partitions by topic; None for all of a topic.
TargetScope: TypeAlias = Mapping[str, frozenset[int] | None]
# By topic and partition, from which offset to which, without the last one.
Skips: TypeAlias = Mapping[tuple[str, int], Sequence[tuple[int, int]]]


_STAYS = "stays"


@dataclass(frozen=True)
class Target:
    """Where to go.

    Attributes:
        kind: The word.
        number: The offset, or how far to shift.
        offsets: Where Kafka was at the time, or what the file says.
    """

    kind: TargetKind
    number: int = 0
    offsets: KafkaOffsets | None = None


class Passed(NamedTuple):
    """From where to where a query was set in a partition, with its state kept."""

    topic: str
    partition: int
    begin: int
    to: int


@dataclass(frozen=True)
class Move:
    """One partition of a reset.

    Attributes:
        topic: The topic.
        partition: The partition.
        current: Next offset of the query now; None for a partition it has not seen.
        to: Next offset after the reset.
        earliest: The first offset that Kafka or the archive has.
        end: The offset that the next record will get.
        why: Why it does not move, or goes elsewhere than to the target; empty if it goes there.
        from_archive: Offsets from there on that only an archive has.
    """

    topic: str
    partition: int
    current: int | None
    to: int
    earliest: int
    end: int
    why: str = ""
    from_archive: int = 0

    @property
    def is_placed(self) -> bool:
        """Whether Spark would begin a partition elsewhere that was added: it begins at 0."""
        return self.why != _STAYS and (self.to > 0 or self.from_archive > 0)

    @property
    def passed(self) -> Passed:
        """What is skipped by it, or read again."""
        current = self.earliest if self.current is None else self.current
        return Passed(self.topic, self.partition, current, self.to)

    @property
    def records(self) -> int:
        """Offsets to read again (negative: to skip), from the current position."""
        return self.passed.begin - self.to


def skipped(moves: Iterable[Passed]) -> Skips:
    """Return what a query never read that was set elsewhere with its state kept, the oldest first.

    Who is set to an earlier offset later reads what was skipped after it.
    """
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for one in moves:
        before = found.get((one.topic, one.partition), [])
        still = [(begin, min(end, one.to)) for begin, end in [*before, (one.begin, one.to)]]
        found[one.topic, one.partition] = [(begin, end) for begin, end in still if begin < end]
    return {place: tuple(ranges) for place, ranges in found.items() if ranges}


def parse_scope(texts: Sequence[str]) -> TargetScope:
    """Read topics as Kafka's tools do: `orders` for all partitions, or `orders:0,1,2`."""
    scope: dict[str, frozenset[int] | None] = {}
    for text in texts:
        topic, separator, listed = text.partition(":")
        try:
            parts = frozenset(int(one) for one in listed.split(",")) if separator else None
        except ValueError:
            raise UsageError(
                f"{text!r} is not in the form TOPIC or TOPIC:PARTITIONS",
                hint="write, for example, orders:0,1,2",
            ) from None
        known = scope.get(topic, frozenset())
        scope[topic] = None if parts is None or known is None else known | parts
    return scope


def read_of(current: KafkaOffsets, ranges: Ranges) -> Ranges:
    """Return the ranges of partitions that a query reads, or will read because they were added."""
    return {
        topic: {
            part: one
            for part, one in parts.items()
            if part in current[topic] or is_added(current[topic], part)
        }
        for topic, parts in ranges.items()
    }


def resolve(
    target: Target,
    current: KafkaOffsets,
    ranges: Ranges,
    *,
    scope: TargetScope | None = None,
    skipped: Sequence[str] = (),
    allow_data_loss: bool = False,
) -> tuple[Move, ...]:
    """Find the next offset of every partition.

    Args:
        skipped: Topics that move to their end instead, between the queries of a chain.
        allow_data_loss: Start with what Kafka has where earlier records are gone, and without the
            partitions that it does not have any more.
    """
    problems = _unknown(target, ranges, scope, skipped)
    gone = [
        f"{topic} partition {partition}, which was deleted"
        for topic, partition, _ in by_partition(current)
        if partition not in ranges.get(topic, {})
    ]
    moves = []
    for topic, partition, found in by_partition(ranges):
        now = current.get(topic, {}).get(partition)
        to, why = _to(target, now, found, scope, skipped)
        if to is None:
            problems.append(f"the file has no offset for {_named(found)}")
            continue
        if not 0 <= to <= found.end:
            problems.append(f"offset {to} of {_named(found)} is out of range: {_has(found)}")
        elif to < found.earliest or (_begins(target, why) and 0 < found.earliest == to):
            wanted = f"starting at offset {to}" if to < found.earliest else "starting at the target"
            gone.append(f"{_named(found)} {wanted}: {_has(found)}")
        start = max(to, found.earliest)
        moves.append(
            Move(
                topic,
                partition,
                now,
                start,
                found.earliest,
                found.end,
                why,
                found.from_archive(start),
            )
        )
    if problems:
        raise UsageError(
            "the target does not match what Kafka has, so nothing was reset: "
            f"{'; '.join(problems)}",
            hint="give offsets within the available range for every partition that Kafka has, and "
            "name only topics and partitions that the query reads",
            problems=problems,
        )
    if gone and not allow_data_loss:
        raise SourceDataGoneError(
            f"Kafka may no longer have all records of {'; '.join(gone)}",
            hint="choose a later target, set INPUT in [queries.NAME.archives] to an archive that "
            "has them, or accept the loss with --allow-data-loss",
            partitions=gone,
        )
    return tuple(moves)


def _begins(target: Target, why: str) -> bool:
    """Return True if the earliest offset is only where Kafka happens to start now."""
    return not why and target.kind in {"earliest", "time"}


def _to(
    target: Target, now: int | None, found: Range, scope: TargetScope | None, skipped: Sequence[str]
) -> tuple[int | None, str]:
    # A partition that is new to the query begins where Spark would begin it.
    stays = found.earliest if now is None else now
    if found.topic in skipped:
        return found.end, "skipped to the end"
    if scope is not None:
        parts = scope.get(found.topic, frozenset())
        if parts is not None and found.partition not in parts:
            return stays, _STAYS
    if target.kind == "current" and now is None:
        return stays, _STAYS
    if target.kind in {"file", "time"}:
        return (target.offsets or {}).get(found.topic, {}).get(found.partition), ""
    fixed = {
        "earliest": found.earliest,
        "latest": found.end,
        "current": stays,
        "offset": target.number,
        "shift": stays + target.number,
    }
    return fixed[target.kind], ""


def _unknown(
    target: Target, ranges: Ranges, scope: TargetScope | None, skipped: Sequence[str]
) -> list[str]:
    """List the topics and partitions that are named but do not exist."""
    problems = [f"the query reads no topic {one!r}" for one in skipped if one not in ranges]
    for topic, chosen in (scope or {}).items():
        if topic not in ranges:
            problems.append(f"the query reads {', '.join(ranges)}, not topic {topic!r}")
            continue
        missing = sorted((chosen or frozenset()) - set(ranges[topic]))
        problems += [f"topic {topic} has no partition {one}" for one in missing]
    named = target.offsets or {} if target.kind == "file" else {}
    problems += [
        f"the file includes {topic} partition {partition}, which Kafka does not have"
        for topic, parts in named.items()
        for partition in parts
        if partition not in ranges.get(topic, {})
    ]
    return problems


def _named(found: Range) -> str:
    return f"{found.topic} partition {found.partition}"


def _has(found: Range) -> str:
    return f"available {found.text}"
