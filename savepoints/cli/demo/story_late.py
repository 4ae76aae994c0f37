"""The story of a late batch: last year's orders of some customers arrive today, and are merged."""

from __future__ import annotations

from savepoints.cli.demo.story import BUCKET, PRODUCE, SETTINGS, TABLE, Story

CUSTOMERS = 200
_FILE = "late-orders.parquet"
_IN_TIME = f"s3://{BUCKET}/tables/in_time"
# A second query over the orders as they would have arrived without the broken feed.
_SETTINGS = f"""{SETTINGS}
[queries.order_totals.archives]
orders = "s3://{BUCKET}/archive/orders"

[queries.in_time]
app = "spark_jobs.order_totals:app"
app_name = "order_totals"
checkpoints = "s3://{BUCKET}/checkpoints"
max_offsets_per_trigger = 20000

[queries.in_time.outputs]
totals = "{_IN_TIME}"

[queries.in_time.topics]
orders = "orders-in-time"
"""


class LateStory(Story):
    """Totals by customer; some orders arrive a year late."""

    def tell(self) -> bool:
        """Run the story; return True if every check passed."""
        from datetime import date

        self.begin(_SETTINGS)
        end = date(1998, 7, 1)

        self.step(
            f"Real orders go to Kafka, but a broken feed holds back what {CUSTOMERS} customers "
            "ordered in 1997."
        )
        self.type(f"{PRODUCE} --held-back {CUSTOMERS}")
        self.type("savepoints run order_totals --until latest")
        self.type("python -m savepoints.jobs.archive order_totals orders --until latest")
        before = self.compare(end)

        self.step("A year later the orders are found. What would merging them in do?")
        self.type(f"python -m spark_jobs.orders held-back --customers {CUSTOMERS} --to {_FILE}")
        self.type(f"savepoints merge order_totals --batch {_FILE} --dry-run")

        self.step("Only these customers are replayed, and a few others as a check.")
        self.type(f"savepoints merge order_totals --batch {_FILE} --yes")
        merged = self.compare(end)

        self.step("The same batch again changes nothing.")
        self.type(f"savepoints merge order_totals --batch {_FILE} --yes")
        again = self.compare(end)

        self.step("The proof: a second query reads all orders as if they had arrived on time.")
        self.type(f"{PRODUCE}-in-time")
        self.type("savepoints run in_time --until latest")
        differing = _differing()

        self.step("Was the file wrong? Undo the merge, then merge once more.")
        self.type("savepoints merge order_totals --undo --yes")
        undone = self.compare(end)
        self.type(f"savepoints merge order_totals --batch {_FILE} --yes")
        last = self.compare(end)
        return self.judge(
            [
                ("before: customers that differ from pandas", before.wrong, CUSTOMERS),
                ("merged: orders counted", merged.orders, merged.orders_true),
                ("merged: cents", merged.amount_cents, merged.amount_cents_true),
                ("merged: customers that differ", merged.wrong, 0),
                ("merged again: customers that differ", again.wrong, 0),
                ("rows that differ from the query that received everything on time", differing, 0),
                ("undone: customers that differ", undone.wrong, before.wrong),
                ("merged once more: customers that differ", last.wrong, 0),
            ]
        )


def _differing() -> int:
    """Count the rows of the two tables that are not in both."""
    from savepoints.outputs.delta.batch_version import open_table

    one, other = open_table(TABLE).to_pandas(), open_table(_IN_TIME).to_pandas()
    both = one.merge(other, how="outer", indicator="where")
    return int((both["where"] != "both").sum())
