"""URIs: where something is, in an object store or on a local file system.

`s3://` and `s3a://` are the same. Azure's are written as Spark wants them:
`abfss://container@account.dfs.core.windows.net/path`. A path on HDFS names its NameNode, or the
name service that `hdfs-site.xml` knows: `hdfs://namenode:8020/path`.

Nothing is opened here, see `io`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from savepoints.errors import IncompatibleError, UsageError

# Two letters at least: one would be a drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
# The endpoints of other clouds of Azure (China, US government) are not known to object_store.
_AZURE = re.compile(r"([a-z0-9$-]+)@([a-z0-9]{3,24})\.dfs\.core\.windows\.net")
_HDFS = re.compile(r"[A-Za-z0-9._-]+(:\d+)?")
_SAME = {"s3a": "s3", "s3n": "s3", "abfs": "abfss"}
_WITH_BUCKET = frozenset({"s3", "abfss", "hdfs"})
_TABLE_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*){2}")


def is_table_name(text: str) -> bool:
    """Return True for the name of a table in a catalog, such as `main.sales.orders`.

    A directory of that name is written as `./main.sales.orders`.
    """
    return bool(_TABLE_NAME.fullmatch(text))


def written(value: Any) -> Any:  # noqa: ANN401 - of any type but a path, it stays as it is.
    """Return what a caller gave; a `pathlib.Path`, and those in a mapping, written as text."""
    if isinstance(value, Mapping):
        return {name: written(one) for name, one in value.items()}
    if not isinstance(value, os.PathLike):
        return value
    text = os.fspath(value)
    return f"./{text}" if is_table_name(text) else text


def tables_of(texts: Iterable[str]) -> dict[str, str]:
    """Read the values of `--table`, each `NAME=URI`.

    Raises:
        UsageError: If one has another form, or two have one name, of which one would be lost.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, uri = text.partition("=")
        if not (name and uri):
            raise UsageError(
                f"--table {text!r} is not in the form NAME=URI",
                hint="write, for example, --table totals=s3://bucket/totals",
            )
        if name in found:
            raise UsageError(
                f"--table {name} is given twice: {found[name]} and {uri}",
                hint="give each table a name of its own",
            )
        found[name] = uri
    return found


def spelled(text: str) -> str:
    """Return a place in one spelling, so that two can be compared; what is none stays as it is."""
    try:
        return str(Uri.parse(text))
    except (IncompatibleError, UsageError):
        return text


def lies_in(inner: str, outer: str) -> bool:
    """Return True if a place is another one, or within it and deleted with it."""
    one, other = Uri.parse(inner), Uri.parse(outer)
    return one.system == other.system and f"{one.path}/".startswith(f"{other.path}/".lstrip("/"))


