"""Makes Spark's local files cheap, so that a batch of a small query takes a tenth of a second.

Without Hadoop's native library, its local file system runs `chmod` for each file that it makes: a
process of 10 ms, a hundred times a batch. The one put in its place here does the same by a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Checkpoints go through this file system too, not through Hadoop's other one, FileContext.
CONF = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    )
}

_CLASS = "LocalFilesWithoutProcesses"
_SOURCE = f"""
public class {_CLASS} extends org.apache.hadoop.fs.RawLocalFileSystem {{
    public void setPermission(
        org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission
    ) throws java.io.IOException {{
        String letters = new org.apache.hadoop.fs.permission.FsPermission(
            (short) (permission.toShort() & 0777)).toString();
        java.nio.file.Files.setPosixFilePermissions(
            pathToFile(path).toPath(),
            java.nio.file.attribute.PosixFilePermissions.fromString(letters));
    }}
}}
"""


def make_cheap(spark: SparkSession) -> None:
    """Replace the local file system in Hadoop's cache, for all sessions of this JVM."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    hadoop_conf = spark._jsparkSession.sessionState().newHadoopConf()
    # The compiler with which Spark compiles its generated code.
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    raw = compiler.getClassLoader().loadClass(_CLASS).getDeclaredConstructor(None).newInstance(None)
    local = jvm.org.apache.hadoop.fs.LocalFileSystem(raw)
    uri = jvm.java.net.URI.create("file:///")
    local.initialize(uri, hadoop_conf)
    file_system = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem")
    for method in file_system.getDeclaredMethods():
        if method.getName() == "addFileSystemForTesting":
            method.setAccessible(True)
            arguments = context._gateway.new_array(jvm.java.lang.Object, 3)
            arguments[0], arguments[1], arguments[2] = uri, hadoop_conf, local
            method.invoke(None, arguments)
            return
    raise LookupError("Hadoop's FileSystem has no addFileSystemForTesting")
