"""How far readers of a table are behind, and what they cannot read on past."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from savepoints.checkpoint.logs.table_position import TablePosition
from savepoints.operations.pipeline.table_reads import behind_of
from savepoints.outputs.correct.commit import Mark


@pytest.mark.parametrize(("version", "changes"), [(1, True), (2, False)])
def test_trap_a_compaction_has_the_mark_of_the_correction_before_it(
    version: int, changes: bool, tmp_path: Path
) -> None:
    """Auto compaction commits with what the session says of its commits."""
    uri, mark = str(tmp_path), str(Mark("op-1", "totals", "shop/totals/2", 3, 1, 1, 1))
    for number in range(4):
        write_deltalake(uri, pa.table({"n": [number]}), mode="append")
    for number in (1, 2):
        path = tmp_path / "_delta_log" / f"{number:020}.json"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["userMetadata"] = mark
            if "add" in line:
                line["add"]["dataChange"] = number == 1
        path.write_text("\n".join(map(json.dumps, lines)))

    behind, why = behind_of(TablePosition("id", version, -1, in_snapshot=False), uri, 3)

    assert ("is the correction of a merge" in why) == changes
    assert behind == (0 if changes else 1)
