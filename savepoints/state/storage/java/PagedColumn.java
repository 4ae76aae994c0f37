import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import com.github.luben.zstd.Zstd;
import org.apache.parquet.bytes.BytesInput;
import org.apache.parquet.bytes.HeapByteBufferAllocator;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.Encoding;
import org.apache.parquet.column.statistics.Statistics;
import org.apache.parquet.column.values.rle.RunLengthBitPackingHybridEncoder;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * One column of a Parquet file: the page that grows, and pages that wait for the end of the row
 * group. They are data pages of version 1, plain, with definition levels where something may be
 * null (parquet-format, "Data Pages" and "Plain").
 */
public class PagedColumn {
  private static final int LEVEL = 1;

  protected final ColumnDescriptor descriptor;
  private final int maxLevel;
  public final Bytes values = new Bytes();
  /** How many values the page has, until the first that is null: those have the level maxLevel. */
  private int full = 0;
  /** The levels of all values of the page, once one is null. */
  private RunLengthBitPackingHybridEncoder levels = null;
  private List pages = new ArrayList();
  private byte[] buffer = new byte[0];

  public PagedColumn(ColumnDescriptor descriptor) {
    this.descriptor = descriptor;
    this.maxLevel = descriptor.getMaxDefinitionLevel();
  }

  public void level(int level) throws java.io.IOException {
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
  public int endPage() throws java.io.IOException {
    Bytes page = values;
    if (maxLevel > 0) {
      byte[] encoded = (levels == null ? begunLevels() : levels).toBytes().toByteArray();
      page = new Bytes();
      page.addBytes(encoded);
      page.addRaw(values.data, values.size);
      levels = null;
    }
    byte[] packed = packed(page);
    pages.add(new Object[] {packed, Integer.valueOf(page.size)});
    values.size = 0;
    return packed.length;
  }

  /**
   * Write the pages as this column's part of a row group, and forget them.
   *
   * Nothing is said of minima and nulls: of what is not known, readers skip nothing. With a count
   * of rows, or statistics that are only empty, parquet-mr would write that each page is null, and
   * readers with a condition would find no row.
   *
   * @param rowsOfPages how many rows each page has
   */
  public void write(ParquetFileWriter writer, long rows, List rowsOfPages)
      throws java.io.IOException {
    writer.startColumn(descriptor, rows, CompressionCodecName.ZSTD);
    writeDictionary(writer);
    Statistics unknown = Statistics.getBuilderForReading(descriptor.getPrimitiveType()).build();
    for (int i = 0; i < pages.size(); i++) {
      Object[] page = (Object[]) pages.get(i);
      writer.writeDataPage(
          ((Integer) rowsOfPages.get(i)).intValue(), ((Integer) page[1]).intValue(),
          BytesInput.from((byte[]) page[0]), unknown, Encoding.RLE, Encoding.RLE, encoding());
    }
    writer.endColumn();
    pages = new ArrayList();
  }

  void writeDictionary(ParquetFileWriter writer) throws java.io.IOException {}

  Encoding encoding() {
    return Encoding.PLAIN;
  }

  /** Compress a page by way of a buffer that stays. */
  byte[] packed(Bytes page) throws java.io.IOException {
    int most = (int) Zstd.compressBound(page.size);
    if (buffer.length < most) {
      buffer = new byte[most];
    }
    long length = Zstd.compressByteArray(buffer, 0, most, page.data, 0, page.size, LEVEL);
    if (Zstd.isError(length)) {
      throw new java.io.IOException("zstd: " + Zstd.getErrorName(length));
    }
    return Arrays.copyOf(buffer, (int) length);
  }

  /** Bytes of a column that grow, as values of Parquet's encoding `PLAIN`. */
  public static final class Bytes {
    byte[] data = new byte[1 << 16];
    int size = 0;

    private void reserve(int more) {
      if (size + more > data.length) {
        data = Arrays.copyOf(data, Math.max(data.length * 2, size + more));
      }
    }

    public void addByte(int value) {
      reserve(1);
      data[size++] = (byte) value;
    }

    public void addInt(int value) {
      reserve(4);
      Platform.putInt(data, Platform.BYTE_ARRAY_OFFSET + size, value);
      size += 4;
    }

    public void addLong(long value) {
      reserve(8);
      Platform.putLong(data, Platform.BYTE_ARRAY_OFFSET + size, value);
      size += 8;
    }

    public void addRaw(byte[] value, int length) {
      reserve(length);
      System.arraycopy(value, 0, data, size, length);
      size += length;
    }

    public void addBytes(byte[] value) {
      addInt(value.length);
      addRaw(value, value.length);
    }

    public void addText(UTF8String value) {
      int length = value.numBytes();
      addInt(length);
      reserve(length);
      value.writeToMemory(data, Platform.BYTE_ARRAY_OFFSET + size);
      size += length;
    }
  }
}
