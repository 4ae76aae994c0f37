"""What is refused before a merge through a pipeline is even planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from savepoints.errors import IncompatibleError
from savepoints.operations.cascade import cascade
from savepoints.operations.merge.prepare import MergeRequest
from savepoints.store.locks import journal

if TYPE_CHECKING:
    from savepoints.handle import Store
    from savepoints.operations.cascade.cascade import Downstream


@pytest.mark.parametrize("downstream", ["plan", "merge"])
def test_what_was_dropped_is_not_merged_through_readers(
    local_store: Store, downstream: Downstream
) -> None:
    """Before the query is even looked up."""
    with pytest.raises(IncompatibleError, match=f"--downstream {downstream}") as refused:
        cascade.prepare(local_store, MergeRequest("bronze", None), downstream)

    assert "merge bronze --dropped --downstream none" in str(refused.value.hint)
    assert not journal.all_operations(local_store.root)
