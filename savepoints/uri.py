"""URIs: where something is, on S3 or on a local file system; `s3://` and `s3a://` are the same.

Nothing is opened here, see `io`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from savepoints.errors import IncompatibleError, UsageError

# Two letters at least: one would be a drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_TABLE_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*){2}")


def is_table_name(text: str) -> bool:
    """Return True for the name of a table in a catalog, such as `main.sales.orders`.

    A directory of that name is written as `./main.sales.orders`.
    """
    return bool(_TABLE_NAME.fullmatch(text))


@dataclass(frozen=True)
class Uri:
    """A place: scheme `s3` with a bucket, or scheme `file` without one.

    Attributes:
        bucket: Empty for `file`.
    """

    scheme: str
    bucket: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Uri:
        """Read a URI or a local path; a table's name is refused with how to find its location."""
        scheme, separator, rest = text.partition("://")
        if is_table_name(text):
            raise UsageError(
                f"{text} is a table name, and only a Spark session can look up where the table is",
                hint=f"pass its location, which spark.sql('DESCRIBE DETAIL {text}') shows; "
                f"for a local directory of that name, write ./{text}",
                table=text,
            )
        if not separator:
            if (match := _SCHEME.match(text)) and match.group(1) != "file":
                raise UsageError(
                    f"{text!r} has a scheme but no '//'",
                    hint=f"write {match.group(1)}://{text[match.end() :].lstrip('/')}",
                )
            scheme, rest = "file", str(Path(text.removeprefix("file:")).resolve())
        scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme, scheme)
        if scheme not in {"s3", "file"}:
            raise IncompatibleError(
                f"{text}: the scheme {scheme}:// is not supported",
                hint="use s3://bucket/path, s3a://bucket/path or a local path",
                uri=text,
            )
        bucket, _, path = rest.partition("/") if scheme == "s3" else ("", "", rest)
        if "@" in bucket:
            raise UsageError(
                f"a URI of the bucket {bucket.rpartition('@')[2]!r} contains credentials",
                hint="use s3://bucket/path; credentials come from AWS_PROFILE or the other AWS "
                "variables",
            )
        if scheme == "s3" and not bucket:
            raise UsageError(f"{text!r} does not name a bucket", hint="write s3://bucket/path")
        parts = [part for part in path.split("/") if part]
        if ".." in parts or "." in parts:
            raise UsageError(f"{text!r} has '.' or '..' in its path", hint="write the full path")
        return cls(scheme, bucket, "/".join(parts))

    def __truediv__(self, child: str) -> Uri:
        """Return the place below this one."""
        return Uri(self.scheme, self.bucket, f"{self.path}/{child}".strip("/"))

    def __str__(self) -> str:
        """Write it as people and deltalake want it."""
        return f"s3://{self.bucket}/{self.path}" if self.scheme == "s3" else f"/{self.path}"

    @property
    def hadoop(self) -> str:
        """Write it as Hadoop, and so Spark, wants it: `s3a://` or `file:`."""
        return f"s3a://{self.bucket}/{self.path}" if self.scheme == "s3" else f"file:/{self.path}"

    @property
    def system(self) -> tuple[str, str]:
        """Name the store within which files can be copied without passing through us."""
        return (self.scheme, self.bucket)
