import java.util.ArrayList;
import java.util.List;
import org.apache.parquet.bytes.BytesInput;
import org.apache.parquet.column.ColumnDescriptor;
import org.apache.parquet.column.Encoding;
import org.apache.parquet.column.page.DictionaryPage;
import org.apache.parquet.hadoop.ParquetFileWriter;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of few values: a page says how many rows in a row have the same one of a list
 * (parquet-format, "Dictionary Encoding" and "Run Length Encoding").
 */
public final class FewValues extends PagedColumn {
  /** Bytes of a number in the list, which are the width that an encoding by runs has. */
  private static final int WIDTH = 2;
  private final Bytes list = new Bytes();
  private final List known = new ArrayList();
  private Object last = null;
  private int id = 0;
  private int run = 0;

  public FewValues(ColumnDescriptor descriptor) {
    super(descriptor);
    values.addByte(WIDTH * 8);
  }

  /** Add a text or an integer; it is not changed afterwards. */
  public void add(Object value) {
    if (value != last && !value.equals(last)) {
      endRun();
      id = idOf(value);
    }
    last = value;
    run++;
  }

  private int idOf(Object value) {
    int found = known.indexOf(value);
    if (found >= 0) {
      return found;
    }
    if (known.size() >> (WIDTH * 8) > 0) {
      throw new IllegalStateException(descriptor + " has more than " + known.size() + " values");
    }
    known.add(value);
    if (value instanceof UTF8String) {
      list.addText((UTF8String) value);
    } else {
      list.addInt(((Integer) value).intValue());
    }
    return known.size() - 1;
  }

  /** Write a run: twice its length in groups of seven bits, the lowest first, and the number. */
  private void endRun() {
    if (run == 0) {
      return;
    }
    int length = run << 1;
    while (length >= 128) {
      values.addByte(length & 127 | 128);
      length >>>= 7;
    }
    values.addByte(length);
    values.addByte(id);
    values.addByte(id >>> 8);
    run = 0;
  }

  public int endPage() throws java.io.IOException {
    endRun();
    int size = super.endPage();
    values.addByte(WIDTH * 8);
    return size;
  }

  void writeDictionary(ParquetFileWriter writer) throws java.io.IOException {
    writer.writeDictionaryPage(
        new DictionaryPage(BytesInput.from(packed(list)), list.size, known.size(), Encoding.PLAIN));
  }

  Encoding encoding() {
    return Encoding.RLE_DICTIONARY;
  }
}
