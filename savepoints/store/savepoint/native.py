"""The native form: a checkpoint's files, copied as the state store wrote them.

Small files are kept verbatim under `savepoints/<id>/checkpoint/`. The state lies under
`files/<query id>/`, where the savepoints of the query share it: what is there already is not copied
again. SST files are immutable and have a unique name. Other state files do not, since a batch that
runs again writes its own once more: they lie there under the savepoint that brought them, and the
next one shares a file while the checkpoint has the very same one, by its size and entity tag.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from savepoints import faults
from savepoints.checkpoint.cut import CutFiles
from savepoints.checkpoint.logs import source_positions
from savepoints.checkpoint.logs.source_positions import Starts
from savepoints.checkpoint.small_files import Skeleton, may_change
from savepoints.errors import NotAlignedError, TargetExistsError
from savepoints.io import Location, ObjectInfo, in_parallel
from savepoints.model import Cost, is_id
from savepoints.store.savepoint import manifest
from savepoints.store.savepoint.manifest import StoredFile
from savepoints.texts import count_text

R = TypeVar("R")
# A file of a checkpoint, and where it belongs in the store.
_Placed = tuple[ObjectInfo, str]

# Entity tags of S3, written in quotes by some servers.
_MD5 = re.compile(r'"?[0-9a-f]{32}"?')
# Lies in every restored checkpoint and says which restore made it; Spark takes no notice of it.
RESTORE_MARKER = "_savepoints_restored_by"
# What ends the mark of a restore that is not a part of another verb.
RESTORE = "restore"


class PinnedFile(NamedTuple):
    """A file in the checkpoint and in the store, by their paths, with its source's tag."""

    path: str
    stored_at: str
    size: int
    etag: str


@dataclass(frozen=True)
class Pinned:
    """The files of a cut as they lie in the store, not yet hashed.

    Attributes:
        copied: Those that this pin copied; the others were there already.
    """

    files: tuple[PinnedFile, ...]
    copied: frozenset[str]
    seconds: float

    def cost(self, stored: Sequence[StoredFile], attempts: int, *, checksum_seconds: float) -> Cost:
        """Return what these files cost, once they are hashed."""
        copied = [file for file in stored if file.stored_at in self.copied]
        shared = [file for file in stored if file.stored_at not in self.copied]
        return Cost(
            pin_seconds=self.seconds,
            checksum_seconds=checksum_seconds,
            objects_copied=len(copied),
            bytes_copied=sum(file.size for file in copied),
            objects_shared=len(shared),
            bytes_shared=sum(file.size for file in shared),
            attempts=attempts,
        )


def pin(
    checkpoint: Location,
    files: CutFiles,
    root: Location,
    savepoint_id: str,
    earlier: Sequence[StoredFile] = (),
    begun: set[str] | None = None,
) -> Pinned:
    """Copy the files of a cut into the store: `metadata`, the small ones, then the state.

    Nothing passes through this process when checkpoint and store are in one bucket or file system.
    Every copy is compared with its source by size.

    Args:
        earlier: Files of the savepoint before, to be shared; entity tags in them are of this
            checkpoint.
        begun: Is given the paths that are written, before they are; none was there as it is.

    Raises:
        SavepointsError: If a local disk has too little space; nothing was copied then.
        FileNotFoundError: If the query's maintenance removed a file meanwhile: pin a newer batch.
    """
    started = time.monotonic()
    own = f"{manifest.directory(savepoint_id)}/checkpoint"
    shared = f"files/{files.query_id}"
    brought = f"{shared}/{savepoint_id}"
    stored = root.list(shared)
    # What an earlier attempt of this savepoint left belongs to an older batch.
    leftovers = {info.path for info in stored if info.path.startswith(f"{brought}/")}
    root.delete([*leftovers, *(info.path for info in root.list(own))])
    there = {info.path: info for info in stored if info.path not in leftovers}
    places = {(file.path, file.size, file.etag): file.stored_at for file in earlier if file.etag}
    ssts, state_files = frozenset(files.ssts), frozenset(files.state)

    def place(info: ObjectInfo) -> tuple[ObjectInfo, str]:
        if info in ssts:
            return info, f"{shared}/{info.path.rpartition('/')[2]}"
        if info in state_files:
            known = places.get((info.path, info.size, info.etag))
            return info, known or f"{brought}/{info.path}"
        return info, f"{own}/{info.path}"

    placed = [place(info) for info in files.all]
    written = set() if begun is None else begun
    copied = _copy_missing(checkpoint, files, root, placed, there, written)
    arrived = {info.path: info.size for prefix in (own, shared) for info in root.list(prefix)}
    for info, target in placed:
        if arrived.get(target) != info.size:
            raise NotAlignedError(
                f"{checkpoint}/{info.path} has {info.size} bytes, but its copy {root}/{target} "
                f"has {arrived.get(target, 0)}: the file changed while it was being copied",
                hint="run the command again",
                file=info.path,
            )
    return Pinned(
        tuple(
            PinnedFile(info.path, target, info.size, info.etag if info in state_files else "")
            for info, target in placed
        ),
        copied,
        time.monotonic() - started,
    )


