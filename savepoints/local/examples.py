"""The example applications, which the demo runs: the package `spark_jobs`.

A wheel has them as data and not as a package of its own, because many users have a package of that
name; in a checkout there is a link to the directory at its top.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent / "resources" / "examples" / "spark_jobs"


def directory() -> Path:
    """Return the directory that has to be on the path for `import spark_jobs`."""
    # Resolved, so that in a checkout no module is found in two places.
    return _PACKAGE.resolve().parent
