"""What the state of a restored checkpoint is to be, and whether it became that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from savepoints.checkpoint import invariants
from savepoints.checkpoint.logs import commit_log, offset_log
from savepoints.checkpoint.logs.commit_log import StateIds
from savepoints.checkpoint.logs.offset_log import CHECKPOINT_FORMAT_KEY, PROVIDER_KEY
from savepoints.checkpoint.state import operators
from savepoints.checkpoint.state.files import store_directories
from savepoints.checkpoint.state.operators import HDFS_PROVIDER, PROVIDERS
from savepoints.checkpoint.state.records import ROW_CHECKSUM_KEY
from savepoints.errors import (
    NativeOnlyError,
    NotAlignedError,
    ProviderError,
    RescaleError,
    UsageError,
)
from savepoints.io import Location
from savepoints.model import Form, OperatorState, Provider, Savepoint
from savepoints.texts import count_text


@dataclass(frozen=True)
class LayoutChange:
    """How the state of a restored checkpoint differs from that of the savepoint.

    Attributes:
        written_conf: What the offset log has to say of state that is written as rows.
    """

    partitions: int | None
    provider: str
    written_conf: Mapping[str, str]
    words: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def text(self) -> str:
        """What changes, for an error."""
        return " and ".join(self.words)

    def conf(self, form: Form) -> dict[str, str]:
        """Return what the offset log has to say of the state, besides its partitions."""
        if self.partitions is None:
            return {}
        return {PROVIDER_KEY: self.provider, **(self.written_conf if form == "canonical" else {})}


def plan_change(
    savepoint: Savepoint, partitions: int | None, provider: Provider | None
) -> LayoutChange:
    """Decide whether state can be restored with another number of partitions or provider."""
    cut = savepoint.cut
    words, notes = [], []
    if partitions is not None and partitions != cut.partitions:
        _require_rescalable(savepoint, partitions)
        words.append(f"partitions={partitions}")
    wanted = PROVIDERS[provider] if provider else cut.provider
    if wanted != cut.provider:
        _require_provider(savepoint, wanted)
        words.append(f"provider={provider}")
    if cut.checkpoint_format != 1:
        notes.append(f"start the query with {CHECKPOINT_FORMAT_KEY}={cut.checkpoint_format}")
    return LayoutChange(
        partitions if partitions is not None else cut.partitions,
        wanted,
        written_conf(wanted, savepoint.settings),
        tuple(words),
        tuple(notes),
    )


def written_conf(provider: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings under which the default provider reads what `hdfs_provider` writes."""
    checked = conf.get(ROW_CHECKSUM_KEY, "false") != "false"
    return {ROW_CHECKSUM_KEY: "false"} if checked and provider == HDFS_PROVIDER else {}


def check(target: Location, batch_id: int, written: Sequence[OperatorState], provider: str) -> None:
    """Check that a checkpoint is what a query needs to go on, before it can be started.

    Raises:
        NotAlignedError: A subclass for each thing that would go wrong, often silently.
    """
    paths = [info.path for info in target.list()]
    there = frozenset(paths)
    where = str(target)
    entries = {
        path: offset_log.parse(target.get(path), path)
        for path in (f"offsets/{batch_id - 1}", f"offsets/{batch_id}")
        if path in there
    }
    commit = commit_log.read(target, batch_id)
    offsets = entries[f"offsets/{batch_id}"]
    if written:
        stores = {one.operator_id: one.stores for one in written}
        keyless = [one.operator_id for one in written if one.keyless]
        invariants.require_partitions(
            where, offsets.partitions, stores, store_directories(paths), keyless
        )
        invariants.require_settings(where, entries, offsets.partitions, provider)
    invariants.require_source_entries(where, paths, offsets)
    invariants.require_state_ids(where, batch_id + 1, commit.state_ids, there)
    for path in paths:
        if operators.is_metadata(path):
            schema_paths = operators.parse(target.get(path), path).schema_paths
            invariants.require_schema_files(where, path, schema_paths, target.uri.hadoop, there)


def _require_rescalable(savepoint: Savepoint, partitions: int) -> None:
    if partitions < 1:
        raise UsageError(
            f"--partitions is {partitions}, but must be at least 1", hint="pass 1 or more"
        )
    if not savepoint.operators:
        raise RescaleError(
            f"savepoint {savepoint.id} has no state, so there are no partitions to change",
            hint="omit --partitions",
            savepoint=savepoint.id,
        )
    if all(one.keyless for one in savepoint.operators):
        raise RescaleError(
            f"the state of savepoint {savepoint.id} has no keys, so it always has a single "
            "partition",
            hint="omit --partitions",
            savepoint=savepoint.id,
        )
    _require_rows(savepoint, "changing the number of state partitions", keyless_too=False)


def _require_provider(savepoint: Savepoint, provider: str) -> None:
    if not savepoint.operators:
        raise ProviderError(
            f"savepoint {savepoint.id} has no state, so there is no provider to change",
            hint="omit --provider",
            savepoint=savepoint.id,
        )
    _require_rows(savepoint, "changing the state provider", keyless_too=True)
    if provider != HDFS_PROVIDER:
        return
    for one in savepoint.operators:
        if one.column_families:
            raise ProviderError(
                f"operator {one.operator_id} ({one.name}) keeps its state in column families, "
                "which only RocksDB can hold",
                hint="omit --provider to keep RocksDB",
                savepoint=savepoint.id,
                operator_id=one.operator_id,
            )
    if savepoint.cut.checkpoint_format != 1:
        raise ProviderError(
            f"savepoint {savepoint.id} has checkpoint format "
            f"{savepoint.cut.checkpoint_format}, which only RocksDB supports",
            hint="omit --provider to keep RocksDB",
            savepoint=savepoint.id,
        )


def _require_rows(savepoint: Savepoint, what: str, *, keyless_too: bool) -> None:
    for one in savepoint.operators:
        if one.native_only and (keyless_too or not one.keyless):
            raise NativeOnlyError(
                f"{what} needs the state rows of operator {one.operator_id} ({one.name}), but "
                f"{one.native_only}",
                hint="omit --partitions and --provider to restore the state unchanged",
                savepoint=savepoint.id,
                operator_id=one.operator_id,
            )


def require_rows(target: Location, savepoint: Savepoint, written: Mapping[int, int]) -> None:
    """Check that as many rows were written of each operator as the savepoint has.

    Args:
        written: By operator. A savepoint whose rows nobody has counted fits any number.
    """
    for one in savepoint.operators:
        rows = written.get(one.operator_id, 0)
        if one.native_only is None and one.rows is not None and rows != one.rows:
            raise NotAlignedError(
                f"wrote {count_text(rows, 'row')} of state of operator {one.operator_id} "
                f"({one.name}) to {target}, but savepoint {savepoint.id} has {one.rows:,}",
                hint=f"see whether it is damaged: savepoints verify {savepoint.id} --contents; "
                "no query can be started from what was written",
                savepoint=savepoint.id,
                operator_id=one.operator_id,
            )


def name_state(
    target: Location, batch_id: int, ids: StateIds, operators: Collection[int]
) -> str | None:
    """Tell the commit log of checkpoint format 2 which state was written.

    Args:
        operators: All that the checkpoint has; ids of others are taken out.

    Returns:
        The file that was changed; None if nothing had to be.
    """
    path = f"commits/{batch_id}"
    known = commit_log.parse(target.get(path), path).state_ids
    kept = {number: stores for number, stores in known.items() if number in operators}
    if {**kept, **ids} == known:
        return None
    target.put(path, commit_log.with_state_ids(target.get(path), path, {**kept, **ids}))
    return path
