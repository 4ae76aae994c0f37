"""A pipeline that runs, has a bug, is rolled back and goes on; and one that never had the bug."""

from __future__ import annotations

from typing import Any

from savepoints.operations.pipeline import pipeline_rollback, rollback_plan
from savepoints.operations.pipeline.pipeline_rollback import PipelineRolledBack
from tests.fidelity.lake import Lake


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
