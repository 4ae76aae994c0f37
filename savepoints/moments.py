"""Moments in UTC: now, as RFC 3339, and in milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from savepoints.errors import UsageError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# Spark and Kafka have later times: milliseconds, say, that somebody took for seconds.
LAST = datetime.max.replace(tzinfo=UTC)


def utc_now() -> datetime:
    """Return the time now, aware, in UTC, to the millisecond (the catalog keeps no more)."""
    return to_milliseconds(datetime.now(UTC))


def to_milliseconds(moment: datetime) -> datetime:
    """Return a moment without its microseconds, as the catalog keeps it and people are told it."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def rfc3339(moment: datetime) -> str:
    """Write a moment as RFC 3339 in UTC with milliseconds: `2026-11-21T10:15:30.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> datetime:
    """Read an RFC 3339 time.

    Raises:
        UsageError: If it is not one, or has no offset: a naive time means a different moment
            on each machine.
    """
    try:
        moment = datetime.fromisoformat(text)
        in_utc = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is not an RFC 3339 time",
            hint="write it, for example, as 2026-11-21T10:00:00Z",
        ) from None
    if moment.tzinfo is None:
        raise UsageError(
            f"the time {text!r} has no time zone",
            hint=f"add one, for example {moment.isoformat()}Z for UTC",
        )
    return in_utc


def require_zone(moment: datetime, name: str) -> None:
    """Refuse a naive time that a program gives: it means another moment on each machine."""
    if moment.tzinfo is None:
        raise UsageError(
            f"the time {moment.isoformat()} of {name} has no time zone",
            hint=f"give it one: {name}={moment.replace(tzinfo=UTC)!r}",
        )


def refuse_future(moment: datetime, why: str = "", *, hint: str) -> None:
    """Refuse a time that is still to come.

    Args:
        why: What could happen before it, as a clause that follows.
    """
    if moment > utc_now():
        raise UsageError(f"{rfc3339(moment)} is in the future{why}", hint=hint)


def epoch_ms(moment: datetime) -> int:
    """Return the whole milliseconds from 1970 to a moment; it is exact."""
    return (moment - EPOCH) // _MILLISECOND


def first_ms_from(moment: datetime) -> int:
    """Return the first millisecond since 1970, as Kafka counts, that is not before a moment."""
    return max(0, -((EPOCH - moment) // _MILLISECOND))


def moment_of(milliseconds: int) -> datetime:
    """Return a moment, in UTC, by its milliseconds since 1970."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def moment_or_last(microseconds: int) -> datetime:
    """Return a moment, in UTC, by its microseconds since 1970.

    Of those that Python does not have, it is the last or the first one that it has.
    """
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return LAST if microseconds > 0 else datetime.min.replace(tzinfo=UTC)
