"""Whether an archive has its events as the program decodes them now.

The archive keeps of each event its entity, time and id as they were decoded when it arrived. When
the program has another `event_id` since, a late batch would not know the archived events again, and
merge them twice; with another entity, a replay would not find them.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from savepoints.errors import IncompatibleError
from savepoints.io import Location
from savepoints.sources.archive import files as archive_files
from savepoints.sources.archive import table as archive_table
from savepoints.sources.archive.table import File
from savepoints.sources.events.events import POSITION, RAW, Decoding, without_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

# Records of the oldest and of the newest file that are decoded again.
_RECORDS = 100
_DECODED = ("entity", "event_time", "event_id")


def require(spark: SparkSession, uri: str, decoding: Decoding) -> None:
    """Decode some of the oldest and of the newest archived records again, and compare.

    Raises:
        IncompatibleError: If an event has another entity, time or id now, or none.
    """
    location = Location.of(uri)
    table = archive_table.open_if_exists(location)
    chosen = [] if table is None else _oldest_and_newest(archive_table.files(table))
    if not chosen:
        return
    few = (
        archive_files.read(spark, location, [one]).where("merge_id IS NULL").limit(_RECORDS)
        for one in chosen
    )
    changed = _changed(reduce(lambda one, more: one.unionByName(more), few), decoding)
    if changed is not None:
        raise _refused(uri, changed)


def _oldest_and_newest(files: list[File]) -> list[File]:
    # Late events have no partition.
    arrived = [one for one in files if one.highest.get("partition", 0) >= 0]
    if not arrived:
        return []
    by_offset = sorted(arrived, key=lambda one: int(one.highest.get("offset", 0)))
    return [by_offset[0], *by_offset[1:][-1:]]


def _changed(archived: DataFrame, decoding: Decoding) -> Row | None:
    """Return a record with what the archive has of its event and what the program decodes now."""
    now = without_records(archived.select(*RAW), decoding)
    for name in _DECODED:
        now = now.withColumnRenamed(name, f"{name}_now")
    same = " AND ".join(f"{name} <=> {name}_now" for name in _DECODED)
    return archived.join(now, list(POSITION), "left").where(f"NOT ({same})").first()


def _refused(uri: str, row: Row) -> IncompatibleError:
    where = f"{row['topic']} partition {row['partition']} offset {row['offset']}"
    changed = [name for name in _DECODED if row[name] != row[f"{name}_now"]]
    listed = ", ".join(
        f"{name.replace('_', ' ')} {row[name]} in the archive and {row[f'{name}_now']} now"
        for name in changed
    )
    return IncompatibleError(
        f"the program decodes events differently than when they were archived at {uri}: {where} "
        f"has {listed}",
        hint="restore decode, entity_key, event_time and event_id of the application's Input(…), "
        "or archive the topic again at another URI and set that in [queries.NAME.archives]",
        uri=uri,
        changed=changed,
    )
