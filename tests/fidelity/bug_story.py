"""A pipeline that runs, has a bug, is rolled back and goes on; and one that never had the bug."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from savepoints.operations import unfinished
from savepoints.operations.pipeline_rollback import pipeline_rollback, rollback_plan
from savepoints.operations.pipeline_rollback.pipeline_rollback import PipelineRolledBack
from savepoints.store.locks import journal
from tests.fidelity.lake import Lake
from tests.killed import killed_at


def rolled_back(lake: Lake, query: str, point: str, **options: Any) -> PipelineRolledBack:
    plan = rollback_plan.plan(
        lake.store,
        query,
        point,
        writers={name: f"tests.fidelity.lake:write_{name}" for name in lake.shape},
        checkpoints=str(lake.place / "checkpoints"),
        stopped=True,
        **options,
    )
    done = pipeline_rollback.execute(plan, lake.store)
    lake.follow()
    return done


def before_the_bug(lake: Lake, *, behind: bool) -> None:
    """Run for a while; at the end those that nobody waits for are behind or not."""
    lake.give(1, 2, 3, 4, 12)
    lake.run()
    if behind:
        lake.give(14, 9)
        lake.give(16, 11)
        lake.run(*lake.ahead)


def the_bug(lake: Lake) -> None:
    lake.has_bug = True
    lake.give(20, 21, 22)
    lake.run()


def after_the_bug(lake: Lake) -> None:
    lake.has_bug = False
    lake.run()
    lake.give(30, 31, 32, 33)
    lake.run()


def without_the_bug(lake: Lake, *, behind: bool) -> dict[str, Any]:
    before_the_bug(lake, behind=behind)
    lake.give(20, 21, 22)
    after_the_bug(lake)
    return lake.tables()


def killed_at_each(
    points: Sequence[str], lake: Lake, monkeypatch: pytest.MonkeyPatch, *, is_undone: bool
) -> None:
    """Roll back one time after the other, killed at a point; each is finished or taken back."""
    before_the_bug(lake, behind=True)
    lake.save()
    lake.store.query("silver").create_group(name="before").execute()
    lake.give(20, 22)
    lake.run("bronze", "silver")
    back = partial(rolled_back, lake, "silver", "before")
    for point in points:
        killed_at(monkeypatch, f"pipeline rollback.{point}", back)
        if is_undone:
            (begun,) = journal.all_unfinished(lake.store.root)
            unfinished.undo(lake.store, begun.id)
        else:
            back()
        lake.follow()
    after_the_bug(lake)


def never_killed(lake: Lake) -> None:
    """Do what `killed_at_each` comes to."""
    before_the_bug(lake, behind=True)
    lake.give(20, 22)
    after_the_bug(lake)
