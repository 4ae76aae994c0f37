"""The options that name the point to go back to."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

import click

from savepoints.cli.options import (
    Function,
    broken_too,
    moment,
    of_query,
    restored_form,
    unreplayable_too,
)
from savepoints.errors import UsageError
from savepoints.model import Form
from savepoints.moments import rfc3339

if TYPE_CHECKING:
    from savepoints.operations.rollback.target import Meaning, Point


@dataclass(frozen=True)
class PointOptions:
    """The values of `--at` and of the options that name a point in other ways."""

    at: datetime | None
    exact: bool
    by: Meaning | None
    at_batch: int | None


def to_a_point(function: Function) -> Function:
    """Add the options for points other than a savepoint's name, and pass them as `point`."""

    @click.option(
        "--at",
        metavar="TIME",
        callback=moment,
        help="Use the newest savepoint whose batch was committed at or before this time: RFC 3339, "
        "or an age like 10m.",
    )
    @click.option(
        "--exact",
        is_flag=True,
        help="With --at: go to exactly that time, not to the last savepoint before it.",
    )
    @click.option(
        "--at-by",
        "by",
        type=click.Choice(["arrival", "commit"]),
        help="With --exact: what the time refers to. arrival: the timestamps of the records in "
        "Kafka (the default); commit: when batches were committed.",
    )
    @click.option(
        "--at-batch",
        type=click.IntRange(min=0),
        help="Go back to this batch, even without a savepoint of it; the checkpoint must still "
        "have the batch.",
    )
    @functools.wraps(function)
    def wrapped(
        *args: object,
        at: datetime | None,
        exact: bool,
        by: Meaning | None,
        at_batch: int | None,
        **options: Any,  # noqa: ANN401  (of any command)
    ) -> Any:  # noqa: ANN401  (whatever the command returns)
        return function(*args, point=PointOptions(at, exact, by, at_batch), **options)

    return wrapped


class Restoring(TypedDict):
    """How a savepoint is restored; commands pass it on to the plans of their verbs."""

    query: str | None
    form: Form | None
    even_broken: bool
    accept_unreplayable: bool


def restoring(function: Function) -> Function:
    """Add the options of every restore, and pass them as `given`, and the sources apart."""

    @restored_form
    @click.option(
        "--source",
        "sources",
        multiple=True,
        metavar="START",
        help="Where a source of the program starts: keep:N (where source N of the savepoint, "
        "counted from 0, left off), new (as set in the options of its reader), or a position as "
        "JSON. Repeat the option for each source, in the program's order.",
    )
    @broken_too
    @unreplayable_too
    @of_query
    @functools.wraps(function)
    def wrapped(
        *args: object,
        query: str | None,
        form: Form | None,
        even_broken: bool,
        accept_unreplayable: bool,
        **options: Any,  # noqa: ANN401  (of any command)
    ) -> Any:  # noqa: ANN401  (whatever the command returns)
        given = Restoring(
            query=query, form=form, even_broken=even_broken, accept_unreplayable=accept_unreplayable
        )
        return function(*args, given=given, **options)

    return wrapped


def point_of(
    name: str | None, options: PointOptions, *, app: str | None, undo: bool = False
) -> Point:
    """Return the one point that the options name."""
    from savepoints.operations.rollback.target import AtBatch, AtTime, BeforeLast, Named

    at, exact, by = options.at, options.exact, options.by
    given: list[Point] = []
    if name is not None:
        given.append(Named(name))
    if at is not None:
        given.append(AtTime(at, by or "arrival") if exact else Named(f"@{rfc3339(at)}"))
    if options.at_batch is not None:
        given.append(AtBatch(options.at_batch))
    if undo:
        given.append(BeforeLast())
    if len(given) != 1:
        raise UsageError(
            f"exactly one savepoint, time or batch is required, but {len(given)} were given",
            hint="pass the name of a savepoint, --at TIME, --at TIME --exact or --at-batch N; "
            "rollback also has --undo",
        )
    needless = {"--exact": exact and at is None, "--at-by": by and not exact,
                "--app": app and not exact}  # fmt: skip
    for option, is_needless in needless.items():
        if is_needless:
            raise UsageError(
                f"{option} has no effect without --at TIME"
                + (" --exact" if option != "--exact" else ""),
                hint=f"omit {option}, or choose the point with --at TIME --exact",
            )
    return given[0]
