import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.util.HadoopOutputFile;
import org.apache.parquet.hadoop.util.HadoopStreams;
import org.apache.parquet.io.OutputFile;
import org.apache.parquet.io.PositionOutputStream;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.SerializableConfiguration;
import scala.collection.immutable.Seq;

/**
 * Writes canonical rows as Parquet by columns, and sums them up; compiled by Janino where Spark
 * runs, see `row_files`.
 *
 * Parquet's own writer takes a value at a time through five objects, which is half of the time of
 * an export (ADR 31). Here a value is copied behind the one before it.
 *
 * A row is one of Spark's raw reader of states, or of `hdfs_provider`: partition_key (a struct,
 * whose leaves are described by `leaves`), key_bytes, value_bytes (may be null),
 * column_family_name, and partition_id where `partitionAt` says so; without, a task reads the state
 * partition of its own number. A row in another state partition than the hash of its key says is
 * counted as stray.
 */
public class RowFiles implements Function2 {
  private static final long serialVersionUID = 2L;
  /** A page ends with so many rows, or when its keys and values have so many bytes. */
  private static final int ROWS_OF_PAGE = 20000;
  private static final long BYTES_OF_PAGE = 8L << 20;
  private static final long BYTES_OF_GROUP = 64L << 20;
  private static final long SEED = 42L;
  /** As in `monotonically_increasing_id`, below the number of the task. */
  private static final int BITS_OF_ROW = 33;
  private static final int KEY_HASH = 3;
  private static final int ORD = 4;
  private static final int KEY_BYTES = 5;
  private static final int VALUE_BYTES = 6;
  private static final int LEAVES = 7;

  private final SerializableConfiguration conf;
  private final String target;
  private final String sparkVersion;
  private final int operator;
  private final String operatorName;
  private final String store;
  private final String schema;
  /** Each leaf of the key as "kind ordinal/fields ordinal/fields … ordinal". */
  private final String leaves;
  private final int fieldsOfKey;
  /** How many state partitions there are. */
  private final int partitions;
  private final int partitionAt;
  /** An expression over a row: the hash of its key. */
  private final Seq hash;

  public RowFiles(
      SerializableConfiguration conf, String target, String sparkVersion, Integer operator,
      String operatorName, String store, String schema, String leaves, Integer fieldsOfKey,
      Integer partitions, Integer partitionAt, Seq hash) {
    this.conf = conf;
    this.target = target;
    this.sparkVersion = sparkVersion;
    this.operator = operator.intValue();
    this.operatorName = operatorName;
    this.store = store;
    this.schema = schema;
    this.leaves = leaves;
    this.fieldsOfKey = fieldsOfKey.intValue();
    this.partitions = partitions.intValue();
    this.partitionAt = partitionAt.intValue();
    this.hash = hash;
  }

  /** Write the rows of a task; return one line of each file, see `RowFile.parse`. */
  public Object call(Object index, Object given) throws Exception {
    Iterator rows = (Iterator) given;
    List done = new ArrayList();
    Integer number = (Integer) index;
    long ord = number.longValue() << BITS_OF_ROW;
    OneFile file = null;
    boolean complete = false;
    try {
      while (rows.hasNext()) {
        InternalRow row = (InternalRow) rows.next();
        Integer partition = partitionAt < 0 ? number : Integer.valueOf(row.getInt(partitionAt));
        if (file == null || !file.partition.equals(partition)) {
          if (file != null) {
            done.add(file.close());
          }
          file = new OneFile(this, number, partition);
        }
        file.add(row, ord++);
      }
      if (file != null) {
        done.add(file.close());
      }
      complete = true;
    } finally {
      if (!complete && file != null) {
        file.abort();
      }
    }
    return done.iterator();
  }

  /** A file of one state partition, with its number where Spark's `BucketingUtils` looks for it. */
  static final class OneFile {
    final RowFiles of;
    final Integer partition;
    final String path;
    final Opened file;
    final ParquetFileWriter writer;
    final PagedColumn[] columns;
    final FewValues families;
    final FewValues operators;
    final FewValues partitionIds;
    final UTF8String operatorName;
    final UnsafeProjection hash;
    final int[][] leaves;
    final char[] kinds;
    final long[] sums = new long[2];
    final long[] orders = new long[2];
    final TwoHashes hashes = new TwoHashes();
    UTF8String family = null;
    /** The hashes of all that comes before a row's key, for rows of this column family. */
    final long[] begun = new long[2];
    byte[] lastKey = null;
    /** How many rows before this one have its key: elements of a list are read one by one. */
    long place = 0;
    List rowsOfPages = new ArrayList();
    int inPage = 0;
    long bytesOfPage = 0;
    long inGroup = 0;
    long bytesOfGroup = 0;
    long rows = 0;
    long bytes = 0;
    long stray = 0;

