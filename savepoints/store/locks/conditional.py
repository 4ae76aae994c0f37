"""Whether a store keeps two processes from overwriting each other's object: tried on one of ours.

Leases, the journal and the tables of a store rely on it. Some servers that speak S3's protocol take
no notice of a condition and answer as if it had been met.
"""

from __future__ import annotations

from collections.abc import Callable

from savepoints.io import Location

# What follows from it.
CONSEQUENCE = "two processes could hold the same lease and lose rows of the catalog"
_PROBE = "condition"


def problem(directory: Location) -> str | None:
    """Say which condition a store ignores; None if it honours both.

    Args:
        directory: Where to try it, which is empty; the caller removes what is written.
    """
    first = directory.create(_PROBE, b"1")
    if _succeeds(lambda: directory.create(_PROBE, b"2")):
        return "the store ignores If-None-Match, so an existing object could be overwritten"
    directory.replace(_PROBE, b"3", first)
    if _succeeds(lambda: directory.replace(_PROBE, b"4", first)):
        return "the store ignores If-Match, so an object could be replaced with an outdated ETag"
    return None


def _succeeds(do: Callable[[], object]) -> bool:
    try:
        do()
    except FileExistsError:
        return False
    return True
