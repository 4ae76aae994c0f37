"""Retention: which savepoints a policy keeps, and why. Pure: nothing is read or deleted here.

The counts mean what they mean to restic's `forget` since its version 0.16, for the same times and
flags: going from the newest to the oldest, the newest savepoint of each hour, day, ISO week or
month is kept until the count is used up, and the oldest of all is kept while a count is left over,
so that a policy that has just been set up keeps as much history as it allows. What earlier
versions of restic lack is that last rule and `-1` for all.

Four differences, all of which keep more:

- Times are those at which the savepoints were taken, as recorded, in UTC; never their names.
- A broken savepoint uses up no count: it never pushes a good one out. It is kept for as long as it
  would be if it were whole, as somebody may want to repair it from a copy. The same goes for one
  that was edited by hand, which may be a try only: the query's own states do not go because of it.
- What something still needs is protected, whatever the policy says: see `decide`.
- Savepoints of several queries with one tag are a group: it stays as a whole for as long as one of
  them stays. The tag of a group that nobody has named (`group-…`) protects nothing by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from savepoints.config.duration import duration_text
from savepoints.config.settings import RetentionSettings
from savepoints.model import GROUP_TAG, Labels, Savepoint

ALL = -1

# Months have no fixed length; 30 days are near enough.
_DAYS = {"hourly": 1 / 24, "daily": 1, "weekly": 7, "monthly": 30}

KeepReasons = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class RetentionPolicy:
    """Which savepoints of each query to keep; a count of -1 keeps all.

    Attributes:
        keep_last: Keep this many of the newest.
        keep_hourly: Keep the newest of each hour, for this many hours.
        keep_daily: Keep the newest of each day, for this many days.
        keep_weekly: Keep the newest of each ISO week, for this many weeks.
        keep_monthly: Keep the newest of each month, for this many months.
        keep_within: Keep all that were taken within this time before the newest.
        keep_tags: Only these tags protect a savepoint; None if every tag does.
    """

    keep_last: int = 0
    keep_hourly: int = 0
    keep_daily: int = 0
    keep_weekly: int = 0
    keep_monthly: int = 0
    keep_within: timedelta | None = None
    keep_tags: tuple[str, ...] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The counts by the name of what is counted."""
        return {
            "last": self.keep_last,
            "hourly": self.keep_hourly,
            "daily": self.keep_daily,
            "weekly": self.keep_weekly,
            "monthly": self.keep_monthly,
        }

    @property
    def is_empty(self) -> bool:
        """Return True if it names nothing to keep; such a policy removes nothing."""
        return not (any(self.counts.values()) or self.keep_within or self.keep_tags)

    @property
    def days(self) -> float:
        """For how many days the rules keep savepoints; infinite if one of them keeps all.

        That of `keep_last` depends on how often they are taken, so it counts only where it is all.
        """
        if ALL in self.counts.values():
            return math.inf
        within = (self.keep_within or timedelta()) / timedelta(days=1)
        return max(within, *(self.counts[name] * days for name, days in _DAYS.items()))

    @classmethod
    def of(cls, section: RetentionSettings) -> RetentionPolicy:
        """Return what the settings say."""
        return cls(**{one.name: getattr(section, one.name) for one in fields(cls)})

    def protects(self, labels: Labels) -> tuple[str, ...]:
        """Return why people's tags, pins or state keep a savepoint; empty if nothing does."""
        tags = (
            tag
            for tag in labels.tags
            if (tag in self.keep_tags if self.keep_tags else self._is_name(tag))
        )
        return (*(("pinned",) if labels.pinned else ()), *(f"tagged {tag}" for tag in tags))

    def _is_name(self, tag: str) -> bool:
        """Return True if every tag protects and somebody has given this one."""
        return self.keep_tags is None and not tag.startswith(GROUP_TAG)

    def __str__(self) -> str:
        """Write it for people: `7 daily, within 2d`."""
        parts = [
            f"{'all' if count == ALL else count} {name}"
            for name, count in self.counts.items()
            if count
        ]
        if self.keep_within is not None:
            parts.append(f"within {duration_text(self.keep_within)}")
        parts += [f"tagged {tag}" for tag in self.keep_tags or ()]
        return ", ".join(parts) or "no rules"

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, with the duration in seconds."""
        data = dict(vars(self))
        within = data.pop("keep_within")
        seconds = None if within is None else within.total_seconds()
        tags = None if self.keep_tags is None else list(self.keep_tags)
        return {**data, "keep_within_seconds": seconds, "keep_tags": tags}


@dataclass(frozen=True)
class Decision:
    """Whether one savepoint stays, and why.

    Attributes:
        reasons: Why it stays, all of them; empty when it goes.
    """

    savepoint: Savepoint
    kept: bool
    reasons: tuple[str, ...]


@dataclass
class _Bucket:
    name: str
    count: int
    period: Callable[[datetime, int], object]
    last: object = field(default=None)


def decide(
    savepoints: Sequence[Savepoint],
    policy: RetentionPolicy | Mapping[str, RetentionPolicy],
    needed: Mapping[str, Sequence[str]],
    *,
    now: datetime,
) -> tuple[Decision, ...]:
    """Decide for each savepoint whether it stays, newest first, each query on its own.

    Protected, whatever the policy says: pinned and tagged ones; the newest complete one of each
    query and of each of its generations, but for those that were edited by hand; and what is needed
    by something else.

    Args:
        savepoints: All there are, in any order; those that are being removed already are left out.
        policy: One for all queries or one for each; a query without keeps everything.
        needed: Savepoint ids with the reasons for which something else needs them.
        now: Savepoints from the future, made by a clock that was wrong, are not the newest.
    """
    there = sorted(
        (one for one in savepoints if one.state != "expired"),
        key=lambda one: one.taken_order,
        reverse=True,
    )
    reasons: dict[str, list[str]] = {one.id: [] for one in there}
    for query in {one.query for one in there}:
        mine = [one for one in there if one.query == query]
        chosen = (
            policy if isinstance(policy, RetentionPolicy) else policy.get(query, RetentionPolicy())
        )
        for found in (_protected(mine, chosen), needed, _policy_keeps(mine, chosen, now)):
            for one in mine:
                reasons[one.id] += found.get(one.id, ())
    _keep_whole(there, reasons)
    return tuple(
        Decision(one, bool(reasons[one.id]), tuple(dict.fromkeys(reasons[one.id]))) for one in there
    )


def _keep_whole(there: Sequence[Savepoint], reasons: dict[str, list[str]]) -> None:
    """Let all savepoints of a group stay if one stays; one that does may be in another group."""
    tagged: dict[str, list[Savepoint]] = {}
    for one in there:
        for tag in one.tags:
            tagged.setdefault(tag, []).append(one)
    groups = {tag: mine for tag, mine in tagged.items() if len({one.query for one in mine}) > 1}
    left = True
    while left:
        left = False
        for tag, mine in groups.items():
            stays = [one for one in mine if reasons[one.id]]
            for one in mine:
                if stays and not reasons[one.id]:
                    reasons[one.id].append(f"in the group {tag} with {stays[0].id}")
                    left = True


def _protected(newest_first: Sequence[Savepoint], policy: RetentionPolicy) -> KeepReasons:
    """Return the savepoints of a query that are protected by their role."""
    found: dict[str, list[str]] = {one.id: [] for one in newest_first}
    complete = [one for one in newest_first if _is_good(one)]
    for one in newest_first:
        found[one.id] += policy.protects(one.labels)
    for one in complete[:1]:
        found[one.id].append("the last good one")
    newest = {one.generation: one for one in reversed(complete)}
    for generation, one in newest.items():
        found[one.id].append(f"the newest of generation {generation}")
    return {savepoint_id: tuple(why) for savepoint_id, why in found.items()}


def _policy_keeps(
    newest_first: Sequence[Savepoint], policy: RetentionPolicy, now: datetime
) -> KeepReasons:
    """Return what the policy keeps of a query: good ones, and broken and edited ones beside."""
    if policy.is_empty:
        return {one.id: ("no policy",) for one in newest_first}
    counted = _counted([one for one in newest_first if _is_good(one)], policy, now)
    beside = _counted(newest_first, policy, now)
    return {**beside, **counted}


def _is_good(savepoint: Savepoint) -> bool:
    """Return True if it is whole and records what the query itself did."""
    return savepoint.state == "complete" and savepoint.edit is None


def _counted(
    newest_first: Sequence[Savepoint], policy: RetentionPolicy, now: datetime
) -> KeepReasons:
    """Apply counts and duration as restic does."""
    buckets = [
        _Bucket(name, count, _PERIODS[name]) for name, count in policy.counts.items() if count
    ]
    past = [one.created_at for one in newest_first if one.created_at < now]
    kept: dict[str, list[str]] = {}
    for number, one in enumerate(newest_first):
        why = kept.setdefault(one.id, [])
        # Without any from the past nothing is too old.
        if policy.keep_within and (not past or one.created_at > past[0] - policy.keep_within):
            why.append(f"within {duration_text(policy.keep_within)}")
        for bucket in buckets:
            period = bucket.period(one.created_at, number)
            oldest = number == len(newest_first) - 1
            if bucket.count and (period != bucket.last or oldest):
                why.append(f"{'oldest ' if period == bucket.last else ''}{bucket.name}")
                bucket.last = period
                bucket.count -= bucket.count > 0
    return {name: tuple(why) for name, why in kept.items()}


_PERIODS: dict[str, Callable[[datetime, int], object]] = {
    "last": lambda _moment, number: number,
    "hourly": lambda moment, _number: (moment.date(), moment.hour),
    "daily": lambda moment, _number: moment.date(),
    "weekly": lambda moment, _number: moment.isocalendar()[:2],
    "monthly": lambda moment, _number: (moment.year, moment.month),
}
