"""The story of a rollback: a bug corrupts state and output, and both go back together."""

from __future__ import annotations

from datetime import date, timedelta

from savepoints.cli.demo.story import PRODUCE, TABLE, Story
from savepoints.moments import rfc3339, utc_now

# The bug is deployed on the first of these days of the data, and noticed on the second.
BUG_BEGINS, BUG_NOTICED = date(1997, 4, 1), date(1997, 7, 1)
END_OF_DATA = date(1998, 7, 1)
# A savepoint is taken at the first of these days; the second is asked for later.
FIRST_STOP, WANTED_DAY = date(1997, 2, 1), date(1997, 2, 15)


class RollbackStory(Story):
    """Totals of real orders, a bug, a rollback, and a day between two savepoints."""

    def tell(self) -> bool:
        """Run the story; return True if every check passed."""
        self.begin()

        self.step(f"Real orders go to Kafka: all before {BUG_BEGINS}.")
        self.type(f"{PRODUCE} --until {BUG_BEGINS}")
        self.step("A query keeps totals by customer. It stops exactly at the given time.")
        self.type(f"savepoints run order_totals --until {FIRST_STOP}T00:00:00Z")
        first = self.compare(FIRST_STOP)
        self.step("It continues; a savepoint is taken every 10 seconds.")
        self.type("savepoints run order_totals --every 10s --until latest")
        before = self.compare(BUG_BEGINS)
        self.type("savepoints list")
        self.step("Is the newest one undamaged? (--contents would read every state row as well.)")
        self.type("savepoints verify latest")

        deployed = rfc3339(utc_now() + timedelta(milliseconds=1))
        self.step(f"{deployed}: a new version with a bug is deployed, and more orders arrive.")
        self.type(f"{PRODUCE} --from {BUG_BEGINS} --until {BUG_NOTICED}")
        self.type(
            "savepoints run order_totals --app spark_jobs.order_totals_buggy:app --until latest"
            " --no-final-savepoint"
        )
        spoiled = self.compare(BUG_NOTICED)
        self.say(f"{spoiled.wrong} of {spoiled.customers} customers now have a wrong total.")

        self.step("Back to before the bug: state, offsets and output together. First the plan:")
        self.type(f"savepoints rollback @{deployed} --dry-run")
        self.type(f"savepoints rollback @{deployed} --yes")
        restored = self.compare(BUG_BEGINS)

        self.step("The correct version continues from there, with the rest of the orders.")
        self.type(f"{PRODUCE} --from {BUG_NOTICED}")
        self.type("savepoints run order_totals --until latest")
        after = self.compare(END_OF_DATA)
        rollbacks = self.rollback_commits()

        self.step(
            f"What were the totals when {WANTED_DAY} began? No savepoint was taken at that moment."
        )
        self.type(f"savepoints rollback --at {WANTED_DAY}T00:00:00Z --exact --yes")
        wanted = self.compare(WANTED_DAY)
        self.step("Back to the present.")
        self.type("savepoints undo order_totals --yes")
        undone = self.compare(END_OF_DATA)
        exact = [first, before, restored, after, wanted, undone]
        rows = [
            ("at the first stop: customers that differ from pandas", first.wrong, 0),
            ("before the bug: customers that differ from pandas", before.wrong, 0),
            ("before the bug: rows", before.rows, before.customers),
            ("with the bug: wrong customers, more than", spoiled.wrong, 0),
            ("after the rollback: customers that differ", restored.wrong, 0),
            ("after the rollback: sum of amounts, cents", restored.amount_cents,
             restored.amount_cents_true),
            ("rollback commits in the table's history", rollbacks, 1),
            ("at the end: rows", after.rows, after.customers),
            ("at the end: orders counted", after.orders, after.orders_true),
            ("at the end: sum of amounts, cents", after.amount_cents, after.amount_cents_true),
            ("at the end: customers that differ from pandas", after.wrong, 0),
            (f"at {WANTED_DAY}: orders counted", wanted.orders, wanted.orders_true),
            (f"at {WANTED_DAY}: customers that differ from pandas", wanted.wrong, 0),
            ("undone: customers that differ from pandas", undone.wrong, 0),
        ]  # fmt: skip
        return self.judge(rows) and all(one.exact for one in exact)

    def rollback_commits(self) -> int:
        """Count the commits in the output's history that restored a version."""
        from savepoints.outputs.delta.batch_version import open_table

        history = open_table(TABLE).history()
        return sum(1 for commit in history if commit.get("operation") == "RESTORE")
