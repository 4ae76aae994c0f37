"""Checksums of the files of our Delta tables, which Delta itself does not have.

A bit that flips in a commit of a Delta log can hide rows without anybody noticing. So after each
commit `_sums/<version>.json` is written beside `_delta_log/`: the SHA-256 of the commit, of the
data files that it added, and of the checkpoint that was made of it. Readers take no notice of
them; `check` compares. A writer that dies in between is made up for by the next one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import unquote

from savepoints.errors import SavepointsError
from savepoints.io import Location, ObjectInfo, in_parallel
from savepoints.moments import parse_rfc3339, rfc3339, utc_now
from savepoints.store.savepoint import sealed
from savepoints.store.tables import dropped_files
from savepoints.store.tables.open_tables import COMMIT

_LOG = logging.getLogger(__name__)

# Said of a commit whose writer died right after it, or has not come to it yet.
UNKNOWN = "has no checksum"

# Beside `_delta_log/`.
DIRECTORY = "_sums"
_CHECKPOINT = re.compile(r"_delta_log/(\d{20})\.checkpoint\.parquet", re.ASCII)
_HINT = "_delta_log/_last_checkpoint"
# Delta removes commits that are older than this when it makes a checkpoint of later ones.
_CLEANED_UP_AFTER = timedelta(days=30)


@dataclass(frozen=True)
class _Sums:
    """What one file of checksums says."""

    at: datetime
    files: dict[str, str]


def record(table: Location, version: int) -> str | None:
    """Write the checksums of a version, and of those before it that have none.

    Without them the table is no worse to read, so an error is only logged.

    Returns:
        The entity tag of the version's commit; None if it was not read.
    """
    etag = None
    try:
        for each in range(version, -1, -1):
            if table.exists(_path(each)):
                break
            written = _write(table, each)
            etag = written if each == version else etag
    except FileNotFoundError:
        pass  # Delta has removed older commits.
    except SavepointsError as error:
        _LOG.warning("%s: no checksums of version %d: %s", table, version, error)
    return etag


def problems(table: Location) -> dict[str, str]:
    """Compare the files of a table with their checksums, and say which are not as they were.

    Returns:
        What is wrong, by path within the table; of a file that has no checksum, that.
    """
    listed = {info.path for info in table.list()}
    commits = {path: int(match[1]) for path in listed if (match := COMMIT.fullmatch(path))}
    named = sorted(path for path in listed if path.startswith(f"{DIRECTORY}/"))
    found: dict[str, str] = {}
    wanted: dict[str, _Sums] = {}
    for path, sums in zip(named, in_parallel(lambda one: _read(table, one), named), strict=True):
        if sums is None:
            found[path] = "is damaged: it is not the list of checksums that was written"
        else:
            wanted |= dict.fromkeys(sums.files, sums)
    bare = {path: _path(version) for path, version in commits.items()}
    found |= {
        path: f"{UNKNOWN}: {sums} is missing or not written yet; the next commit writes it"
        for path, sums in bare.items()
        if sums not in listed
    }
    newest = _newest_checkpoint(listed)
    gone = wanted.keys() - listed
    needed = _needed(table, gone) if gone else gone

    def compare(path: str) -> str | None:
        sums = wanted[path]
        if path in gone:
            return None if _is_cleaned_up(path, sums, newest, needed) else "is missing"
        same = table.sha256(path) == sums.files[path]
        return None if same else "its SHA-256 does not match the recorded one"

    compared = zip(wanted, in_parallel(compare, list(wanted)), strict=True)
    found |= {path: problem for path, problem in compared if problem is not None}
    if newest >= 0 and (problem := _hint_problem(table, newest)):
        found[_HINT] = problem
    return found


def outdated(table: Location, oldest: datetime) -> list[ObjectInfo]:
    """Return the checksums, written before a time, of nothing but what nobody needs any more.

    With them a table would have one more file for each commit that it ever had.
    """
    listed = {info.path: info for info in table.list()}
    old = [
        path
        for path, info in listed.items()
        if path.startswith(f"{DIRECTORY}/")
        and path.replace(DIRECTORY, "_delta_log") not in listed
        and info.last_modified <= oldest
    ]
    read = zip(old, in_parallel(lambda one: _read(table, one), old), strict=True)
    of_gone = {
        path: sums
        for path, sums in read
        if sums is not None and not sums.files.keys() & listed.keys()
    }
    if not of_gone:
        return []
    newest = _newest_checkpoint(listed)
    needed = _needed(table, {file for sums in of_gone.values() for file in sums.files})
    return [
        listed[path]
        for path, sums in of_gone.items()
        if all(_is_cleaned_up(file, sums, newest, needed) for file in sums.files)
    ]


def _newest_checkpoint(paths: Iterable[str]) -> int:
    found = (int(match[1]) for path in paths if (match := _CHECKPOINT.fullmatch(path)))
    return max(found, default=-1)


def _is_cleaned_up(path: str, sums: _Sums, newest: int, needed: Collection[str]) -> bool:
    """Return True if a file that is gone is one that Delta or `gc` removes.

    Args:
        newest: The version of the newest checkpoint.
        needed: The data files that readers need.
    """
    match = COMMIT.fullmatch(path) or _CHECKPOINT.fullmatch(path)
    if match is None:
        return path not in needed
    return sums.at < utc_now() - _CLEANED_UP_AFTER and int(match[1]) < newest


def _needed(table: Location, gone: Collection[str]) -> Collection[str]:
    """Return the files that readers need: `gc` removes those that no version has any more."""
    from deltalake.exceptions import DeltaError

    try:
        return dropped_files.current(table)
    except (DeltaError, OSError):
        return gone


def _write(table: Location, version: int) -> str:
    """Write the checksums of a version and return the entity tag of its commit."""
    commit = f"_delta_log/{version:020}.json"
    data, etag = table.get_version(commit)
    actions = [json.loads(line) for line in data.splitlines()]
    paths = [unquote(one["add"]["path"]) for one in actions if "add" in one]
    checkpoint = f"_delta_log/{version:020}.checkpoint.parquet"
    paths += [checkpoint] if table.exists(checkpoint) else []
    hashes = in_parallel(table.sha256, paths)
    files = {commit: hashlib.sha256(data).hexdigest(), **dict(zip(paths, hashes, strict=True))}
    content = {"at": rfc3339(utc_now()), "files": files}
    with suppress(FileExistsError):  # Another process made up for it at this moment.
        table.create(_path(version), sealed.seal(content))
    return etag


def _read(table: Location, path: str) -> _Sums | None:
    try:
        content = sealed.unseal(table.get(path))
        sums = _Sums(parse_rfc3339(content["at"]), dict(content["files"]))
        own = path.replace(DIRECTORY, "_delta_log")
        return sums if own in sums.files else None
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, SavepointsError):
        return None


def _hint_problem(table: Location, newest: int) -> str | None:
    """Look at the one file that Delta overwrites: where readers begin."""
    try:
        hint = json.loads(table.get(_HINT))
        size = table.head(f"_delta_log/{newest:020}.checkpoint.parquet").size
        if hint["version"] == newest and hint.get("sizeInBytes") in {None, size}:
            return None
    except FileNotFoundError:
        return "is missing"
    except (ValueError, KeyError, TypeError):
        pass
    return f"does not name the newest checkpoint, which is {newest}"


def _path(version: int) -> str:
    return f"{DIRECTORY}/{version:020}.json"
