"""The batch log: which offsets, watermark and processing time each batch of a generation had.

Spark keeps its offset log for the last 100 batches only, or as many as
`spark.sql.streaming.minBatchesToRetain` says; a faithful replay needs it from the oldest
base savepoint on. So `run` copies it: `batches/<query>/<generation>/<first batch>.json`, a chunk of
JSON lines, one a batch. Batches that nobody copied in time are missing, which a reader sees by
their numbers.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from dataclasses import dataclass
from typing import Self, final

from savepoints.checkpoint.cut import committed_in
from savepoints.checkpoint.logs import offset_log
from savepoints.errors import SavepointsError, VerificationError
from savepoints.io import Location, in_parallel
from savepoints.model import checked_name

_LOG = logging.getLogger(__name__)
_CHUNK = re.compile(r"^(\d{12})\.json$", re.ASCII)
# Of what Spark keeps, the part that makes a chunk: so there is time for a few attempts.
_CHUNKS_KEPT = 4


@dataclass(frozen=True)
class Batch:
    """One committed batch, as its file in the offset log says.

    Attributes:
        offsets: For each source, in order, its next-to-read position after the batch as Spark's
            JSON; None where it had none.
        watermark_ms: By which batch N evicts and emits, and batch N + 1 drops late rows.
    """

    batch_id: int
    offsets: tuple[str | None, ...]
    watermark_ms: int
    timestamp_ms: int


def read(root: Location, query: str, generation: int) -> dict[int, Batch]:
    """Return the batches of a generation that were copied, by number; others are missing."""
    directory = _directory(root, query, generation)
    found: dict[int, Batch] = {}
    chunks = _chunks(directory)
    for name, data in zip(chunks, in_parallel(directory.get, chunks), strict=True):
        for batch in _parse(data, f"{directory}/{name}"):
            found[batch.batch_id] = batch
    return found


@final
class Recorder:
    """Copies the offset log of a running query while it is entered, beside it: nothing waits.

    What fails is logged and tried again with the next chunk; it never ends the run.
    """

    def __init__(
        self, root: Location, query: str, generation: int, checkpoint: Location, *, retained: int
    ) -> None:
        """Keep whose log it is, and how many batches Spark keeps of it; nothing is read."""
        self._root = root
        self._query = query
        self._generation = generation
        self._checkpoint = checkpoint
        self._copied: int | None = None  # Newest batch in the log; unknown before the first look.
        self._chunk = max(1, retained // _CHUNKS_KEPT)
        self._heard = -1
        self._worker: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Begin with what the checkpoint still has of earlier runs."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        """Copy what is left."""
        self.join()
        self._copy()

    def committed(self, batch_id: int | None) -> None:
        """Hear of the newest committed batch; enough new ones are copied in a thread of its own."""
        if batch_id is None or batch_id < self._heard + self._chunk or self._is_working:
            return
        self._heard = batch_id
        self._start()

    def join(self) -> None:
        """Wait for what is being copied."""
        if self._worker is not None:
            self._worker.join()

    @property
    def _is_working(self) -> bool:
        return self._worker is not None and self._worker.is_alive()

    def _start(self) -> None:
        self._worker = threading.Thread(
            target=self._copy, name=f"batch log of {self._query}", daemon=True
        )
        self._worker.start()

    def _copy(self) -> None:
        """Copy what is new; what fails is tried again with the next chunk."""
        try:
            self._copied = copy(
                self._root, self._query, self._generation, self._checkpoint, after=self._copied
            )
        except (SavepointsError, OSError) as error:
            newest = "from before this run" if self._copied is None else self._copied
            _warn(self._query, self._generation, newest, error)


def copy_left(root: Location, query: str, generation: int, checkpoint: Location) -> None:
    """Copy what the log lacks of a generation that is left: nobody looks there later.

    What fails is logged: no verb ends for it.
    """
    try:
        copy(root, query, generation, checkpoint)
    except (SavepointsError, OSError) as error:
        _warn(query, generation, "unknown", error)


def forget(root: Location, query: str, generation: int) -> None:
    """Remove the log of a generation that was taken back: the next one has its number."""
    directory = _directory(root, query, generation)
    directory.delete(_chunks(directory))


def _warn(query: str, generation: int, newest: object, error: Exception) -> None:
    _LOG.warning(
        "could not update the batch log of %s, generation %d, whose newest batch is %s: %s",
        query,
        generation,
        newest,
        error,
    )


def copy(
    root: Location, query: str, generation: int, checkpoint: Location, *, after: int | None = None
) -> int:
    """Copy the batches that a checkpoint has and the log lacks, as one chunk.

    Args:
        after: Newest batch that is in the log, if it is known.

    Returns:
        The newest batch in the log now, -1 when there is none.
    """
    directory = _directory(root, query, generation)
    if after is None:
        chunks = _chunks(directory)
        last = _parse(directory.get(chunks[-1]), f"{directory}/{chunks[-1]}") if chunks else []
        after = max((one.batch_id for one in last), default=-1)
    found = kept(checkpoint, after)
    if found:
        lines = (json.dumps(vars(one)) for one in found)
        directory.put(
            f"{found[0].batch_id:012}.json", "".join(f"{one}\n" for one in lines).encode()
        )
        after = found[-1].batch_id
    return after


def kept(checkpoint: Location, after: int) -> list[Batch]:
    """Return the batches after another one that a checkpoint still has, in order."""
    new = [batch for batch in committed_in(checkpoint) if batch > after]
    return [
        one
        for one in in_parallel(lambda at: read_from_checkpoint(checkpoint, at), new)
        if one is not None
    ]


def read_from_checkpoint(checkpoint: Location, batch_id: int) -> Batch | None:
    """Return a batch of a checkpoint's offset log; None if Spark has removed it."""
    try:
        entry = offset_log.read(checkpoint, batch_id)
    except FileNotFoundError:
        return None
    return Batch(batch_id, entry.sources, entry.watermark_ms, entry.timestamp_ms)


def _chunks(directory: Location) -> list[str]:
    return [info.path for info in directory.list() if _CHUNK.match(info.path)]


def _parse(data: bytes, path: str) -> list[Batch]:
    try:
        rows = [json.loads(line) for line in data.splitlines()]
        return [Batch(**{**row, "offsets": tuple(row["offsets"])}) for row in rows]
    except (ValueError, TypeError, KeyError) as error:
        raise VerificationError(
            f"{path} is damaged: {error!r}",
            hint="delete the file; its batches can then no longer be replayed one by one",
            file=path,
        ) from None


def _directory(root: Location, query: str, generation: int) -> Location:
    return root / "batches" / checked_name(query, "query") / str(generation)
