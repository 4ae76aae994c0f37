"""Every error this library raises on purpose, as one tree.

SavepointsError                      1   root; never raised itself
├── UsageError                       2   the request itself makes no sense
├── PartlyDoneError                  3   some of it was done, or a comparison found differences
├── NotFoundError                   10   something named does not exist
│   ├── SavepointNotFoundError           no savepoint of that name
│   ├── AmbiguousNameError               several savepoints fit the name
│   ├── CheckpointNotFoundError          no Spark checkpoint at that URI
│   ├── NoCommittedBatchError            a checkpoint without a finished batch
│   ├── StoreNotFoundError               bucket or directory of the store is missing
│   └── QueryNotFoundError               no query of that name in the store
├── LockedError                     11   another process holds the query's lease
│   └── UnfinishedOperationError         a multi-step verb was interrupted: finish it first
├── QueryRunningError               12   the query runs, or its checkpoint changes
├── NotAlignedError                 13   state, offsets and outputs do not fit together
│   ├── VerificationError                a savepoint is damaged
│   ├── CheckpointDamagedError           the checkpoint of a query is gone or cannot be read
│   ├── PartitionCountError              state partitions are not those of the offset log
│   ├── SchemaPathError                  a schema file lies outside of its checkpoint
│   ├── SourceLogError                   a source's own log runs ahead of the offsets
│   ├── StateIdsError                    the commit log names state files that are not there
│   ├── PlacementError                   a state row is not in the partition of its key
│   ├── ListOrderError                   the order of list state is not known
│   ├── CheckFailedError                 a fork does not pass its checks, and takes nothing over
│   ├── OutputVersionGoneError           a version of an output that is needed cannot be read
│   └── StalePlanError                   what a plan was made from has changed since
├── SourceDataGoneError             14   Kafka no longer has the offsets wanted
├── TargetExistsError               15   the place to write to is taken
├── IncompatibleError               16   Spark, Delta, provider or state layout does not fit
│   ├── UnsupportedProviderError         a state store provider whose files are not known
│   ├── UnsupportedFormatError           a file of a version or codec that is not known
│   ├── NativeOnlyError                  an operator whose state rows cannot be read or written
│   ├── RescaleError                     an operator that keeps its number of partitions
│   ├── ProviderError                    state that the other provider cannot hold
│   ├── FileSinkError                    a file sink whose log cannot be taken there
│   ├── LateBatchError                   a late batch has rows that cannot be merged
│   ├── SeveralRowsError                 a replay wrote one key twice in what it ran as one batch
│   ├── LayoutChangedError               columns of the state changed places or names
│   └── PrivateApiError                  this Spark's private API has another shape
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

# `rollback` and `reset` name the same choice differently, and the errors are those of both.
LEAVE_OUTPUTS = "leave the outputs as they are: rollback --outputs none, reset --outputs keep"


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


class UsageError(SavepointsError):
    """The request makes no sense as it was put."""

    exit_code = 2


class PartlyDoneError(SavepointsError):
    """Some of the work was done, or a comparison found differences."""

    exit_code = 3


class NotFoundError(SavepointsError):
    """Something that was named does not exist."""

    exit_code = 10


class SavepointNotFoundError(NotFoundError):
    """No savepoint fits the name."""


class AmbiguousNameError(NotFoundError):
    """Several savepoints fit the name; the message lists them."""


class CheckpointNotFoundError(NotFoundError):
    """There is no Spark checkpoint at the URI."""


class NoCommittedBatchError(NotFoundError):
    """The checkpoint has no batch that was finished and is still kept whole."""


class StoreNotFoundError(NotFoundError):
    """The bucket or directory of the store does not exist."""


class QueryNotFoundError(NotFoundError):
    """The store knows no query of that name."""


class LockedError(SavepointsError):
    """Another process holds the lease of the query."""

    exit_code = 11
    retryable = True


class UnfinishedOperationError(LockedError):
    """A multi-step verb was interrupted; it must be run again before anything else."""

    retryable = False


class QueryRunningError(SavepointsError):
    """The query is running, or its checkpoint changes while it must stand still."""

    exit_code = 12
    retryable = True


class NotAlignedError(SavepointsError):
    """State, offsets and outputs do not belong to one cut."""

    exit_code = 13


class VerificationError(NotAlignedError):
    """A savepoint is damaged; the message names every damaged thing."""


class CheckpointDamagedError(NotAlignedError):
    """The checkpoint that a query goes on from is gone, or Spark cannot read it."""


class PartitionCountError(NotAlignedError):
    """The state partitions are not those that the offset log makes the query look for."""


class SchemaPathError(NotAlignedError):
    """A schema file lies outside of its checkpoint, so another directory is needed for ever."""


class SourceLogError(NotAlignedError):
    """A source's own log has entries that the batch has not used."""


class StateIdsError(NotAlignedError):
    """The commit log of checkpoint format 2 names state files that are not there."""


class PlacementError(NotAlignedError):
    """A state row is in another partition than Spark would look for its key."""


class ListOrderError(NotAlignedError):
    """Elements of list state have no order of their own."""


class CheckFailedError(NotAlignedError):
    """A fork did not pass the checks that it has to before it takes over."""


class OutputVersionGoneError(NotAlignedError):
    """A version of an output from which rows are needed can no longer be read."""


class StalePlanError(NotAlignedError):
    """What a plan was made from has changed since, so it would do another thing than it says."""


class SourceDataGoneError(SavepointsError):
    """The source no longer has the records that a savepoint continues with."""

    exit_code = 14


class TargetExistsError(SavepointsError):
    """The place that was to be written exists already."""

    exit_code = 15


class IncompatibleError(SavepointsError):
    """Versions, provider, or the layout of the state do not fit."""

    exit_code = 16


class UnsupportedProviderError(IncompatibleError):
    """The state store provider of the query is none of Spark's own."""


class UnsupportedFormatError(IncompatibleError):
    """A file of Spark's has a version or codec that is not known; it may well be whole."""


class NativeOnlyError(IncompatibleError):
    """The state rows of an operator cannot be read or written, so it has no canonical form."""


class RescaleError(IncompatibleError):
    """The operators of a query keep their number of state partitions."""


class ProviderError(IncompatibleError):
    """The other state store provider cannot hold this state."""


class FileSinkError(IncompatibleError):
    """The output is a file sink, and its log cannot be taken where it would have to be."""


class LateBatchError(IncompatibleError):
    """Rows of a late batch cannot be merged; the message counts them by reason."""


class SeveralRowsError(IncompatibleError):
    """A replay wrote several rows under one key in one slice: which is the last is not known."""


class LayoutChangedError(IncompatibleError):
    """Columns of the state changed places or names, which Spark would not notice."""


class PrivateApiError(IncompatibleError):
    """This Spark's private API is not the one that canonical restores were written for."""


class EnvironmentUnfitError(SavepointsError):
    """The machine lacks something that the operation needs."""


class MissingExtraError(EnvironmentUnfitError):
    """An optional dependency is not installed; the hint is the install command."""

    exit_code = 2


class CredentialsError(EnvironmentUnfitError):
    """The object store refuses the credentials, or there are none."""


class UnreachableError(EnvironmentUnfitError):
    """The object store does not answer, although it was asked again; nothing else is known."""

    retryable = True
