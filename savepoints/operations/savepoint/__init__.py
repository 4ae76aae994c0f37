"""A savepoint taken, exported and restored."""
