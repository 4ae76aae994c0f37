"""What of a query's events is looked at for a merge."""

from __future__ import annotations

from savepoints.operations.merge import affected


def test_trap_a_partition_that_the_archive_lacks_begins_where_the_query_began() -> None:
    """At offset 0 it was read from before the query, where Kafka may have nothing any more."""
    archived = {"orders": {0: 90, 1: 3}}
    beginning = {"orders": {0: 40, 1: 5, 2: 7}, "views": {0: 2}}

    found = affected.after_archive(archived, beginning)

    assert found == {"orders": {0: 90, 1: 5, 2: 7}, "views": {0: 2}}
    assert affected.after_archive({}, beginning) == beginning
