import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import com.github.luben.zstd.Zstd;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.parquet.bytes.BytesInput;
import org.apache.parquet.bytes.HeapByteBufferAllocator;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.Encoding;
import org.apache.parquet.column.statistics.Statistics;
import org.apache.parquet.column.values.rle.RunLengthBitPackingHybridEncoder;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.hadoop.util.HadoopOutputFile;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;
import org.apache.spark.api.java.function.Function2;
import org.apache.spark.sql.catalyst.expressions.SpecializedGetters;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.SerializableConfiguration;

/**
 * Writes canonical rows as Parquet by columns, and sums them up; compiled by Janino where Spark
 * runs, see `row_files`.
 *
 * Parquet's own writer takes a value at a time through five objects, which is half of the time of
 * an export (ADR 31). Here a value is copied behind the one before it. Each column is a list of
 * data pages of version 1, plain, with definition levels where something may be null
 * (parquet-format, "Data Pages" and "Plain").
 *
 * A row has: operator_id (int), store_name, column_family, operator_name (strings), partition_id,
 * key_hash (int), ord (long), key_bytes, value_bytes (binary, the latter may be null), and a struct
 * whose leaves are described by `leaves`. A row in another state partition than its key's hash says
 * is counted as stray.
 */
public class RowFiles implements Function2 {
  private static final long serialVersionUID = 1L;
  /** A page ends with so many rows, or when its keys and values have so many bytes. */
  private static final int ROWS_OF_PAGE = 20000;
  private static final long BYTES_OF_PAGE = 8L << 20;
  private static final long BYTES_OF_GROUP = 64L << 20;
  private static final int LEVEL = 1;
  private static final long SEED = 42L;

  private final SerializableConfiguration conf;
  private final String target;
  private final String sparkVersion;
  /** By operator: the schema of its files. */
  private final Map schemas;
  /** By operator: its leaves, each as "kind depth ordinal/fields ordinal/fields … ordinal". */
  private final Map leaves;
  /** By operator: how many state partitions it has. */
  private final Map partitions;

  public RowFiles(
      SerializableConfiguration conf, String target, String sparkVersion,
      Map schemas, Map leaves, Map partitions) {
    this.conf = conf;
    this.target = target;
    this.sparkVersion = sparkVersion;
    this.schemas = schemas;
    this.leaves = leaves;
    this.partitions = partitions;
  }

