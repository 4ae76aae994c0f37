"""How far a verb walks: the modules of `operations` in which anything runs (ADR 45)."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

import savepoints.operations
from savepoints.handle import Store
from savepoints.io import Location
from savepoints.operations.rollback import rollback
from savepoints.operations.savepoint import create
from tests import samples

ROOM = Path(str(savepoints.operations.__file__)).parent


def modules_entered(act: Callable[[], object]) -> set[str]:
    """Return the modules of `operations` of which a function was called, in any thread."""
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":
            entered.add(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {str(Path(one).relative_to(ROOM)) for one in entered if Path(one).is_relative_to(ROOM)}


def test_a_savepoint_and_the_plan_of_a_rollback_are_short_walks(
    on_local: Location, local_store: Store
) -> None:
    checkpoint = samples.unpack("rocksdb", on_local / "live")
    output, writer = str(on_local / "output"), samples.query_id("rocksdb")
    for batch in range(4):
        marked = CommitProperties(app_transactions=[Transaction(writer, batch)])
        rows = pa.table({"batch": [batch]})
        write_deltalake(output, rows, mode="append", commit_properties=marked)

    def save() -> None:
        plan = create.plan(
            local_store,
            query="totals",
            checkpoint=str(checkpoint),
            outputs={"totals": output},
            forms=("native",),
        )
        create.execute(plan, local_store)

    def go_back() -> None:
        rollback.plan(local_store, "latest", to=str(on_local / "next"))

    assert len(modules_entered(save)) <= 10
    assert len(modules_entered(go_back)) <= 14
