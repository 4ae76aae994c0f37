"""How long the version of an output that a savepoint pinned can still be read.

Two properties of the table decide: `delta.deletedFileRetentionDuration` (a week by default), after
which VACUUM deletes files that a later version no longer has and Delta 4.1 and newer refuse to
read or restore the version at all; and `delta.logRetentionDuration` (30 days), after which
the log no longer says what the version had. The newest version never expires.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from savepoints.errors import NotAlignedError
from savepoints.io import Location
from savepoints.model import OutputVersion
from savepoints.moments import moment_of, rfc3339
from savepoints.outputs.delta import batch_version
from savepoints.outputs.file_sink import file_sink

FILES_PROPERTY = "delta.deletedFileRetentionDuration"
LOG_PROPERTY = "delta.logRetentionDuration"
_DEFAULTS = {FILES_PROPERTY: "interval 1 week", LOG_PROPERTY: "interval 30 days"}
# A warning that comes this long beforehand can still be acted upon.
NOTICE = timedelta(days=1)

# As Spark reads them: months and years have no fixed length, and Delta refuses them too.
_UNITS = {
    "week": timedelta(weeks=1),
    "day": timedelta(days=1),
    "hour": timedelta(hours=1),
    "minute": timedelta(minutes=1),
    "second": timedelta(seconds=1),
    "millisecond": timedelta(milliseconds=1),
    "microsecond": timedelta(microseconds=1),
    "nanosecond": timedelta(microseconds=0.001),
}
_COMMIT = re.compile(r"\d{20}\.json", re.ASCII)
_PART = re.compile(rf"([+-]?\s*\d+(?:\.\d+)?)\s+({'|'.join(_UNITS)})s?(?=\s|$)")


@dataclass(frozen=True)
class Lifetime:
    """How long a pinned version can be read.

    Attributes:
        output: Name of the output.
        uri: Its table.
        version: The pinned version.
        newest: The newest version of the table.
        files_until: When VACUUM may begin to delete its files; None while it is the newest, and for
            a file sink, which has no such time.
        log_until: When its entry in the log may be removed; None likewise.
    """

    output: str
    uri: str
    version: int
    newest: int
    files_until: datetime | None
    log_until: datetime | None

    @property
    def until(self) -> datetime | None:
        """The earlier of the two; None while it is the newest, and for a file sink."""
        return min((one for one in (self.files_until, self.log_until) if one), default=None)

    def problem(self, now: datetime) -> str | None:
        """Describe what is lost or about to be lost; None while there is time."""
        named = (
            (self.files_until, "its files", FILES_PROPERTY),
            (self.log_until, "its log entry", LOG_PROPERTY),
        )
        for until, what, key in named:
            if until is not None and until < now + NOTICE:
                verb = "may have been removed since" if until < now else "may be removed after"
                return (
                    f"version {self.version} of {self.uri} is not the newest ({self.newest}): "
                    f"{what} {verb} {rfc3339(until)} ({key})"
                )
        return None


def of_output(output: OutputVersion) -> Lifetime:
    """Find out until when a pinned version can be read.

    Of a file sink there is no such time: what goes is decided by the batches that follow. It can be
    read now, or the error says why not.

    Raises:
        FileSinkError: If the log of a file sink no longer has the version.
    """
    if output.kind == "files":
        file_sink.require_reachable(output)
        last = file_sink.newest_batch(Location.of(output.uri))
        return Lifetime(output.name, output.uri, output.version, last, None, None)
    table = batch_version.open_table(output.uri)
    newest = int(table.version())
    if newest <= output.version:
        return Lifetime(output.name, output.uri, output.version, newest, None, None)
    files, log = (retention(table.metadata().configuration, key) for key in _DEFAULTS)
    committed = _times(output.uri, output.version)
    return Lifetime(
        output.name,
        output.uri,
        output.version,
        newest,
        # The next version is the first that can lack files of this one.
        committed[1] + files,
        committed[0] + log,
    )


def retention(configuration: Mapping[str, str | None], key: str) -> timedelta:
    """Return one of the two retention times of a table."""
    text = configuration.get(key) or _DEFAULTS[key]
    try:
        return parse_interval(text)
    except ValueError as error:
        raise NotAlignedError(
            f"the table property {key} has the value {error}",
            hint="set it to an interval, for example: interval 30 days",
            key=key,
        ) from None


def parse_interval(text: str) -> timedelta:
    """Read an interval as Delta does: `interval 1 week`, `30 days`, `1 day 12 hours`.

    Raises:
        ValueError: If it is not one, or has months or years, which have no fixed length.
    """
    words = text.strip().lower().removeprefix("interval").strip()
    parts = list(_PART.finditer(words))
    if not parts or _PART.sub("", words).strip():
        raise ValueError(
            f"{text!r}, which is not an interval of weeks, days, hours or smaller units"
        )
    numbers = ((float(part[1].replace(" ", "")), _UNITS[part[2]]) for part in parts)
    return sum((number * unit for number, unit in numbers), timedelta())


def _times(uri: str, version: int) -> tuple[datetime, datetime]:
    """Return when a version and the one after it were committed, as far as the log still says.

    Where it no longer does, the oldest later commit that is left stands in: then the true times are
    older than the log's retention.
    """
    log = Location.of(uri) / "_delta_log"
    names = [info.path for info in log.list() if _COMMIT.fullmatch(info.path)]
    left = [name for name in names if int(name[:20]) >= version][:2]
    if not left:
        raise NotAlignedError(
            f"the Delta log of {uri} is damaged: the commit of version {version} and all later "
            "ones are missing",
            hint="check whether Spark can still read the table; if not, restore the missing files "
            "of _delta_log from a backup",
            uri=uri,
            version=version,
        )
    own, following = _committed_at(log, left[0]), _committed_at(log, left[-1])
    return own, following if int(left[0][:20]) == version else own


def _committed_at(log: Location, path: str) -> datetime:
    """Return the time of a commit as Delta's own retention counts it."""
    for line in log.get(path).splitlines():
        info: dict[str, Any] = json.loads(line).get("commitInfo") or {}
        if (in_commit := info.get("inCommitTimestamp")) is not None:
            return moment_of(in_commit)
    # Without times in commits Delta goes by the files', for the writer's clock may be wrong.
    return log.head(path).last_modified
