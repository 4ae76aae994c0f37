"""Commands that expect a version of the account that they change, as event sourcing has them.

Several writers read an account, and each sends a command with the version that it read. Of those
that expect one version the first is accepted, and makes the next; the others are conflicts, whose
writers read again and send another. The version is state, so it can be checked against nothing that
is behind, and goes back with the rows when the query is rolled back. One query writes
two tables: what was accepted, as events of the account, and what was not, with the reason.

Commands wait until the watermark has passed them, and are then decided in the order of their times.
So a decision depends on what was sent and when, and not on what came first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd
from pyspark.sql import functions as F

from savepoints.runtime.app import App, Input, Output
from spark_jobs import json_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

FIELDS = "event_id string, account_id string, expected_version long, amount_cents long"
LATENESS = "30 seconds"
CONFLICT, OVERDRAWN = "conflict", "overdrawn"

_ROW = (
    "account_id string, event_id string, at_ms long, expected_version long, amount_cents long, "
    "version long, balance_cents long, rejected string"
)


class Command(NamedTuple):
    """What a writer wants; commands are ordered by their time, then by their id.

    Attributes:
        at_ms: When it was sent, in milliseconds since 1970.
        event_id: Unique; the same when it is sent again.
        expected_version: Version of the account that the writer has read, 0 for a new one.
        amount_cents: Paid in, or out if it is negative.
    """

    at_ms: int
    event_id: str
    expected_version: int
    amount_cents: int


class Account(NamedTuple):
    """An account.

    Attributes:
        version: How many commands were accepted.
        balance_cents: The sum of their amounts.
    """

    version: int = 0
    balance_cents: int = 0


class Decision(NamedTuple):
    """What came of a command.

    Attributes:
        event_id: The command.
        at_ms: When it was sent, in milliseconds since 1970.
        expected_version: What it expected.
        amount_cents: What it wanted.
        version: Version of the account afterwards.
        balance_cents: Balance of the account afterwards.
        rejected: `conflict` when another version was expected than there was, `overdrawn` when the
            balance does not cover it; None when it was accepted.
    """

    event_id: str
    at_ms: int
    expected_version: int
    amount_cents: int
    version: int
    balance_cents: int
    rejected: str | None


def decide(account: Account, command: Command) -> tuple[Account, str | None]:
    """Decide a command.

    Returns:
        The account afterwards, and why the command was rejected, None when it was accepted.
    """
    if command.expected_version != account.version:
        return account, CONFLICT
    balance_cents = account.balance_cents + command.amount_cents
    if balance_cents < 0:
        return account, OVERDRAWN
    return Account(account.version + 1, balance_cents), None


def settle(
    account: Account, commands: Iterable[Command], watermark_ms: int
) -> tuple[Account, list[Command], list[Decision], int | None]:
    """Decide the commands of an account up to the watermark, in their order.

    Args:
        account: The account as it was.
        commands: Those not yet decided, in any order, some more than once.
        watermark_ms: Nothing that was sent before it will come any more.

    Returns:
        The account afterwards, the commands that have to wait, the decisions, and the time after
        which there may be more (None for never), in milliseconds since 1970.
    """
    once = {command.event_id: command for command in sorted(commands, reverse=True)}
    ordered = sorted(once.values())
    due = [command for command in ordered if command.at_ms < watermark_ms]
    decisions = []
    for command in due:
        account, rejected = decide(account, command)
        decisions.append(
            Decision(
                command.event_id,
                command.at_ms,
                command.expected_version,
                command.amount_cents,
                *account,
                rejected,
            )
        )
    waiting = ordered[len(due) :]
    return account, waiting, decisions, waiting[0].at_ms if waiting else None


def frame(account_id: str, decisions: Sequence[Decision]) -> pd.DataFrame:
    """Return decisions as rows."""
    found = pd.DataFrame(decisions, columns=list(Decision._fields))
    # Without it a chunk in which all were accepted would have numbers that are none.
    found["rejected"] = found["rejected"].astype(object)
    found.insert(0, "account_id", account_id)
    return found


def decode(records: DataFrame) -> DataFrame:
    """Read the commands in Kafka records; see `json_records.decode`."""
    return json_records.decode(records, FIELDS)


def encode(commands: DataFrame) -> DataFrame:
    """Write commands as Kafka records; see `json_records.encode`."""
    return json_records.encode(commands, FIELDS, key="account_id")


def _advance(
    key: tuple[str], chunks: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    version, balance_cents, kept = state.get if state.exists else (0, 0, "[]")
    names = list(Command._fields)
    # Arrow may have cut the commands of an account anywhere.
    new = [row for one in chunks for row in one[names].itertuples(index=False, name=None)]
    # A command without a number is one that nobody can decide: `int` of it fails, and the query.
    commands = [
        Command(at_ms, event_id, int(expected), int(cents))
        for at_ms, event_id, expected, cents in [*json.loads(kept), *new]
    ]
    account, waiting, decisions, wake_ms = settle(
        Account(version, balance_cents), commands, state.getCurrentWatermarkMs()
    )
    state.update((*account, json.dumps(waiting)))
    if wake_ms is not None:
        state.setTimeoutTimestamp(wake_ms)
    if decisions:
        yield frame(key[0], decisions)


def build(inputs: Mapping[str, DataFrame]) -> DataFrame:
    """Build the query.

    Args:
        inputs: `commands`, decoded.

    Returns:
        A row for each decided command: account_id, event_id, at, expected_version, amount_cents,
        version and balance_cents (afterwards), rejected (`conflict`, `overdrawn`; null when
        accepted); for append mode.
    """
    timed = inputs["commands"].withWatermark(json_records.AT, LATENESS)
    at_ms = F.unix_millis(json_records.AT).alias("at_ms")
    commands = timed.select(
        "account_id", json_records.AT, at_ms, "event_id", "expected_version", "amount_cents"
    )
    found = commands.groupBy("account_id").applyInPandasWithState(
        _advance,
        _ROW,
        # As text: workers of Spark 4.2.0 cannot read that a column of state is an array.
        "version long, balance_cents long, waiting string",
        "append",
        "EventTimeTimeout",
    )
    return found.select(
        "account_id",
        "event_id",
        F.timestamp_millis("at_ms").alias(json_records.AT),
        "expected_version",
        "amount_cents",
        "version",
        "balance_cents",
        "rejected",
    )


app = App(
    name="accounts",
    inputs={
        "commands": Input(
            topic="commands",
            decode=decode,
            entity_key="account_id",
            event_time=json_records.AT,
            event_id=("event_id",),
            encode=encode,
        )
    },
    build=build,
    outputs={
        "events": Output(
            mode="append",
            where="rejected IS NULL",
            columns=(
                "account_id",
                "version",
                "event_id",
                json_records.AT,
                "amount_cents",
                "balance_cents",
            ),
        ),
        "rejected": Output(
            mode="append",
            where="rejected IS NOT NULL",
            columns=(
                "account_id",
                "event_id",
                json_records.AT,
                "expected_version",
                "amount_cents",
                "rejected",
                "version",
                "balance_cents",
            ),
        ),
    },
)
