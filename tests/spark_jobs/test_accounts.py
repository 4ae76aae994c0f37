"""Commands with an expected version, decided without Spark, against a ledger in plain Python."""

from __future__ import annotations

import copy
import random
from collections import Counter

import pandas as pd
import pytest

from spark_jobs import accounts
from spark_jobs.accounts import CONFLICT, OVERDRAWN, Account, Command, Decision
from tests.spark_jobs import samples, truths

EMPTY = Account()
_SECOND = 1_000
Waiting = list[Command]
# By account: how it is, and what waits.
State = dict[str, tuple[Account, Waiting]]


@pytest.mark.parametrize(
    ("account", "expected", "amount", "after", "rejected"),
    [
        (EMPTY, 0, 10, Account(1, 10), None),
        (Account(3, 10), 3, -10, Account(4, 0), None),
        (Account(3, 10), 3, -11, Account(3, 10), OVERDRAWN),
        (Account(3, 10), 2, 10, Account(3, 10), CONFLICT),
        (Account(3, 10), 4, 10, Account(3, 10), CONFLICT),
        # Who has read an old version has not read the balance either.
        (Account(3, 10), 2, -11, Account(3, 10), CONFLICT),
    ],
)
def test_a_command_is_decided_by_the_version_first(
    account: Account, expected: int, amount: int, after: Account, rejected: str | None
) -> None:
    assert accounts.decide(account, Command(0, "e", expected, amount)) == (after, rejected)


def test_of_two_writers_that_read_one_version_the_first_by_its_clock_wins() -> None:
    late, early = Command(2 * _SECOND, "a", 0, 5), Command(_SECOND, "b", 0, 7)
    again = Command(3 * _SECOND, "c", 1, 5)

    account, waiting, decided, wake_ms = accounts.settle(EMPTY, [late, again, early], 3 * _SECOND)

    assert [(one.event_id, one.version, one.rejected) for one in decided] == [
        ("b", 1, None),
        ("a", 1, CONFLICT),
    ]
    assert (account, waiting, wake_ms) == (Account(1, 7), [again], 3 * _SECOND)


def test_trap_a_command_that_is_sent_twice_is_no_conflict_with_itself() -> None:
    one = Command(_SECOND, "a", 0, 5)

    account, _, decided, _ = accounts.settle(EMPTY, [one, one], 2 * _SECOND)

    assert account == Account(1, 5)
    assert [(row.event_id, row.rejected) for row in decided] == [("a", None)]


class Live:
    """A query as Spark runs it: state, rows, and the cut of each batch, to which it can go back."""

    def __init__(self) -> None:
        self.state: State = {}
        self.rows: list[tuple[str, Decision]] = []
        self.watermark_ms = 0
        self.read = 0
        self.cuts: list[tuple[State, int, int, int]] = []

    def batch(self, arrived: pd.DataFrame, end: int) -> None:
        """Run a batch up to an offset."""
        new = arrived.iloc[self.read : end]
        for name in sorted({*self.state, *new["account_id"]}):
            account, waiting = self.state.get(name, (EMPTY, []))
            mine = new.loc[new["account_id"] == name, list(Command._fields)]
            sent = [Command(*one) for one in mine.itertuples(index=False, name=None)]
            account, waiting, decided, _ = accounts.settle(
                account, [*waiting, *sent], self.watermark_ms
            )
            self.state[name] = account, waiting
            self.rows += [(name, one) for one in decided]
        self.read = end
        newest_ms = int(new["at_ms"].max()) if len(new) else 0
        self.watermark_ms = max(self.watermark_ms, newest_ms - 30 * _SECOND)
        self.cuts.append((copy.deepcopy(self.state), len(self.rows), self.watermark_ms, self.read))

    def back_to(self, cut: int) -> None:
        """Go back to a cut, with the rows: what a rollback does, and a restart after a kill."""
        del self.cuts[cut + 1 :]
        state, rows, self.watermark_ms, self.read = self.cuts[cut]
        self.state = copy.deepcopy(state)
        del self.rows[rows:]


@pytest.mark.parametrize("seed", range(20))
def test_killed_and_rolled_back_in_between_it_comes_to_what_the_ledger_says(seed: int) -> None:
    chance = random.Random(seed)
    events = samples.commands(seed, 120)
    arrived = samples.arriving(events, pd.Timedelta(seconds=30).to_pytimedelta(), seed)
    live = Live()
    backs = 0
    while live.read < len(arrived):
        live.batch(arrived, min(len(arrived), live.read + chance.randrange(1, 12)))
        if backs < 8 and chance.random() < 0.3:
            live.back_to(chance.randrange(len(live.cuts)))
            backs += 1
    live.batch(arrived, len(arrived))

    until = pd.Timestamp(live.cuts[-2][2], unit="ms", tz="UTC")
    found = [
        (name, one.event_id, pd.Timestamp(one.at_ms, unit="ms", tz="UTC"), *one[2:])
        for name, one in live.rows
    ]
    truth = truths.accounts(events, until)
    assert backs > 0
    assert sorted(found, key=str) == truth
    assert {CONFLICT, OVERDRAWN, None} == {one.rejected for _, one in live.rows}
    for name, (account, _) in live.state.items():
        accepted = [one for of, one in live.rows if of == name and one.rejected is None]
        assert [one.version for one in accepted] == list(range(1, account.version + 1))
        assert account.balance_cents == sum(one.amount_cents for one in accepted)
    won = Counter((of, one.expected_version) for of, one in live.rows if one.rejected is None)
    assert set(won.values()) == {1}
