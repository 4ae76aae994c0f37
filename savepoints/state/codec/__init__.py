"""UnsafeRow: decoded, measured, encoded."""
