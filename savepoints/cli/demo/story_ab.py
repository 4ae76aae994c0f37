"""The story of an A/B test: two versions from one state, compared, and the better one promoted."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from savepoints.cli.demo.story import PRODUCE, SETTINGS, TABLE, Story
from savepoints.errors import PartlyDoneError

if TYPE_CHECKING:
    import pandas as pd

# The test begins on the first of these days, ends on the second, and the winner runs to the third.
BEGIN, DECIDED, END = date(1997, 4, 1), date(1997, 7, 1), date(1997, 10, 1)
V2 = "spark_jobs.order_tiers_v2:app"
REPORT = "savepoints-ab.html"
# The metrics to compare, and the checks that the fork must pass before it takes over.
_SETTINGS = f"""{SETTINGS}
[compare.metrics]
customers = "SELECT count(*) FROM totals"
gold_customers = "SELECT count(*) FROM totals WHERE tier = 'gold'"
revenue_cents = "SELECT sum(amount_cents) FROM totals"

[promote]
rows = 0.0

[promote.checks]
"same orders" = "SELECT (SELECT sum(orders) FROM totals) = (SELECT sum(orders) FROM live_totals)"
"""  # noqa: S608  (settings, of no input)


class AbStory(Story):
    """Tiers of customers by two rules, from the same state over the same orders."""

    def tell(self) -> bool:
        """Run the story; return True if every check passed."""
        self.begin(_SETTINGS)
        report = Path.cwd() / REPORT

        self.step(f"Real orders go to Kafka, all before {BEGIN}, and a query keeps totals.")
        self.type(f"{PRODUCE} --until {BEGIN}")
        self.type("savepoints run order_totals --until latest")
        before = self.compare(BEGIN)

        self.step("Two forks of that one savepoint: today's version, and another rule.")
        self.type("savepoints fork latest tiers_v1 --yes")
        self.type(f"savepoints fork latest tiers_v2 --app {V2} --yes")
        self.type("savepoints lineage")

        self.step(
            f"Three months of orders arrive, until {DECIDED}. Both forks read exactly the "
            "same ones."
        )
        self.type(f"{PRODUCE} --from {BEGIN} --until {DECIDED}")
        self.type(
            f"savepoints compare tiers_v1 tiers_v2 --until latest --report {report} --yes",
            expected=PartlyDoneError.exit_code,
        )
        self.say(f"They differ, as they should (exit code 3). The report: {report}")
        first = self.compare(DECIDED, table=f"{TABLE}_forks/tiers_v1")
        second = self.compare(DECIDED, table=f"{TABLE}_forks/tiers_v2", v2_from=BEGIN)
        untouched = self.compare(BEGIN)

        self.step("The second rule wins: it takes over from the live query, at exact offsets.")
        self.type("savepoints promote tiers_v2 --dry-run")
        self.type("savepoints promote tiers_v2 --yes")
        promoted = self.compare(DECIDED, v2_from=BEGIN)
        self.type(f"{PRODUCE} --from {DECIDED} --until {END}")
        self.type("savepoints run order_totals --until latest")
        after = self.compare(END, v2_from=BEGIN)

        self.step("Was it a mistake? Back to the first version, as if nothing had happened.")
        self.type("savepoints promote order_totals --undo --yes")
        self.type("savepoints run order_totals --until latest")
        undone = self.compare(END)
        exact = [before, first, second, untouched, promoted, after, undone]
        rows = [
            ("before: customers that differ from pandas", before.wrong, 0),
            ("version 1: customers that differ", first.wrong, 0),
            ("version 2: customers that differ", second.wrong, 0),
            ("tiers that differ between the two", _tiers_that_differ(), _wanted()),
            ("meanwhile the live query: customers that differ", untouched.wrong, 0),
            ("promoted: customers that differ", promoted.wrong, 0),
            ("promoted, at the end: orders counted", after.orders, after.orders_true),
            ("promoted, at the end: customers that differ", after.wrong, 0),
            ("undone, at the end: orders counted", undone.orders, undone.orders_true),
            ("undone, at the end: customers that differ", undone.wrong, 0),
        ]
        return self.judge(rows) and all(one.exact for one in exact) and report.is_file()


def _tiers_that_differ() -> int:
    """Count the customers whose tier differs in the second fork's table."""
    from savepoints.outputs.delta.batch_version import open_table

    return _differing(
        open_table(f"{TABLE}_forks/tiers_v1").to_pandas(),
        open_table(f"{TABLE}_forks/tiers_v2").to_pandas(),
    )


def _wanted() -> int:
    from spark_jobs.orders.truth import order_totals_truth

    return _differing(order_totals_truth(DECIDED), order_totals_truth(DECIDED, v2_from=BEGIN))


def _differing(one: pd.DataFrame, other: pd.DataFrame) -> int:
    both = one.merge(other, on="customer_id", suffixes=("", "_other"))
    return int((both["tier"] != both["tier_other"]).sum())