  /** Write the rows of a task; return "operator rows bytes hash1 hash2 stray path" of each file. */
  public Object call(Object index, Object given) throws Exception {
    Iterator rows = (Iterator) given;
    List done = new ArrayList();
    OneFile file = null;
    boolean complete = false;
    try {
      while (rows.hasNext()) {
        UnsafeRow row = (UnsafeRow) rows.next();
        if (file == null || !file.isOf(row)) {
          if (file != null) {
            done.add(file.close());
          }
          file = new OneFile(this, row, ((Integer) index).intValue());
        }
        file.add(row);
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

  /** Bytes of a column that grow, as values of Parquet's encoding `PLAIN`. */
  static final class Bytes {
    byte[] data = new byte[1 << 16];
    int size = 0;

    private void reserve(int more) {
      if (size + more > data.length) {
        data = Arrays.copyOf(data, Math.max(data.length * 2, size + more));
      }
    }

    void addInt(int value) {
      reserve(4);
      Platform.putInt(data, Platform.BYTE_ARRAY_OFFSET + size, value);
      size += 4;
    }

    void addLong(long value) {
      reserve(8);
      Platform.putLong(data, Platform.BYTE_ARRAY_OFFSET + size, value);
      size += 8;
    }

    void addRaw(Object base, long offset, int length) {
      reserve(length);
      Platform.copyMemory(base, offset, data, Platform.BYTE_ARRAY_OFFSET + size, length);
      size += length;
    }

    void addBytes(Object base, long offset, int length) {
      addInt(length);
      addRaw(base, offset, length);
    }

    void addBytes(byte[] value) {
      addBytes(value, Platform.BYTE_ARRAY_OFFSET, value.length);
    }

    void addText(UTF8String value) {
      addBytes(value.getBaseObject(), value.getBaseOffset(), value.numBytes());
    }
  }

  /** One column of a file: the page that grows, and pages that wait for the end of the row group. */
  static final class Column {
    final ColumnDescriptor descriptor;
    final int maxLevel;
    final Bytes values = new Bytes();
    /** How many values the page has, until the first that is null: those have the level maxLevel. */
    int full = 0;
    /** The levels of all values of the page, once one is null. */
    RunLengthBitPackingHybridEncoder levels = null;
    List pages = new ArrayList();

    Column(ColumnDescriptor descriptor) {
      this.descriptor = descriptor;
      this.maxLevel = descriptor.getMaxDefinitionLevel();
    }

    void level(int level) throws java.io.IOException {
      if (levels == null && level == maxLevel) {
        full++;
        return;
      }
      if (levels == null) {
        levels = begunLevels();
      }
      levels.writeInt(level);
    }

    private RunLengthBitPackingHybridEncoder begunLevels() throws java.io.IOException {
      int width = 32 - Integer.numberOfLeadingZeros(maxLevel);
      RunLengthBitPackingHybridEncoder begun =
          new RunLengthBitPackingHybridEncoder(width, 1024, 1 << 20, new HeapByteBufferAllocator());
      for (int i = 0; i < full; i++) {
        begun.writeInt(maxLevel);
      }
      full = 0;
      return begun;
    }

    /** Compress the page that grew; return its size. */
    int endPage() throws java.io.IOException {
      Bytes page = values;
      if (maxLevel > 0) {
        byte[] encoded = (levels == null ? begunLevels() : levels).toBytes().toByteArray();
        page = new Bytes();
        page.addBytes(encoded);
        page.addRaw(values.data, Platform.BYTE_ARRAY_OFFSET, values.size);
        levels = null;
      }
      byte[] packed = new byte[(int) Zstd.compressBound(page.size)];
      long length = Zstd.compressByteArray(packed, 0, packed.length, page.data, 0, page.size, LEVEL);
      if (Zstd.isError(length)) {
        throw new java.io.IOException("zstd: " + Zstd.getErrorName(length));
      }
      pages.add(new Object[] {Arrays.copyOf(packed, (int) length), Integer.valueOf(page.size)});
      values.size = 0;
      return (int) length;
    }
  }

  /** The file of one operator's store that a task writes. */
  static final class OneFile {
    final int operator;
    final UTF8String store;
    final int partitions;
    final String path;
    final Path file;
    final ParquetFileWriter writer;
    final String sparkVersion;
    final Configuration conf;
    final List columns = new ArrayList();
    final int[][] leaves;
    final char[] kinds;
    final long[] sums = new long[2];
    UTF8String family = null;
    long[] begun = new long[2];
    List rowsOfPages = new ArrayList();
    int inPage = 0;
    long bytesOfPage = 0;
    long inGroup = 0;
    long bytesOfGroup = 0;
    long rows = 0;
    long bytes = 0;
    long stray = 0;

    OneFile(RowFiles all, UnsafeRow row, int index) throws Exception {
      operator = row.getInt(0);
      store = row.getUTF8String(1).clone();
      Integer key = Integer.valueOf(operator);
      partitions = ((Integer) all.partitions.get(key)).intValue();
      path = "operator_id=" + operator + "/store_name=" + store
          + "/part-" + index + "-" + UUID.randomUUID() + ".zstd.parquet";
      MessageType schema = MessageTypeParser.parseMessageType((String) all.schemas.get(key));
      String[] described = ((String) all.leaves.get(key)).split(";");
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
      for (int i = 0; i < descriptors.size(); i++) {
        columns.add(new Column((ColumnDescriptor) descriptors.get(i)));
      }
      conf = all.conf.value();
      sparkVersion = all.sparkVersion;
      file = new Path(all.target + "/" + path);
      writer = new ParquetFileWriter(
          HadoopOutputFile.fromPath(file, conf), schema, ParquetFileWriter.Mode.CREATE,
          128L << 20, 8 << 20);
      writer.start();
    }

    boolean isOf(UnsafeRow row) {
      return row.getInt(0) == operator && row.getUTF8String(1).equals(store);
    }

    private Column column(int position) {
      return (Column) columns.get(position);
    }

    void add(UnsafeRow row) throws Exception {
      UTF8String named = row.getUTF8String(2);
      if (!named.equals(family)) {
        family = named.clone();
        for (int seed = 1; seed <= 2; seed++) {
          begun[seed - 1] = hashed(family, hashed(store, XXH64.hashInt(seed, SEED)));
        }
      }
      // The upper half of the word is where the bytes begin, the lower one how many they are.
      Object base = row.getBaseObject();
      long key = row.getLong(7);
      long keyAt = row.getBaseOffset() + (key >>> 32);
      int keySize = (int) key;
      boolean hasValue = !row.isNullAt(8);
      long value = hasValue ? row.getLong(8) : 0L;
      long valueAt = row.getBaseOffset() + (value >>> 32);
      int valueSize = (int) value;
      for (int seed = 0; seed < 2; seed++) {
        long hash = XXH64.hashUnsafeBytes(base, keyAt, keySize, begun[seed]);
        sums[seed] += hasValue ? XXH64.hashUnsafeBytes(base, valueAt, valueSize, hash) : hash;
      }
      bytes += keySize + valueSize;
      bytesOfPage += keySize + valueSize;
      int hash = row.getInt(5);
      if (Math.floorMod(hash, partitions) != row.getInt(4)) {
        stray++;
      }
      column(0).values.addText(named);
      column(1).values.addText(row.getUTF8String(3));
      column(2).values.addInt(row.getInt(4));
      column(3).values.addInt(hash);
      column(4).values.addLong(row.getLong(6));
      column(5).values.addBytes(base, keyAt, keySize);
      column(6).level(hasValue ? 1 : 0);
      if (hasValue) {
        column(6).values.addBytes(base, valueAt, valueSize);
      }
      for (int i = 0; i < leaves.length; i++) {
        addLeaf(row, leaves[i], kinds[i], column(7 + i));
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
    private static void addLeaf(UnsafeRow row, int[] way, char kind, Column to) throws Exception {
      SpecializedGetters in = row;
      int level = 0;
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
      for (int i = 0; i < columns.size(); i++) {
        bytesOfGroup += column(i).endPage();
      }
      rowsOfPages.add(Integer.valueOf(inPage));
      inPage = 0;
      bytesOfPage = 0;
    }

    private void endGroup() throws Exception {
      writer.startBlock(inGroup);
      for (int i = 0; i < columns.size(); i++) {
        Column one = column(i);
        writer.startColumn(one.descriptor, inGroup, CompressionCodecName.ZSTD);
        for (int j = 0; j < one.pages.size(); j++) {
          Object[] page = (Object[]) one.pages.get(j);
          int count = ((Integer) rowsOfPages.get(j)).intValue();
          // Nothing is said of minima and nulls: of what is not known, readers skip nothing. With
          // a count of rows, or statistics that are only empty, parquet-mr would write that each
          // page is null, and readers with a condition would find no row.
          Statistics unknown =
              Statistics.getBuilderForReading(one.descriptor.getPrimitiveType()).build();
          writer.writeDataPage(
              count, ((Integer) page[1]).intValue(), BytesInput.from((byte[]) page[0]), unknown,
              Encoding.RLE, Encoding.RLE, Encoding.PLAIN);
        }
        writer.endColumn();
        one.pages = new ArrayList();
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
      metadata.put("org.apache.spark.version", sparkVersion);
      writer.end(metadata);
      return operator + " " + rows + " " + bytes + " " + Long.toUnsignedString(sums[0]) + " "
          + Long.toUnsignedString(sums[1]) + " " + stray + " " + path;
    }

    void abort() {
      try {
        file.getFileSystem(conf).delete(file, false);
      } catch (java.io.IOException ignored) {
        // What stays is not in the table's log, so nobody reads it.
      }
    }
  }
}
