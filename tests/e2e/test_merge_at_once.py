"""Two merges of one query in two processes: one of them gets it, and the other one is told so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from savepoints.store.tables.merge_ledger import Ledger
from tests.e2e.late_shop import day, differing, ids, late_orders, merge, written
from tests.e2e.shop import QUERY, Shop, environment

pytestmark = [
    *(pytest.mark.e2e, pytest.mark.spark, pytest.mark.kafka, pytest.mark.nightly),
    pytest.mark.timeout(1800),
]


def begun(shop: Shop, batch: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "savepoints", "merge", QUERY, "--batch", str(batch), "--yes"],
        cwd=shop.directory,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_one_of_two_merges_is_refused_and_can_be_done_afterwards(local_shop: Shop) -> None:
    """Both begin at once, with batches of the same customers, and nothing is mixed up."""
    shop, held = local_shop, late_orders(0, 4)
    shop.sell(day(0), day(4), without=ids(held))
    shop.run()
    files = [written(shop, held[half::2], f"{half}.parquet") for half in (0, 1)]

    both = [begun(shop, file) for file in files]
    said = [one.communicate(timeout=600)[1] for one in both]

    codes = [one.returncode for one in both]
    # 13: it had its plan when the other one had begun the next generation.
    assert sorted(codes) in ([0, 0], [0, 11], [0, 13]), said
    done = [ids(held[half::2]) for half, code in enumerate(codes) if code == 0]
    assert differing(shop, day(4), without=ids(held).difference(*done)) == 0
    assert len(Ledger(shop.store.root).all()) == len(done)
    for half, code in enumerate(codes):
        if code:
            merge(shop, files[half])
    assert differing(shop, day(4)) == 0
    shop.sell(day(4), day(5))
    shop.run()
    assert differing(shop, day(5)) == 0
