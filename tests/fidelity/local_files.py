"""Makes Spark's local files cheap, so that a batch of a small query takes a tenth of a second.

Without Hadoop's native library, its local file system runs `chmod` for each file that it makes and
`readlink` for each that it looks for: processes of some milliseconds, a hundred of them a batch,
which is a third of all that a batch costs. What is put in its place here does the same by calls.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from savepoints.spark.versions import SparkVersion
from savepoints.state.storage.read import FILE_MANAGER_KEY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Hadoop has two interfaces to files: FileSystem, through which Spark writes Parquet, and
# FileContext, through which it writes checkpoints, but for this setting, and Delta its log.
CONF = {FILE_MANAGER_KEY: SparkVersion.of(version("pyspark")).file_manager}
_SOURCE = """
import java.net.URI;
import org.apache.hadoop.conf.Configuration;

public class Files extends org.apache.hadoop.fs.RawLocalFileSystem {
    public void setPermission(
        org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission permission
    ) throws java.io.IOException {
        String letters = new org.apache.hadoop.fs.permission.FsPermission(
            (short) (permission.toShort() & 0777)).toString();
        java.nio.file.Files.setPosixFilePermissions(
            pathToFile(path).toPath(),
            java.nio.file.attribute.PosixFilePermissions.fromString(letters));
    }
    public org.apache.hadoop.fs.FileStatus getFileLinkStatus(org.apache.hadoop.fs.Path path)
        throws java.io.IOException {
        boolean link = java.nio.file.Files.isSymbolicLink(pathToFile(path).toPath());
        return link ? super.getFileLinkStatus(path) : getFileStatus(path);
    }
}

class Plain extends org.apache.hadoop.fs.DelegateToFileSystem {
    Plain(URI uri, Configuration conf) throws Exception {
        super(uri, new Files(), conf, "file", false);
    }
    public int getUriDefaultPort() { return -1; }
    public boolean isValidName(String path) { return true; }
}

public class Checked extends org.apache.hadoop.fs.ChecksumFs {
    public Checked(URI uri, Configuration conf) throws Exception {
        super(new Plain(uri, conf));
    }
}
"""


def make_cheap(spark: SparkSession) -> None:
    """Replace the local file system in Hadoop's caches, for all sessions of this JVM."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    _replace_file_system(spark, compiler.getClassLoader().loadClass("Files"))
    checked = compiler.getClassLoader().loadClass("Checked")
    # Which constructor makes a file system of a class.
    abstract = jvm.java.lang.Class.forName("org.apache.hadoop.fs.AbstractFileSystem")
    constructors = abstract.getDeclaredField("CONSTRUCTOR_CACHE")
    constructors.setAccessible(True)
    standard = jvm.java.lang.Class.forName("org.apache.hadoop.fs.local.LocalFs")
    constructors.get(None).put(standard, checked.getConstructors()[0])


def _replace_file_system(spark: SparkSession, files: Any) -> None:
    context: Any = spark.sparkContext
    jvm = context._jvm
    hadoop_conf = spark._jsparkSession.sessionState().newHadoopConf()
    local = jvm.org.apache.hadoop.fs.LocalFileSystem(
        files.getDeclaredConstructor(None).newInstance(None)
    )
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