    OneFile(RowFiles of, Integer index, Integer partition) throws Exception {
      this.of = of;
      this.partition = partition;
      operatorName = UTF8String.fromString(of.operatorName);
      hash = UnsafeProjection.create(of.hash);
      // With the digits that Spark looks for, whatever the language of the machine.
      String bucket = String.format(Locale.ROOT, "%05d", new Object[] {partition});
      path = "operator_id=" + of.operator + "/store_name=" + of.store
          + "/part-" + index + "-" + UUID.randomUUID() + "_" + bucket + ".zstd.parquet";
      MessageType schema = MessageTypeParser.parseMessageType(of.schema);
      String[] described = of.leaves.split(";");
      leaves = new int[described.length][];
      kinds = new char[described.length];
      for (int i = 0; i < described.length; i++) {
        String[] words = described[i].split(" ");
        kinds[i] = words[0].charAt(0);
        leaves[i] = new int[words.length - 1];
        for (int j = 1; j < words.length; j++) {
          leaves[i][j - 1] = Integer.parseInt(words[j]);
        }
      }
      List descriptors = schema.getColumns();
      columns = new PagedColumn[descriptors.size()];
      for (int i = 0; i < columns.length; i++) {
        ColumnDescriptor one = (ColumnDescriptor) descriptors.get(i);
        columns[i] = i < KEY_HASH ? new FewValues(one) : new PagedColumn(one);
      }
      families = (FewValues) columns[0];
      operators = (FewValues) columns[1];
      partitionIds = (FewValues) columns[2];
      file = new Opened(new Path(of.target + "/" + path), of.conf.value());
      writer = new ParquetFileWriter(
          file, schema, ParquetFileWriter.Mode.CREATE, 128L << 20, 8 << 20);
      writer.start();
    }

    void add(InternalRow row, long ord) throws Exception {
      UTF8String named = row.getUTF8String(3);
      if (!named.equals(family)) {
        family = named.clone();
        lastKey = null;
        UTF8String store = UTF8String.fromString(of.store);
        for (int seed = 1; seed <= 2; seed++) {
          begun[seed - 1] = hashed(family, hashed(store, XXH64.hashInt(seed, SEED)));
        }
      }
      byte[] key = row.getBinary(1);
      byte[] value = row.isNullAt(2) ? null : row.getBinary(2);
      hashes.first = begun[0];
      hashes.second = begun[1];
      hashes.add(key);
      if (value != null) {
        hashes.add(value);
      }
      sums[0] += hashes.first;
      sums[1] += hashes.second;
      place = Arrays.equals(key, lastKey) ? place + 1 : 0;
      lastKey = key;
      if (place > 0) {
        orders[0] += XXH64.hashLong(place, XXH64.hashLong(hashes.first, SEED));
        orders[1] += XXH64.hashLong(place, XXH64.hashLong(hashes.second, SEED));
      }
      int size = key.length + (value == null ? 0 : value.length);
      bytes += size;
      bytesOfPage += size;
      int keyHash = hash.apply(row).getInt(0);
      if (Math.floorMod(keyHash, of.partitions) != partition.intValue()) {
        stray++;
      }
      families.add(family);
      operators.add(operatorName);
      partitionIds.add(partition);
      columns[KEY_HASH].values.addInt(keyHash);
      columns[ORD].values.addLong(ord);
      columns[KEY_BYTES].values.addBytes(key);
      columns[VALUE_BYTES].level(value == null ? 0 : 1);
      if (value != null) {
        columns[VALUE_BYTES].values.addBytes(value);
      }
      InternalRow fields = row.getStruct(0, of.fieldsOfKey);
      for (int i = 0; i < leaves.length; i++) {
        addLeaf(fields, leaves[i], kinds[i], columns[LEAVES + i]);
      }
      rows++;
      inGroup++;
      if (++inPage == ROWS_OF_PAGE || bytesOfPage >= BYTES_OF_PAGE) {
        endPage();
        if (bytesOfGroup >= BYTES_OF_GROUP) {
          endGroup();
        }
      }
    }

    private static long hashed(UTF8String text, long seed) {
      return XXH64.hashUnsafeBytes(
          text.getBaseObject(), text.getBaseOffset(), text.numBytes(), seed);
    }

