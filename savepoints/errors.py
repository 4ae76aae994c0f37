"""Every error this library raises on purpose, as one tree.

SavepointsError                      1   root; never raised itself
├── UsageError                       2   the request itself is invalid
├── PartlyDoneError                  3   partly done, or a comparison found differences
├── NotFoundError                   10   something named does not exist
│   ├── SavepointNotFoundError           no savepoint with that name
│   ├── AmbiguousNameError               several savepoints match the name
│   ├── CheckpointNotFoundError          no Spark checkpoint at that URI
│   ├── NoCommittedBatchError            a checkpoint without a finished batch
│   ├── StoreNotFoundError               bucket or directory of the store is missing
│   └── QueryNotFoundError               no query with that name in the store
├── LockedError                     11   another process holds the query's lease
│   └── UnfinishedOperationError         a multi-step verb was interrupted: finish it first
├── QueryRunningError               12   the query is running, or its checkpoint changes
├── NotAlignedError                 13   state, offsets and outputs do not fit together
│   ├── VerificationError                a savepoint is damaged
│   ├── CheckpointDamagedError           the checkpoint of a query is gone or cannot be read
│   ├── PartitionCountError              state partitions differ from the offset log
│   ├── SchemaPathError                  a schema file is outside its checkpoint
│   ├── SourceLogError                   a source's own log ends elsewhere than the offsets
│   ├── StateIdsError                    the commit log names missing state files
│   ├── PlacementError                   a state row is not in the partition of its key
│   ├── ListOrderError                   the order of list state is unknown
│   ├── CheckFailedError                 a fork fails its checks and is not promoted
│   ├── OutputVersionGoneError           a needed version of an output cannot be read
│   └── StalePlanError                   the basis of a plan has changed since
├── SourceDataGoneError             14   Kafka no longer has the offsets, or files are gone
├── TargetExistsError               15   the place to write to is taken
├── StateUnwrittenError              1   Spark failed to write the state of a checkpoint
├── IncompatibleError               16   Spark, Delta, provider or state layout does not fit
│   ├── UnsupportedProviderError         an unknown state store provider
│   ├── UnsupportedFormatError           a file of an unknown version or codec
│   ├── NativeOnlyError                  an operator whose state rows cannot be read or written
│   ├── RescaleError                     an operator that keeps its number of partitions
│   ├── ProviderError                    state that the other provider cannot hold
│   ├── FileSinkError                    a file sink whose log cannot go there
│   ├── LateBatchError                   a late batch has rows that cannot be merged
│   ├── SeedRowsError                    given rows cannot be the state of a program
│   ├── SeveralRowsError                 a replay wrote one key twice in one batch
│   ├── LayoutChangedError               columns of the state changed places or names
│   └── PrivateApiError                  this Spark's private API differs
├── StoppedError                   130   Ctrl-C or a signal ended the command
└── EnvironmentUnfitError            1   the machine lacks something: Java, jars, credentials
    ├── MissingExtraError            2   an optional dependency is not installed
    ├── CredentialsError             1   the object store refuses us
    └── UnreachableError             1   the object store does not answer

The number is the exit code of the command line. The message is for people and
names the thing and the values; `hint` says what to do next; whatever identifies
the thing is an attribute, so that JSON output can carry it.
"""

from __future__ import annotations

from typing import ClassVar

# `rollback` and `reset` spell this choice differently and share these errors.
LEAVE_OUTPUTS = "leave the outputs as they are: --outputs none (rollback) or --outputs keep (reset)"
REBUILD_OUTPUT = "rebuild the output: savepoints reset QUERY --to-earliest --outputs truncate"
RESTORE_SAVEPOINT = "restore a savepoint into a new checkpoint: savepoints restore NAME --to URI"
OTHER_BATCH = "take a savepoint at another batch: savepoints create QUERY --at-batch N"
RESTORE_NATIVE = "restore the native form instead: --format native"
SAVE_NATIVE = "save the native form instead: --format native"


class SavepointsError(Exception):
    """Root of all errors raised on purpose.

    Args:
        message: What happened, with the thing and the values in it.
        hint: What to do about it, if possible as a command.
        details: Identifiers of what was involved (savepoint, batch, partition, path).
    """

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "", **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details

    def __str__(self) -> str:
        """Return message and hint, so that a traceback and a log have both; see `message_of`."""
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message

    def to_json(self) -> dict[str, object]:
        """Return the error as the object that `-o json` prints on stderr."""
        return {
            "schema_version": 1,
            "code": self.exit_code,
            "name": type(self).__name__,
            "message": self.message,
            "hint": self.hint,
            "retryable": self.retryable,
            **self.details,
        }


def message_of(error: BaseException) -> str:
    """Return what an error says as part of another text: without the hint, which is for its end."""
    return error.message if isinstance(error, SavepointsError) else str(error)


class UsageError(SavepointsError):
    """The request is invalid."""

    exit_code = 2