@dataclass(frozen=True)
class Uri:
    """A place: scheme `s3`, `abfss` or `hdfs` with a bucket, or scheme `file` without one.

    Attributes:
        bucket: Empty for `file`; on Azure container and host, `container@account.dfs…`; on HDFS the
            NameNode or name service.
    """

    scheme: str
    bucket: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Uri:
        """Read a URI or a local path; a table's name is refused with how to find its location.

        A local place has one URI, whatever links lead to it; `~` is the user's directory.
        """
        scheme, separator, rest = text.partition("://")
        if is_table_name(text):
            raise UsageError(
                f"{text} is a table name, but a location is needed here",
                hint="pass the location of the table, shown by spark.sql('DESCRIBE DETAIL "
                f"{text}'); for a local directory of that name, write ./{text}",
                table=text,
            )
        if not separator:
            if (match := _SCHEME.match(text)) and match.group(1) != "file":
                raise _without_slashes(text, match)
            scheme, rest = "file", _local(text.removeprefix("file:"))
        scheme = _SAME.get(scheme, scheme)
        if scheme not in {*_WITH_BUCKET, "file"}:
            raise _unsupported(text, f"{scheme}://")
        bucket, _, path = rest.partition("/") if scheme in _WITH_BUCKET else ("", "", _rooted(rest))
        if scheme == "abfss" and not _AZURE.fullmatch(bucket):
            raise UsageError(
                f"the Azure URI {scheme}://{_hidden(bucket)} does not name a container and an "
                "account",
                hint="write abfss://container@account.dfs.core.windows.net/path",
            )
        if scheme == "s3" and "@" in bucket:
            raise UsageError(
                f"the URI of the bucket {bucket.rpartition('@')[2]!r} contains credentials",
                hint="remove them from the URI: s3://bucket/path; credentials come from "
                "AWS_PROFILE or the other AWS variables",
            )
        if scheme == "s3" and not bucket:
            raise UsageError(f"{text!r} does not name a bucket", hint="write s3://bucket/path")
        if scheme == "hdfs" and not _HDFS.fullmatch(bucket):
            raise UsageError(
                f"the URI hdfs://{_hidden(bucket)}/{path} does not name a NameNode",
                hint="write hdfs://host:port/path or hdfs://nameservice/path, as in fs.defaultFS "
                "of core-site.xml; the user comes from HADOOP_USER_NAME or Kerberos",
            )
        parts = [part for part in path.split("/") if part]
        if ".." in parts or "." in parts:
            raise UsageError(
                f"the path in {text!r} has a segment '.' or '..'",
                hint="write the full path without such segments",
            )
        where = "/".join(parts)
        return cls(scheme, bucket, _local(f"/{where}").lstrip("/") if scheme == "file" else where)

    def __truediv__(self, child: str) -> Uri:
        """Return the place below this one."""
        return Uri(self.scheme, self.bucket, f"{self.path}/{child}".strip("/"))

    def __str__(self) -> str:
        """Write it as people and deltalake want it."""
        if self.scheme == "file":
            return f"/{self.path}"
        return f"{self.scheme}://{self.bucket}/{self.path}"

    @property
    def hadoop(self) -> str:
        """Write it as Hadoop, and so Spark, wants it: `s3a://…`, `file:/…`, others unchanged."""
        scheme = {"s3": "s3a://", "file": "file:"}.get(self.scheme, f"{self.scheme}://")
        return f"{scheme}{self.bucket}/{self.path}"

    @property
    def for_spark(self) -> str:
        """Write it as a driver gives it to Spark, whose file system for S3 is called `s3a://`."""
        return str(self) if self.scheme == "file" else self.hadoop

    @property
    def azure(self) -> tuple[str, str]:
        """Container and account of a place on Azure."""
        container, _, host = self.bucket.partition("@")
        return container, host.partition(".")[0]

    @property
    def system(self) -> tuple[str, str]:
        """Name the store, within which most can copy files without passing through us."""
        return (self.scheme, self.bucket)


def _without_slashes(text: str, match: re.Match[str]) -> UsageError | IncompatibleError:
    """Return the error for `s3:/bucket`, and for what only looks as if it had a scheme."""
    scheme = match.group(1)
    if _SAME.get(scheme, scheme) not in _WITH_BUCKET:
        return _unsupported(text, f"{scheme}:")
    return UsageError(
        f"{text!r} has a scheme but no '//'",
        hint=f"write {scheme}://{text[match.end() :].lstrip('/')}",
    )


def _unsupported(text: str, scheme: str) -> IncompatibleError:
    return IncompatibleError(
        f"the scheme {scheme} of {text} is not supported",
        hint="use s3://bucket/path, abfss://container@account.dfs.core.windows.net/path, "
        "hdfs://namenode:8020/path or a local path, which begins with / or ./ if it has a colon",
        uri=text,
    )


def _rooted(rest: str) -> str:
    """Return what follows `file://`; what stands there without a `/` is a host, no directory."""
    if not rest.startswith("/"):
        raise UsageError(
            f"the URI file://{rest} does not name a local path",
            hint=f"write file:///{rest.removeprefix('localhost/')}, or the path alone",
        )
    return rest


def _local(path: str) -> str:
    """Return a local path from the root on, without links."""
    if not path.strip():
        raise UsageError(
            "the URI of a location is empty",
            hint="write s3://bucket/path or a local path; . is the working directory",
        )
    known = os.path.expanduser(path)  # noqa: PTH111 - pathlib expands ./~ as well.
    if known.startswith("~"):
        raise UsageError(
            f"no user's directory is known for {path!r}",
            hint=f"write the full path, or ./{path} for a directory of that name",
        )
    return str(Path(known).resolve())


def _hidden(bucket: str) -> str:
    """Return what may be shown of what should be a container and a host."""
    return bucket.rpartition("@")[2] if ":" in bucket else bucket
