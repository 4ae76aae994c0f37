"""Files as tasks read and write them, where obstore is installed and where it is not."""

from __future__ import annotations

import pickle
import sys

import pytest

from savepoints.io import Location
from savepoints.state.storage.task_files import TaskFiles


@pytest.mark.s3
@pytest.mark.parametrize("has_obstore", [True, False])
def test_what_a_task_writes_is_there_and_what_is_there_it_reads(
    place: Location, monkeypatch: pytest.MonkeyPatch, *, has_obstore: bool
) -> None:
    place.put("state/0/1/1.delta", b"before")
    sent = pickle.dumps(TaskFiles.of(place / "state/0"))
    with monkeypatch.context() as elsewhere:
        if not has_obstore:
            elsewhere.setitem(sys.modules, "obstore", None)
        files: TaskFiles = pickle.loads(sent)
        assert files.get("1/1.delta") == b"before"
        files.put("2/7.snapshot", b"\0" * 100_000)
        files.put("1/1.delta", b"after")
        with pytest.raises(FileNotFoundError):
            files.get("1/2.delta")

    assert place.get("state/0/2/7.snapshot") == b"\0" * 100_000
    assert place.get("state/0/1/1.delta") == b"after"
