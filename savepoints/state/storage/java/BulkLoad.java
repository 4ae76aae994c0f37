import java.io.File;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.streaming.state.RocksDB;
import org.apache.spark.sql.execution.streaming.state.RocksDBConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.util.SerializableConfiguration;
import org.apache.spark.util.Utils;
import org.rocksdb.EnvOptions;
import org.rocksdb.IngestExternalFileOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksIterator;
import org.rocksdb.SstFileWriter;
import org.rocksdb.WriteOptions;
import scala.Option;
import scala.Tuple2;

/**
 * Loads the rows of a state partition into an empty store, and commits it as Spark does.
 *
 * Spark's RocksDB has no way in but one put for each row. Rows in the order of their keys become the
 * store's own files at once; others are put into it. Written for Janino: no lambdas, no generics.
 */
public final class BulkLoad implements Function2 {
  private static final int HASH = 0;
  private static final int KEY = 1;
  private static final int VALUE = 2;

  private final SerializableConfiguration hadoop;
  private final StateStoreConf conf;
  private final String directory;
  private final int operator;
  private final String store;
  private final long version;
  private final int partitions;
  private final Collection written;

  /**
   * @param directory the directory of the operator
   * @param version the version that is written
   * @param partitions state partitions, of which the rows of number p are in task p
   * @param written those that are written; of the others there must be no row
   */
  public BulkLoad(SerializableConfiguration hadoop, StateStoreConf conf, String directory,
      Integer operator, String store, Integer version, Integer partitions, List written) {
    this.hadoop = hadoop;
    this.conf = conf;
    this.directory = directory;
    this.operator = operator.intValue();
    this.store = store;
    this.version = version.longValue();
    this.partitions = partitions.intValue();
    this.written = new HashSet(written);
  }

  /** Load columns key_hash, key_bytes, value_bytes; return "operator store partition rows id". */
  public Object call(Object index, Object given) throws Exception {
    int partition = ((Integer) index).intValue();
    Iterator remaining = (Iterator) given;
    if (!written.contains(index)) {
      if (remaining.hasNext()) {
        throw new IllegalStateException("a state row is of partition " + partition
            + ", which is not written");
      }
      return Collections.emptyList().iterator();
    }
    File local = Utils.createTempDir(Utils.getLocalDir(SparkEnv.get().conf()), "bulk-load");
    String place = directory + "/" + partition + (store.equals("default") ? "" : "/" + store);
    RocksDB database = new RocksDB(place, RocksDBConf.apply(conf), local, hadoop.value(),
        "bulk load of " + place, false, conf.enableStateStoreCheckpointIds(), partition,
        Option.empty(), Option.empty());
    try {
      database.load(version - 1, Option.empty(), false, true);
      SortedFiles files = new SortedFiles(database, new File(local, "sorted"));
      long rows = 0;
      try {
        while (remaining.hasNext()) {
          InternalRow row = (InternalRow) remaining.next();
          if (Math.floorMod(row.getInt(HASH), partitions) != partition) {
            throw new IllegalStateException(
                "a state row is in a file of another state partition than its own");
          }
          files.add(encoded(row.getBinary(KEY)), encoded(row.getBinary(VALUE)));
          rows++;
        }
        files.ingest();
        files.requireKeys(rows);
      } finally {
        files.close();
      }
      // Otherwise the first batch would count them.
      method("numKeysOnWritingVersion_$eq", Long.TYPE)
          .invoke(database, new Object[] {Long.valueOf(rows)});
      Tuple2 committed = database.commit(true);
      Option id = ((StateStoreCheckpointInfo) committed._2()).stateStoreCkptId();
      return Collections.singletonList(operator + " " + store + " " + partition + " " + rows
          + " " + (id.isDefined() ? id.get() : "")).iterator();
    } finally {
      database.close();
    }
  }

  /** Write a row as `RocksDBDataEncoder` does: a byte with the version of the encoding, then it. */
  private static byte[] encoded(byte[] row) {
    byte[] found = new byte[row.length + 1];
    System.arraycopy(row, 0, found, 1, row.length);
    return found;
  }

  private static Method method(String name, Class argument) throws Exception {
    Class[] arguments = argument == null ? new Class[0] : new Class[] {argument};
    Method found = RocksDB.class.getDeclaredMethod(name, arguments);
    found.setAccessible(true);
    return found;
  }

  /** Sorted files of rows for one database. */
  private static final class SortedFiles {
    final org.rocksdb.RocksDB database;
    final Options options;
    final File directory;
    final EnvOptions environment = new EnvOptions();
    // What is put is flushed before the commit.
    final WriteOptions unlogged = new WriteOptions().setDisableWAL(true);
    final List done = new ArrayList();
    SstFileWriter writer = null;
    byte[] last = null;
    long bytes = 0;
    boolean anyPut = false;

    SortedFiles(RocksDB of, File directory) throws Exception {
      database = (org.rocksdb.RocksDB) method("db", null).invoke(of, new Object[0]);
      options = of.rocksDbOptions();
      this.directory = directory;
      directory.mkdir();
    }

    void add(byte[] key, byte[] value) throws Exception {
      int order = last == null ? 1 : Arrays.compareUnsigned(key, last);
      if (order == 0) {
        throw new IllegalStateException("two state rows have the same key");
      }
      if (order < 0) {
        database.put(unlogged, key, value);
        anyPut = true;
        return;
      }
      if (writer == null) {
        String path = new File(directory, done.size() + ".sst").getPath();
        writer = new SstFileWriter(environment, options);
        writer.open(path);
        done.add(path);
      }
      writer.put(key, value);
      last = key;
      bytes += key.length + value.length;
      if (bytes >= options.targetFileSizeBase()) {
        endFile();
      }
    }

    private void endFile() throws Exception {
      writer.finish();
      writer.close();
      writer = null;
      bytes = 0;
    }

    void ingest() throws Exception {
      if (writer != null) {
        endFile();
      }
      if (!done.isEmpty()) {
        IngestExternalFileOptions how = new IngestExternalFileOptions();
        try {
          database.ingestExternalFile(done, how.setMoveFiles(true));
        } finally {
          how.close();
        }
      }
    }

    /** Check that no key was overwritten, which cannot be seen of rows in any order. */
    void requireKeys(long rows) {
      if (!anyPut) {
        return;
      }
      long found = 0;
      RocksIterator keys = database.newIterator();
      try {
        for (keys.seekToFirst(); keys.isValid(); keys.next()) {
          found++;
        }
      } finally {
        keys.close();
      }
      if (found != rows) {
        throw new IllegalStateException("two state rows have the same key");
      }
    }

    void close() {
      if (writer != null) {
        writer.close();
      }
      environment.close();
      unlogged.close();
    }
  }
}