class PartlyDoneError(SavepointsError):
    """Some of the work was done, or a comparison found differences."""

    exit_code = 3


class NotFoundError(SavepointsError):
    """Something named does not exist."""

    exit_code = 10


class SavepointNotFoundError(NotFoundError):
    """No savepoint matches the name."""


class AmbiguousNameError(NotFoundError):
    """Several savepoints match the name; the message lists them."""


class CheckpointNotFoundError(NotFoundError):
    """There is no Spark checkpoint at the URI."""


class NoCommittedBatchError(NotFoundError):
    """The checkpoint has no complete batch that is still kept."""


class StoreNotFoundError(NotFoundError):
    """The bucket or directory of the store does not exist."""


class QueryNotFoundError(NotFoundError):
    """The store has no query with that name."""


class LockedError(SavepointsError):
    """Another process holds the lease of the query."""

    exit_code = 11
    retryable = True


class UnfinishedOperationError(LockedError):
    """A multi-step verb was interrupted; it must be finished before anything else."""

    retryable = False


class QueryRunningError(SavepointsError):
    """The query is running, or its checkpoint changes when it must not."""

    exit_code = 12
    retryable = True


class NotAlignedError(SavepointsError):
    """State, offsets and outputs do not belong to one cut."""

    exit_code = 13


class VerificationError(NotAlignedError):
    """A savepoint is damaged; the message names every damaged thing."""


class CheckpointDamagedError(NotAlignedError):
    """The checkpoint that a query continues from is gone, or Spark cannot read it."""


class PartitionCountError(NotAlignedError):
    """The state partitions are not those that the offset log makes the query look for."""


class SchemaPathError(NotAlignedError):
    """A schema file is outside its checkpoint, which would depend on another directory for ever."""


class SourceLogError(NotAlignedError):
    """A source's own log has entries that the batch has not used."""


class StateIdsError(NotAlignedError):
    """The commit log of checkpoint format 2 names missing state files."""


class PlacementError(NotAlignedError):
    """A state row is not in the partition where Spark looks for its key."""


class ListOrderError(NotAlignedError):
    """The order of list state's elements is unknown."""


class CheckFailedError(NotAlignedError):
    """A fork failed the checks before its promotion."""


class OutputVersionGoneError(NotAlignedError):
    """A version of an output whose rows are needed can no longer be read."""


class StalePlanError(NotAlignedError):
    """The basis of a plan has changed, so it would no longer do what it says."""


class SourceDataGoneError(SavepointsError):
    """The source no longer has the records that a savepoint continues with."""

    exit_code = 14


class TargetExistsError(SavepointsError):
    """The target already exists."""

    exit_code = 15


class StateUnwrittenError(SavepointsError):
    """Spark failed to write the state of a new checkpoint."""

    @classmethod
    def of(cls, checkpoint: object, cause: object) -> StateUnwrittenError:
        """Return the error for what has failed, whichever writer it was."""
        return cls(
            f"Spark could not write the state of {checkpoint}: {cause}",
            hint="run the command again, or restore the native form: --format native",
        )


class IncompatibleError(SavepointsError):
    """Versions, provider, or the layout of the state do not fit."""

    exit_code = 16


class UnsupportedProviderError(IncompatibleError):
    """The query's state store provider is not one of Spark's own."""


class UnsupportedFormatError(IncompatibleError):
    """A Spark file has an unknown version or codec; it may be intact."""


class NativeOnlyError(IncompatibleError):
    """The state rows of an operator cannot be read or written, so it has no canonical form."""


class RescaleError(IncompatibleError):
    """The operators of a query keep their number of state partitions."""


class ProviderError(IncompatibleError):
    """The other state store provider cannot hold this state."""


class FileSinkError(IncompatibleError):
    """The output is a file sink, and its log cannot be moved to the required batch."""


class LateBatchError(IncompatibleError):
    """Rows of a late batch cannot be merged; the message counts them by reason."""


class SeedRowsError(IncompatibleError):
    """Given rows cannot be the state of a program; the message counts them by reason."""


class SeveralRowsError(IncompatibleError):
    """A replay wrote several rows with one key in one slice; which is last is unknown."""


class LayoutChangedError(IncompatibleError):
    """The program has other columns in its state: other places or names, or other types."""


class PrivateApiError(IncompatibleError):
    """This Spark's private API is not the one that canonical restores were written for."""


class StoppedError(SavepointsError):
    """Somebody stopped the command: by Ctrl-C, by a signal, or at the question before it began."""

    exit_code = 130


class EnvironmentUnfitError(SavepointsError):
    """The machine lacks something that the operation needs."""


class MissingExtraError(EnvironmentUnfitError):
    """An optional dependency is not installed; the hint is the install command."""

    exit_code = 2


class CredentialsError(EnvironmentUnfitError):
    """The object store refuses the credentials, or there are none."""


class UnreachableError(EnvironmentUnfitError):
    """The object store does not answer, even after retries."""

    retryable = True