def _copy_missing(
    checkpoint: Location,
    files: CutFiles,
    root: Location,
    placed: Sequence[_Placed],
    there: Mapping[str, ObjectInfo],
    begun: set[str],
) -> frozenset[str]:
    """Copy the files of a cut that are not there as they are, and return where they lie now."""

    def copy(items: Sequence[_Placed]) -> None:
        in_parallel(lambda item: root.copy_from(checkpoint, item[0].path, item[1]), items)

    wanted = [(info, target) for info, target in placed if not _same(info, there.get(target))]
    root.require_space([] if root.links(checkpoint) else [info.size for info, _ in wanted])
    begun.update(target for _, target in wanted if target not in there)
    first = [item for item in wanted if item[0].path == "metadata"]
    copy(first)
    if any(_has_size(info, there.get(target)) for info, target in wanted) and any(
        _has_other_md5(info, root.head(target)) for info, target in first
    ):
        # Buckets that encrypt by KMS give each copy a tag of its own that only looks like an MD5.
        wanted = [item for item in wanted if not _has_size(item[0], there.get(item[1]))]
    copy([item for item in wanted if item[0] in files.small and item not in first])
    copy([item for item in wanted if item[0] not in files.small])
    return frozenset(target for _, target in wanted)


def bring(copy: Callable[[StoredFile], R], files: Sequence[StoredFile]) -> list[R]:
    """Copy the files of a savepoint that is in the making: `metadata` first, as `pin` does.

    Whoever finds half a savepoint knows by `metadata` whose lease says whether it is being made.
    """
    first = [file for file in files if file.path == "metadata"]
    rest = [file for file in files if file.path != "metadata"]
    return [*in_parallel(copy, first), *in_parallel(copy, rest)]


def checksummed(root: Location, pinned: Pinned, known: dict[str, str]) -> tuple[StoredFile, ...]:
    """Hash what a pin copied; the hash of a shared file comes from the savepoint that brought it.

    Args:
        known: SHA-256 by path in the store, from earlier manifests of the query.
    """

    def entry(file: PinnedFile) -> StoredFile:
        hashed = None if file.stored_at in pinned.copied else known.get(file.stored_at)
        sha256 = hashed or root.sha256(file.stored_at)
        return StoredFile(file.path, file.stored_at, file.size, sha256, file.etag)

    return tuple(in_parallel(entry, pinned.files))


def mount(
    root: Location, files: Sequence[StoredFile], target: Location, skeleton: Skeleton
) -> None:
    """Lay out files of the store as a checkpoint directory, but for `metadata`.

    Spark refuses a directory without `metadata`, so a half-laid one can never be started.
    """

    def lay(file: StoredFile) -> None:
        if may_change(file.path):
            target.put(file.path, skeleton.changed(file.path, root.get(file.stored_at)))
        else:
            target.copy_from(root, file.stored_at, file.path)

    in_parallel(lay, [file for file in files if file.path != "metadata"])


def lay_out(
    root: Location,
    files: Sequence[StoredFile],
    wanted: Callable[[str], bool],
    target: Location,
    partitions: int | None,
) -> None:
    """Make a checkpoint to be read and not to be started, with what is wanted of a savepoint."""
    chosen = [file for file in files if wanted(file.path)]
    mount(root, chosen, target, Skeleton(target.uri, partitions, {}))
    seal(root, files, target)


def seal(
    root: Location, files: Sequence[StoredFile], target: Location, *, query_id: str | None = None
) -> None:
    """Write `metadata`, which makes a laid-out directory a checkpoint that Spark starts from.

    Args:
        query_id: Spark's id of the new query, which stands in there; None to keep it.
    """
    metadata = next(file for file in files if file.path == "metadata")
    if query_id is None:
        target.copy_from(root, metadata.stored_at, metadata.path)
    else:
        changed = {**json.loads(root.get(metadata.stored_at)), "id": query_id}
        target.put(metadata.path, json.dumps(changed, separators=(",", ":")).encode())


@dataclass(frozen=True)
class Claim:
    """A directory that this process restores into."""

    target: Location
    mark: bytes

    def require(self) -> None:
        """Check that no other process has begun the same restore since, taking this for dead.

        Raises:
            TargetExistsError: If one has; what both have written may be incomplete.
        """
        if self.target.get(RESTORE_MARKER) != self.mark:
            raise _taken(self.target, "the mark of the same restore, begun again meanwhile")


