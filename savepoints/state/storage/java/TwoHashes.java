import org.apache.spark.unsafe.Platform;

/**
 * Hashes bytes by xxHash64 with two seeds in one pass, as Spark's `XXH64.hashUnsafeBytes` does.
 *
 * The two chains of multiplications do not depend on each other, so a processor works on both at
 * once.
 */
public final class TwoHashes {
  private static final long P1 = 0x9E3779B185EBCA87L;
  private static final long P2 = 0xC2B2AE3D27D4EB4FL;
  private static final long P3 = 0x165667B19E3779F9L;
  private static final long P4 = 0x85EBCA77C2B2AE63L;
  private static final long P5 = 0x27D4EB2F165667C5L;

  /** The seeds of what is added next, and the hashes of what was added last. */
  public long first = 0;
  public long second = 0;

  public void add(byte[] data) {
    int size = data.length;
    int at = 0;
    long x = first + P5;
    long y = second + P5;
    if (size >= 32) {
      long x1 = first + P1 + P2;
      long x2 = first + P2;
      long x3 = first;
      long x4 = first - P1;
      long y1 = second + P1 + P2;
      long y2 = second + P2;
      long y3 = second;
      long y4 = second - P1;
      for (; at + 32 <= size; at += 32) {
        long word = word(data, at);
        x1 = round(x1, word);
        y1 = round(y1, word);
        word = word(data, at + 8);
        x2 = round(x2, word);
        y2 = round(y2, word);
        word = word(data, at + 16);
        x3 = round(x3, word);
        y3 = round(y3, word);
        word = word(data, at + 24);
        x4 = round(x4, word);
        y4 = round(y4, word);
      }
      x = merged(x1, x2, x3, x4);
      y = merged(y1, y2, y3, y4);
    }
    x += size;
    y += size;
    for (; at + 8 <= size; at += 8) {
      long word = round(0, word(data, at));
      x = Long.rotateLeft(x ^ word, 27) * P1 + P4;
      y = Long.rotateLeft(y ^ word, 27) * P1 + P4;
    }
    if (at + 4 <= size) {
      long half = (Platform.getInt(data, Platform.BYTE_ARRAY_OFFSET + at) & 0xFFFFFFFFL) * P1;
      x = Long.rotateLeft(x ^ half, 23) * P2 + P3;
      y = Long.rotateLeft(y ^ half, 23) * P2 + P3;
      at += 4;
    }
    for (; at < size; at++) {
      long one = (data[at] & 0xFFL) * P5;
      x = Long.rotateLeft(x ^ one, 11) * P1;
      y = Long.rotateLeft(y ^ one, 11) * P1;
    }
    first = mixed(x);
    second = mixed(y);
  }

  private static long word(byte[] data, int at) {
    return Platform.getLong(data, Platform.BYTE_ARRAY_OFFSET + at);
  }

  private static long round(long lane, long word) {
    return Long.rotateLeft(lane + word * P2, 31) * P1;
  }

  private static long merged(long a, long b, long c, long d) {
    long sum = Long.rotateLeft(a, 1) + Long.rotateLeft(b, 7) + Long.rotateLeft(c, 12)
        + Long.rotateLeft(d, 18);
    return with(with(with(with(sum, a), b), c), d);
  }

  private static long with(long hash, long lane) {
    return (hash ^ round(0, lane)) * P1 + P4;
  }

  private static long mixed(long hash) {
    hash = (hash ^ (hash >>> 33)) * P2;
    hash = (hash ^ (hash >>> 29)) * P3;
    return hash ^ (hash >>> 32);
  }
}
