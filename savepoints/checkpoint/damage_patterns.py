"""Patterns in Spark's errors which mean that checkpoint files are missing or damaged."""

from __future__ import annotations

# Error classes of Spark 4, and what its logs and RocksDB report below them.
_PATTERNS = (
    "CANNOT_LOAD_STATE_STORE",
    "CANNOT_READ_STREAMING_STATE_FILE",
    "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",
    "Incomplete log file",
    "MALFORMED_LOG_FILE",
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    "RocksDBException: Corruption",
)
# The program changed: an older state would not fit it either.
_PROGRAM = ("SCHEMA_NOT_COMPATIBLE", "ROW_FORMAT_VALIDATION_FAILURE")
# The log of a file sink, which a program reads: no older checkpoint mends that.
_SINK = "/_spark_metadata/"
# In the words of Spark, Hadoop and the JVM: the machine or the network failed, not the files.
ELSEWHERE = (
    "HTTP request", "Status Code: 5", "Status Code: 403", "SlowDown", "AccessDenied",
    "Service Unavailable", "Connection re", "ConnectException", "SocketTimeout", "UnknownHost",
    "timed out", "NoAuthWithAWS", "NoAwsCredentials", "No FileSystem for scheme",
    "ClassNotFoundException", "OutOfMemoryError", "No space left", "ExecutorLost",
    "SparkContext was shut down", "Answer from Java side is empty", "Py4JNetworkError",
)  # fmt: skip


def is_in(report: str) -> bool:
    """Return True if a Spark error is about damaged files, not about the program or machine."""
    other = (*_PROGRAM, _SINK, *ELSEWHERE)
    return any(pattern in report for pattern in _PATTERNS) and not any(
        pattern in report for pattern in other
    )