def claim(target: Location, owner: str) -> Claim | None:
    """Take an empty directory for a restore, or the one that the same restore left unfinished.

    Args:
        owner: What identifies the restore, beginning with the savepoint's id: the same one may
            continue after a crash.

    Returns:
        None when this very restore was already finished there.
    """
    # The nonce tells two processes apart that begin the same restore.
    mine = Claim(target, f"{owner}\n{secrets.token_hex(8)}".encode())
    files = {info.path for info in target.list()}
    try:
        if not files:
            target.create(RESTORE_MARKER, mine.mark)
            return mine
        refuse_taken(target, owner)
        if "metadata" in files:
            return None
        _, etag = target.get_version(RESTORE_MARKER)
        target.replace(RESTORE_MARKER, mine.mark, etag)
    except FileExistsError:
        raise _taken(target, "the first file of another restore, which has just begun") from None
    # Listed again: the one that is taken over may live. It finds out before it writes `metadata`;
    # in the moment after that it still may, and nothing must be left that Spark would start from.
    files = {info.path for info in target.list()}
    if "metadata" in files:
        return None
    target.delete(files - {RESTORE_MARKER})
    target.delete(["metadata"])
    return mine


def refuse_taken(target: Location, owner: str) -> None:
    """Refuse a directory that has anything but this very restore, before anything is planned."""
    files = {info.path for info in target.list()}
    begun = _owner(target) if RESTORE_MARKER in files else None
    if not files or begun == owner:
        return
    # Of a verb's own: its journal says how that one is finished.
    words = (begun or "").split()
    if words[-1:] == [RESTORE] and "metadata" not in files:
        raise TargetExistsError(
            f"a restore of {words[0]} to {target} was interrupted; it has to be finished as it "
            "was begun",
            hint=f"finish it: savepoints restore {words[0]} --to {target}, with the options that "
            "it was begun with; or name a new directory with --to",
            target=str(target),
        )
    raise _taken(target, f"{count_text(len(files), 'file')} (first: {min(files)})")


def is_restored(target: Location, owner: str) -> bool:
    """Return True if a restore with this mark has finished in a directory."""
    try:
        return _owner(target) == owner and target.exists("metadata")
    except FileNotFoundError:
        return False


def _owner(target: Location) -> str:
    return target.get(RESTORE_MARKER).decode().partition("\n")[0]


def discard(target: Location, operation_id: str) -> None:
    """Remove a checkpoint if the restore that is a part of an operation wrote it.

    The marker goes last: without it nobody would know any more whose the rest is.
    """
    try:
        is_ours = operation_id in _owner(target).split()
    except FileNotFoundError:
        return
    if is_ours:
        target.delete({info.path for info in target.list()} - {RESTORE_MARKER})
        faults.reach("rollback.undo_files")
        target.delete([RESTORE_MARKER])


def restored_by(checkpoint: Location) -> str | None:
    """Return the id of the savepoint that a checkpoint was restored from, None for a fresh one."""
    try:
        first = checkpoint.get(RESTORE_MARKER).decode().split()[0]
    except FileNotFoundError:
        return None
    return first if is_id(first) else None


def restored_sources(checkpoint: Location) -> Starts:
    """Return where the sources of a restored checkpoint were told to go on, as its mark says.

    Returns:
        Empty for a checkpoint whose sources go on where those of its savepoint were.
    """
    try:
        words = _owner(checkpoint).split()
    except FileNotFoundError:
        return ()
    return tuple(one for one in words if source_positions.is_start(one))


def _same(source: ObjectInfo, stored: ObjectInfo | None) -> bool:
    """Return True if a stored file equals the source: same size, and same MD5 where both have one.

    A tag that is no MD5 (multipart uploads, local files, all of Azure's) proves nothing.
    """
    return _has_size(source, stored) and not _has_other_md5(source, stored)


def _has_size(source: ObjectInfo, stored: ObjectInfo | None) -> bool:
    return stored is not None and stored.size == source.size


def _has_other_md5(source: ObjectInfo, stored: ObjectInfo | None) -> bool:
    tags = [source.etag, stored.etag if stored else ""]
    return all(map(_MD5.fullmatch, tags)) and tags[0] != tags[1]


def _taken(target: Location, what: str) -> TargetExistsError:
    return TargetExistsError(
        f"{target} already has {what}",
        hint="name a new directory with --to (for bootstrap and seed: checkpoints in "
        "[queries.NAME]); nothing was overwritten",
        target=str(target),
    )