    /** Follow pairs of ordinal and number of fields to the struct of a leaf, then its ordinal. */
    private static void addLeaf(InternalRow key, int[] way, char kind, PagedColumn to)
        throws Exception {
      SpecializedGetters in = key;
      int level = 2; // The columns `key` and `key.op0` are never null.
      int at = 0;
      while (at + 1 < way.length) {
        if (in.isNullAt(way[at])) {
          to.level(level);
          return;
        }
        in = in.getStruct(way[at], way[at + 1]);
        level++;
        at += 2;
      }
      int ordinal = way[at];
      if (in.isNullAt(ordinal)) {
        to.level(level);
        return;
      }
      to.level(level + 1);
      switch (kind) {
        case 's': to.values.addText(in.getUTF8String(ordinal)); break;
        case 'b': to.values.addBytes(in.getBinary(ordinal)); break;
        case 'i': to.values.addInt(in.getInt(ordinal)); break;
        case 'h': to.values.addInt(in.getShort(ordinal)); break;
        case 'y': to.values.addInt(in.getByte(ordinal)); break;
        case 'l': to.values.addLong(in.getLong(ordinal)); break;
        case 'f': to.values.addInt(Float.floatToRawIntBits(in.getFloat(ordinal))); break;
        case 'd': to.values.addLong(Double.doubleToRawLongBits(in.getDouble(ordinal))); break;
        default: throw new IllegalStateException("kind " + kind);
      }
    }

    private void endPage() throws Exception {
      for (int i = 0; i < columns.length; i++) {
        bytesOfGroup += columns[i].endPage();
      }
      rowsOfPages.add(Integer.valueOf(inPage));
      inPage = 0;
      bytesOfPage = 0;
    }

    private void endGroup() throws Exception {
      writer.startBlock(inGroup);
      for (int i = 0; i < columns.length; i++) {
        columns[i].write(writer, inGroup, rowsOfPages);
      }
      writer.endBlock();
      rowsOfPages = new ArrayList();
      inGroup = 0;
      bytesOfGroup = 0;
    }

    String close() throws Exception {
      if (inPage > 0) {
        endPage();
      }
      if (inGroup > 0) {
        endGroup();
      }
      Map metadata = new HashMap();
      metadata.put("org.apache.spark.version", of.sparkVersion);
      writer.end(metadata);
      return of.operator + " " + rows + " " + bytes + " " + Long.toUnsignedString(sums[0]) + " "
          + Long.toUnsignedString(sums[1]) + " " + Long.toUnsignedString(orders[0]) + " "
          + Long.toUnsignedString(orders[1]) + " " + stray + " " + path;
    }

    void abort() {
      try {
        file.abort();
      } catch (java.io.IOException ignored) {
        // What stays is not in the table's log, so nobody reads it.
      }
    }
  }

  /**
   * A file that can be given up while it is written, and else as `HadoopOutputFile` makes it.
   *
   * Parquet's writer keeps its stream to itself. Left open, on S3 the parts that were uploaded would
   * stay, and be paid for, without any file; closed, they would become one
   * (`S3ABlockOutputStream`).
   */
  static final class Opened implements OutputFile {
    private static final int BUFFER = 4096;
    final Path path;
    final FileSystem system;
    final OutputFile usual;
    FSDataOutputStream stream = null;

    Opened(Path path, Configuration conf) throws java.io.IOException {
      this.path = path;
      system = path.getFileSystem(conf);
      usual = HadoopOutputFile.fromPath(path, conf);
    }

    public PositionOutputStream create(long blockSize) throws java.io.IOException {
      stream = system.create(
          path, false, BUFFER, system.getDefaultReplication(path),
          Math.max(system.getDefaultBlockSize(path), blockSize));
      return HadoopStreams.wrap(stream);
    }

    public PositionOutputStream createOrOverwrite(long blockSize) {
      throw new UnsupportedOperationException("a file is there already: " + path);
    }

    public boolean supportsBlockSize() {
      return usual.supportsBlockSize();
    }

    public long defaultBlockSize() {
      return usual.defaultBlockSize();
    }

    public String getPath() {
      return path.toString();
    }

    void abort() throws java.io.IOException {
      if (stream != null && stream.hasCapability(CommonPathCapabilities.ABORTABLE_STREAM)) {
        stream.abort();
      } else if (stream != null) {
        try {
          stream.close();
        } finally {
          system.delete(path, false);
        }
      }
    }
  }
}
