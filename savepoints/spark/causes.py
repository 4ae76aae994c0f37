"""What an error out of Spark means when its cause is the machine: jars, room, a JVM that ended.

Spark says either in a hundred lines of Java, and py4j in the words of a socket. The texts were seen
in Spark 4.2: for data sources in `DataSource.lookupDataSource`, for Delta's catalog in `Catalogs`,
for file systems in Hadoop's `Configuration.getClass`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from savepoints.errors import EnvironmentUnfitError, SavepointsError
from savepoints.spark import private_api

_CLASS_MISSING = (
    r"(?:ClassNotFoundException|NoClassDefFoundError|Cannot find catalog plugin class)[^\n]*"
)
# By the owner of the jars: the data source that Spark does not find, and packages of its classes.
_SIGNS = {
    owner: re.compile(
        rf"Failed to find (?:the )?data source: {source}\b|{_CLASS_MISSING}\b(?:{packages})\b"
    )
    for owner, source, packages in (
        ("Delta", "delta", r"io[./]delta|org[./]apache[./]spark[./]sql[./]delta"),
        ("Kafka", "kafka", r"org[./]apache[./](?:kafka|spark[./]sql[./]kafka010)"),
        ("S3A", "s3a", r"org[./]apache[./]hadoop[./]fs[./]s3a|software[./]amazon[./]awssdk"),
    )
}

# What the machines of Spark lack, by what their systems say, and how they get it.
_LACKS = {
    "No space left on device": "free some space where the store, the checkpoint and the tables are "
    "and in Spark's own directories (spark.local.dir), then run the command again",
    "Too many open files": "allow the user of Spark more open files (ulimit -n 65536), then run "
    "the command again",
}


def of(error: BaseException) -> EnvironmentUnfitError | None:
    """Return the error that names the cause, None if it is not this process.

    Args:
        error: Whatever was raised. Spark's and py4j's errors have no common root.
    """
    if isinstance(error, SavepointsError):
        return None
    text = str(error)
    for owner, signs in _SIGNS.items():
        if signs.search(text):
            return EnvironmentUnfitError(
                f"Spark cannot find the {owner} jars",
                hint="for your own driver, pass --packages or --jars to spark-submit; for "
                "savepoints commands, which do not see your driver's jars, set SAVEPOINTS_JARS (or "
                "jars in savepoints.toml) to a directory with the Delta, Kafka and S3A jars, or "
                'set "spark.jars.packages" in [spark.conf]',
                jars=owner,
            )
    for said, hint in _LACKS.items():
        if said in text and not isinstance(error, OSError):  # Which is this process' own.
            return EnvironmentUnfitError(f"a task of Spark failed: {said}", hint=hint)
    if private_api.has_ended():
        return EnvironmentUnfitError(
            "the JVM of this process has ended",
            hint="start the program again: the query continues from its checkpoint",
        )
    return None


@contextmanager
def named() -> Iterator[None]:
    """Raise the error that names the cause instead of Spark's.

    Raises:
        EnvironmentUnfitError: If Spark lacks jars, room or files, or its JVM has ended.
    """
    try:
        yield
    except Exception as error:
        if (cause := of(error)) is None:
            raise
        raise cause from error
