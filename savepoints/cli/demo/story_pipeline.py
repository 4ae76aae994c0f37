"""The story of a pipeline: bronze, silver and gold, saved as one, and late orders through all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from savepoints.cli.demo.story import BUCKET, PRODUCE, SETTINGS, Story

CUSTOMERS = 400
_END, _LATER = date(1997, 1, 8), date(1997, 1, 12)
_FILE = "late-orders.parquet"
_TABLE = f"s3://{BUCKET}/tables"
_MERGE = f"savepoints merge bronze --batch {_FILE} --until {_END}T00:00:00Z"
_SETTINGS = f"""{SETTINGS.partition("[queries.")[0]}
[queries.bronze]
app = "spark_jobs.medallion.bronze:app"
checkpoints = "s3://{BUCKET}/checkpoints"
[queries.bronze.outputs]
orders = "{_TABLE}/bronze"
[queries.bronze.archives]
orders = "s3://{BUCKET}/archive/orders"

[queries.silver]
app = "spark_jobs.medallion.silver:app"
checkpoints = "s3://{BUCKET}/checkpoints"
[queries.silver.tables]
orders = "{_TABLE}/bronze"
[queries.silver.outputs]
lines = "{_TABLE}/silver"

[queries.gold]
app = "spark_jobs.medallion.gold:app"
checkpoints = "s3://{BUCKET}/checkpoints"
[queries.gold.tables]
lines = "{_TABLE}/silver"
[queries.gold.outputs]
days = "{_TABLE}/gold"
"""


class PipelineStory(Story):
    """Three queries, each of which reads the table of the one before it."""

    def tell(self) -> bool:
        """Run the story; return True if every check passed."""
        self.begin(_SETTINGS)

        self.step(
            "Real orders go to Kafka and through three queries: bronze keeps each order once, "
            "silver adds the running total and tier of its customer, gold sums up each day and "
            f"tier. A broken feed holds back the orders of {CUSTOMERS} customers."
        )
        self.type(f"{PRODUCE} --until {_END} --held-back {CUSTOMERS}")
        for level in ("bronze", "silver", "gold"):
            self.type(f"savepoints run {level} --until latest")
        self.type("savepoints pipeline show gold")
        before = self._differing()

        self.step("Savepoints of all three that fit together, under one name:")
        self.type("savepoints pipeline create gold --tag before-late")
        self.type("savepoints pipeline verify gold --tag before-late")

        self.step("The orders are found. What would merging them change, at each level?")
        self.type(f"python -m spark_jobs.orders held-back --customers {CUSTOMERS} --to {_FILE}")
        self.type(f"{_MERGE} --downstream plan")
        planned = self._differing()

        self.step("Merge them through all three: each level replays only what is affected.")
        self.type(f"{_MERGE} --downstream merge --yes")
        merged = self._differing()

        self.step("The orders of the following days are counted from there.")
        self.type(f"{PRODUCE} --from {_END} --until {_LATER}")
        for level in ("bronze", "silver", "gold"):
            self.type(f"savepoints run {level} --until latest")
        after = self._differing(_LATER)

        self.step("Was the file wrong? Roll all three back together, and let them continue.")
        self.type("savepoints pipeline rollback gold before-late --all --yes")
        for level in ("bronze", "silver", "gold"):
            self.type(f"savepoints run {level} --until latest")
        back = self._differing(_LATER, without=_held_back())
        return self.judge(
            [
                *((f"before: more than 0 rows of {one} differ", n, 0) for one, n in before.items()),
                *((f"planned: rows of {one} that differ", planned[one], n)
                  for one, n in before.items()),
                *((f"merged: rows of {one} that differ", n, 0) for one, n in merged.items()),
                *((f"days later: rows of {one} that differ", n, 0) for one, n in after.items()),
                *((f"taken back: rows of {one} that differ from those without the file", n, 0)
                  for one, n in back.items()),
            ]
        )  # fmt: skip

    def _differing(self, until: date = _END, without: Sequence[str] = ()) -> dict[str, int]:
        """Count the rows of each level that differ from pandas over the orders before a day."""
        from spark_jobs.medallion.truth import LEVELS, differing, truth

        wanted = truth(until, without=without)
        found = {one: differing(one, f"{_TABLE}/{one}", wanted[one]) for one in LEVELS}
        for level, rows in found.items():
            self.say(f"{level}: {len(wanted[level])} rows according to pandas, {rows} differ")
        return found


def _held_back() -> list[str]:
    """Return the ids of the orders in the file, as far as they are merged."""
    from spark_jobs.orders import late
    from spark_jobs.orders.cdnow import read_orders

    held = late.held_back(read_orders(), CUSTOMERS)[1]
    return [one.order_id for one in held if one.ordered_at.date() < _END]
