"""`check`: are store, settings and machine fit for what they are for?

`verify` reads savepoints; this looks at everything around them. Each thing that was looked at is
reported with what was seen, also when all is well.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

from savepoints.errors import VerificationError
from savepoints.operations.check import access, contents, environment, growth, queries
from savepoints.operations.inspect.findings import Grade, Seen, worst
from savepoints.plan import Progress, silent
from savepoints.result import Result
from savepoints.store.root import Store


@dataclass(frozen=True)
class Health(Result):
    """What `check` saw.

    Attributes:
        grade: The worst of all.
        seen: One for each thing that was looked at.
        seconds: How long it took.
    """

    grade: Grade
    seen: tuple[Seen, ...]
    seconds: float


def check(store: Store, *, progress: Progress = silent) -> Health:
    """Examine the store, the settings and this machine; test objects are removed again.

    Args:
        progress: Called with one line for each step.

    Raises:
        SavepointsError: If the store does not answer.
    """
    begun = time.monotonic()
    store = store.reopened()
    progress(f"testing the permissions in {store.root}")
    seen = access.check_access(store.root)
    progress("comparing the catalog with the savepoints")
    seen += contents.check_contents(store)
    seen += environment.check_environment(store.settings)
    progress("checking the queries and their outputs")
    # What is damaged here, catalog or generations, was named already.
    with suppress(VerificationError):
        seen += queries.check_queries(store)
        seen += growth.check_growth(store)
    return Health(worst(one.grade for one in seen), tuple(seen), time.monotonic() - begun)
